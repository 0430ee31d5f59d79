"""Constants and rates that the proofs of Wang et al. print (papers/wang.md 2.4): loss ratio, growth of weights, loss.

Every rate bounds the robust training loss after T steps; above log 2, the loss at the start, it says nothing.
"""

import math

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
    """Lemma B.29: L <= 30 / (r gamma c0 sqrt(eta T)). Printed beside it is "c0 > 1": c0 is a share, below 1."""
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
