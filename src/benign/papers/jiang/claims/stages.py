"""Stages I and II of both proofs: who takes the lead, how values and scores grow while values are small."""

import math
from collections.abc import Callable

import numpy as np

from benign.claims import Claims, Evidence, Measured, Undecided, at_least, between, mean, share
from benign.papers.jiang.claims.studies import BENIGN_STAGES, HARMFUL_STAGES, benign, harmful
from benign.papers.jiang.claims.walk import Walk, walks
from benign.papers.jiang.theory import HARMFUL_CONSTANT, Numbers
from benign.papers.jiang.times import (
    benign_stage_1_steps_printed,
    harmful_stage_1_steps_corrected,
    log_factor,
)

CLAIMS = Claims("jiang")
MOST = at_least(0.8)
"""of seeds: statements with high probability"""
STRAIGHT = 0.98
"""R^2 of a line"""
SIGNAL, STRONG = 0, 1
"""places of tokens in a point"""


# Stage I.


@CLAIMS.add("D5.dominance", "Lemma D.5 (5.2)", MOST, BENIGN_STAGES, conditions=benign)
def signal_dominates(evidence: Evidence) -> Measured:
    """By step T1 = 10 M (3M+1) N / (eta d_h^1/4 (N |mu|^2 - 60 M^2 C_p^2 sigma_p^2 d) |w_O|^2) the value of every
    point's signal is 3M times those of its noise tokens."""
    found = walks(evidence)
    if any(np.isinf(benign_stage_1_steps_printed(walk.numbers)) for walk in found):
        raise Undecided("vacuous: N SNR^2 is not above 60 M^2 C_p^2")
    return _dominance(found, SIGNAL, benign_stage_1_steps_printed)


@CLAIMS.add("E3.dominance", "Lemma E.3", MOST, HARMFUL_STAGES, conditions=harmful)
def strong_noise_dominates(evidence: Evidence) -> Measured:
    """By step T1 = 4 M (3M+1) N / (eta d_h^1/4 (C_p^2 - 24 M) sigma_p^2 d |w_O|^2) the value of every point's strong
    noise token is 3M times those of its other tokens, where N SNR^2 <= 4."""
    found = walks(evidence)
    if any(walk.numbers.race > HARMFUL_CONSTANT for walk in found):
        raise Undecided("vacuous: N SNR^2 is above 4")
    told = _dominance(found, STRONG, harmful_stage_1_steps_corrected)
    return told.noting("equation (151) prints C_p^2 - 200 M, which is negative")


def _dominance(found: list[Walk], token: int, due: Callable[[Numbers], float]) -> Measured:
    leads = [walk.leads_from(token) for walk in found]
    bounds = [due(walk.numbers) for walk in found]
    steps = [
        math.inf if at is None else walk.steps[at] for walk, at in zip(found, leads, strict=True)
    ]
    told = share("share of seeds with dominance by T1", np.less_equal(steps, bounds))
    median = np.median([step for step in steps if step < math.inf] or np.nan)
    return told.noting(f"T1 = {np.median(bounds):.4g}, seen at {median:.4g}")


@CLAIMS.add("D4.scores_small", "Lemma D.4", MOST, BENIGN_STAGES, conditions=benign)
def scores_stay_small(evidence: Evidence) -> Measured:
    """At T1 all scores, here without those of strong tokens with themselves, are still o(1): below .5, and of order
    max(|mu|^2, sigma_p^2 d) sigma_h^2 sqrt(d_h L)."""
    return _small(walks(evidence), SIGNAL, strong=False)


@CLAIMS.add(
    "D4.scores_small_strong", "Lemmas D.4 and E.2", MOST, HARMFUL_STAGES, conditions=harmful
)
def strong_scores_stay_small(evidence: Evidence) -> Measured:
    """At T1 the scores of strong tokens with themselves are still o(1) too, although they are C_p^2 / L^2 to
    C_p^2 / L^3/2 at the start where the signal is no longer than the noise."""
    return _small(walks(evidence), STRONG, strong=True)


