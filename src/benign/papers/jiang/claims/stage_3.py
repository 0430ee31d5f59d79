"""Stage III of the proofs of Theorems 4.1 and 4.2: values, attention, and fresh points at the end of training."""

import math
from collections.abc import Callable

import numpy as np

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    share,
    worst_of_runs,
)
from benign.papers.jiang.claims.stages import GROWTH, MOST, STRAIGHT, slowest
from benign.papers.jiang.claims.studies import (
    BENIGN_END,
    BENIGN_WIDE,
    HARMFUL_END,
    HARMFUL_WIDE,
    TINY_LOSS,
    benign,
    harmful,
)
from benign.papers.jiang.claims.trajectory import (
    SIGNAL,
    STRONG,
    Trajectory,
    each_seed,
    trajectories,
)
from benign.papers.jiang.theory import attention_left_printed, margin_bound_printed

CLAIMS = Claims("jiang")


# Values.


SPARSE = 0.1
"""attention that may be left on other tokens"""
VACUOUS = {"vacuous": SPARSE}
"""attention on other tokens that the paper's bound may allow; with more, attention of 0.9 does not follow"""
ON_FRESH_POINTS = {"missed": 0.05}
"""share of fresh points that may miss a bound"""

LOGARITHM = {"growth": GROWTH, "ceiling": at_most(1.0), "straight": at_least(STRAIGHT)}
"""the propositions bound values from below by log(exp V(T2) + C (t - T2)) and from above by 2 log(1 / eps); a straight
exp V is more than they state, and informational"""


@CLAIMS.add(
    "F.log_growth",
    "Proposition F, Lemma 5.4",
    LOGARITHM,
    BENIGN_END,
    conditions=benign,
    informational=("straight",),
    version=2,
)
def signal_grows_logarithmically(evidence: Evidence) -> dict[str, Measured]:
    """In Stage III the value of the signal grows logarithmically: its exponential grows at least linearly, and to at
    most eps^-2."""
    return _logarithm(trajectories(evidence), SIGNAL)


@CLAIMS.add(
    "N.log_growth",
    "Proposition N",
    LOGARITHM,
    HARMFUL_END,
    conditions=harmful,
    informational=("straight",),
    version=2,
)
def strong_noise_grows_logarithmically(evidence: Evidence) -> dict[str, Measured]:
    """In Stage III of harmful overfitting the values of strong tokens grow logarithmically: their exponentials grow at
    least linearly, and to at most eps^-2."""
    return _logarithm(trajectories(evidence), STRONG)


def _logarithm(runs: list[Trajectory], token: int) -> dict[str, Measured]:
    growth, ceiling, straight = np.array([_late_growth(run, token) for run in runs]).T
    highest = each_seed(runs, ceiling, np.max)
    return {
        "growth": slowest("slope of log (exp V - exp V(T2)) on log (t - T2)", runs, list(growth)),
        "ceiling": worst_of_runs("V / (2 log(1 / eps)) at the end", highest),
        "straight": slowest("R^2 of exp V on t", runs, list(straight)),
    }


def _late_growth(run: Trajectory, token: int) -> tuple[float, float, float]:
    """Return the three numbers of `LOGARITHM`; NaN if Stage III is missing or unfinished."""
    stage = run.stage_3()
    values = run.signed[stage, :, token].mean(1)
    if not run.converged or len(values) < 5:
        return math.nan, math.nan, math.nan
    steps, powers = run.steps[stage], np.exp(values)
    x, y = (part[1:] - part[0] for part in (steps, powers))
    slope = np.polyfit(np.log(x), np.log(y), 1)[0]
    ceiling = values[-1] / (2 * math.log(1 / run.numbers.loss))
    return slope, ceiling, np.corrcoef(steps, powers)[0, 1] ** 2


@CLAIMS.add(
    "F.noise_bounded", "Proposition F", at_most(2.0), BENIGN_END, conditions=benign, version=2
)
def noise_stays_bounded(evidence: Evidence) -> Measured:
    """Throughout benign training the values of noise tokens stay O(1), here at most 2."""
    runs = trajectories(evidence)
    largest = [np.abs(run.values[:, :, 1:]).max() for run in runs]
    return worst_of_runs("largest |V_{n,i}|", each_seed(runs, largest, np.max), log=True)


@CLAIMS.add(
    "N.signal_small", "Proposition N", at_most(0.1), HARMFUL_END, conditions=harmful, version=2
)
def signal_stays_small(evidence: Evidence) -> Measured:
    """At the end of harmful training the values of signals are o(1), here at most a tenth of those of strong tokens."""
    runs = trajectories(evidence)
    ends = [np.abs(run.values[-1]) for run in runs]
    ratios = each_seed(runs, [(end[:, 0] / end[:, 1]).max() for end in ends], np.max)
    return worst_of_runs("largest |V_s| / |V_{n,2}|", ratios, log=True)


# Attention at the end.


LEFT = at_most(SPARSE)


@CLAIMS.add(
    "H.sparse_mu_row",
    "Proposition H, (64)",
    LEFT,
    BENIGN_WIDE,
    conditions=benign,
    levels=VACUOUS,
    version=2,
)
def signal_row_sparse(evidence: Evidence) -> Measured:
    """At the end of benign training the signal's row attends to the signal alone: with 1 - o(1), here at least 0.9."""
    return _left(evidence, SIGNAL, [SIGNAL], "signal")


