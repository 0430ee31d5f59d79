"""The three stages of the proof of Theorem 2, Case 1, lemma by lemma.

Clean runs decide the claims: they are inside Condition 1 at any width d_h (except for the rate at small scales). The
same numbers under attack, at the small width d_h that exact coordinates can hold, are informational.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import xarray as xr
from torch import Tensor

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    exponent,
    mean,
    share,
    slope_by_seed,
    worst_of_runs,
)
from benign.claims.rule import EXPONENT
from benign.experiment import Experiment
from benign.papers.jiang.recursion import State, predict, start
from benign.papers.jiang.theory import JiangNumbers
from benign.papers.statistics import MOST, by_seed, rows_by_seed
from benign.papers.zhang.claims.studies import (
    STAGES,
    STAGES_ATTACKED,
    START,
    START_ATTACKED,
    WIDTHS,
    clean_case_1,
    clean_loud,
)
from benign.papers.zhang.theory import stage_1_steps_corrected, stage_1_steps_printed
from benign.spec.axes import cells

CLAIMS = Claims("zhang")

LATE = {"loss": 0.1}
"""largest final training loss at which the asymptotic laws of Stage III are judged"""

WRONG = {"wrong": 0.01}
"""largest share of steps and numbers that may be against a rule that holds always"""

NORMS = ("signal_query_norm", "signal_key_norm", "noise_query_norm", "noise_key_norm")
PARTS = ("clean", "attacked")
"""the two studies of most claims"""


@CLAIMS.add(
    "lem18.stage1",
    "Lemma 18",
    at_least(0.9),
    START,
    START_ATTACKED,
    conditions=clean_loud,
    informational=("attacked", "printed"),
    version=2,
    misprint="T1 lacks a factor of N, |w_O| is not squared, and a term has N/4 for 3N/4",
)
def stage_1(evidence: Evidence) -> dict[str, Measured]:
    """By T1 (corrected) the value of every signal is at least 3M times the value of any noise token of its points."""
    clean, attacked = zip(evidence.experiments, evidence.results, strict=True)
    hits_by_part = {
        "clean": _on_time(*clean, stage_1_steps_corrected),
        "attacked": _on_time(*attacked, stage_1_steps_corrected),
        "printed": _on_time(*attacked, stage_1_steps_printed),
    }
    return {
        name: share("seeds whose runs all end Stage I by T1", hits)
        for name, hits in hits_by_part.items()
        if hits or name == "clean"
    }


def _on_time(
    experiment: Experiment, result: xr.Dataset, t1: Callable[[JiangNumbers], float]
) -> list[bool]:
    """Return for each seed whether Stage I ended by T1 in all its runs with a finite T1 that were trained so long."""
    hits: dict[int, list[bool]] = {}
    for where, cell in cells(experiment):
        due = t1(JiangNumbers.of(cell, attacked=True))
        runs = result.sel(where)
        for seed, (ended, steps) in enumerate(
            zip(runs.stage_1_end.values, runs.steps.values, strict=True)
        ):
            if np.isfinite(due) and (ended >= 0 or steps >= due):
                hits.setdefault(seed, []).append(bool(0 <= ended <= due))
    return [all(by_cell) for by_cell in hits.values()]


@CLAIMS.add(
    "lem17.hold",
    "Lemma 17",
    at_most(2.0),
    START,
    START_ATTACKED,
    conditions=clean_loud,
    informational=("attacked",),
    version=2,
)
def queries_and_keys_hold(evidence: Evidence) -> dict[str, Measured]:
    """During Stage I the squared norms of queries and keys of signal and noise tokens keep the order of their initial
    values: they stay within a factor of 2."""
    changes = dict(zip(PARTS, map(_changes, evidence.results), strict=True))
    return {
        name: worst_of_runs("largest factor of change of a squared norm", factors, log=True)
        for name, factors in changes.items()
        if np.isfinite(factors).any() or name == "clean"
    }


def _changes(result: xr.Dataset) -> np.ndarray:
    """Return the largest factor of change of a squared norm during Stage I, by seed, in runs whose Stage I ended."""
    early = result.step <= result.stage_1_end
    factors = []
    for name in NORMS:
        curve = result[f"{name}_curve"]
        change = (curve / curve.isel(step=0)) ** 2
        change = xr.where(change < 1, 1 / change, change)
        factors.append(change.where(early).max("step"))
    largest = xr.concat(factors, "norm").max("norm").where(result.stage_1_end >= 0)
    return largest.max([dim for dim in largest.dims if dim != "seed"]).values


@CLAIMS.add(
    "stageII.monotone",
    "Appendix H.2, D(t)",
    MOST,
    STAGES,
    conditions=clean_case_1,
    levels=WRONG,
    version=2,
)
def scores_are_monotone(evidence: Evidence) -> Measured:
    """In Stage II, for every query, scores with a signal as key only rise, and scores with a noise token of the same
    point as key only fall (up to 1 % of steps and scores), in most seeds."""
    scores = (state.scores for state in _stage_2(evidence))
    wrong = [_wrong_share(later - now, columns=True) for now, later in pairwise(scores)]
    return _right_seeds(evidence, "seeds with few (step, score) that move the other way", wrong)


@CLAIMS.add(
    "stageII.signs",
    "Appendix K.5",
    MOST,
    STAGES,
    conditions=clean_case_1,
    levels=WRONG,
    version=2,
)
def coefficients_have_signs(evidence: Evidence) -> Measured:
    """In Stage II the coefficients alpha that multiply a signal's key, and beta of a signal's key, are non-negative;
    those of noise keys of the same point are non-positive (up to 1 % of steps and coefficients), in most seeds."""
    wrong = []
    for state in _stage_2(evidence):
        runs = np.arange(len(state.places))[:, None, None, None]
        pairs = runs, state.places[..., :, None], state.places[..., None, :]
        alpha, beta = state.alpha[pairs], state.beta[pairs]
        wrong.append((_wrong_share(alpha, columns=True) + _wrong_share(beta, columns=False)) / 2)
    return _right_seeds(evidence, "seeds with few (step, coefficient) of the other sign", wrong)


def _wrong_share(numbers: Tensor, columns: bool) -> np.ndarray:
    """Return the share of numbers [runs, points, M, M] with the wrong sign, by run.

    The first column (or row) must not be negative, the others not positive.
    """
    signs = -np.ones(numbers.shape[-2:])
    signs[(slice(None), 0) if columns else 0] = 1
    return (numbers.numpy() * signs < 0).mean((1, 2, 3))


def _right_seeds(evidence: Evidence, of: str, wrong: list[np.ndarray]) -> Measured:
    """Return the share of seeds in which few numbers are wrong, from the shares of every step by seed.

    Not their mean: where no seed has any, it has no scatter, and two seeds would show as much as twenty.
    """
    if not wrong:
        raise Undecided("Stage II has no step")
    means = np.mean(wrong, 0)
    largest = f"wrong in the worst seed: {100 * means.max():.2g} %"
    return share(of, means <= evidence.levels["wrong"]).noting(largest)


@CLAIMS.add(
    "stageII.lambda_quadratic",
    "Appendix H.2, D(t)",
    exponent(2),
    STAGES,
    conditions=clean_case_1,
)
def gaps_grow_quadratically(evidence: Evidence) -> Measured:
    """In Stage II exp(Lambda) grows as the square of time, where Lambda is the score of a signal with itself less its
    score with noise."""
    rows = (state.scores[:, :, 0] for state in _stage_2(evidence))
    gaps = np.stack([(row[..., :1] - row[..., 1:]).mean((1, 2)) for row in rows], axis=1)
    grown = np.exp(gaps[:, 1:]) - np.exp(gaps[:, :1])
    times = np.arange(1, gaps.shape[1])
    chosen = np.unique(np.geomspace(1, times[-1], 20).astype(int)) - 1  # evenly in the logarithm
    logs = np.log(np.where(grown > 0, grown, np.nan))[:, chosen]
    return slope_by_seed("slope of log(exp Lambda - exp Lambda(T1))", np.log(times[chosen]), logs)


def _stage_2(evidence: Evidence) -> Iterator[State]:
    """Yield the exact states of the clean runs from the last T1 to the first T2 of the seeds (papers/jiang.md 2.3)."""
    replay = evidence.replay()
    result = evidence.results[0].sel(seed=replay.seeds)
    first, last = result.stage_1_end.max(), result.stage_2_end.min()
    if first < 0 or last <= first:
        raise Undecided("Stage I or Stage II does not end in some run")
    for state in predict(start(replay.start()), int(last)):
        if state.number >= first:
            yield state


@CLAIMS.add(
    "stageIII.exp_v_linear",
    "Appendix H.3, F(t)",
    at_least(1 - EXPONENT),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    levels=LATE,
    version=2,
    informational=("attacked",),
)
def exp_of_value_is_linear(evidence: Evidence) -> dict[str, Measured]:
    """In Stage III exp(V_+) grows at least linearly in time, where V_+ is the value of the positive signal."""
    of = "power of the time since T2 in exp(V_+) - exp(V_+(T2))"
    return _in_stage_3(evidence, of, "value_positive_signal_curve", _power_since_start)


@CLAIMS.add(
    "stageIII.loss_one_over_t",
    "Appendix H.3 and Lemma 21",
    exponent(-1),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    levels=LATE,
    informational=("attacked",),
)
def loss_falls_as_one_over_t(evidence: Evidence) -> dict[str, Measured]:
    """In Stage III the training loss falls as 1/t."""
    of = "slope of log loss on log t at the end"
    return _in_stage_3(evidence, of, "train_loss_curve", _last_slope)


def _in_stage_3(
    evidence: Evidence, of: str, curve: str, statistic: Callable[[np.ndarray, np.ndarray], float]
) -> dict[str, Measured]:
    """Return a statistic of steps and values of a curve in Stage III; attacked runs are averaged over radii."""
    final = evidence.experiments[0].training.stop_loss
    if final > evidence.levels["loss"]:
        raise Undecided(f"Stage III has hardly begun where training stops, at a loss of {final}")
    parts = {}
    for name, result in zip(PARTS, evidence.results, strict=True):
        late = (result.step >= result.stage_2_end) & (result.stage_2_end >= 0)
        values = xr.apply_ufunc(
            statistic,
            result.step.astype(float),
            result[curve].where(late),
            input_core_dims=[["step"], ["step"]],
            vectorize=True,
        )
        parts[name] = mean(of, by_seed(values))
    return parts


def _power_since_start(step: np.ndarray, values: np.ndarray) -> float:
    """Return the power of time in what exp(values) has grown since the first known value."""
    known = np.isfinite(values)
    if known.sum() < 4:
        return np.nan
    time = step[known][1:] - step[known][0]
    grown = np.exp(values[known][1:]) - np.exp(values[known][0])
    rising = grown > 0
    return np.polyfit(np.log(time[rising]), np.log(grown[rising]), 1)[0]


def _last_slope(step: np.ndarray, values: np.ndarray) -> float:
    """Return the log-log slope over the last factor of 4 in time."""
    known = np.isfinite(values)
    if known.sum() < 4:
        return np.nan
    known &= step >= step[known].max() / 4
    return np.polyfit(np.log(step[known]), np.log(values[known]), 1)[0]


@CLAIMS.add("stageIII.attn_to_one", "Appendix H.3", at_most(0.0), WIDTHS, conditions=clean_case_1)
def attention_goes_to_the_signal(evidence: Evidence) -> Measured:
    """At the end of Stage III attention on the signal is 1 - o(1). The printed bound is vacuous up to about d_h =
    2.5e9, so its trend is judged: attention on noise falls as d_h grows."""
    result = evidence.result
    if result.sizes["width"] < 2:
        raise Undecided("one width has no trend")
    rest = np.log(1 - result.attention_on_signal).transpose("seed", "width").values
    widths = np.log(result.hidden.values)
    measured = slope_by_seed("slope of log(1 - attention) on log d_h", widths, rest)
    last = float(result.attention_on_signal.isel(width=-1).mean())
    return measured.noting(f"attention on the signal at the largest d_h is {last:.3f}")


@CLAIMS.add(
    "stageIII.noise_value",
    "Appendix H.3, F(t)",
    at_most(1.0),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    informational=("attacked",),
    version=2,
)
def noise_values_stay_small(evidence: Evidence) -> dict[str, Measured]:
    """At the end of Stage III the value of every noise token is at most 1/(3M) of the value of a signal."""
    parts = {}
    runs = zip(PARTS, evidence.experiments, evidence.results, strict=True)
    for name, experiment, result in runs:
        signal = np.minimum(abs(result.value_positive_signal), abs(result.value_negative_signal))
        ratios = 3 * experiment.data.tokens * result.value_noise_max / signal
        of = "3M max |V_{n,i}| / min |V_+-|"
        parts[name] = worst_of_runs(of, rows_by_seed(ratios), log=True)
    return parts


@CLAIMS.add(
    "thm22.alignment",
    "Appendix H.4",
    at_least(0.9),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    informational=("attacked",),
)
def value_vector_aligns(evidence: Evidence) -> dict[str, Measured]:
    """If N SNR^2 >= 60 M^2, the value vector u = W_V w_O ends almost aligned with mu_+ - mu_-: their cosine is at least
    0.9."""
    return {
        name: mean("cos(u, mu_+ - mu_-)", by_seed(result.value_alignment))
        for name, result in zip(PARTS, evidence.results, strict=True)
    }
