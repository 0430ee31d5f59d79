"""The proofs of Theorems 4.1 and 4.2 in the order of training.

Start: Lemmas C.1 to C.4, as shares of draws in which a bound fails. Stages I and II: which token takes the lead, how
values and scores grow while values are small. Stage III: values, attention, and fresh points at the end.
"""

import math
from collections.abc import Callable, Sequence

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
from benign.papers.jiang.claims.walk import Walk, walks
from benign.papers.jiang.recursion import State, start
from benign.papers.jiang.theory import (
    HARMFUL_CONSTANT,
    Numbers,
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


def drawn(evidence: Evidence) -> tuple[Numbers, State]:
    """The numbers of the one cell, and the start of all its runs: inner products of tokens, queries, keys, values."""
    replay = evidence.replay()
    return Numbers.of(replay.cell), start(replay.start())


def broken(of: str, held: Tensor) -> Measured:
    """How often a bound is broken, from `held` [runs, ...]."""
    return share(f"share of draws in which {of}", ~held.flatten(1).all(1).numpy(), "draw")


def _lengths(n: Numbers) -> Tensor:
    """Scales of the squared lengths of the distinct tokens: signals, then strong and weak noise point by point."""
    point = [n.strong_noise_std**2 * n.dim] + [n.noise] * (n.tokens - 2)
    return torch.tensor([n.signal] * 2 + point * n.samples, dtype=torch.float64)


@CLAIMS.add("C1.class_balance", "Lemma C.1", BROKEN)
def class_balance(evidence: Evidence) -> Measured:
    """With N >= 8 log(4 / delta) points, each class has between N/4 and 3N/4 of them, but for a chance of delta."""
    count = math.ceil(8 * math.log(4 / FAILURE))
    draws = evidence.size(200, 1000, 10_000)
    coins = torch.rand(draws, count, generator=evidence.generator(), dtype=torch.float64) < 0.5
    positive = coins.sum(1)
    held = (positive >= count / 4) & (positive <= 3 * count / 4)
    return broken(f"a class of {count} points is out of balance", held[:, None])


@CLAIMS.add(
    "C2.V_init", "Lemma C.2", BROKEN, START, conditions=benign, informational=("at the bound",)
)
def initial_values(evidence: Evidence) -> dict[str, Measured]:
    """Initial values of all tokens are at most d_h^-1/4. The log factor that condition (7) hides is taken as
    C_p sqrt(2 log(4 N M / delta)); without it strong tokens have values of C_p d_h^-1/4."""
    n, state = drawn(evidence)
    spread = start_spread(n.samples, n.tokens, n.strong_noise_std / n.noise_std, FAILURE)
    sizes = state.values.abs() * n.hidden**0.25
    strong = torch.zeros(sizes.shape[1], dtype=torch.bool)
    strong[2 :: n.tokens - 1] = True
    return {
        "signals and weak noise": broken("some |V(0)| is too large", sizes[:, ~strong] <= spread),
        "strong noise": broken("some |V_{n,2}(0)| is too large", sizes[:, strong] <= spread),
        "at the bound": broken("some |V(0)| is too large, sigma_V at (7)", sizes <= 1),
    }


@CLAIMS.add("C3.QK_norms", "Lemma C.3", BROKEN, START, conditions=benign)
def query_key_norms(evidence: Evidence) -> Measured:
    """|q|^2 and |k|^2 of every token lie within half of |x|^2 sigma_h^2 d_h."""
    n, state = drawn(evidence)
    wanted = _lengths(n).repeat(2) * n.score_std**2 * n.hidden
    ratios = state.products.diagonal(dim1=1, dim2=2) / wanted
    return broken("a query or key has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add("C3.QK_cross", "Lemma C.3", BROKEN, START, conditions=benign)
def query_key_products(evidence: Evidence) -> Measured:
    """Different queries, different keys, and any query with any key have a product of at most
    2 |x| |x'| sigma_h^2 sqrt(d_h L), with the strong length for all noise."""
    n, state = drawn(evidence)
    strong = n.strong_noise_std**2 * n.dim
    lengths = torch.where(torch.arange(len(_lengths(n))) < 2, n.signal, strong).sqrt().repeat(2)
    factor = 2 * n.score_std**2 * math.sqrt(n.hidden * log_factor(n.samples, n.tokens, FAILURE))
    ratios = state.products.abs() / (factor * lengths[:, None] * lengths)
    ratios.diagonal(dim1=1, dim2=2).zero_()
    return broken("two of them have a product that is too large", ratios <= 1)


@CLAIMS.add("C4.noise_norms", "Lemma C.4", BROKEN, START, conditions=benign)
def noise_norms(evidence: Evidence) -> Measured:
    """Squared lengths of noise tokens lie within half of their mean, sigma^2 d."""
    n, state = drawn(evidence)
    ratios = (state.gamma.diagonal(dim1=1, dim2=2) / _lengths(n))[:, 2:]
    return broken("a noise token has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add("C4.noise_cross", "Lemma C.4", BROKEN, START, conditions=benign)
def noise_products(evidence: Evidence) -> Measured:
    """Different noise tokens have a product of at most 2 C_p^2 sigma_p^2 sqrt(d log(4 N^2 M^2 / delta))."""
    n, state = drawn(evidence)
    log = math.log(4 * (n.samples * n.tokens) ** 2 / FAILURE)
    bound = 2 * n.strong_noise_std**2 * math.sqrt(n.dim * log)
    products = state.gamma[:, 2:, 2:].abs().clone()
    products.diagonal(dim1=1, dim2=2).zero_()
    return broken("two noise tokens have a product that is too large", products <= bound)


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
        "share of (step, row) with twice the growth", [_doubles(walk) for walk in walks(evidence)]
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


# Stage III: values.


MISSED = 0.05
"""share of fresh points that may miss a bound"""
SPARSE = 0.1
"""attention that may be left; where the paper's own bound on it is larger, a claim of 0.9 does not follow"""

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
        "largest |V_{n,i}|", [np.abs(walk.values[:, :, 1:]).max() for walk in walks(evidence)]
    )


@CLAIMS.add("N.signal_small", "Proposition N", at_most(0.1), HARMFUL_END, conditions=harmful)
def signal_stays_small(evidence: Evidence) -> Measured:
    """At the end of harmful training values of signals are o(1), here at most a tenth of those of strong tokens."""
    ends = [np.abs(walk.values[-1]) for walk in walks(evidence)]
    return mean("largest |V_s| / |V_{n,2}|", [(end[:, 0] / end[:, 1]).max() for end in ends])


# Stage III: attention at the end.


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


# Stage III: fresh points.


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
        f"share of seeds in which {1 - MISSED:.0%} of fresh points hold it",
        [np.mean(each) >= 1 - MISSED for each in held],
    )


@CLAIMS.add("D8.weight_drift", "(130)", at_most(3.0), BENIGN_END, conditions=benign)
def weights_stay(evidence: Evidence) -> Measured:
    """Training moves W_K by no more than O(sigma_h sqrt(d_h)), here 3 times that."""
    found = walks(evidence)
    ratios = [w.key_drift / (w.numbers.score_std * math.sqrt(w.numbers.hidden)) for w in found]
    return mean("|W_K(T) - W_K(0)| / (sigma_h sqrt(d_h))", ratios)
