"""The proof of Theorem 2, Case 1, on runs: its three stages, lemma by lemma.

Claims are decided on clean runs, which are inside Condition 1 at any width d_h (but for the rate at small scales). What
the same numbers are under attack, at a width d_h that exact coordinates can hold, is told beside.
"""

from collections.abc import Iterator

import numpy as np
import xarray as xr

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
    slope_by_seed,
    worst,
)
from benign.experiment import Experiment
from benign.papers.jiang.recursion import State, predict, start
from benign.papers.jiang.theory import Numbers
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

LATE = 0.1
"""training loss down to which Stage III must go before its laws, which are asymptotic, are looked for"""

NORMS = ("signal_query_norm", "signal_key_norm", "noise_query_norm", "noise_key_norm")


@CLAIMS.add(
    "lem18.stage1",
    "Lemma 18",
    at_least(0.9),
    START,
    START_ATTACKED,
    conditions=clean_loud,
    informational=("attacked", "attacked, T1 as printed"),
)
def stage_1(evidence: Evidence) -> dict[str, Measured]:
    """By T1 (corrected) every signal has a value of at least 3M times that of any noise token of its points."""
    clean, attacked = zip(evidence.experiments, evidence.results, strict=True)
    found = {
        "clean": _on_time(*clean, stage_1_steps_corrected),
        "attacked": _on_time(*attacked, stage_1_steps_corrected),
        "attacked, T1 as printed": _on_time(*attacked, stage_1_steps_printed),
    }
    return {
        name: share("runs whose Stage I ends by T1", hits, "run")
        for name, hits in found.items()
        if hits or name == "clean"
    }


def _on_time(experiment: Experiment, result: xr.Dataset, formula) -> list[bool]:
    """Whether Stage I ended by the formula, in every run for which it is finite and was trained so long."""
    found = []
    for where, cell in cells(experiment):
        due = formula(Numbers.of(cell, attacked=True))
        runs = result.sel(where)
        for ended, steps in zip(runs.stage_1_end.values, runs.steps.values, strict=True):
            if np.isfinite(due) and (ended >= 0 or steps >= due):
                found.append(bool(0 <= ended <= due))
    return found


@CLAIMS.add(
    "lem17.hold",
    "Lemma 17",
    at_most(2.0),
    START,
    START_ATTACKED,
    conditions=clean_loud,
    informational=("attacked",),
)
def queries_and_keys_hold(evidence: Evidence) -> dict[str, Measured]:
    """During Stage I the squared norms of queries and keys of signal and noise tokens stay of the order of their start:
    within a factor of 2."""
    found = {"clean": _changes(evidence.results[0]), "attacked": _changes(evidence.results[1])}
    return {
        name: worst("largest factor of change of a squared norm", factors)
        for name, factors in found.items()
        if factors.size or name == "clean"
    }


def _changes(result: xr.Dataset) -> np.ndarray:
    """The largest factor by which a squared norm differs from its start, of runs whose Stage I ended, up to there."""
    early = result.step <= result.stage_1_end
    factors = []
    for name in NORMS:
        curve = result[f"{name}_curve"]
        change = (curve / curve.isel(step=0)) ** 2
        change = xr.where(change < 1, 1 / change, change)
        factors.append(change.where(early).max("step"))
    largest = np.stack([factor.values.ravel() for factor in factors]).max(0)
    return largest[(result.stage_1_end >= 0).values.ravel()]


@CLAIMS.add(
    "stageII.monotone",
    "Appendix H.2, D(t)",
    at_most(0.01, fails_above=0.1),
    STAGES,
    conditions=clean_case_1,
)
def scores_are_monotone(evidence: Evidence) -> Measured:
    """In Stage II scores with a signal as key only rise, and scores with a noise token of the same point as key only
    fall, whichever token asks."""
    wrong, steps = [], 0
    before = None
    for state in _stage_2(evidence):
        if before is not None:
            moved = state.scores - before
            wrong.append(_share_against(moved, columns=True))
        before, steps = state.scores, steps + 1
    return _mean_share("share of (step, score) that move the other way", wrong)


@CLAIMS.add(
    "stageII.signs", "Appendix K.5", at_most(0.01, fails_above=0.1), STAGES, conditions=clean_case_1
)
def coefficients_have_signs(evidence: Evidence) -> Measured:
    """In Stage II the alpha that multiply a signal's key, and the beta of a signal's key, are non-negative; those of
    noise keys of the same point are non-positive."""
    wrong = []
    for state in _stage_2(evidence):
        runs = np.arange(len(state.places))[:, None, None, None]
        pairs = runs, state.places[..., :, None], state.places[..., None, :]
        alpha, beta = state.alpha[pairs], state.beta[pairs]
        wrong.append(
            (_share_against(alpha, columns=True) + _share_against(beta, columns=False)) / 2
        )
    return _mean_share("share of (step, coefficient) with the other sign", wrong)


def _share_against(numbers, columns: bool) -> np.ndarray:
    """For each run, the share of numbers [runs, points, M, M] not of the sign that the first column (or row) has."""
    signs = -np.ones(numbers.shape[-2:])
    signs[(slice(None), 0) if columns else 0] = 1
    return (numbers.numpy() * signs < 0).mean((1, 2, 3))


def _mean_share(of: str, wrong: list[np.ndarray]) -> Measured:
    if not wrong:
        raise Undecided("Stage II has no step")
    return mean(of, np.mean(wrong, 0))