@CLAIMS.add(
    "H.sparse_all_rows",
    "Proposition H, (65)",
    LEFT,
    BENIGN_WIDE,
    conditions=benign,
    levels=VACUOUS,
    version=2,
)
def all_rows_sparse(evidence: Evidence) -> Measured:
    """At the end of benign training every row attends to the signal alone, rows of weak noise tokens included: with
    1 - o(1), here at least 0.9."""
    return _left(evidence, SIGNAL, slice(None), "noise")


@CLAIMS.add(
    "E5.sparse_xi2",
    "Lemma E.5",
    LEFT,
    HARMFUL_WIDE,
    conditions=harmful,
    levels=VACUOUS,
    version=2,
)
def strong_token_sparse(evidence: Evidence) -> Measured:
    """At the end of harmful training the rows of the signal and the strong token attend to the strong token alone: with
    1 - o(1), here at least 0.9."""
    return _left(evidence, STRONG, [SIGNAL, STRONG], "harmful signal")


def _left(evidence: Evidence, token: int, rows: list[int] | slice, bound: str) -> Measured:
    """Return the attention that some rows leave on other tokens, in the widest runs; vacuous bounds are left out."""
    by_width: dict[int, list[Trajectory]] = {}
    for run in trajectories(evidence):
        n = run.numbers
        if (n.tokens - 1) * attention_left_printed(n, bound) <= evidence.levels["vacuous"]:
            by_width.setdefault(n.hidden, []).append(run)
    if not by_width:
        raise Undecided(
            f"vacuous: no run is so wide that the paper's bound leaves {SPARSE} or less"
        )

    def left(run: Trajectory) -> float:
        others = np.delete(run.attention[-1], token, axis=2).sum(2)
        return float(others[:, rows].max())

    trend = ", ".join(
        f"{np.mean(list(map(left, runs))):.2g} at d_h = {width:.0e}"
        for width, runs in by_width.items()
    )
    widest = by_width[max(by_width)]
    largest = each_seed(widest, list(map(left, widest)), np.max)
    of = "attention on other tokens, the largest over points and rows"
    return worst_of_runs(of, largest).noting(f"mean {trend}")


# Fresh points.


@CLAIMS.add(
    "D8.attention", "Lemma D.8", MOST, BENIGN_END, conditions=benign, levels=ON_FRESH_POINTS
)
def fresh_attention(evidence: Evidence) -> Measured:
    """On a fresh point the signal's row keeps at least 1/(2M) of its attention on the signal."""
    return _fresh(
        evidence, lambda run: run.fresh.attention[:, 0, 0] >= 1 / (2 * run.numbers.tokens)
    )


@CLAIMS.add("D9.value", "Lemma D.9", MOST, BENIGN_END, conditions=benign, levels=ON_FRESH_POINTS)
def fresh_values(evidence: Evidence) -> Measured:
    """The noise tokens of a fresh point have values of at most 1 in size."""
    return _fresh(evidence, lambda run: np.abs(run.fresh.values[:, 1:]).max(1) <= 1)


@CLAIMS.add(
    "L5.5.margin", "Lemma 5.5, (136)", MOST, TINY_LOSS, conditions=benign, levels=ON_FRESH_POINTS
)
def fresh_margins(evidence: Evidence) -> Measured:
    """A fresh point has a margin y f of at least log(1/eps) / (2 M^2) - 1."""
    runs = trajectories(evidence)
    lowest = min(_margin_bound(run) for run in runs)
    if lowest <= 0:
        raise Undecided(f"vacuous: the bound is {lowest:.3g}, so that it allows errors")
    smallest = min(float(run.fresh.margins.min()) for run in runs)
    measured = _fresh(evidence, lambda run: run.fresh.margins >= _margin_bound(run))
    return measured.noting(f"bound {lowest:.3g}, smallest margin {smallest:.3g}")


def _margin_bound(run: Trajectory) -> float:
    return margin_bound_printed(run.numbers.loss, run.numbers.tokens)


def _fresh(evidence: Evidence, holds: Callable[[Trajectory], np.ndarray]) -> Measured:
    """Return the share of seeds in which a bound holds on nearly all fresh points; `holds` gives these points."""
    runs, part = trajectories(evidence), 1 - evidence.levels["missed"]
    converged = [run.converged for run in runs]
    if not all(converged):
        raise Undecided(f"only {sum(converged)} of {len(runs)} runs reached their loss")
    return share(
        f"share of seeds in which the bound holds on {part:.0%} of fresh points",
        each_seed(runs, [np.mean(holds(run)) >= part for run in runs], np.all),
    )


@CLAIMS.add("D8.weight_drift", "(130)", at_most(3.0), BENIGN_END, conditions=benign, version=2)
def weights_stay(evidence: Evidence) -> Measured:
    """Training moves W_K by O(sigma_h sqrt(d_h)), here by at most 3 times that."""
    runs = trajectories(evidence)
    ratios = [
        run.key_drift / (run.numbers.score_std * math.sqrt(run.numbers.hidden)) for run in runs
    ]
    of = "|W_K(T) - W_K(0)| / (sigma_h sqrt(d_h))"
    return worst_of_runs(of, each_seed(runs, ratios, np.max), log=True)
