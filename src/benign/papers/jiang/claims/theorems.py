"""Theorems 4.1 and 4.2: training times, test loss, and their constants."""

import math
from collections.abc import Callable

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
    exponent,
    mean,
    share,
    slope_by_seed,
    worst_of_runs,
)
from benign.experiment import Experiment
from benign.papers.jiang.claims.studies import (
    BENIGN_INSIDE,
    BENIGN_RATES,
    HARMFUL_END,
    HARMFUL_RATES,
    benign,
    harmful,
)
from benign.papers.jiang.theory import (
    JiangNumbers,
    Theorem,
    steps_derived,
    test_loss_derived,
    test_loss_exponent,
    test_loss_limit,
    theorem_steps,
)
from benign.papers.statistics import cells_of, converged, steps_to_loss
from benign.stats.intervals import Estimate
from benign.sweep.dataset import ended
from benign.training.descent import Status

CLAIMS = Claims("jiang")


FACTORS: dict[str, Callable[[JiangNumbers], float]] = {
    "eps": lambda n: n.loss,
    "eta": lambda n: n.rate,
    "|mu|": lambda n: n.signal**0.5,
    "|w_O|": lambda n: n.output_norm,
    "N": lambda n: n.samples,
    "sigma_p": lambda n: n.noise**0.5,
}
"""numbers of a cell in which T has a power"""


def _numbers(experiment: Experiment) -> list[JiangNumbers]:
    return [JiangNumbers.of(cell) for cell in cells_of(experiment)]


def _times(result: xr.Dataset) -> np.ndarray:
    """Return T, [cells, seeds]; NaN where a run did not reach its loss."""
    return steps_to_loss(result).transpose("cell", "seed").values


def _varying(numbers: list[JiangNumbers], name: str) -> list[int]:
    """Return the largest group of cells that differ in one number only, in the order of that number."""

    def rounded(n: JiangNumbers, key: str) -> float:
        return float(f"{FACTORS[key](n):.9g}")

    groups: dict[tuple, dict[float, int]] = {}
    for place, n in enumerate(numbers):
        rest = (n.hidden, *(rounded(n, key) for key in FACTORS if key != name))
        groups.setdefault(rest, {}).setdefault(rounded(n, name), place)
    largest = max(groups.values(), key=len)
    return [largest[value] for value in sorted(largest)]


def _power(evidence: Evidence, name: str) -> Measured:
    """Return the slope of log T on the log of one number, over cells that differ in this number only."""
    numbers = _numbers(evidence.experiment)
    places = _varying(numbers, name)
    logs = [np.log(FACTORS[name](numbers[place])) for place in places]
    times = np.log(_times(evidence.result)[places]).T
    return slope_by_seed(f"slope of log T on log {name}", logs, times)


@CLAIMS.add(
    "thm4.1.convergence",
    "Theorem 4.1 (i)",
    at_most(1.0),
    BENIGN_INSIDE,
    conditions=benign,
    version=2,
)
def benign_convergence(evidence: Evidence) -> Measured:
    """The training loss reaches eps after T = O(1 / (eta eps |mu|^2 |w_O|^2)) steps, here with the constant 4 M^2 of
    attention that stays uniform."""
    return _relative_time(evidence, "4.1", lambda n: 4 * n.tokens**2)


@CLAIMS.add(
    "thm4.2.convergence",
    "Theorem 4.2 (i)",
    at_most(1.0),
    HARMFUL_RATES,
    conditions=harmful,
    version=2,
)
def harmful_convergence(evidence: Evidence) -> Measured:
    """The training loss reaches eps after T = O(N / (eta eps sigma_p^2 d |w_O|^2)) steps, here with the constant 10."""
    return _relative_time(evidence, "4.2", lambda n: 10)


