"""Two digits in Wang et al.: every picture of a 0 or a 1 scaled to one norm r (papers/wang.md 3.1, figures 4 to 6)."""

import math
from dataclasses import dataclass
from typing import Any

import xarray as xr

from benign.attacks.pgd import PGD
from benign.claims.study import Reading
from benign.data.constructions import Rescaled
from benign.data.images import Images
from benign.experiment import Experiment
from benign.papers.image_questions import source_of, which_images
from benign.papers.recipes import Scaled
from benign.papers.wang.setting import PAPER, Size, ball, experiment
from benign.training.setup import Evaluation

IMAGES = which_images("mnist")
MNIST_DIMS = (25, 49, 100, 196, 289, 400, 576, 784)
"""pixels of a picture; the paper says 25 to 784, resampled"""
DIGITS_DIMS = (9, 16, 25, 36, 49, 64)
FEW_TESTS = 50
"""of the 58 test images of 0 and 1 among the digits"""
SIZES = Scaled(
    smoke=Size(samples=20, width=20, steps=40, ascend=4, seeds=1, test=FEW_TESTS),
    quick=Size(samples=100, width=100, steps=500, ascend=5, seeds=3, test=500),
    paper=PAPER,
)


@dataclass(frozen=True)
class Figure:
    """A figure at one scale, on one image set."""

    size: Size
    source: str
    dims: tuple[int, ...]
    """pixels of a picture, up to the set's own size"""

    def data(self, norm: Any, dim: Any) -> Images:
        return Images(
            source=self.source,
            samples=self.size.samples,
            dim=dim,
            classes=(0, 1),
            labels="signed",
            construction=Rescaled(norm=norm),
        )

    def tests(self, reading: Reading, radius: Any, at: Any = "end") -> Evaluation:
        """Judged by the paper's own attack."""
        judge = PGD(ball=ball(reading, radius), steps=20, step=0.2, keep="best")
        few = self.source == "digits"
        return Evaluation(samples=FEW_TESTS if few else self.size.test, attack=judge, at=at)

    def experiment(
        self, reading: Reading, *, norm: Any, dim: Any, radius: Any, at: Any = "end"
    ) -> Experiment:
        """As on synthetic data, without flipped labels; cells share images, initial weights and test points."""
        return experiment(
            self.size,
            reading,
            data=self.data(norm, dim),
            radius=radius,
            evaluation=self.tests(reading, radius, at),
            pairing="common",
        )


def figure(scale: str, reading: Reading) -> Figure:
    source = source_of(scale, reading, "mnist")
    dims = DIGITS_DIMS if source == "digits" else MNIST_DIMS
    return Figure(SIZES[scale], source, dims)


def named(result: xr.Dataset) -> xr.Dataset:
    """With the paper's words for its axes."""
    told = {
        "norm": {"long_name": "norm of every picture", "symbol": "r"},
        "dim": {"long_name": "pixels of a picture", "symbol": "d"},
    }
    return result.assign_coords(
        {
            name: result[name].assign_attrs(attrs)
            for name, attrs in told.items()
            if name in result.coords
        }
    )


def default_std(dim: int) -> float:
    """Standard deviation of PyTorch's default weights."""
    return 1 / math.sqrt(3 * dim)
