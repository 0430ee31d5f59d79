"""Gaussian points and weights in a basis of their own span, which is never computed.

Signals are the first axes. All noise tokens and weight rows together are Gaussian vectors of R^d; in their
Gram-Schmidt basis they are the rows of a Bartlett factor, and d is a number of degrees of
freedom (papers/jiang.md 7.2, papers/wang.md 6.2).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from benign.bartlett import bartlett
from benign.streams import Stream, Streams


def standard_rows(
    streams: Streams, rows: int, axes: int, dim: int
) -> Float64[Tensor, "runs rows small"]:
    """Draw standard Gaussian vectors of R^dim: their components along `axes` fixed axes, then in their own basis."""
    streams = streams.within("coordinates")
    along = streams("along").normal(rows, axes)
    return torch.cat([along, bartlett(streams, rows, dim - axes)], dim=2)


class GivenNormals(Streams):
    """Random streams in which the standard normals of one purpose are replaced by given numbers.

    A part (`within`) or a selection of these streams would draw ordinary normals, so both are errors.
    """

    def __init__(self, streams: Streams, purpose: str, normals: Float[Tensor, "runs *shape"]):
        super().__init__(streams.runs, streams.device)
        self._streams, self._purpose, self._normals = streams, purpose, normals

    def __call__(self, purpose: str) -> Stream:
        stream = self._streams(purpose)
        return _Given(stream, self._normals) if purpose == self._purpose else stream

    def within(self, part: str) -> Streams:
        raise ValueError(
            f"`streams.within({part!r})` is not possible with sampled coordinates, where the normals of "
            f"{self._purpose!r} are given: draw from `streams(purpose)`, or use `coordinates: projected`"
        )

    def __getitem__(self, keep: slice | Sequence[int]) -> Streams:
        raise ValueError(
            f"`streams[...]` is not possible with sampled coordinates, where the normals of {self._purpose!r} "
            "are given for all runs: draw for all of them, or use `coordinates: projected`"
        )


class _Given(Stream):
    def __init__(self, stream: Stream, normals: Tensor):
        super().__init__(stream.keys, stream.device)
        self._normals = normals

    def normal(
        self, *shape: int, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "runs *shape"]:
        return self._normals.reshape(-1, *shape).to(dtype, copy=True)
