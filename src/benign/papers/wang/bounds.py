"""Test errors on two clusters and what the proofs of Wang et al. print in numbers (papers/wang.md 2.3 to 2.5).

Errors: bounds below for any classifier (Theorem 3.2), above by the margin (Lemma 4.2), and the linear rule
sign<u, x> with u = sum_i y_i x_i that the networks approach. After one clean step from a vanishing start a network with
a smooth activation *is* this rule; s = <u, mu> / |u| is its alignment.
Proofs: loss ratio, growth of weights, and rates of the robust training loss after T steps (vacuous above log 2,
the loss at the start). Noise is Gaussian with variance 1 unless given, attacks are l2 of radius alpha.
"""

import math
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Float64
from torch import Tensor

Number: TypeAlias = float | Tensor
"""a number, or a tensor of them; numbers of one call broadcast against each other"""
Numbers: TypeAlias = Float64[Tensor, "*shape"]


def gaussian_overlap(distance: Number, noise_std: Number = 1.0) -> Numbers:
    """Return I(v) = int min(p(xi), p(xi + v)) dxi (Theorem 3.2) of a Gaussian cluster: 2 Phi(-|v| / (2 sigma)).

    The two densities cross on the hyperplane halfway between their centres.
    """
    return 2 * torch.special.ndtr(-_double(distance) / (2 * _double(noise_std)))


