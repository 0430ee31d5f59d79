"""The data of Kou et al. (Definition 1.1): a signal patch, a noise patch, and training labels that may be flipped."""

import torch

from benign.parts import (
    Count,
    DataModel,
    FlipRate,
    PerRun,
    Positive,
    Sample,
    Shape,
    column,
    default,
)


class TwoPatches(DataModel):
    """x = (y mu, xi): mu lies along the first axis, xi is Gaussian and orthogonal to it."""

    tokens: Shape[Count] = default(2)
    """patches of a point: always these two"""
    signal: PerRun[Positive]
    """length of the signal, |mu|"""
    noise_std: PerRun[Positive] = default(1.0)
    """noise of one coordinate, sigma_p"""
    flip: PerRun[FlipRate] = default(0.0)
    """chance p that a training label is flipped"""

    def check(self) -> None:
        if self.tokens != 2 or self.dim < 2:
            raise ValueError(f"two patches of 2 or more numbers, got {self.tokens} of {self.dim}")

    def sample(self, streams, split, count, dtype) -> Sample:
        clean = streams(f"{split}/labels").signs(count, dtype=dtype)
        noise = streams(f"{split}/noise").normal(count, self.dim, dtype=dtype)
        noise *= column(self.noise_std, noise)
        noise[..., 0] = 0
        mu = torch.zeros_like(noise[:, :1])
        mu[..., 0] = column(self.signal, mu[..., 0])
        x = torch.stack((clean[..., None] * mu, noise), dim=2)
        chance = streams(f"{split}/flips").uniform(count, dtype=torch.float64)
        flipped = (chance < column(self.flip, chance)) & (split == "train")
        return Sample(x, torch.where(flipped, -clean, clean), clean, {"signal": mu})

    def signal_norm(self):
        return self.signal

    def flip_rate(self):
        return self.flip
