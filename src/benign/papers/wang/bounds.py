"""What no classifier can do better on two clusters with flipped labels (papers/wang.md 2.3, Theorem 3.2)."""

from typing import Literal, TypeAlias

import torch
from jaxtyping import Float64
from torch import Tensor

Number: TypeAlias = float | Tensor
"""a number, or a tensor of them; numbers of one call broadcast against each other"""
Numbers: TypeAlias = Float64[Tensor, "*shape"]


def gaussian_overlap(distance: Number, noise_std: Number = 1.0) -> Numbers:
    """I(v) = int min(p(xi), p(xi + v)) dxi of a Gaussian cluster: 2 Phi(-|v| / (2 sigma)).

    The two densities cross on the hyperplane halfway between their centres.
    """
    return 2 * torch.special.ndtr(-_double(distance) / (2 * _double(noise_std)))


def error_floor(
    overlap: Number, flip: Number = 0.0, version: Literal["printed", "sharp"] = "sharp"
) -> Numbers:
    """The robust error that every classifier has at least, for alpha < |mu|.

    `printed` is beta + (1 - 2 beta)/4 I(v) with v = 2 (1 - alpha/|mu|) mu (Theorem 3.2). `sharp` has
    1/2 for 1/4: the proof averages four errors of which two already sum to 1.
    """
    beta, share = _double(flip), {"printed": 0.25, "sharp": 0.5}[version]
    return beta + (1 - 2 * beta) * share * _double(overlap)


def robust_error_floor(
    signal: Number,
    radius: Number,
    flip: Number = 0.0,
    noise_std: Number = 1.0,
    version: Literal["printed", "sharp"] = "sharp",
) -> Numbers:
    """The same for Gaussian clusters, in an l2 ball of radius alpha; 1/2 where alpha >= |mu|.

    `sharp`: beta + (1 - 2 beta) Phi(-(|mu| - alpha)/sigma), which sign<mu, x> attains at beta = 0.
    `printed`: half of what is added to beta. Flips are independent of the points; the error is
    against flipped labels, and against clean ones it is the floor at beta = 0.
    """
    gap = _double(signal) - _double(radius)
    floor = error_floor(gaussian_overlap(2 * gap.clamp_min(0), noise_std), flip, version)
    return torch.where(gap > 0, floor, 0.5)


def _double(number: Number) -> Numbers:
    return torch.as_tensor(number, dtype=torch.float64)
