"""What the papers' figures on real images leave open in the same way, and which image set each scale uses.

Which answers train was tried on MNIST under Zhang's attack (N = 400, SNR = 2, width 32, 30 epochs in batches of 16, or
300 full batches): the robust training loss ends at 0.3 by default and with a class token, 0.4 with tau / sqrt(M) of
every token, 1.2 without positions, 1.9 from divided weights and for the bare architecture, and at the class prior, 2.3,
with SGD, with gradient descent, and with tau of every token. Two classes reach 0.01.
"""

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
PARTS = {"cifar10": "cifar10_12k", "svhn": "svhn28_12k", "tiny_imagenet": "tinyimagenet20"}
"""the reduced set of a set"""
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


OPTIMISER = Question(
    "optimiser",
    "gradient descent at rate 0.1 is printed for synthetic data: how are the transformers trained on images?",
    {
        "adamw": "AdamW, rate 0.001, in mini-batches",
        "sgd": "momentum 0.9, rate 0.05, in mini-batches",
        "gradient_descent": "full batches, rate 0.1, as on synthetic data",
    },
    "under attack the others stayed at the class prior in our trials",
)
START = Question(
    "start",
    "are the initial weights divided by 16 as on synthetic data?",
    {"default": "no: PyTorch's default", "divided": "yes, as printed"},
    "divided weights stay near the class prior",
)
ARCHITECTURE = Question(
    "architecture",
    "has the transformer residual connections and layer norms?",
    {"full": "both, as vision transformers have", "bare": "neither, as the theory's network"},
    "without them training stays near the class prior",
)
POSITIONS = Question(
    "positions",
    "does a patch know its place?",
    {"learned": "by a learned vector", "none": "no"},
    "as vision transformers have it",
)
POOLING = Question(
    "pooling",
    "what does the last layer see?",
    {"mean": "the mean of all tokens", "cls": "a class token"},
    "the theory's network takes a mean over tokens",
)
CLASSES = Question(
    "classes",
    "how many classes?",
    {"all": "all of the set, cross-entropy", "two": "its first two, one signed output"},
    "the sets' own task",
)
TRANSFORMER = (OPTIMISER, START, ARCHITECTURE, POSITIONS, POOLING, CLASSES)
"""what is left open about every small vision transformer"""


def which_images(paper: str, *others: str) -> Question:
    """Whether to run on the paper's set, on another, or on the digits, which need no download."""
    answers = {
        "paper": f"{TITLES[paper]}; at smoke scale the digits, which need no download",
        "digits": f"{TITLES['digits']}, shipped with the package",
        **{other: TITLES[other] for other in others},
    }
    if paper in PARTS:
        answers["reduced"] = f"{TITLES[PARTS[paper]]}: {PARTS[paper]}.npz in the folder of data"
    return Question("images", "which images?", answers, "the paper's, where there is time for them")


def source_of(scale: str, reading: Reading, paper: str) -> str:
    """The image set that an answer to `images` means at a scale."""
    answer = reading["images"]
    if answer == "paper":
        return "digits" if scale == "smoke" else paper
    return PARTS.get(paper, paper) if answer == "reduced" else answer


def describe_images(result: xr.Dataset) -> str:
    """What a caption says of the images that were used."""
    return f"Images: {TITLES[specification(result)['data']['source']]}."


def facts_of(source: str) -> Facts:
    """What is known of a set without its files."""
    return {**KNOWN, **REDUCED}[source]
