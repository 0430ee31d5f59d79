"""The proofs of Theorems 4.1 and 4.2 in the order of training.

Start: Lemmas C.1 to C.4, as shares of draws in which a bound fails. Stages I and II: which token dominates, how values
and scores grow while values are small. Stage III: values, attention, and fresh points at the end.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    mean,
    share,
)
from benign.papers.jiang.claims.studies import (
    BENIGN_END,
    BENIGN_STAGES,
    BENIGN_WIDE,
    HARMFUL_END,
    HARMFUL_STAGES,
    HARMFUL_WIDE,
    START,
    TINY_LOSS,
    benign,
    harmful,
)
from benign.papers.jiang.claims.trajectory import SIGNAL, STRONG, Trajectory, trajectories
from benign.papers.jiang.recursion import State, start
from benign.papers.jiang.theory import (
    HARMFUL_CONSTANT,
    JiangNumbers,
    attention_left_printed,
    benign_stage_1_steps_printed,
    harmful_stage_1_steps_corrected,
    log_factor,
    margin_bound_printed,
    start_spread,
)

CLAIMS = Claims("jiang")
FAILURE = 0.05
"""delta of the lemmas about the start"""
BROKEN = at_most(FAILURE)


# Start.


def _start(evidence: Evidence) -> tuple[JiangNumbers, State]:
    """Return the numbers of the cell and the start of its runs: products of tokens, queries and keys, and values."""
    replay = evidence.replay()
    return JiangNumbers.of(replay.cell), start(replay.start())


def _failures(of: str, holds: Tensor) -> Measured:
    """Return the share of draws in which a bound fails, from where it holds [draws, ...]."""
    return share(f"share of draws in which {of}", ~holds.flatten(1).all(1).numpy(), "draw")


def _lengths(n: JiangNumbers) -> Tensor:
    """Return the mean squared lengths of the distinct tokens: signals, then strong and weak noise point by point."""
    point = [n.strong_noise_std**2 * n.dim] + [n.noise] * (n.tokens - 2)
    return torch.tensor([n.signal] * 2 + point * n.samples, dtype=torch.float64)


@CLAIMS.add("C1.class_balance", "Lemma C.1", BROKEN)
def class_balance(evidence: Evidence) -> Measured:
    """Of N >= 8 log(4 / delta) points, each class has between N/4 and 3N/4, with probability 1 - delta."""
    count = math.ceil(8 * math.log(4 / FAILURE))
    draws = evidence.size(200, 1000, 10_000)
    coins = torch.rand(draws, count, generator=evidence.generator(), dtype=torch.float64) < 0.5
    positive = coins.sum(1)
    balanced = (positive >= count / 4) & (positive <= 3 * count / 4)
    return _failures(f"a class of {count} points is out of balance", balanced[:, None])


@CLAIMS.add(
    "C2.V_init", "Lemma C.2", BROKEN, START, conditions=benign, informational=("at the bound",)
)
def initial_values(evidence: Evidence) -> dict[str, Measured]:
    """With probability 1 - delta the initial values of all tokens are at most d_h^(-1/4). Condition (7) hides a log
    factor, set to C_p sqrt(2 log(4 N M / delta)) here; without it strong tokens have values of C_p d_h^(-1/4)."""
    n, state = _start(evidence)
    spread = start_spread(n.samples, n.tokens, n.strong_noise_std / n.noise_std, FAILURE)
    sizes = state.values.abs() * n.hidden**0.25
    strong = torch.zeros(sizes.shape[1], dtype=torch.bool)
    strong[2 :: n.tokens - 1] = True
    return {
        "signals and weak noise": _failures(
            "some |V(0)| is too large", sizes[:, ~strong] <= spread
        ),
        "strong noise": _failures("some |V_{n,2}(0)| is too large", sizes[:, strong] <= spread),
        "at the bound": _failures("some |V(0)| is too large, sigma_V at (7)", sizes <= 1),
    }


@CLAIMS.add("C3.QK_norms", "Lemma C.3", BROKEN, START, conditions=benign)
def query_key_norms(evidence: Evidence) -> Measured:
    """With probability 1 - delta, |q|^2 and |k|^2 of every token x are between 1/2 and 3/2 of |x|^2 sigma_h^2 d_h."""
    n, state = _start(evidence)
    expected = _lengths(n).repeat(2) * n.score_std**2 * n.hidden
    ratios = state.products.diagonal(dim1=1, dim2=2) / expected
    return _failures("a query or key has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add("C3.QK_cross", "Lemma C.3", BROKEN, START, conditions=benign)
def query_key_products(evidence: Evidence) -> Measured:
    """With probability 1 - delta, the product of two different queries, of two different keys, or of a query and a key
    is at most 2 |x| |x'| sigma_h^2 sqrt(d_h L), with the length of strong noise for all noise."""
    n, state = _start(evidence)
    strong = n.strong_noise_std**2 * n.dim
    lengths = torch.where(torch.arange(len(_lengths(n))) < 2, n.signal, strong).sqrt().repeat(2)
    factor = 2 * n.score_std**2 * math.sqrt(n.hidden * log_factor(n.samples, n.tokens, FAILURE))
    ratios = state.products.abs() / (factor * lengths[:, None] * lengths)
    ratios.diagonal(dim1=1, dim2=2).zero_()
    return _failures("two of them have a product that is too large", ratios <= 1)


