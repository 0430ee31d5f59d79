"""Stage III of both proofs, and what the trained networks make of fresh points."""

import math
from collections.abc import Sequence

import numpy as np

from benign.claims import Claims, Evidence, Measured, Undecided, at_least, at_most, mean, share
from benign.papers.jiang.claims.stages import MOST, SIGNAL, STRAIGHT, STRONG
from benign.papers.jiang.claims.studies import (
    BENIGN_END,
    BENIGN_WIDE,
    HARMFUL_END,
    HARMFUL_WIDE,
    TINY_LOSS,
    benign,
    harmful,
)
from benign.papers.jiang.claims.walk import Walk, walks
from benign.papers.jiang.times import attention_left_printed, margin_bound_printed

CLAIMS = Claims("jiang")
DELTA = 0.05
"""share of fresh points that may miss a bound"""
SPARSE = 0.1
"""attention that may be left; where the paper's own bound on it is larger, a claim of 0.9 does not follow"""


# Values.


LOGARITHM = {"growth": at_least(0.8), "ceiling": at_most(1.0), "straight": at_least(STRAIGHT)}
"""the propositions bound values from below by log(exp V(T2) + C (t - T2)) and from above by 2 log(1 / eps); that
exp V is a line is more than they say, and is told beside"""


@CLAIMS.add(
    "F.log_growth",
    "Proposition F, Lemma 5.4",
    LOGARITHM,
    BENIGN_END,
    conditions=benign,
    informational=("straight",),
)
def signal_grows_logarithmically(evidence: Evidence) -> dict[str, Measured]:
    """In stage III the value of the signal grows as a logarithm: its exponential at least as fast as a line, and to no
    more than eps^-2."""
    return _logarithm(walks(evidence), SIGNAL)


@CLAIMS.add(
    "N.log_growth",
    "Proposition N",
    LOGARITHM,
    HARMFUL_END,
    conditions=harmful,
    informational=("straight",),
)
def strong_noise_grows_logarithmically(evidence: Evidence) -> dict[str, Measured]:
    """In stage III of harmful overfitting the values of strong tokens grow as a logarithm, likewise."""
    return _logarithm(walks(evidence), STRONG)


def _logarithm(found: list[Walk], token: int) -> dict[str, Measured]:
    rows = np.array([_late_growth(walk, token) for walk in found]).T
    told = (
        "slope of log (exp V - exp V(T2)) on log (t - T2)",
        "V / (2 log(1 / eps)) at the end",
        "R^2 of exp V on t",
    )
    return {name: mean(of, row) for name, of, row in zip(LOGARITHM, told, rows, strict=True)}


def _late_growth(walk: Walk, token: int) -> tuple[float, float, float]:
    stage = walk.stage_3()
    values = walk.signed[stage, :, token].mean(1)
    if not walk.converged or len(values) < 5:
        return math.nan, math.nan, math.nan
    steps, powers = walk.steps[stage], np.exp(values)
    x, y = (part[1:] - part[0] for part in (steps, powers))
    slope = np.polyfit(np.log(x), np.log(y), 1)[0]
    ceiling = values[-1] / (2 * math.log(1 / walk.numbers.loss))
    return slope, ceiling, np.corrcoef(steps, powers)[0, 1] ** 2


@CLAIMS.add("F.noise_bounded", "Proposition F", at_most(2.0), BENIGN_END, conditions=benign)
def noise_stays_bounded(evidence: Evidence) -> Measured:
    """Values of noise tokens stay O(1), here at most 2, up to the end of benign training."""
    return mean(
        "largest |V_{n,i}|",
        [np.abs(walk.values[:, :, 1:]).max() for walk in walks(evidence)],
    )


@CLAIMS.add("N.signal_small", "Proposition N", at_most(0.1), HARMFUL_END, conditions=harmful)
def signal_stays_small(evidence: Evidence) -> Measured:
    """At the end of harmful training values of signals are o(1), here at most a tenth of those of strong tokens."""
    ends = [np.abs(walk.values[-1]) for walk in walks(evidence)]
    return mean("largest |V_s| / |V_{n,2}|", [(end[:, 0] / end[:, 1]).max() for end in ends])


# Attention at the end.


@CLAIMS.add("H.sparse_mu_row", "Proposition H, (64)", at_least(0.9), BENIGN_WIDE, conditions=benign)
def signal_row_sparse(evidence: Evidence) -> Measured:
    """At the end of benign training the signal's row attends to the signal alone: 1 - o(1), here at least .9."""
    return _sparse(evidence, SIGNAL, [SIGNAL], "signal")


