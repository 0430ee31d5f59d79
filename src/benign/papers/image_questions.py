"""What the papers' figures on real images leave open in the same way, and which image set each scale uses."""

import xarray as xr

from benign.claims.study import Question, Reading
from benign.data.sources import KNOWN, Facts
from benign.experiment import specification

REDUCED = {
    "cifar10_12k": Facts(3, 32, 10, 10_000, 2_000),
    "svhn28_12k": Facts(3, 28, 10, 10_000, 2_000),
    "tinyimagenet20": Facts(3, 64, 20, 10_000, 1_000),
}
"""parts of CIFAR-10, SVHN and Tiny-ImageNet as .npz files (docs/images.md): 12,000 images; every tenth class"""
TITLES = {
    "digits": "8 x 8 digits",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar10_12k": "CIFAR-10, 12,000 of its images",
    "svhn": "SVHN",
    "svhn28_12k": "SVHN at 28 x 28 pixels, 12,000 of its images",
    "tiny_imagenet": "Tiny-ImageNet",
    "tinyimagenet20": "Tiny-ImageNet, 20 of its 200 classes",
}
"""how captions call the sets"""


def which_images(paper: str, *others: str) -> Question:
    """Whether to run on the paper's set, on another, or on the digits, which need no download."""
    answers = {
        "paper": f"{TITLES[paper]}; at smoke scale the digits, which need no download",
        "digits": f"{TITLES['digits']}, shipped with the package",
        **{other: TITLES[other] for other in others},
    }
    return Question("images", "which images?", answers, "the paper's, where there is time for them")


def source_of(scale: str, reading: Reading, paper: str) -> str:
    """The image set that an answer to `images` means at a scale."""
    answer = reading["images"]
    if answer == "paper":
        return "digits" if scale == "smoke" else paper
    return answer


def images_told(result: xr.Dataset) -> str:
    """What a caption says of the images that were used."""
    return f"Images: {TITLES[specification(result)['data']['source']]}."


def facts_of(source: str) -> Facts:
    """What is known of a set without its files."""
    return {**KNOWN, **REDUCED}[source]
