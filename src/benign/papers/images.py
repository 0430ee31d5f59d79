"""Real images: which sets figures use, what papers leave open about them, the vision transformers that they train.

Which answers train was tried on MNIST under Zhang's attack (N = 400, SNR = 2, width 32, 30 epochs in batches of 16, or
300 full batches): the robust training loss ends at 0.3 by default and with a class token, 0.4 with tau / sqrt(M) of
every token, 1.2 without positions, 1.9 from divided weights and for the bare architecture, and at the class prior, 2.3,
with SGD, with gradient descent, and with tau of every token. Two classes reach 0.01.
"""

from dataclasses import dataclass
from typing import Any

import torch
import xarray as xr

from benign.claims.study import Question, Reading
from benign.data.constructions import Construction
from benign.data.images import Images
from benign.data.sources import KNOWN, Facts
from benign.experiment import Experiment, specification
from benign.networks.vision_transformer import VisionTransformer
from benign.plot.bars import PictureRow, pictures_figure
from benign.plot.style import Figure
from benign.spec import axes
from benign.spec.axes import linspace
from benign.streams import RunId, Streams
from benign.training.optimisers import SGD, AdamW, GradientDescent, Training

# Image sets, and questions.


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


# Small vision transformers, as Zhang et al. and Jiang et al. train them.


SHARE = 0.9
"""of the images of two classes, taken as equally frequent, that surely are there"""


@dataclass(frozen=True, kw_only=True)
class ImageSize:
    """A figure at one scale."""

    samples: tuple[int, int, int]
    """smallest and largest number of training images, and how many numbers"""
    ratios: tuple[float, float, int]
    """smallest and largest signal-to-noise ratio, and how many ratios"""
    hidden: int = 128
    epochs: int
    """most epochs; full-batch training has ten times as many steps"""
    batch: int = 64
    ascend: int = 20
    """steps of the training attack"""
    judge: int = 20
    """steps of each ascent of the test attack"""
    test: int
    seeds: int = 1


def images(
    size: ImageSize, reading: Reading, source: str, patch: int, construction: Construction
) -> Images:
    """Pictures of a set in patches of `patch` pixels a side; fewer training images where the set has no more."""
    facts = facts_of(source)
    two = reading["classes"] == "two"
    own = tuple(range(facts.classes)) if source in REDUCED else None
    return Images(
        source=source,
        samples=_sample_sizes(size, image_counts(source, reading)[0]),
        tokens=(facts.side // patch) ** 2,
        dim=facts.channels * patch**2,
        channels=3 if source in REDUCED else None,
        classes=(0, 1) if two else own,
        labels="signed" if two else "classes",
        construction=construction,
    )


def image_counts(source: str, reading: Reading) -> tuple[int, int]:
    """Training and test images there are of the classes used."""
    facts = facts_of(source)
    share = SHARE * 2 / facts.classes if reading["classes"] == "two" else 1.0
    return int(share * facts.train), int(share * facts.test)


def _sample_sizes(size: ImageSize, most: int) -> list[int]:
    """Evenly spaced numbers of training images; all are fewer where the largest is more than there are."""
    low, high, count = size.samples
    factor = min(1.0, most / high)
    return [int(factor * each) for each in linspace(low, high, count)]


def count_tests(size: ImageSize, reading: Reading, source: str) -> int:
    """Test images of a run: the size's, or all there are."""
    return min(size.test, image_counts(source, reading)[1])


def ratios(size: ImageSize) -> list[float]:
    """Signal-to-noise ratios of a figure."""
    return linspace(*size.ratios)


def transformer(size: ImageSize, reading: Reading, classes: int | None) -> VisionTransformer:
    """Two attention layers of four heads, then an MLP with ReLU."""
    whole = reading["architecture"] == "full"
    return VisionTransformer(
        hidden=size.hidden,
        mlp=size.hidden,
        classes=classes,
        residual=whole,
        layer_norm=whole,
        positions=reading["positions"],  # pyright: ignore[reportArgumentType]
        pool=reading["pooling"],  # pyright: ignore[reportArgumentType]
        divide_by=16.0 if reading["start"] == "divided" else 1.0,
    )


def training(size: ImageSize, reading: Reading) -> Training:
    """At a constant rate to a loss of 0.01, as on synthetic data."""
    if reading["optimiser"] == "gradient_descent":
        return GradientDescent(rate=0.1, stop_loss=0.01, max_steps=10 * size.epochs)
    steps: dict[str, Any] = {"epochs": size.epochs, "batch": size.batch, "stop_loss": 0.01}
    if reading["optimiser"] == "sgd":
        return SGD(rate=0.05, schedule="constant", **steps)
    return AdamW(rate=0.001, schedule="constant", **steps)


# Sample pictures: training pictures at the smallest and at the largest signal-to-noise ratio.


PICTURES = 8


def sample_pictures(result: xr.Dataset, name: str, caption: str) -> dict[str, Figure]:
    """Return a figure of training pictures under its name; empty if the image set is not on this machine."""
    experiment = Experiment.from_dict(specification(result))
    cells = [cell.data for _, cell in axes.cells(experiment)]
    ends = [min(cells, key=_ratio_of), max(cells, key=_ratio_of)]
    if ends[0].absent():
        return {}
    rows = [PictureRow(f"SNR = {_ratio_of(data):g}", _pictures(data)) for data in ends]
    return {name: pictures_figure(rows, title="Training pictures", caption=caption)}


def _ratio_of(data: Images) -> float:
    return data.construction.snr  # pyright: ignore[reportAttributeAccessIssue]


def _pictures(data: Images):
    """The same pictures for every ratio: draws do not depend on it."""
    sample = data.sample(Streams([RunId(0, 0, "")]), "train", PICTURES, torch.float32)
    return data.pictures(sample.x)[0].numpy()
