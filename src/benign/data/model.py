"""What every data model offers: labelled samples with their latent parts, drawn from the runs' own streams."""

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from benign.spec.axes import Shape, replace
from benign.spec.base import Count
from benign.spec.registry import Component
from benign.streams import Streams

BLOCK = 250
"""test points are drawn in blocks, each from its own stream: memory stays bounded, and the draws do not depend on it"""


@dataclass(frozen=True)
class Sample:
    """Labelled points of a batch of runs, with the random parts that they are made of."""

    x: Float[Tensor, "runs samples tokens dim"]
    """the points"""
    y: Float[Tensor, "runs samples"]
    """observed labels: -1 or +1, or 0 to k - 1 with k classes"""
    clean_y: Float[Tensor, "runs samples"]
    """labels before any flip"""
    latent: dict[str, Tensor] = field(default_factory=dict)
    """random parts that the points are made of, by name, each [runs, ...] (`signal`: both signals, [runs, 2, dim])"""

    def points(
        self, places: Int64[Tensor, "runs chosen"], shared: Collection[str] = ()
    ) -> "Sample":
        """Return the points of every run at these places.

        shared: names of latent parts that belong to no single point.
        """

        def chosen(part: Tensor) -> Tensor:
            index = places.reshape(*places.shape, *[1] * (part.ndim - 2))
            return part.gather(1, index.expand(-1, -1, *part.shape[2:]))

        latent = {
            name: part if name in shared else chosen(part) for name, part in self.latent.items()
        }
        return Sample(chosen(self.x), chosen(self.y), chosen(self.clean_y), latent)

    def copy_(self, other: "Sample") -> None:
        """Copy the numbers of another sample of the same size, in place."""
        if other is self:
            return
        for tensor, source in zip(self._tensors(), other._tensors(), strict=True):
            tensor.copy_(source)

    def _tensors(self) -> list[Tensor]:
        return [self.x, self.y, self.clean_y, *self.latent.values()]

    def select(self, keep: Tensor | slice) -> "Sample":
        """Return the sample of some of the runs (indices, a mask or a slice)."""
        latent = {name: part[keep] for name, part in self.latent.items()}
        return Sample(self.x[keep], self.y[keep], self.clean_y[keep], latent)


class DataModel(Component):
    """A distribution of labelled points made of tokens."""

    latent_vectors: ClassVar[tuple[str, ...]] = ("signal",)
    """names of the latent parts [runs, count, dim] that are vectors of token space, as far as a sample has them"""

    samples: Shape[Count]
    """number of training points N"""
    tokens: Shape[Count]
    """number of tokens M of a point"""
    dim: Shape[Count]
    """dimension d of a token"""

    @abstractmethod
    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        """Draw `count` points a run from the streams of `split` ("train", "test/0", ...)."""

    def require(self, tests: int) -> None:
        """Raise ValueError if files that points are drawn from are missing, or have too few points for the tests."""

    def absent(self) -> str | None:
        """Return a message with the remedy if files that points are drawn from are missing, or None."""
        return None

    def file_set(self) -> str | None:
        """Return the name of the files that points are drawn from, or None if they are drawn from random numbers.

        A record names them by kind and name: `images mnist`.
        """
        return None

    @classmethod
    def fingerprint_of(cls, file_set: str) -> str | None:
        """Return a digest of these files, or None if they are not on this machine."""
        return None

    def fingerprint(self) -> str | None:
        """Return a digest of the files that points are drawn from, or None if there is nothing to digest."""
        name = self.file_set()
        return None if name is None else self.fingerprint_of(name)

    def views(self) -> "dict[str, DataModel]":
        """Return models of the same draws that show a part of every point only, by the name of the part."""
        return {}

    def picture_shape(self) -> tuple[int, int, int] | None:
        """Return channels, rows and columns of a point that is a picture, or None if points are no pictures."""
        return None

    def most_tests(self) -> int | None:
        """Return the number of test points that exist, or None if any number can be drawn."""
        return None

    def signal_norm(self) -> Any:
        """Return the length of the signal, by which a radius may be measured, or None if there is no such length."""
        return None

    def flip_rate(self) -> Any:
        """Return the probability that a training label is flipped, a number or one a run.

        If it is above 0, errors against flipped labels are measured too.
        """
        return 0.0

    def flip_chance(self, sample: Sample) -> Float[Tensor, "runs samples"]:
        """Return the probability that the label of each test point is flipped, given the point."""
        return column(self.flip_rate(), sample.y).expand_as(sample.y)

    def least_robust_error(self, p: Any, radius: Any, per: str) -> Any:
        """Return a lower bound of the robust error of every classifier on test points, a number or one a run.

        0 if no bound is known.
        """
        return 0.0

    def label_count(self) -> int | None:
        """Return k if labels are classes 0 to k - 1, or None if they are -1 and +1."""
        return None

    # The methods below are called by benign.reduction.

    def axis_count(self) -> int:
        """Return the number of vectors in the parts that `latent_vectors` names."""
        return 0

    def noise_count(self) -> int:
        """Return the number of training tokens that span all training tokens, together with the latent vectors."""
        return self.samples * self.tokens

    def noise_tokens(self, sample: Sample) -> Float[Tensor, "runs rows dim"]:
        """Return the tokens that `noise_count` counts."""
        return sample.x.flatten(1, 2)

    def reduced(self, dim: int) -> "DataModel":
        """Return the model in `dim` coordinates: latent vectors, of the same lengths, along the first axes."""
        return replace(self, {("dim",): dim})

    def why_not_gaussian(self) -> str | None:
        """Return why the law of points changes in a rotation of R^dim, or None if it does not change.

        None promises that training tokens are functions of the latent vectors and of the standard normals
        [noise_count, dim] of the stream `train/noise`, and test points likewise.
        """
        return f"`data` ({self.kind}) does not declare that its noise is Gaussian"


def column(value: Any, like: Tensor) -> Tensor:
    """Return a number of each run, or one for all runs, as a tensor that multiplies `like` [runs, ...]."""
    # A number is filled in on the device: a GPU could not record a copy to it.
    value = value.to(like) if isinstance(value, Tensor) else like.new_full((), value)
    return value.reshape(-1, *[1] * (like.ndim - 1))


def signed_labels(
    streams: Streams, split: str, count: int, dtype: torch.dtype, *, balanced: bool
) -> Float[Tensor, "runs samples"]:
    """Return labels -1 and +1: independent with probability 1/2 each, or alternating if balanced."""
    if not balanced:
        return streams(f"{split}/labels").signs(count, dtype=dtype)
    alternate = 1 - 2 * (torch.arange(count, device=streams.device) % 2)
    return alternate.to(dtype).expand(len(streams), count)