def _relative_time(
    evidence: Evidence, theorem: Theorem, constant: Callable[[JiangNumbers], float]
) -> Measured:
    """Return the longest T relative to its bound.

    A run that ended before its loss was reached took longer than it was trained: a bound that it had passed by then
    fails. One that diverged never reaches its loss.
    """
    result = evidence.result.transpose("cell", "seed", ...)
    numbers = _numbers(evidence.experiment)
    bounds = np.array([theorem_steps(n, theorem) * constant(n) for n in numbers])[:, None]
    ratios = result.steps.where(ended(result)).values / bounds
    late = (ended(result) & ~converged(result)).values
    diverged = (result.status == Status.DIVERGED).values
    if (late & ~diverged & (ratios <= 1)).any():
        raise Undecided(
            "some runs were stopped before the bound, and before they reached their loss"
        )
    of = "longest T / bound"
    if diverged.any():
        infinite = Estimate(math.inf, math.inf, math.inf)
        return Measured.by(of, lambda confidence: infinite, f"{diverged.sum()} runs diverged")
    measured = worst_of_runs(of, ratios.T, log=True)
    return (
        measured.noting(f"{late.sum()} runs did not reach their loss") if late.any() else measured
    )


@CLAIMS.add("thm4.1.rate_eps", "Theorem 4.1", exponent(-1), BENIGN_RATES, conditions=benign)
def benign_rate_eps(evidence: Evidence) -> Measured:
    """In benign training T is inversely proportional to eps."""
    return _power(evidence, "eps")


@CLAIMS.add("thm4.1.rate_eta", "Theorem 4.1", exponent(-1), BENIGN_RATES, conditions=benign)
def benign_rate_eta(evidence: Evidence) -> Measured:
    """In benign training T is inversely proportional to the step size eta."""
    return _power(evidence, "eta")


@CLAIMS.add("thm4.1.rate_mu", "Theorem 4.1", exponent(-2), BENIGN_RATES, conditions=benign)
def benign_rate_mu(evidence: Evidence) -> Measured:
    """In benign training T is proportional to |mu|^-2."""
    return _power(evidence, "|mu|")


@CLAIMS.add("thm4.1.rate_wO", "Theorem 4.1", exponent(-2), BENIGN_RATES, conditions=benign)
def benign_rate_output(evidence: Evidence) -> Measured:
    """In benign training T is proportional to |w_O|^-2."""
    return _power(evidence, "|w_O|")


@CLAIMS.add("thm4.2.rate_N", "Theorem 4.2", exponent(1), HARMFUL_RATES, conditions=harmful)
def harmful_rate_samples(evidence: Evidence) -> Measured:
    """In harmful training T is proportional to N."""
    return _power(evidence, "N")


@CLAIMS.add("thm4.2.rate_sigma", "Theorem 4.2", exponent(-2), HARMFUL_RATES, conditions=harmful)
def harmful_rate_noise(evidence: Evidence) -> Measured:
    """In harmful training T is proportional to sigma_p^-2."""
    return _power(evidence, "sigma_p")


@CLAIMS.add(
    "thm4.1.testloss",
    "Theorem 4.1 (ii)",
    {"falls": at_least(1e-6), "as derived": exponent(0)},
    BENIGN_RATES,
    conditions=benign,
    informational=("as derived",),
    version=2,
)
def benign_test_loss(evidence: Evidence) -> dict[str, Measured]:
    """The test loss goes to 0 with eps. By our derivation, which does not decide, it does so as eps^((2M-1) / (M^2 a))
    for large d, where a is the attention on the signal."""
    numbers = _numbers(evidence.experiment)
    places, tokens = _varying_loss(numbers), numbers[0].tokens
    eps = [numbers[place].loss for place in places]
    result = evidence.result.isel(cell=places).transpose("cell", "seed", ...)
    losses = np.log(result.test_loss.values).T
    derived = [
        [np.log(test_loss_limit(e, tokens, a)) for e, a in zip(eps, row, strict=True)]
        for row in result.attention_on_signal.values.T
    ]
    power = test_loss_exponent(tokens, float(result.attention_on_signal.mean()))
    falls = slope_by_seed("slope of log test loss on log eps", np.log(eps), losses)
    rest = slope_by_seed("that slope less the derived one", np.log(eps), losses - np.array(derived))
    return {"falls": falls.noting(f"derived power {power:.3g}"), "as derived": rest}


def _varying_loss(numbers: list[JiangNumbers]) -> list[int]:
    """Return the cells that differ from the first in eps only."""

    def rest(n: JiangNumbers) -> tuple:
        return n.rate, n.signal, n.output_norm, n.samples, n.hidden

    return [place for place, n in enumerate(numbers) if rest(n) == rest(numbers[0])]