def error_floor(
    overlap: Number, flip: Number = 0.0, version: Literal["printed", "sharp"] = "sharp"
) -> Numbers:
    """Return the robust error that every classifier has at least (Theorem 3.2), for alpha < |mu|.

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
    """Return the bound of Theorem 3.2 for Gaussian clusters, in an l2 ball of radius alpha; 1/2 where alpha >= |mu|.

    `sharp`: beta + (1 - 2 beta) Phi(-(|mu| - alpha)/sigma), which sign<mu, x> attains at beta = 0.
    `printed`: half of what is added to beta. Flips are independent of the points; the error is
    against flipped labels, and against clean ones it is the floor at beta = 0.
    """
    gap = _double(signal) - _double(radius)
    floor = error_floor(gaussian_overlap(2 * gap.clamp_min(0), noise_std), flip, version)
    return torch.where(gap > 0, floor, 0.5)


def margin_per_norm(result: xr.Dataset) -> xr.DataArray:
    """Return min over y of E[y f | y] / ||W||_2 of the runs of a result, what Lemma B.14 bounds from below."""
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
    terms = [np.exp(-((margin / noise_std) ** 2) / 2) for margin in (positive, negative)]
    return ((terms[0] + terms[1]) / 2).where((positive >= 0) & (negative >= 0))


def _double(number: Number) -> Numbers:
    return torch.as_tensor(number, dtype=torch.float64)


# The averaged linear rule.


ndtr = torch.special.ndtr


class Errors(NamedTuple):
    """Errors of a linear rule against labels that are flipped with chance beta (papers/wang.md 2.5)."""

    clean: Numbers
    robust: Numbers


def linear_rule_errors(s: Number, radius: Number, flip: Number = 0.0) -> Errors:
    """Return the errors of a linear rule with alignment s (papers/wang.md 2.5).

    Clean: beta + (1 - 2 beta) Phi(-s). Robust: (1 - beta) Phi(-(s - alpha)) + beta (1 - Phi(-(s + alpha))).
    """
    s, alpha, beta = (torch.as_tensor(each, dtype=torch.float64) for each in (s, radius, flip))
    robust = (1 - beta) * ndtr(alpha - s) + beta * ndtr(s + alpha)
    return Errors(beta + (1 - 2 * beta) * ndtr(-s), robust)


def averaged_alignment(signal: Number, dim: Number, samples: Number, flip: Number = 0.0) -> Numbers:
    """Return s ~ q r^2 / sqrt(n d + q^2 r^2) of a typical draw, q = (1 - 2 beta) n (papers/wang.md 2.5)."""
    r, d, n = (torch.as_tensor(each, dtype=torch.float64) for each in (signal, dim, samples))
    kept = (1 - 2 * torch.as_tensor(flip, dtype=torch.float64)) * n
    return kept * r**2 / (n * d + (kept * r) ** 2).sqrt()


def critical_dim(signal: Number, samples: Number, radius: Number, flip: Number = 0.0) -> Numbers:
    """Return the d at which s - alpha = 1, an error of 1 - Phi(1) against clean labels (papers/wang.md 2.5).

    d = (q^2 / n) (r^4 / (1 + alpha)^2 - r^2) with q = (1 - 2 beta) n.
    """
    r, n, alpha, beta = (
        torch.as_tensor(each, dtype=torch.float64) for each in (signal, samples, radius, flip)
    )
    return (1 - 2 * beta) ** 2 * n * (r**4 / (1 + alpha) ** 2 - r**2)


def alignment(
    x: Float[Tensor, "runs samples dim"],
    y: Float[Tensor, "runs samples"],
    signal: Float[Tensor, "runs dim"],
) -> Float[Tensor, " runs"]:
    """Return s = <u, mu> / |u| of these training points, u = sum_i y_i x_i (papers/wang.md 2.5)."""
    u = torch.einsum("rn,rnd->rd", y, x)
    return (u * signal).sum(1) / torch.linalg.vector_norm(u, dim=1)


# Constants and rates of the proofs.


CLUSTER_CONSTANT = 10.0
"""C1 = 10 / kappa of Lemma B.4, with kappa = 1 for a standard Gaussian"""


def loss_ratio_bound(slope: float, c1: float = CLUSTER_CONSTANT) -> float:
    """C_r of Lemmas 4.4 and B.9 (smooth): 64 C1 (sqrt C1 + 0.5 / sqrt C1)^2 / gamma^2.

    >>> round(loss_ratio_bound(1.0))
    7056
    """
    return 64 * c1 * (math.sqrt(c1) + 0.5 / math.sqrt(c1)) ** 2 / slope**2


def loss_ratio_bound_non_smooth(slope: float, active: float, c1: float = CLUSTER_CONSTANT) -> float:
    """C_r of Lemma B.26 (E3): 192 C1 (C1 + 1/(4 C1)) / (c0 gamma^2), with the share c0 of active neurons."""
    return 192 * c1 * (c1 + 1 / (4 * c1)) / (active * slope**2)


def norm_growth_bound(slope: float, c1: float = CLUSTER_CONSTANT) -> float:
    """C2 = sqrt(5 C1 C_r) of Lemma B.12: |W_t| - |W_0| <= C2 eta sqrt(d/n) sum G.

    >>> round(norm_growth_bound(1.0))
    594
    """
    return math.sqrt(5 * c1 * loss_ratio_bound(slope, c1))


def margin_bound(
    samples: float, dim: float, signal: float, slope: float, c1: float = CLUSTER_CONSTANT
) -> float:
    """Lemma B.14 (smooth): E[y f | y] / ||W||_2 >= gamma^2 sqrt(n/d) r^2 / (32 C2), from the first step on."""
    return slope**2 * math.sqrt(samples / dim) * signal**2 / (32 * norm_growth_bound(slope, c1))


def smooth_rate(
    steps: float, rate: float, signal: float, slope: float, width: int, dim: float, zeta: float = 0
) -> float:
    """Lemma B.15: L <= (35 + 8 sqrt(m / d^3)) / (gamma r eta T^((1 - zeta) / 2))."""
    top = 35 + 8 * math.sqrt(width / float(dim) ** 3)
    return top / (slope * signal * rate * steps ** ((1 - zeta) / 2))


def smoothed_leaky_rate(
    steps: float, rate: float, signal: float, slope: float, width: int, smoothness: float
) -> float:
    """Corollary B.16: L <= (30 + 6 m^(1/4) / sqrt H) / (gamma r sqrt(eta T)) for the smoothed leaky ReLU."""
    top = 30 + 6 * width**0.25 / math.sqrt(smoothness)
    return top / (slope * signal * math.sqrt(rate * steps))


def non_smooth_rate(steps: float, rate: float, signal: float, slope: float, active: float) -> float:
    """Lemma B.29: L <= 30 / (r gamma c0 sqrt(eta T)). The paper prints "c0 > 1" with it: c0 is a share, below 1."""
    return 30 / (signal * slope * active * math.sqrt(rate * steps))


def theorem_steps_smooth(
    loss: float, rate: float, signal: float, slope: float, width: int, dim: float, zeta: float = 0
) -> float:
    """Theorem 3.1 (= B.1): ((35 + 8 sqrt(m / d^3)) / (gamma r eta eps))^(2 / (1 - zeta)) steps to loss eps."""
    return (smooth_rate(1, rate, signal, slope, width, dim) / loss) ** (2 / (1 - zeta))


def theorem_steps_non_smooth(
    loss: float, rate: float, signal: float, slope: float, active: float
) -> float:
    """Theorem 3.1 (= B.17): (30 / (r gamma c0 sqrt(eta) eps))^2 steps to loss eps."""
    return (non_smooth_rate(1, rate, signal, slope, active) / loss) ** 2
