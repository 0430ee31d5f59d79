"""Theorems 4.3 and 4.4 of Li and Li: their conditions, what these rule out, thresholds (papers/li.md 1.3, 1.11, 2.9).

The paper's conditions are orders of magnitude. Here one constant C stands for every `>>`, `poly(d)` is a power of d and
`polylog(d)` a power of log d, by default the least that the words allow: inside means inside the weakest version.
Where the paper prints one law and its own recursion gives another, both are here, `..._printed` and `..._corrected`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benign.attacks.balls import Ball
from benign.attacks.one_step import OneStep
from benign.claims.conditions import Condition, Conditions, Moderate, one_cell
from benign.data.feature_patches import FeaturePatches
from benign.networks.patch_cnn import PatchCNN
from benign.spec.base import NonNegative, Positive, Spec
from benign.training.optimisers import gradient_descent_at_one_rate
from benign.training.setup import Setup

Theorem = Literal["4.3", "4.4"]
"""standard training, adversarial training"""


class LiConstants(Spec):
    """What Assumptions 2.3 and B.3 leave open."""

    const: Moderate = 1.0
    """C, what `>>` means"""
    power: Positive = 0.25
    """poly(d) = d^power"""
    log_power: NonNegative = 0.0
    """polylog(d) = log(d)^log_power"""

    def __str__(self) -> str:
        return f"C = {self.const:g}, poly = d^{self.power:g}, polylog = log(d)^{self.log_power:g}"


ALL_ONE = LiConstants()


@dataclass(frozen=True, kw_only=True)
class LiNumbers:
    """The quantities that Assumptions 2.3 and B.3 bound."""

    classes: int
    dim: int
    samples: int
    alpha: float
    """the smallest mean strength of a robust patch"""
    beta: float
    """the largest mean strength of another patch"""
    robust_patches: int
    other_patches: int
    noise_std: float
    """sigma_n"""
    init_std: float
    """sigma_0"""
    width: int
    q: int
    rho: float
    rate: float
    """eta"""
    eps: float = 0.0
    """radius of the attack; 0 without one"""
    attack_rate: float = 0.0
    """eta~"""

    @staticmethod
    def of(setup: Setup) -> "LiNumbers":
        """Return the numbers of a cell."""
        data, network = parts(setup)
        attack = setup.attack if isinstance(setup.attack, OneStep) else None
        threat = setup.attack.threat() if setup.attack else None
        return LiNumbers(
            classes=data.classes,
            dim=data.dim,
            samples=data.samples,
            alpha=min(data.alpha_by_class or (data.alpha,)),  # pyright: ignore[reportArgumentType]
            beta=max(data.beta_by_class or (data.beta,)),  # pyright: ignore[reportArgumentType]
            robust_patches=data.robust_patches,
            other_patches=data.tokens - data.robust_patches,
            noise_std=data.noise_std,
            init_std=network.init_std,
            width=network.width,
            q=network.q,
            rho=network.threshold,
            rate=setup.training.rate,
            eps=float(threat.radius) if isinstance(threat, Ball) else 0.0,
            attack_rate=attack.rate if attack else 0.0,
        )


def parts(setup: Setup) -> tuple[FeaturePatches, PatchCNN]:
    """Return data and network of a cell. Raise ValueError if Theorems 4.3 and 4.4 are about others."""
    data, network = one_cell(setup).data, setup.network
    if not isinstance(data, FeaturePatches) or not isinstance(network, PatchCNN):
        raise ValueError(
            f"`data` ({data.kind}) and `network` ({network.kind}) must be feature_patches and patch_cnn: "
            "the theorems of Li are about those"
        )
    return data, network


def conditions(
    numbers: LiNumbers | Setup, theorem: Theorem, given: LiConstants = ALL_ONE
) -> Conditions:
    """Return Assumptions 2.3 and B.3 item by item; for Theorem 4.4 with those on the attack.

    The last two rows are what Theorem 4.4 needs and does not assume (papers/li.md 2.9).
    """
    n = numbers if isinstance(numbers, LiNumbers) else LiNumbers.of(numbers)
    rows = [*_data(n, given), *_network(n, given)]
    if theorem == "4.4":
        rows += [*_attack(n, given), *(row.informational() for row in _needed(n))]
    if not isinstance(numbers, LiNumbers):
        rows.insert(0, Condition.setting(_departures(numbers, theorem)))
    return Conditions(f"Li Theorem {theorem} ({given})", tuple(rows))


def _data(n: LiNumbers, c: LiConstants) -> list[Condition]:
    root, poly = 1 / math.sqrt(n.dim), n.dim**c.power
    weak, strong = n.other_patches * n.beta**n.q, n.robust_patches * n.alpha**n.q
    return [
        Condition.at_least("2.3 (a)", "alpha >= C beta", n.alpha, c.const * n.beta),
        Condition.at_least("2.3 (b)", "sum beta^q >= C sum alpha^q", weak, c.const * strong),
        Condition.at_least("B.3 d", "d >= C 2k", n.dim, c.const * 2 * n.classes),
        Condition.equal("B.3 sigma_n", "sigma_n = 1/sqrt(d)", n.noise_std, root),
        Condition.at_least("B.3 N", "N >= C poly(d)", n.samples, c.const * poly),
    ]


def _network(n: LiNumbers, c: LiConstants) -> list[Condition]:
    root, poly, polylog = 1 / math.sqrt(n.dim), n.dim**c.power, math.log(n.dim) ** c.log_power
    return [
        Condition.equal("B.3 sigma_0", "sigma_0 = 1/sqrt(d)", n.init_std, root),
        Condition.equal("B.3 q", "q = 3", n.q, 3),
        Condition.at_most("B.3 rho", "rho <= 1/polylog(d)", n.rho, 1 / polylog),
        Condition.at_least("B.3 m", "m >= polylog(d)", n.width, polylog),
        Condition.at_most("B.3 eta", "eta <= 1/(C poly(d))", n.rate, 1 / (c.const * poly)),
    ]


def _attack(n: LiNumbers, c: LiConstants) -> list[Condition]:
    fast = "eta~ >= 1: c0 > 0 of eta~ = d^c0"
    return [
        Condition.at_least("B.3 eps", "eps >= beta", n.eps, n.beta),
        Condition.at_least("B.3 alpha", "alpha >= C eps", n.alpha, c.const * n.eps),
        Condition.at_least("B.3 c0 > 0", fast, n.attack_rate, 1.0),
        Condition.at_most("B.3 c0 < 1", "eta~ <= d", n.attack_rate, n.dim),
    ]


def _needed(n: LiNumbers) -> list[Condition]:
    slack = robust_network_slack(n.robust_patches, n.other_patches, n.alpha, n.eps, n.q)
    return [
        Condition.at_least("separation", "alpha >= 2 eps", n.alpha, 2 * n.eps),
        Condition.at_least("robust network", "|J_R| max(1, (alpha-eps)/eps)^q >= P", slack, 1.0),
    ]


def _departures(setup: Setup, theorem: Theorem) -> list[str]:
    """Return how a cell differs from the setting of the theorem."""
    attack, training = setup.attack, setup.training
    trained = attack is not None and getattr(attack, "clip", None) != 0
    differences = {
        "trained against an attack": theorem == "4.3" and trained,
        "an attack that is not one clipped step on -F_y": theorem == "4.4"
        and not (isinstance(attack, OneStep) and attack.loss == "own" and attack.clip is not None),
        "not attacked from the first step on": training.first_attacked_step > 0,
        "not gradient descent at a constant rate": not gradient_descent_at_one_rate(training),
    }
    return [name for name, departs in differences.items() if departs]


# What the assumptions rule out.


def separation_slack(alpha: float, eps: float) -> float:
    """Return alpha / (2 eps), what Theorem 4.4 needs to be at least 1 (papers/li.md 2.9).

    Below 1 points of two classes share an attacked point, and no classifier is robust at both.
    """
    return alpha / (2 * eps)


def density_slack(robust: int, others: int, alpha: float, beta: float, q: int) -> float:
    """Return the slack of Assumption 2.3 (b) with tau = q: sum beta^q / sum alpha^q."""
    return others * beta**q / (robust * alpha**q)


def robust_network_slack(robust: int, others: int, alpha: float, eps: float, q: int) -> float:
    """Return |J_R| max(1, (alpha-eps)/eps)^q / P: below 1 a network of robust features is robust in one class at most.

    Theorem 4.4 needs it (papers/li.md 2.9 (2)). With `density_slack` >= 1 and eps >= beta it is always below 1.
    """
    return robust * max(1.0, (alpha - eps) / eps) ** q / (robust + others)


def linear_network_slack_printed(robust: int, alpha: float, eps: float) -> float:
    """Return the slack of Proposition 3.2 as its proof has it: |J_R| (alpha - eps) / eps, without the factor P."""
    return robust * (alpha - eps) / eps


def linear_network_slack_corrected(robust: int, others: int, alpha: float, eps: float) -> float:
    """Return the slack of Proposition 3.2 with the factor P: |J_R| (alpha - eps) / (P eps), which must exceed 1."""
    return linear_network_slack_printed(robust, alpha, eps) / (robust + others)


def robust_accuracy_limit(ones: np.ndarray, others: np.ndarray, eps: float) -> float:
    """Return what no classifier's robust accuracy on these points of two classes exceeds, for l_inf radius eps.

    Points at most 2 eps apart share an attacked point, so of a matched pair one is wrong: a largest matching.
    """
    # Not above: the import takes 0.1 s.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    first, second = (each.reshape(len(each), -1) for each in (ones, others))
    close = [np.abs(second - point).max(1) <= 2 * eps for point in first]
    pairs = maximum_bipartite_matching(csr_matrix(np.array(close)), perm_type="column")
    return 1 - float((pairs >= 0).sum()) / (len(first) + len(second))


# Thresholds.


def largest_start_printed(width: int, dim: int) -> float:
    """Lemma D.3: max_r <w_r(0), f> is of order log(m) / sqrt(d)."""
    return math.log(width) / math.sqrt(dim)


def largest_start_corrected(width: int, init_std: float) -> float:
    """Lemma D.3, corrected: the largest of m Gaussians, sigma_0 sqrt(2 log m)."""
    return init_std * math.sqrt(2 * math.log(width))


def robust_feature_bound(x0: float, y0: float, ratio: float, q: int) -> float:
    """Where Lemma B.2 leaves max_r A: y0 (1 - S (y0/x0)^(q-2))^(-1/(q-2)), infinite where its hypothesis fails."""
    left = 1 - ratio * (y0 / x0) ** (q - 2)
    return y0 * left ** (-1 / (q - 2)) if left > 0 else math.inf


def held_back_printed(attack_rate: float) -> float:
    """Lemmas D.24 and E.11: max_r B is of order d^-c0 = 1 / eta~."""
    return 1 / attack_rate


def held_back_corrected(attack_rate: float, beta: float, rho: float, q: int) -> float:
    """Lemmas D.24 and E.11, corrected: the paper's own stopping rule with one leading filter.

    B^q = rho^(q-1) / (eta~ beta^(q-2)), so eta~^(-1/q).
    """
    return (rho ** (q - 1) / (attack_rate * beta ** (q - 2))) ** (1 / q)


def self_stopped(attack_rate: float, strength: float, rho: float, q: int, start_norm: float) -> float:  # fmt: skip
    """Where a filter's own part off the features stops it, which Lemma D.22 leaves out (papers/li.md 2.5).

    (1/s) (rho^(q-1) / (eta~ |P_perp w|^2))^(1/(q-2)); with sigma_0 = 1/sqrt(d) that norm is 1, and both features stop
    at 1 / eta~, below which they start when eta~ > sqrt(d / (2 log m)).
    """
    return (rho ** (q - 1) / (attack_rate * start_norm**2)) ** (1 / (q - 2)) / strength