@CLAIMS.add(
    "thm4.2.testloss",
    "Theorem 4.2 (ii), Lemma E.6",
    {"as stated": at_least(0.1), "by its proof": at_least(0.237)},
    HARMFUL_END,
    conditions=harmful,
    informational=("by its proof",),
)
def harmful_test_loss(evidence: Evidence) -> dict[str, Measured]:
    """The test loss stays of order 1: at least 0.1. The paper's argument gives 0.237, which does not decide."""
    losses = evidence.result.test_loss.min("cell").values
    smaller = mean("test loss, the smaller of two starts", losses)
    return {"as stated": smaller, "by its proof": smaller}


@CLAIMS.add(
    "thm4.2.test_error",
    "derived: does harmful overfitting mean errors?",
    at_least(0.8),
    HARMFUL_END,
    conditions=harmful,
    levels={"test error": 0.1},
    version=2,
)
def harmful_test_error(evidence: Evidence) -> dict[str, Measured]:
    """Harmful overfitting means errors: at least a tenth of fresh points are misclassified, for all initial values that
    condition (7) allows."""
    error = (1 - evidence.result.test_accuracy).where(ended(evidence.result))
    level, parts = evidence.levels["test error"], {}
    for place, name in enumerate(("largest start", "a thousandth of it")):
        errors = error.isel(cell=place).dropna("seed").values
        measured = share(f"share of seeds with a test error of at least {level:g}", errors >= level)
        parts[name] = measured.noting(f"mean test error {errors.mean():.3g}")
    return parts


@CLAIMS.add("derived.T_constants", "derived", between(0.75, 1.25), BENIGN_RATES, HARMFUL_RATES)
def constants_of_times(evidence: Evidence) -> dict[str, Measured]:
    """T is 2 / (a^2 eta eps |mu|^2 |w_O|^2) in benign training and N / (a^2 eta eps C_p^2 sigma_p^2 d |w_O|^2) in
    harmful training, where a is the final attention on the signal or on the strong token."""
    benign_runs, harmful_runs = zip(evidence.experiments, evidence.results, strict=True)
    return {
        "benign": _constant(*benign_runs, "4.1", "attention_on_signal"),
        "harmful": _constant(*harmful_runs, "4.2", "attention_on_strong_noise"),
    }


def _constant(
    experiment: Experiment, result: xr.Dataset, theorem: Theorem, attention: str
) -> Measured:
    """Return T relative to its formula at the smallest eps, for which the formula is meant."""
    numbers = _numbers(experiment)
    place = min(range(len(numbers)), key=lambda index: numbers[index].loss)
    final = result[attention].isel(cell=place).values
    derived = np.array([steps_derived(numbers[place], theorem, float(a)) for a in final])
    measured = mean("T / formula", _times(result)[place] / derived)
    return measured.noting(f"eps = {numbers[place].loss:g}, a = {final.mean():.3f}")


@CLAIMS.add(
    "derived.testloss_formula", "derived", at_most(0.03), BENIGN_RATES, informational=("large d",)
)
def formula_of_test_loss(evidence: Evidence) -> dict[str, Measured]:
    """The test loss is log(1 + exp(-a V_+)), where a is the attention of fresh points on their signal; for large d it
    is log(1 + eps^((2M-1) / (M^2 a))), where a is that of training points."""
    result, numbers = evidence.result, _numbers(evidence.experiment)
    value = (result.value_positive_signal - result.value_negative_signal) / 2
    measured = xr.apply_ufunc(
        test_loss_derived, result.test_attention_on_signal, value, vectorize=True
    )
    eps = xr.DataArray([n.loss for n in numbers], dims="cell")
    limit = xr.apply_ufunc(
        lambda e, a: test_loss_limit(e, numbers[0].tokens, a),
        eps,
        result.attention_on_signal,
        vectorize=True,
    )
    return {
        "measured attention": _difference(result, measured),
        "large d": _difference(result, limit),
    }


def _difference(result: xr.Dataset, formula: xr.DataArray) -> Measured:
    differences = abs(result.test_loss - formula).where(converged(result)).max("cell")
    return mean("largest |test loss - formula| over cells", differences.values)