@CLAIMS.add(
    "stageII.lambda_quadratic",
    "Appendix H.2, D(t)",
    between(1.5, 2.5),
    STAGES,
    conditions=clean_case_1,
)
def gaps_grow_quadratically(evidence: Evidence) -> Measured:
    """In Stage II exp(Lambda), Lambda the gap between a signal's score with itself and with noise, grows as the square
    of time."""
    gaps = np.stack(
        [(s.scores[:, :, 0, :1] - s.scores[:, :, 0, 1:]).mean((1, 2)) for s in _stage_2(evidence)],
        axis=1,
    )
    grown = np.exp(gaps[:, 1:]) - np.exp(gaps[:, :1])
    times = np.arange(1, gaps.shape[1])
    kept = np.unique(np.geomspace(1, times[-1], 20).astype(int)) - 1  # evenly in the logarithm
    logs = np.log(np.where(grown > 0, grown, np.nan))[:, kept]
    return slope_by_seed("slope of log(exp Lambda - exp Lambda(T1))", np.log(times[kept]), logs)


def _stage_2(evidence: Evidence) -> Iterator[State]:
    """The exact states of the clean runs from T1 to T2 (papers/jiang.md 2.3), the shortest Stage II of the seeds."""
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
    at_least(0.99),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    informational=("attacked",),
)
def exp_of_value_is_linear(evidence: Evidence) -> dict[str, Measured]:
    """In Stage III exp(V_+), with V_+ the value of the positive signal, grows linearly in time."""
    return _both(
        evidence, "R^2 of exp(V_+) on time", "value_positive_signal_curve", _linear_r_squared
    )


@CLAIMS.add(
    "stageIII.loss_one_over_t",
    "Appendix H.3 and Lemma 21",
    between(-1.15, -0.85),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    informational=("attacked",),
)
def loss_falls_as_one_over_t(evidence: Evidence) -> dict[str, Measured]:
    """In Stage III the training loss falls as 1/t."""
    return _both(evidence, "slope of log loss on log t at the end", "train_loss_curve", _last_slope)


def _both(evidence: Evidence, of: str, curve: str, statistic) -> dict[str, Measured]:
    """A statistic of a curve over Stage III, a number a run; attacked runs are averaged over radii."""
    reached = evidence.experiments[0].training.stop_loss
    if reached > LATE:
        raise Undecided(f"Stage III has hardly begun where training stops, at a loss of {reached}")
    found = {}
    for name, result in zip(("clean", "attacked"), evidence.results, strict=True):
        late = (result.step >= result.stage_2_end) & (result.stage_2_end >= 0)
        values = xr.apply_ufunc(
            statistic,
            result.step.astype(float),
            result[curve].where(late),
            input_core_dims=[["step"], ["step"]],
            vectorize=True,
        )
        found[name] = mean(of, values.mean([d for d in values.dims if d != "seed"]))
    return found


def _linear_r_squared(step: np.ndarray, values: np.ndarray) -> float:
    known = np.isfinite(values)
    if known.sum() < 4:
        return np.nan
    return np.corrcoef(step[known], np.exp(values[known]))[0, 1] ** 2


def _last_slope(step: np.ndarray, values: np.ndarray) -> float:
    """Over the last factor of 4 in time."""
    known = np.isfinite(values)
    if known.sum() < 4:
        return np.nan
    known &= step >= step[known].max() / 4
    return np.polyfit(np.log(step[known]), np.log(values[known]), 1)[0]


@CLAIMS.add("stageIII.attn_to_one", "Appendix H.3", at_most(0.0), WIDTHS, conditions=clean_case_1)
def attention_goes_to_the_signal(evidence: Evidence) -> Measured:
    """At the end of Stage III attention on the signal is 1 - o(1). The bound itself says something from about
    d_h = 2.5e9 on, so its trend is judged: what attention leaves for noise falls as d_h grows."""
    result = evidence.result
    if result.sizes["width"] < 2:
        raise Undecided("one width has no trend")
    left = np.log(1 - result.attention_on_signal).transpose("seed", "width").values
    found = slope_by_seed(
        "slope of log(1 - attention) on log d_h", np.log(result.hidden.values), left
    )
    last = float(result.attention_on_signal.isel(width=-1).mean())
    return found.noting(f"attention on the signal at the largest d_h is {last:.3f}")


@CLAIMS.add(
    "stageIII.noise_value",
    "Appendix H.3, F(t)",
    at_most(1.0),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    informational=("attacked",),
)
def noise_values_stay_small(evidence: Evidence) -> dict[str, Measured]:
    """At the end of Stage III every noise token has a value of at most 1/(3M) that of a signal."""
    found = {}
    for name, experiment, result in zip(
        ("clean", "attacked"), evidence.experiments, evidence.results, strict=True
    ):
        signal = np.minimum(abs(result.value_positive_signal), abs(result.value_negative_signal))
        ratios = 3 * experiment.data.tokens * result.value_noise_max / signal
        found[name] = mean("3M max |V_{n,i}| / min |V_+-|", _by_seed(ratios))
    return found


@CLAIMS.add(
    "thm22.alignment",
    "Theorem 22 and appendix H.4",
    at_least(0.9),
    STAGES,
    STAGES_ATTACKED,
    conditions=clean_case_1,
    informational=("attacked",),
)
def value_vector_aligns(evidence: Evidence) -> dict[str, Measured]:
    """With N SNR^2 of at least 60 M^2 the value vector u = W_V w_O ends along mu_+ - mu_-: a cosine of at least 0.9."""
    found = zip(("clean", "attacked"), evidence.results, strict=True)
    return {
        name: mean("cos(u, mu_+ - mu_-)", _by_seed(result.value_alignment))
        for name, result in found
    }


def _by_seed(values: xr.DataArray) -> np.ndarray:
    """The mean over all axes but seeds."""
    return values.mean([dim for dim in values.dims if dim != "seed"]).values