@CLAIMS.add(
    "H.sparse_all_rows", "Proposition H, (65)", at_least(0.9), BENIGN_WIDE, conditions=benign
)
def all_rows_sparse(evidence: Evidence) -> Measured:
    """At the end of benign training every row attends to the signal alone, those of weak noise tokens too."""
    return _sparse(evidence, SIGNAL, slice(None), "noise")


@CLAIMS.add("E5.sparse_xi2", "Lemma E.5", at_least(0.9), HARMFUL_WIDE, conditions=harmful)
def strong_token_sparse(evidence: Evidence) -> Measured:
    """At the end of harmful training the rows of the signal and of the strong token attend to the latter alone."""
    return _sparse(evidence, STRONG, [SIGNAL, STRONG], "harmful signal")


def _sparse(evidence: Evidence, token: int, rows: list[int] | slice, bound: str) -> Measured:
    """The smallest attention of these rows on a token in runs where the paper's bound says something."""
    chosen = [
        walk
        for walk in walks(evidence)
        if (walk.numbers.tokens - 1) * attention_left_printed(walk.numbers, bound) <= SPARSE
    ]
    if not chosen:
        raise Undecided(
            f"vacuous: no run is so wide that the paper's bound leaves {SPARSE} or less"
        )
    by_width: dict[int, list[float]] = {}
    for walk in chosen:
        smallest = float(walk.attention[-1][:, rows, token].min())
        by_width.setdefault(walk.numbers.hidden, []).append(smallest)
    trend = ", ".join(
        f"{np.mean(each):.5f} at d_h = {width:.0e}" for width, each in by_width.items()
    )
    widest = by_width[max(by_width)]
    return mean("smallest attention over points and rows", widest).noting(trend)


# Fresh points.


@CLAIMS.add("D8.attention", "Lemma D.8", MOST, BENIGN_END, conditions=benign)
def fresh_attention(evidence: Evidence) -> Measured:
    """On a fresh point the signal's row keeps at least 1/(2M) of its attention on the signal."""
    return _fresh(
        evidence,
        [w.fresh.attention[:, 0, 0] >= 1 / (2 * w.numbers.tokens) for w in walks(evidence)],
    )


@CLAIMS.add("D9.value", "Lemma D.9", MOST, BENIGN_END, conditions=benign)
def fresh_values(evidence: Evidence) -> Measured:
    """The noise tokens of a fresh point have values of at most 1."""
    return _fresh(evidence, [np.abs(w.fresh.values[:, 1:]).max(1) <= 1 for w in walks(evidence)])


@CLAIMS.add("L5.5.margin", "Lemma 5.5, (136)", MOST, TINY_LOSS, conditions=benign)
def fresh_margins(evidence: Evidence) -> Measured:
    """A fresh point has a margin of at least log(1/eps) / (2 M^2) - 1."""
    found = walks(evidence)
    bounds = [margin_bound_printed(walk.numbers.loss, walk.numbers.tokens) for walk in found]
    if min(bounds) <= 0:
        raise Undecided(f"vacuous: the bound is {min(bounds):.3g}, so that it allows errors")
    smallest = min(float(walk.fresh.margins.min()) for walk in found)
    held = [walk.fresh.margins >= bound for walk, bound in zip(found, bounds, strict=True)]
    told = _fresh(evidence, held)
    return told.noting(f"bound {min(bounds):.3g}, smallest margin {smallest:.3g}")


def _fresh(evidence: Evidence, held: Sequence[np.ndarray]) -> Measured:
    ended = [walk.converged for walk in walks(evidence)]
    if not all(ended):
        raise Undecided(f"only {sum(ended)} of {len(ended)} runs reached their loss")
    return share(
        f"share of seeds in which {1 - DELTA:.0%} of fresh points hold it",
        [np.mean(each) >= 1 - DELTA for each in held],
    )


@CLAIMS.add("D8.weight_drift", "(130)", at_most(3.0), BENIGN_END, conditions=benign)
def weights_stay(evidence: Evidence) -> Measured:
    """Training moves W_K by no more than O(sigma_h sqrt(d_h)), here 3 times that."""
    found = walks(evidence)
    ratios = [w.key_drift / (w.numbers.score_std * math.sqrt(w.numbers.hidden)) for w in found]
    return mean("|W_K(T) - W_K(0)| / (sigma_h sqrt(d_h))", ratios)
