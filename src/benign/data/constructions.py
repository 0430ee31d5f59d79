"""Constructions: how each paper scales images and covers them with noise before a network sees them."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.model import column
from benign.spec.axes import PerRun, default
from benign.spec.base import Count, NonNegative, Positive
from benign.spec.registry import Component
from benign.streams import Streams

Pictures = Float[Tensor, "runs samples channels height width"]


class Construction(Component):
    """A change of pictures whose pixels are between 0 and 1. Noise is drawn once for a point of a run, and stays."""

    @abstractmethod
    def apply(self, pictures: Pictures, streams: Streams, split: str) -> Pictures:
        """Return the changed pictures, with draws from the streams of `split`."""

    def signal_norm(self) -> Any:
        """Return the length of a picture before noise, by which a radius may be measured, or None if it varies."""
        return None

    def check_size(self, side: int) -> None:
        """Raise ValueError if pictures with sides of this many pixels cannot be changed in this way."""


class Plain(Construction):
    """The picture unchanged.

    >>> import benign as bo
    >>> bo.Images(source="digits", samples=100).construction
    Plain()
    """

    def apply(self, pictures: Pictures, streams: Streams, split: str) -> Pictures:
        return pictures


class Rescaled(Construction):
    """Every picture scaled to one norm (Wang et al. section 5, MNIST).

    >>> import benign as bo
    >>> bo.Rescaled(norm=2.0).signal_norm()
    2.0
    """

    norm: PerRun[Positive]
    """l2 norm r of every picture"""

    def apply(self, pictures: Pictures, streams: Streams, split: str) -> Pictures:
        return of_norm(pictures, self.norm)

    def signal_norm(self) -> Any:
        return self.norm


class PixelNoise(Construction):
    """Every picture scaled to one norm, then Gaussian noise on every pixel (Zhang et al. section 6, MNIST).

    The noise has standard deviation norm / (snr sqrt(d)) where d counts all numbers of a picture.

    >>> import benign as bo
    >>> bo.PixelNoise(snr=2.0).signal_norm()
    5.0
    """

    norm: PerRun[Positive] = default(5.0)
    """l2 norm |mu| of a picture before noise"""
    snr: PerRun[Positive]
    """signal-to-noise ratio |mu| / (sigma sqrt(d))"""

    def apply(self, pictures: Pictures, streams: Streams, split: str) -> Pictures:
        noise = _noise(pictures, streams, split)
        std = column(self.norm, noise) / column(self.snr, noise) / pictures[0, 0].numel() ** 0.5
        return of_norm(pictures, self.norm) + noise * std

    def signal_norm(self) -> Any:
        return self.norm


class FrameNoise(Construction):
    """a times the picture plus 1 - a times Gaussian noise on its outer frame (Jiang et al. section 6, MNIST).

    >>> import benign as bo
    >>> bo.FrameNoise(snr=0.25).share()  # of the picture
    0.2
    """

    snr: PerRun[NonNegative]
    """signal-to-noise ratio a / (1 - a)"""
    width: Count = 4
    """pixels of the frame"""
    noise_std: PerRun[Positive] = default(1.0)
    """standard deviation of the noise before it is multiplied; pixels of the picture are between 0 and 1"""

    def share(self) -> Any:
        """Return a, the factor of the picture."""
        return self.snr / (1 + self.snr)

    def apply(self, pictures: Pictures, streams: Streams, split: str) -> Pictures:
        noise = _noise(pictures, streams, split)
        inner = slice(self.width, -self.width)
        noise[..., inner, inner] = 0
        a = column(self.share(), pictures)
        return a * pictures + (1 - a) * column(self.noise_std, noise) * noise

    def check_size(self, side: int) -> None:
        if 2 * self.width >= side:
            raise ValueError(
                f"`construction.width` must be less than half of {side}, the pixels of a side, got {self.width}"
            )


def of_norm(pictures: Pictures, norm: Any) -> Pictures:
    """Return every picture scaled to this l2 norm; a black picture stays black."""
    sizes = torch.linalg.vector_norm(pictures, dim=(2, 3, 4), keepdim=True)
    return pictures * (column(norm, pictures) / sizes.clamp_min(torch.finfo(sizes.dtype).tiny))


def _noise(pictures: Pictures, streams: Streams, split: str) -> Pictures:
    return streams(f"{split}/noise").normal(*pictures.shape[1:], dtype=pictures.dtype)
