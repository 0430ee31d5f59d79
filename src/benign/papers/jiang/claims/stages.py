"""Stages I and II of the proofs of Theorems 4.1 and 4.2: which token dominates, how values and scores grow while small.

Seeds are the replicates: a bound holds in a seed if it holds in all of its runs.
"""

import math
from collections.abc import Callable

import numpy as np

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Undecided,
    at_least,
    between,
    mean,
    share,
)
from benign.claims.rule import EXPONENT
from benign.papers.jiang.claims.studies import (
    BENIGN_STAGES,
    HARMFUL_STAGES,
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
from benign.papers.jiang.theory import (
    HARMFUL_CONSTANT,
    JiangNumbers,
    benign_stage_1_steps_printed,
    harmful_stage_1_steps_corrected,
    harmful_stage_1_steps_printed,
    log_factor,
)

CLAIMS = Claims("jiang")
MOST = at_least(0.8)
"""share of seeds, for statements with high probability"""
STRAIGHT = 0.98
"""R^2 of a straight line"""


# Stage I.


@CLAIMS.add("D5.dominance", "Lemma D.5 (5.2)", MOST, BENIGN_STAGES, conditions=benign)
def signal_dominates(evidence: Evidence) -> Measured:
    """By step T1 = 10 M (3M+1) N / (eta d_h^(1/4) (N |mu|^2 - 60 M^2 C_p^2 sigma_p^2 d) |w_O|^2), the value of the
    signal of every point is at least 3M times the value of each of its noise tokens."""
    runs = trajectories(evidence)
    if any(np.isinf(benign_stage_1_steps_printed(run.numbers)) for run in runs):
        raise Undecided("vacuous: N SNR^2 is not above 60 M^2 C_p^2")
    return _dominance(runs, SIGNAL, benign_stage_1_steps_printed)


@CLAIMS.add(
    "E3.dominance",
    "Lemma E.3",
    MOST,
    HARMFUL_STAGES,
    conditions=harmful,
    informational=("printed",),
    misprint="(151) has C_p^2 - 200 M for C_p^2 - 24 M, which is negative for the C_p of condition (10)",
    version=2,
)
def strong_noise_dominates(evidence: Evidence) -> dict[str, Measured]:
    """Where N SNR^2 <= 4: by step T1 = 4 M (3M+1) N / (eta d_h^(1/4) (C_p^2 - 24 M) sigma_p^2 d |w_O|^2), the value of
    the strong noise token of every point is at least 3M times the value of each of its other tokens."""
    runs = trajectories(evidence)
    if any(run.numbers.race > HARMFUL_CONSTANT for run in runs):
        raise Undecided("vacuous: N SNR^2 is above 4")
    return {
        "corrected": _dominance(runs, STRONG, harmful_stage_1_steps_corrected),
        "printed": _dominance(runs, STRONG, harmful_stage_1_steps_printed),
    }


def _dominance(runs: list[Trajectory], token: int, t1: Callable[[JiangNumbers], float]) -> Measured:
    """Return the share of seeds in which the token dominates by T1."""
    bounds = [t1(run.numbers) for run in runs]
    begins = [run.dominance(token) for run in runs]
    steps = [
        math.inf if begin is None else run.steps[begin]
        for run, begin in zip(runs, begins, strict=True)
    ]
    median = np.median([step for step in steps if step < math.inf] or np.nan)
    in_time = each_seed(runs, np.less_equal(steps, bounds), np.all)
    measured = share("share of seeds with dominance by T1", in_time)
    return measured.noting(f"T1 = {np.median(bounds):.4g}, dominance from step {median:.4g} on")


SMALL = {"times the order": 5.0, "small": 0.5}
"""what O(.) and o(1) stand for in Lemma D.4"""


@CLAIMS.add(
    "D4.scores_small", "Lemma D.4", MOST, BENIGN_STAGES, conditions=benign, levels=SMALL, version=2
)
def scores_stay_small(evidence: Evidence) -> dict[str, Measured]:
    """At T1 all scores are still of order max(|mu|^2, sigma_p^2 d) sigma_h^2 sqrt(d_h L), here at most 5 times that,
    and o(1), here below 0.5. Scores of strong tokens with themselves are left out."""
    return _small_scores(evidence, SIGNAL, strong=False)


@CLAIMS.add(
    "D4.scores_small_strong",
    "Lemmas D.4 and E.2",
    MOST,
    HARMFUL_STAGES,
    conditions=harmful,
    informational=("o(1)",),
    levels=SMALL,
    version=2,
)
def strong_scores_stay_small(evidence: Evidence) -> dict[str, Measured]:
    """At T1 the scores of strong tokens with themselves are still of the same order too, here at most 5 C_p^2 times
    that, as C_p^2 = 25 M is a constant. Under condition (8) they start between C_p^2 / L^2 and C_p^2 / L^(3/2), which
    is o(1) but not small at this size; one size does not decide about a limit."""
    return _small_scores(evidence, STRONG, strong=True)


def _small_scores(evidence: Evidence, token: int, strong: bool) -> dict[str, Measured]:
    """Return the shares of seeds whose scores at T1 are at most 5 times the order of the lemma, and below 0.5.

    The largest score of one start varies too much to be the scale.
    """
    runs = trajectories(evidence)
    sizes, orders = [], []
    for run in runs:
        n, t1 = run.numbers, run.dominance(token)
        order = n.scale * n.score_std**2 * math.sqrt(n.hidden * log_factor(n.samples, n.tokens))
        orders.append(order * (n.strong_noise_std / n.noise_std) ** 2 if strong else order)
        if t1 is None:
            raise Undecided("a run does not reach T1")
        both = np.zeros(run.scores.shape[2:], dtype=bool)
        both[STRONG, STRONG] = True
        sizes.append(np.abs(run.scores[t1][:, both if strong else ~both]).max())
    in_order = np.array(sizes) <= evidence.levels["times the order"] * np.array(orders)
    small = np.array(sizes) < evidence.levels["small"]
    note = f"largest at T1 {np.median(sizes):.3g}, order {np.median(orders):.3g}"
    of = "share of seeds with such scores at T1"
    return {
        "order": share(of, each_seed(runs, in_order, np.all)).noting(note),
        "o(1)": share(of, each_seed(runs, small, np.all)),
    }


# Stage II: values grow linearly.


@CLAIMS.add(
    "B.linear_growth",
    "Proposition B, Lemma 5.3",
    {"straight": at_least(STRAIGHT), "pace": between(0.5 / 3, 1.0)},
    BENIGN_STAGES,
    conditions=benign,
)
def signal_grows_linearly(evidence: Evidence) -> dict[str, Measured]:
    """In Stage II the value of the signal grows linearly, by a constant, here 1/(2M) to 1, times
    eta |mu|^2 |w_O|^2 |S| / (2N) per step."""
    return _straight([_line(run, SIGNAL, _signal_pace(run)) for run in trajectories(evidence)])


@CLAIMS.add(
    "J.linear_growth",
    "Proposition J",
    {"straight": at_least(STRAIGHT), "pace": between(0.5 / 4, 1.0)},
    HARMFUL_STAGES,
    conditions=harmful,
)
def strong_noise_grows_linearly(evidence: Evidence) -> dict[str, Measured]:
    """In Stage II the values of strong noise tokens grow linearly, by a constant, here 1/(2M) to 1, times
    eta C_p^2 sigma_p^2 d |w_O|^2 / (2N) per step."""
    return _straight([_line(run, STRONG, _strong_pace(run)) for run in trajectories(evidence)])


def _signal_pace(run: Trajectory) -> float:
    n = run.numbers
    return n.rate * n.signal * n.output_norm**2 / 4  # classes are balanced: |S| / N = 1/2


def _strong_pace(run: Trajectory) -> float:
    n = run.numbers
    return n.rate * n.strong_noise_std**2 * n.dim * n.output_norm**2 / (2 * n.samples)


def _line(run: Trajectory, token: int, pace: float) -> tuple[float, float]:
    """Return R^2 of a line through the mean value of a token in Stage II, and its slope relative to the pace."""
    stage = run.stage_2(token)
    if stage is None:
        return np.nan, np.nan
    steps, values = run.steps[stage], run.signed[stage, :, token].mean(1)
    return np.corrcoef(steps, values)[0, 1] ** 2, np.polyfit(steps, values, 1)[0] / pace


def _straight(fits: list[tuple[float, float]]) -> dict[str, Measured]:
    squares, slopes = np.array(fits).T
    return {
        "straight": mean("R^2 of value on step", squares),
        "pace": mean("slope / (full attention's slope)", slopes),
    }


# Stage II: scores.


NEARLY_ALL = {"share": 0.99}
"""of steps and pairs in which a statement about all of them must hold"""


@CLAIMS.add(
    "D.monotone",
    "Proposition D",
    MOST,
    BENIGN_STAGES,
    conditions=benign,
    levels=NEARLY_ALL,
    version=2,
)
def scores_monotone(evidence: Evidence) -> dict[str, Measured]:
    """In Stage II, in every row, scores on the signal never fall and scores on noise of the same point never rise."""
    rows = {"signal and strong rows": slice(0, 2), "weak rows": slice(2, None)}
    runs = trajectories(evidence)
    return {
        name: _nearly_all(evidence, [_monotone(run, r) for run in runs]) for name, r in rows.items()
    }


def _nearly_all(evidence: Evidence, shares: list[float]) -> Measured:
    """Return the share of seeds in which a statement holds in nearly all cases, from its share in each run."""
    level, runs = evidence.levels["share"], trajectories(evidence)
    smallest = each_seed(runs, shares, np.min)
    if np.isnan(smallest).any():
        raise Undecided(
            f"{np.isnan(smallest).sum()} of {len(smallest)} seeds do not reach this stage"
        )
    measured = share(f"share of seeds in which it holds in {level:.0%} of cases", smallest >= level)
    return measured.noting(f"in {smallest.min():.4%} of the cases of the worst seed")


def _monotone(run: Trajectory, rows: slice) -> float:
    stage = run.stage_2(SIGNAL)
    if stage is None:
        return np.nan
    moved = np.diff(run.scores[stage], axis=0)[:, :, rows]
    return np.concatenate([moved[..., 0].ravel() >= 0, moved[..., 1:].ravel() <= 0]).mean()


@CLAIMS.add(
    "L.doubling",
    "Proposition L",
    MOST,
    HARMFUL_STAGES,
    conditions=harmful,
    levels={"share": 0.95},
    version=2,
)
def strong_scores_double(evidence: Evidence) -> Measured:
    """In Stage II the score of every row on the strong token grows at least twice as fast as on any other token."""
    return _nearly_all(evidence, [_doubles(run) for run in trajectories(evidence)])


def _doubles(run: Trajectory) -> float:
    stage = run.stage_2(STRONG)
    if stage is None:
        return np.nan
    moved = np.diff(run.scores[stage], axis=0)
    others = np.delete(moved, STRONG, axis=3).max(3)
    return (moved[..., STRONG] >= 2 * others).mean()


GROWTH = at_least(1 - EXPONENT)
"""the propositions bound the growth from below only, by the power 1"""
GROWTH_OF = "slope of log growth on log (t-T1)(t-T1+1)"


@CLAIMS.add("D.log_growth", "Proposition D, Lemma 5.3", GROWTH, BENIGN_STAGES, conditions=benign)
def signal_gaps_grow(evidence: Evidence) -> Measured:
    """exp(Lambda) grows at least as C (t - T1)(t - T1 + 1), where Lambda is the score of the signal's row on the signal
    less its score on noise."""
    runs = trajectories(evidence)
    return slowest(GROWTH_OF, runs, [_growth(run, SIGNAL, SIGNAL) for run in runs])


@CLAIMS.add("L.log_growth", "Proposition L", GROWTH, HARMFUL_STAGES, conditions=harmful)
def strong_gaps_grow(evidence: Evidence) -> dict[str, Measured]:
    """exp(Psi) grows at least as C (t - T1)(t - T1 + 1), where Psi is the score of a row on the strong token less its
    score on another token."""
    rows, runs = {"signal row": SIGNAL, "strong row": STRONG}, trajectories(evidence)
    return {
        name: slowest(GROWTH_OF, runs, [_growth(run, STRONG, row) for run in runs])
        for name, row in rows.items()
    }


def slowest(of: str, runs: list[Trajectory], numbers: list[float]) -> Measured:
    """Return the mean over seeds of the smallest number among the runs of a seed."""
    return mean(of, each_seed(runs, numbers, np.min))


def _growth(run: Trajectory, token: int, row: int) -> float:
    """Return the log-log slope of exp(gap) - exp(gap at T1) over the last three quarters of Stage II.

    exp(gap) is the mean over points and other tokens. In the first quarter the value at T1 adds growth that is linear
    in t: it exceeds the paper's lower bound, but is no power of it.
    """
    stage = run.stage_2(token)
    if stage is None:
        return np.nan
    scores = run.scores[stage, :, row]
    gaps = np.exp(scores[..., token, None] - np.delete(scores, token, axis=2)).mean((1, 2))
    passed = (run.steps[stage] - run.steps[stage.start]).astype(float)
    late = (passed >= passed[-1] / 4) & (gaps > gaps[0])
    if late.sum() < 3:
        return np.nan
    return np.polyfit(np.log((passed * (passed + 1))[late]), np.log((gaps - gaps[0])[late]), 1)[0]


@CLAIMS.add("F4.signs", "F.4", MOST, BENIGN_STAGES, conditions=benign, levels=NEARLY_ALL, version=2)
def coefficient_signs(evidence: Evidence) -> Measured:
    """After T1 coefficients alpha and beta towards the signal are not negative, those towards noise not positive."""
    runs = trajectories(evidence)
    begins = [run.dominance(SIGNAL) for run in runs]
    shares = [
        np.nan if begin is None else run.signs[begin:].mean()
        for run, begin in zip(runs, begins, strict=True)
    ]
    return _nearly_all(evidence, shares)
