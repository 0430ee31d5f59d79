"""Bounds of Zhang et al. as plain functions, as printed and as corrected (papers/zhang.md 3, 4 and 7).

Radii r = tau / |mu| are relative to the signal.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Norms (main text, Appendix E).


def larger_norm_factor_printed(dim: int, p: float, q: float) -> float:
    """Return c in |x|_q <= c |x|_p for p <= q as Appendix E (2) prints it: d^(1/q - 1/p), which is below 1."""
    return dim ** (1 / q - 1 / p)


def larger_norm_factor_corrected(dim: int, p: float, q: float) -> float:
    """Return c in |x|_q <= c |x|_p for p <= q (Appendix E (2)): 1, reached by a vector with one coordinate."""
    return 1.0


def smaller_norm_factor(dim: int, p: float, q: float) -> float:
    """Return c in |x|_p <= c |x|_q for p <= q (Appendix E (3)): d^(1/p - 1/q), reached by a constant vector."""
    return dim ** (1 / p - 1 / q)


# What no classifier can do (Theorem 3).


def least_robust_error_printed(r: float) -> float:
    """Theorem 3: every classifier has a robust error of at least 1/4 from tau = |mu| on."""
    return 0.25 if r >= 1 else 0.0


def least_robust_error_corrected(r: float) -> float:
    """Theorem 3, corrected: 1/2 from tau = |mu| / sqrt2 on, where the signals meet.

    Below, sign<x_1, mu_+ - mu_-> has no error.
    """
    return 0.5 if r >= math.sqrt(0.5) else 0.0


def expected_permutation_radius(snr: float) -> float:
    """R_perm / |mu| of network (1) for noise tokens of length |mu| / SNR: min(1/sqrt2, sqrt(1 + SNR^-2) / 2)."""
    return min(math.sqrt(0.5), math.sqrt(1 + snr**-2) / 2)


# Tokens and their perturbations (Lemma 13).


def noise_norms(noise_std: float, dim: int) -> tuple[float, float]:
    """Lemma 13: sigma_p^2 d / 2 and 3 sigma_p^2 d / 2 hold |xi|^2 between them."""
    return noise_std**2 * dim / 2, 3 * noise_std**2 * dim / 2


def noise_products(noise_std: float, dim: int, samples: int, tokens: int, failure: float) -> float:
    """Lemma 13: 2 sigma_p^2 sqrt(d log(4 N^2 M^2 / delta)), the largest |<xi, xi'>|."""
    log = math.log(4 * (samples * tokens) ** 2 / failure)
    return 2 * noise_std**2 * math.sqrt(dim * log)


def signal_product_printed(r: float) -> float:
    """Lemma 13: the smallest <mu~, mu~'> / |mu|^2 of two perturbed copies of one signal is (1 - r)^2."""
    return (1 - r) ** 2


def signal_product_corrected(r: float) -> float:
    """Lemma 13, corrected: (1 - r)^2 up to r = 1/2, 1/2 - r^2 beyond: negative from 1/sqrt2 on."""
    return (1 - r) ** 2 if r <= 0.5 else 0.5 - r**2


def cross_product_printed(
    mu: float, tau: float, noise_std: float, samples: int, tokens: int, failure: float
) -> float:
    """Lemma 13: |<mu~, xi~>| <= |mu| tau + sigma_p tau sqrt(2 log(4 N M / delta)) + tau^2, the slack P."""
    log = math.log(4 * samples * tokens / failure)
    return mu * tau + noise_std * tau * math.sqrt(2 * log) + tau**2


def cross_product_corrected(mu: float, tau: float, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Lemma 13, corrected: the largest |<mu~, xi~>| over both balls lies between these.

    Noise tokens have length `noise`. The first is reached by moving the signal along xi, and xi along the moved signal;
    the second is the triangle inequality. Both have tau |xi|, of order tau sigma_p sqrt d, where the printed bound has
    sqrt(log).
    """
    return tau * noise + tau * math.hypot(mu, tau), tau * (noise + mu + tau)


# Queries and keys at the start (Lemma 12).


@dataclass(frozen=True)
class StartBounds:
    """What Lemma 12 says: norms between 1/2 and 3/2 of these, products of different vectors at most those."""

    signal_norm: float
    """of |q_s|^2 and |k_s|^2"""
    noise_norm: float
    """of |q_{n,i}|^2 and |k_{n,i}|^2"""
    signal_signal: float
    signal_noise: float
    noise_noise: float


def start_bounds_corrected(
    mu: float, noise_std: float, dim: int, hidden: int, score_std: float, log: float
) -> StartBounds:
    """Lemma 12 with units that fit (as Jiang's Lemma C.3); `log` is log(6 N^2 M^2 / delta)."""
    noise = noise_std * math.sqrt(dim)
    variance, spread = score_std**2, 2 * score_std**2 * math.sqrt(hidden * log)
    return StartBounds(
        signal_norm=mu**2 * variance * hidden,
        noise_norm=noise**2 * variance * hidden,
        signal_signal=spread * mu**2,
        signal_noise=spread * mu * noise,
        noise_noise=spread * noise**2,
    )


def start_bounds_printed(
    mu: float, noise_std: float, dim: int, hidden: int, score_std: float, log: float
) -> StartBounds:
    """Lemma 12 as printed: sigma_p^2 for sigma_h^2 in norms of signals, d^(3/2) for d^(1/2) in products with noise."""
    right = start_bounds_corrected(mu, noise_std, dim, hidden, score_std, log)
    return StartBounds(
        signal_norm=mu**2 * noise_std**2 * hidden,
        noise_norm=right.noise_norm,
        signal_signal=right.signal_signal,
        signal_noise=right.signal_noise * dim,
        noise_noise=right.noise_noise,
    )


# Attention (Lemmas 4 and 15).

LARGEST_ATTENTION_RATIO = math.e / 2
"""C of Lemma 4: by how much an attack changes an entry of attention at most"""


def attention_band(h: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """The smallest and the largest entry of attention whose scores are at most h: Lemma 15 with its constants."""
    others = tokens - 1
    return 1 / (1 + others * torch.exp(2 * h)), 1 / (1 + others * torch.exp(-2 * h))


# Augmentation (the paper's second guideline).


def augmented_race(race: float, copies: int, injected: float) -> tuple[float, float]:
    """Return N SNR^2 after guideline 2 (K copies of a point, noise of `injected` sigma_p added): printed, and derived.

    The paper: K N points of a ratio lowered by sqrt(1 + s^2). But copies share the noise they were made from: their
    mean has noise of variance sigma_p^2 (1 + s^2 / K): they are N points of a ratio lowered by sqrt(1 + s^2 / K).
    """
    return race * copies / (1 + injected**2), race / (1 + injected**2 / copies)