def _small(found: list[Walk], token: int, strong: bool) -> Measured:
    """Beside 5 times the lemma's own order with constant 1: the largest score of one start is too random a measure."""
    sizes, orders = [], []
    for walk in found:
        n, end = walk.numbers, walk.leads_from(token)
        order = n.scale * n.score_std**2 * math.sqrt(n.hidden * log_factor(n.samples, n.tokens))
        orders.append(order)
        if end is None:
            raise Undecided("a run never comes to T1")
        both = np.zeros(walk.scores.shape[2:], dtype=bool)
        both[STRONG, STRONG] = True
        sizes.append(np.abs(walk.scores[end][:, both if strong else ~both]).max())
    held = (np.array(sizes) <= 5 * np.array(orders)) & (np.array(sizes) < 0.5)
    told = share("share of seeds with small scores at T1", held)
    return told.noting(f"largest at T1 {np.median(sizes):.3g}, order {np.median(orders):.3g}")


# Stage II: values grow along a line.


@CLAIMS.add(
    "B.linear_growth",
    "Proposition B, Lemma 5.3",
    {"straight": at_least(STRAIGHT), "pace": between(0.5 / 3, 1.0)},
    BENIGN_STAGES,
    conditions=benign,
)
def signal_grows_linearly(evidence: Evidence) -> dict[str, Measured]:
    """In stage II the value of the signal grows on a line, by 1/M to 1 times eta |mu|^2 |w_O|^2 |S| / (2N) a step."""
    found = walks(evidence)
    fits = [_line(walk, SIGNAL, _signal_pace(walk)) for walk in found]
    return _straight(fits)


@CLAIMS.add(
    "J.linear_growth",
    "Proposition J",
    {"straight": at_least(STRAIGHT), "pace": between(0.5 / 4, 1.0)},
    HARMFUL_STAGES,
    conditions=harmful,
)
def strong_noise_grows_linearly(evidence: Evidence) -> dict[str, Measured]:
    """In stage II the values of strong noise tokens grow along a line, by 1/M to 1 times
    eta C_p^2 sigma_p^2 d |w_O|^2 / (2N) a step."""
    return _straight([_line(walk, STRONG, _strong_pace(walk)) for walk in walks(evidence)])


def _signal_pace(walk: Walk) -> float:
    n = walk.numbers
    return n.rate * n.signal * n.output_norm**2 / 4  # classes are balanced: |S| / N = 1/2


def _strong_pace(walk: Walk) -> float:
    n = walk.numbers
    return n.rate * n.strong_noise_std**2 * n.dim * n.output_norm**2 / (2 * n.samples)


def _line(walk: Walk, token: int, pace: float) -> tuple[float, float]:
    """R^2 of a line through the mean value of a token in stage II, and its slope beside the pace."""
    stage = walk.stage_2(token)
    if stage is None:
        return np.nan, np.nan
    steps, values = walk.steps[stage], walk.signed[stage, :, token].mean(1)
    return np.corrcoef(steps, values)[0, 1] ** 2, np.polyfit(steps, values, 1)[0] / pace


def _straight(fits: list[tuple[float, float]]) -> dict[str, Measured]:
    squares, slopes = np.array(fits).T
    return {
        "straight": mean("R^2 of value on step", squares),
        "pace": mean("slope / (full attention's slope)", slopes),
    }


# Stage II: scores.


@CLAIMS.add(
    "D.monotone",
    "Proposition D",
    at_least(0.99),
    BENIGN_STAGES,
    conditions=benign,
    informational=("weak rows",),
)
def scores_monotone(evidence: Evidence) -> dict[str, Measured]:
    """In stage II scores on the signal never fall and scores on noise of the same point never rise, in every row."""
    rows = {"signal and strong rows": slice(0, 2), "weak rows": slice(2, None)}
    found = walks(evidence)
    return {
        name: mean("share of (step, pair) with the stated sign", [_right(w, r) for w in found])
        for name, r in rows.items()
    }