@CLAIMS.add("C4.noise_norms", "Lemma C.4", BROKEN, START, conditions=benign)
def noise_norms(evidence: Evidence) -> Measured:
    """With probability 1 - delta, squared lengths of noise tokens are between 1/2 and 3/2 of their mean, sigma^2 d."""
    n, state = _start(evidence)
    ratios = (state.gamma.diagonal(dim1=1, dim2=2) / _lengths(n))[:, 2:]
    return _failures("a noise token has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add("C4.noise_cross", "Lemma C.4", BROKEN, START, conditions=benign)
def noise_products(evidence: Evidence) -> Measured:
    """With probability 1 - delta, two different noise tokens have a product of at most
    2 C_p^2 sigma_p^2 sqrt(d log(4 N^2 M^2 / delta))."""
    n, state = _start(evidence)
    log = math.log(4 * (n.samples * n.tokens) ** 2 / FAILURE)
    bound = 2 * n.strong_noise_std**2 * math.sqrt(n.dim * log)
    products = state.gamma[:, 2:, 2:].abs().clone()
    products.diagonal(dim1=1, dim2=2).zero_()
    return _failures("two noise tokens have a product that is too large", products <= bound)


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


@CLAIMS.add("E3.dominance", "Lemma E.3", MOST, HARMFUL_STAGES, conditions=harmful)
def strong_noise_dominates(evidence: Evidence) -> Measured:
    """Where N SNR^2 <= 4: by step T1 = 4 M (3M+1) N / (eta d_h^(1/4) (C_p^2 - 24 M) sigma_p^2 d |w_O|^2), the value of
    the strong noise token of every point is at least 3M times the value of each of its other tokens."""
    runs = trajectories(evidence)
    if any(run.numbers.race > HARMFUL_CONSTANT for run in runs):
        raise Undecided("vacuous: N SNR^2 is above 4")
    measured = _dominance(runs, STRONG, harmful_stage_1_steps_corrected)
    return measured.noting("equation (151) prints C_p^2 - 200 M, which is negative")


def _dominance(runs: list[Trajectory], token: int, t1: Callable[[JiangNumbers], float]) -> Measured:
    """Return the share of runs in which the token dominates by T1."""
    bounds = [t1(run.numbers) for run in runs]
    begins = [run.dominance(token) for run in runs]
    steps = [
        math.inf if begin is None else run.steps[begin]
        for run, begin in zip(runs, begins, strict=True)
    ]
    median = np.median([step for step in steps if step < math.inf] or np.nan)
    measured = share("share of seeds with dominance by T1", np.less_equal(steps, bounds))
    return measured.noting(f"T1 = {np.median(bounds):.4g}, dominance from step {median:.4g} on")


@CLAIMS.add("D4.scores_small", "Lemma D.4", MOST, BENIGN_STAGES, conditions=benign)
def scores_stay_small(evidence: Evidence) -> Measured:
    """At T1 all scores are still o(1), here below 0.5, and of order max(|mu|^2, sigma_p^2 d) sigma_h^2 sqrt(d_h L).
    Scores of strong tokens with themselves are left out."""
    return _small_scores(trajectories(evidence), SIGNAL, strong=False)


@CLAIMS.add(
    "D4.scores_small_strong", "Lemmas D.4 and E.2", MOST, HARMFUL_STAGES, conditions=harmful
)
def strong_scores_stay_small(evidence: Evidence) -> Measured:
    """At T1 the scores of strong tokens with themselves are still o(1) too, although they start between C_p^2 / L^2 and
    C_p^2 / L^(3/2) where the signal is no longer than the noise."""
    return _small_scores(trajectories(evidence), STRONG, strong=True)


def _small_scores(runs: list[Trajectory], token: int, strong: bool) -> Measured:
    """Return the share of runs whose scores at T1 are at most 5 times the order of the lemma with constant 1.

    The largest score of one start varies too much to be the scale.
    """
    sizes, orders = [], []
    for run in runs:
        n, t1 = run.numbers, run.dominance(token)
        order = n.scale * n.score_std**2 * math.sqrt(n.hidden * log_factor(n.samples, n.tokens))
        orders.append(order)
        if t1 is None:
            raise Undecided("a run does not reach T1")
        both = np.zeros(run.scores.shape[2:], dtype=bool)
        both[STRONG, STRONG] = True
        sizes.append(np.abs(run.scores[t1][:, both if strong else ~both]).max())
    small = (np.array(sizes) <= 5 * np.array(orders)) & (np.array(sizes) < 0.5)
    measured = share("share of seeds with small scores at T1", small)
    return measured.noting(f"largest at T1 {np.median(sizes):.3g}, order {np.median(orders):.3g}")


# Stage II: values grow linearly.


@CLAIMS.add(
    "B.linear_growth",
    "Proposition B, Lemma 5.3",
    {"straight": at_least(STRAIGHT), "pace": between(0.5 / 3, 1.0)},
    BENIGN_STAGES,
    conditions=benign,
)
def signal_grows_linearly(evidence: Evidence) -> dict[str, Measured]:
    """In Stage II the value of the signal grows linearly, by 1/M to 1 times eta |mu|^2 |w_O|^2 |S| / (2N) per step."""
    return _straight([_line(run, SIGNAL, _signal_pace(run)) for run in trajectories(evidence)])


@CLAIMS.add(
    "J.linear_growth",
    "Proposition J",
    {"straight": at_least(STRAIGHT), "pace": between(0.5 / 4, 1.0)},
    HARMFUL_STAGES,
    conditions=harmful,
)
def strong_noise_grows_linearly(evidence: Evidence) -> dict[str, Measured]:
    """In Stage II the values of strong noise tokens grow linearly, by 1/M to 1 times
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


@CLAIMS.add(
    "D.monotone",
    "Proposition D",
    at_least(0.99),
    BENIGN_STAGES,
    conditions=benign,
    informational=("weak rows",),
)
def scores_monotone(evidence: Evidence) -> dict[str, Measured]:
    """In Stage II, in every row, scores on the signal never fall and scores on noise of the same point never rise."""
    rows = {"signal and strong rows": slice(0, 2), "weak rows": slice(2, None)}
    of, runs = "share of (step, pair) with the stated sign", trajectories(evidence)
    return {name: mean(of, [_monotone(run, r) for run in runs]) for name, r in rows.items()}


def _monotone(run: Trajectory, rows: slice) -> float:
    stage = run.stage_2(SIGNAL)
    if stage is None:
        return np.nan
    moved = np.diff(run.scores[stage], axis=0)[:, :, rows]
    return np.concatenate([moved[..., 0].ravel() >= 0, moved[..., 1:].ravel() <= 0]).mean()


@CLAIMS.add("L.doubling", "Proposition L", at_least(0.95), HARMFUL_STAGES, conditions=harmful)
def strong_scores_double(evidence: Evidence) -> Measured:
    """In Stage II the score of every row on the strong token grows at least twice as fast as on any other token."""
    shares = [_doubles(run) for run in trajectories(evidence)]
    return mean("share of (step, row) with twice the growth", shares)


def _doubles(run: Trajectory) -> float:
    stage = run.stage_2(STRONG)
    if stage is None:
        return np.nan
    moved = np.diff(run.scores[stage], axis=0)
    others = np.delete(moved, STRONG, axis=3).max(3)
    return (moved[..., STRONG] >= 2 * others).mean()


GROWTH = at_least(0.8)
"""the propositions bound the growth from below only"""
GROWTH_OF = "slope of log growth on log (t-T1)(t-T1+1)"


@CLAIMS.add("D.log_growth", "Proposition D, Lemma 5.3", GROWTH, BENIGN_STAGES, conditions=benign)
def signal_gaps_grow(evidence: Evidence) -> Measured:
    """exp(Lambda) grows at least as C (t - T1)(t - T1 + 1), where Lambda is the score of the signal's row on the signal
    less its score on noise."""
    return mean(GROWTH_OF, [_growth(run, SIGNAL, SIGNAL) for run in trajectories(evidence)])


@CLAIMS.add("L.log_growth", "Proposition L", GROWTH, HARMFUL_STAGES, conditions=harmful)
def strong_gaps_grow(evidence: Evidence) -> dict[str, Measured]:
    """exp(Psi) grows at least as C (t - T1)(t - T1 + 1), where Psi is the score of a row on the strong token less its
    score on another token."""
    rows, runs = {"signal row": SIGNAL, "strong row": STRONG}, trajectories(evidence)
    return {
        name: mean(GROWTH_OF, [_growth(run, STRONG, row) for run in runs])
        for name, row in rows.items()
    }


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


@CLAIMS.add("F4.signs", "F.4", at_least(0.99), BENIGN_STAGES, conditions=benign)
def coefficient_signs(evidence: Evidence) -> Measured:
    """After T1 coefficients alpha and beta towards the signal are not negative, those towards noise not positive."""
    runs = trajectories(evidence)
    begins = [run.dominance(SIGNAL) for run in runs]
    shares = [
        np.nan if begin is None else run.signs[begin:].mean()
        for run, begin in zip(runs, begins, strict=True)
    ]
    return mean("share of coefficients with the stated sign", shares)


# Stage III: values.


MISSED = 0.05
"""share of fresh points that may miss a bound"""
SPARSE = 0.1
"""attention on other tokens that the paper's bound may allow; with more, attention of 0.9 does not follow"""

LOGARITHM = {"growth": at_least(0.8), "ceiling": at_most(1.0), "straight": at_least(STRAIGHT)}
"""the propositions bound values from below by log(exp V(T2) + C (t - T2)) and from above by 2 log(1 / eps); a straight
exp V is more than they state, and informational"""


@CLAIMS.add(
    "F.log_growth",
    "Proposition F, Lemma 5.4",
    LOGARITHM,
    BENIGN_END,
    conditions=benign,
    informational=("straight",),
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
)
def strong_noise_grows_logarithmically(evidence: Evidence) -> dict[str, Measured]:
    """In Stage III of harmful overfitting the values of strong tokens grow logarithmically: their exponentials grow at
    least linearly, and to at most eps^-2."""
    return _logarithm(trajectories(evidence), STRONG)


def _logarithm(runs: list[Trajectory], token: int) -> dict[str, Measured]:
    rows = np.array([_late_growth(run, token) for run in runs]).T
    texts = (
        "slope of log (exp V - exp V(T2)) on log (t - T2)",
        "V / (2 log(1 / eps)) at the end",
        "R^2 of exp V on t",
    )
    return {name: mean(of, row) for name, of, row in zip(LOGARITHM, texts, rows, strict=True)}


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


@CLAIMS.add("F.noise_bounded", "Proposition F", at_most(2.0), BENIGN_END, conditions=benign)
def noise_stays_bounded(evidence: Evidence) -> Measured:
    """Throughout benign training the values of noise tokens stay O(1), here at most 2."""
    largest = [np.abs(run.values[:, :, 1:]).max() for run in trajectories(evidence)]
    return mean("largest |V_{n,i}|", largest)


@CLAIMS.add("N.signal_small", "Proposition N", at_most(0.1), HARMFUL_END, conditions=harmful)
def signal_stays_small(evidence: Evidence) -> Measured:
    """At the end of harmful training the values of signals are o(1), here at most a tenth of those of strong tokens."""
    ends = [np.abs(run.values[-1]) for run in trajectories(evidence)]
    return mean("largest |V_s| / |V_{n,2}|", [(end[:, 0] / end[:, 1]).max() for end in ends])


# Stage III: attention at the end.


@CLAIMS.add("H.sparse_mu_row", "Proposition H, (64)", at_least(0.9), BENIGN_WIDE, conditions=benign)
def signal_row_sparse(evidence: Evidence) -> Measured:
    """At the end of benign training the signal's row attends to the signal alone: with 1 - o(1), here at least 0.9."""
    return _sparse(evidence, SIGNAL, [SIGNAL], "signal")


@CLAIMS.add(
    "H.sparse_all_rows", "Proposition H, (65)", at_least(0.9), BENIGN_WIDE, conditions=benign
)
def all_rows_sparse(evidence: Evidence) -> Measured:
    """At the end of benign training every row attends to the signal alone, rows of weak noise tokens included."""
    return _sparse(evidence, SIGNAL, slice(None), "noise")


@CLAIMS.add("E5.sparse_xi2", "Lemma E.5", at_least(0.9), HARMFUL_WIDE, conditions=harmful)
def strong_token_sparse(evidence: Evidence) -> Measured:
    """At the end of harmful training the rows of the signal and the strong token attend to the strong token alone."""
    return _sparse(evidence, STRONG, [SIGNAL, STRONG], "harmful signal")


def _sparse(evidence: Evidence, token: int, rows: list[int] | slice, bound: str) -> Measured:
    """Return the smallest attention of some rows on a token, in the widest runs; vacuous bounds are left out."""
    by_width: dict[int, list[float]] = {}
    for run in trajectories(evidence):
        n = run.numbers
        if (n.tokens - 1) * attention_left_printed(n, bound) <= SPARSE:
            smallest = float(run.attention[-1][:, rows, token].min())
            by_width.setdefault(n.hidden, []).append(smallest)
    if not by_width:
        raise Undecided(
            f"vacuous: no run is so wide that the paper's bound leaves {SPARSE} or less"
        )
    trend = ", ".join(
        f"{np.mean(values):.5f} at d_h = {width:.0e}" for width, values in by_width.items()
    )
    widest = by_width[max(by_width)]
    return mean("smallest attention over points and rows", widest).noting(trend)


# Stage III: fresh points.


@CLAIMS.add("D8.attention", "Lemma D.8", MOST, BENIGN_END, conditions=benign)
def fresh_attention(evidence: Evidence) -> Measured:
    """On a fresh point the signal's row keeps at least 1/(2M) of its attention on the signal."""
    return _fresh(
        evidence, lambda run: run.fresh.attention[:, 0, 0] >= 1 / (2 * run.numbers.tokens)
    )


@CLAIMS.add("D9.value", "Lemma D.9", MOST, BENIGN_END, conditions=benign)
def fresh_values(evidence: Evidence) -> Measured:
    """The noise tokens of a fresh point have values of at most 1 in size."""
    return _fresh(evidence, lambda run: np.abs(run.fresh.values[:, 1:]).max(1) <= 1)


@CLAIMS.add("L5.5.margin", "Lemma 5.5, (136)", MOST, TINY_LOSS, conditions=benign)
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
    runs = trajectories(evidence)
    converged = [run.converged for run in runs]
    if not all(converged):
        raise Undecided(f"only {sum(converged)} of {len(runs)} runs reached their loss")
    return share(
        f"share of seeds in which the bound holds on {1 - MISSED:.0%} of fresh points",
        [np.mean(holds(run)) >= 1 - MISSED for run in runs],
    )


@CLAIMS.add("D8.weight_drift", "(130)", at_most(3.0), BENIGN_END, conditions=benign)
def weights_stay(evidence: Evidence) -> Measured:
    """Training moves W_K by O(sigma_h sqrt(d_h)), here by at most 3 times that."""
    ratios = [
        run.key_drift / (run.numbers.score_std * math.sqrt(run.numbers.hidden))
        for run in trajectories(evidence)
    ]
    return mean("|W_K(T) - W_K(0)| / (sigma_h sqrt(d_h))", ratios)
