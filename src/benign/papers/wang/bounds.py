"""Bounds of test errors on two clusters: below for any classifier (Theorem 3.2), above by the margin (Lemma 4.2)."""

from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import xarray as xr
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


def margin_per_norm(result: xr.Dataset) -> xr.DataArray:
    """min over y of E[y f | y] / ||W||_2 of the runs of a result, what Lemma B.14 bounds from below."""
    least = np.minimum(result.test_margin_positive, result.test_margin_negative)
    return least / result.spectral_norm


def margin_error_bound(
    result: xr.Dataset, radius: Any = 0.0, noise_std: float = 1.0
) -> xr.DataArray:
    """Lemma 4.2: error against clean labels in an l2 ball is at most mean_y exp(-(M_y/||W||_2 - alpha)^2 / 2 sigma^2).

    The constant of the lemma is 1/2 for Gaussian clusters, and its sum may be a mean (papers/wang.md
    2.4). NaN where its hypothesis M_y >= alpha ||W||_2 fails.
    """
    positive, negative = (
        margin / result.spectral_norm - radius
        for margin in (result.test_margin_positive, result.test_margin_negative)
    )
    terms = [np.exp(-((room / noise_std) ** 2) / 2) for room in (positive, negative)]
    return ((terms[0] + terms[1]) / 2).where((positive >= 0) & (negative >= 0))


def _double(number: Number) -> Numbers:
    return torch.as_tensor(number, dtype=torch.float64)
