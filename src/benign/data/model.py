"""What every data model offers: labelled samples with their latent parts, drawn from the runs' own streams."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benign.axes import Shape
from benign.spec import Component, Count
from benign.streams import Streams


@dataclass(frozen=True)
class Sample:
    """Labelled points of a batch of runs, with what generated them."""

    x: Float[Tensor, "runs samples tokens dim"]
    y: Float[Tensor, "runs samples"]
    """observed labels: -1 or +1, or 0 to k - 1 with k classes"""
    clean_y: Float[Tensor, "runs samples"]
    """labels before any flip"""
    latent: dict[str, Tensor] = field(default_factory=dict)
    """generating parts by name, each with a leading runs axis (`signal`: the two signal vectors [runs, 2, dim])"""

    def select(self, keep: Tensor) -> "Sample":
        """The same sample for some of the runs (indices or a mask)."""
        latent = {name: part[keep] for name, part in self.latent.items()}
        return Sample(self.x[keep], self.y[keep], self.clean_y[keep], latent)


class DataModel(Component):
    """A distribution of labelled points made of tokens."""

    samples: Shape[Count]
    """number of training points N"""
    tokens: Shape[Count]
    """tokens of a point, M"""
    dim: Shape[Count]
    """dimension of a token, d"""

    @abstractmethod
    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        """Draw `count` points a run from the streams of `split` ("train", "test/0", ...)."""

    def signal_norm(self) -> Any:
        """Length of the signal, by which a radius may be measured; None where the model has no such length."""
        return None

    def flip_chance(self, sample: Sample) -> Float[Tensor, "runs samples"]:
        """Chance that the label of a fresh point would be flipped as in training, given the point."""
        return torch.zeros_like(sample.y)

    def least_robust_error(self, p: Any, radius: Any, per: str) -> Any:
        """Lower bound of the error of any classifier on fresh points moved by up to the radius, a number or one a run.

        0 where none is known.
        """
        return 0.0

    def label_count(self) -> int | None:
        """k where labels are classes 0 to k - 1; None where they are -1 and +1."""
        return None


def signed_labels(
    streams: Streams, split: str, count: int, dtype: torch.dtype, *, balanced: bool
) -> Float[Tensor, "runs samples"]:
    """Labels -1 and +1: independent and fair, or alternating, so that there are as many of each."""
    if not balanced:
        return streams(f"{split}/labels").signs(count, dtype=dtype)
    alternate = 1 - 2 * (torch.arange(count, device=streams.device) % 2)
    return alternate.to(dtype).expand(len(streams), count)