def _right(walk: Walk, rows: slice) -> float:
    stage = walk.stage_2(SIGNAL)
    if stage is None:
        return np.nan
    moved = np.diff(walk.scores[stage], axis=0)[:, :, rows]
    return np.concatenate([moved[..., 0].ravel() >= 0, moved[..., 1:].ravel() <= 0]).mean()


@CLAIMS.add("L.doubling", "Proposition L", at_least(0.95), HARMFUL_STAGES, conditions=harmful)
def strong_scores_double(evidence: Evidence) -> Measured:
    """In stage II each row's score on the strong token grows at least twice as fast as on any other token."""
    return mean(
        "share of (step, row) with twice the growth",
        [_doubles(walk) for walk in walks(evidence)],
    )


def _doubles(walk: Walk) -> float:
    stage = walk.stage_2(STRONG)
    if stage is None:
        return np.nan
    moved = np.diff(walk.scores[stage], axis=0)
    others = np.delete(moved, STRONG, axis=3).max(3)
    return (moved[..., STRONG] >= 2 * others).mean()


GROWTH = at_least(0.8)
"""the propositions bound the growth from below, so that faster growth is no objection"""


@CLAIMS.add("D.log_growth", "Proposition D, Lemma 5.3", GROWTH, BENIGN_STAGES, conditions=benign)
def signal_gaps_grow(evidence: Evidence) -> Measured:
    """exp(Lambda) of the signal row, its score on the signal less that on noise, grows at least as
    C (t - T1)(t - T1 + 1)."""
    return mean(
        "slope of log growth on log (t-T1)(t-T1+1)",
        [_growth(w, SIGNAL, SIGNAL) for w in walks(evidence)],
    )


@CLAIMS.add("L.log_growth", "Proposition L", GROWTH, HARMFUL_STAGES, conditions=harmful)
def strong_gaps_grow(evidence: Evidence) -> dict[str, Measured]:
    """exp(Psi), a row's score on the strong token less that on others, grows at least as
    C (t - T1)(t - T1 + 1)."""
    found = walks(evidence)
    return {
        name: mean(
            "slope of log growth on log (t-T1)(t-T1+1)", [_growth(w, STRONG, row) for w in found]
        )
        for name, row in (("signal row", SIGNAL), ("strong row", STRONG))
    }


def _growth(walk: Walk, token: int, row: int) -> float:
    """Log-log slope of exp(gap) - exp(gap at T1), the mean over points and other tokens, over the last three quarters
    of the stage. Before, the value at T1 adds growth that is linear in t: above the paper's lower bound, but no power
    of it."""
    stage = walk.stage_2(token)
    if stage is None:
        return np.nan
    scores = walk.scores[stage, :, row]
    gaps = np.exp(scores[..., token, None] - np.delete(scores, token, axis=2)).mean((1, 2))
    passed = (walk.steps[stage] - walk.steps[stage.start]).astype(float)
    late = (passed >= passed[-1] / 4) & (gaps > gaps[0])
    if late.sum() < 3:
        return np.nan
    return np.polyfit(np.log((passed * (passed + 1))[late]), np.log((gaps - gaps[0])[late]), 1)[0]


@CLAIMS.add("F4.signs", "F.4", at_least(0.99), BENIGN_STAGES, conditions=benign)
def coefficient_signs(evidence: Evidence) -> Measured:
    """After T1 coefficients alpha and beta that lead to the signal are not negative, those to noise not positive."""
    shares = []
    for walk in walks(evidence):
        begin = walk.leads_from(SIGNAL)
        shares.append(np.nan if begin is None else walk.signs[begin:].mean())
    return mean("share of coefficients with the stated sign", shares)
