"""Augmented signal-noise data: copies of the training points with injected noise (Zhang et al., guideline 2)."""

import torch
from torch.nn.functional import normalize

from benign.data.model import Sample, column
from benign.data.signal_noise import SignalNoise, project_off
from benign.spec.axes import PerRun, Shape
from benign.spec.base import Count, NonNegative
from benign.streams import Streams


class NoisyCopies(SignalNoise):
    """Signal-noise data with `copies` copies of each training point (Zhang et al., guideline 2).

    The copies of a point have the same signal, label and noise; fresh Gaussian noise is added to every noise token of
    every copy. `samples` counts all copies, so that samples / copies points are drawn. Test points are as in
    `SignalNoise`.

    >>> data = NoisyCopies(samples=40, copies=4, injected_std=0.5, tokens=3, dim=50, snr=2.0, noise_std=0.5)
    >>> data.samples // data.copies  # points that were drawn
    10
    """

    copies: Shape[Count]
    """number K of copies of a point"""
    injected_std: PerRun[NonNegative]
    """standard deviation of a coordinate of the injected noise"""

    def check(self) -> None:
        super().check()
        if self.samples % self.copies:
            raise ValueError(
                f"`samples` counts all copies and must be a multiple of copies={self.copies}, got {self.samples}"
            )

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        if split != "train":
            return super().sample(streams, split, count, dtype)
        drawn = super().sample(streams, split, -(-count // self.copies), dtype)
        x, y, clean = (
            part.repeat_interleave(self.copies, 1)[:, :count]
            for part in (drawn.x, drawn.y, drawn.clean_y)
        )
        noise = streams("train/injected").normal(count, self.tokens - 1, self.dim, dtype=dtype)
        noise *= column(self.injected_std, noise)
        if self.projected:
            project_off(noise, normalize(drawn.latent["signal"], dim=2))
        x[:, :, 1:] += noise
        return Sample(x, y, clean, drawn.latent)

    def why_not_gaussian(self) -> str:
        return f"`data` ({self.kind}) has copies, whose noise is not independent: use `coordinates: projected`"
