"""Small vision transformers on real images, as Zhang et al. and Jiang et al. train them, under a reading."""

from dataclasses import dataclass
from typing import Any

from benign.claims.study import Reading
from benign.data.constructions import Construction
from benign.data.images import Images
from benign.networks.vision_transformer import VisionTransformer
from benign.papers.image_questions import REDUCED, facts_of
from benign.spec.axes import linspace
from benign.training.optimisers import SGD, AdamW, GradientDescent, Training

SHARE = 0.9
"""of the images of two classes, taken as equally frequent, that surely are there"""


@dataclass(frozen=True, kw_only=True)
class Size:
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
    size: Size, reading: Reading, source: str, patch: int, construction: Construction
) -> Images:
    """Pictures of a set in patches of `patch` pixels a side; fewer training images where the set has no more."""
    facts = facts_of(source)
    two = reading["classes"] == "two"
    own = tuple(range(facts.classes)) if source in REDUCED else None
    return Images(
        source=source,
        samples=_numbers(size, room(source, reading)[0]),
        tokens=(facts.side // patch) ** 2,
        dim=facts.channels * patch**2,
        channels=3 if source in REDUCED else None,
        classes=(0, 1) if two else own,
        labels="signed" if two else "classes",
        construction=construction,
    )


def room(source: str, reading: Reading) -> tuple[int, int]:
    """Training and test images there are of the classes used."""
    facts = facts_of(source)
    share = SHARE * 2 / facts.classes if reading["classes"] == "two" else 1.0
    return int(share * facts.train), int(share * facts.test)


def _numbers(size: Size, most: int) -> list[int]:
    """Evenly spaced numbers of training images; all are fewer where the largest is more than there are."""
    low, high, count = size.samples
    factor = min(1.0, most / high)
    return [int(factor * each) for each in linspace(low, high, count)]


def count_tests(size: Size, reading: Reading, source: str) -> int:
    """Test images of a run: the size's, or all there are."""
    return min(size.test, room(source, reading)[1])


def ratios(size: Size) -> list[float]:
    """Signal-to-noise ratios of a figure."""
    return linspace(*size.ratios)


def transformer(size: Size, reading: Reading, classes: int | None) -> VisionTransformer:
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


def training(size: Size, reading: Reading) -> Training:
    """At a constant rate to a loss of 0.01, as on synthetic data."""
    if reading["optimiser"] == "gradient_descent":
        return GradientDescent(rate=0.1, stop_loss=0.01, max_steps=10 * size.epochs)
    steps: dict[str, Any] = {"epochs": size.epochs, "batch": size.batch, "stop_loss": 0.01}
    if reading["optimiser"] == "sgd":
        return SGD(rate=0.05, schedule="constant", **steps)
    return AdamW(rate=0.001, schedule="constant", **steps)
