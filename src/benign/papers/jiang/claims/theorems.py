"""Theorems 4.1 and 4.2: training times, test loss, and their constants."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Rule,
    at_least,
    at_most,
    between,
    mean,
    slope_by_seed,
    worst,
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
    Numbers,
    Theorem,
    steps_derived,
    test_loss_derived,
    test_loss_exponent,
    test_loss_limit,
    theorem_steps,
)
from benign.spec.axes import cells
from benign.training.descent import Status

CLAIMS = Claims("jiang")


def numbers_of(evidence: Evidence) -> list[Numbers]:
    """Of every cell, in the order of the result."""
    return [Numbers.of(cell) for _, cell in cells(evidence.experiment)]


def times(result: xr.Dataset) -> np.ndarray:
    """Steps to the loss, [cells, seeds]; NaN where a run did not reach it."""
    found = result.steps.where(result.status == Status.CONVERGED)
    return found.transpose("cell", "seed").values


def differing(
    numbers: list[Numbers], of: Callable[[Numbers], float], rest: Callable[[Numbers], tuple]
) -> list[int]:
    """The largest group of cells that differ in one number and agree in the rest, in the order of that number."""
    groups: dict[tuple, dict[float, int]] = {}
    for place, each in enumerate(numbers):
        groups.setdefault(rest(each), {}).setdefault(of(each), place)
    largest = max(groups.values(), key=len)
    return [largest[value] for value in sorted(largest)]


def rate(evidence: Evidence, name: str, of: Callable[[Numbers], float]) -> Measured:
    """Slope of log T on the log of one number, the others unchanged."""
    numbers = numbers_of(evidence)
    read: dict[str, Callable[[Numbers], float]] = {
        "eps": lambda n: n.loss,
        "eta": lambda n: n.rate,
        "|mu|": lambda n: n.signal**0.5,
        "|w_O|": lambda n: n.output_norm,
        "N": lambda n: n.samples,
        "sigma_p": lambda n: n.noise**0.5,
    }

    def rest(n: Numbers) -> tuple:
        return (n.hidden, *(float(f"{f(n):.9g}") for key, f in read.items() if key != name))

    chosen = differing(numbers, lambda n: float(f"{of(n):.9g}"), rest)
    x = [np.log(of(numbers[place])) for place in chosen]
    return slope_by_seed(
        f"slope of log T on log {name}", x, np.log(times(evidence.result)[chosen]).T
    )


def _near(value: float, by: float) -> Rule:
    return between(value - by, value + by)


@CLAIMS.add("thm4.1.convergence", "Theorem 4.1 (i)", at_most(1.0), BENIGN_INSIDE, conditions=benign)
def benign_convergence(evidence: Evidence) -> Measured:
    """The training loss is eps after O(1 / (eta eps |mu|^2 |w_O|^2)) steps, here with the constant 4 M^2 of attention
    that never leaves its even start."""
    return _in_time(evidence, "4.1", [4 * n.tokens**2 for n in numbers_of(evidence)])


@CLAIMS.add(
    "thm4.2.convergence", "Theorem 4.2 (i)", at_most(1.0), HARMFUL_RATES, conditions=harmful
)
def harmful_convergence(evidence: Evidence) -> Measured:
    """The training loss is eps after O(N / (eta eps sigma_p^2 d |w_O|^2)) steps, here with the constant 10."""
    return _in_time(evidence, "4.2", [10] * len(numbers_of(evidence)))


def _in_time(evidence: Evidence, theorem: Theorem, constants: list[float]) -> Measured:
    """The longest run beside its bound; one that never came is infinitely long."""
    laws = [theorem_steps(n, theorem) for n in numbers_of(evidence)]
    bounds = np.array(laws) * np.array(constants)
    ratios = np.nan_to_num(times(evidence.result), nan=np.inf) / bounds[:, None]
    return worst("longest T / bound", ratios)


@CLAIMS.add("thm4.1.rate_eps", "Theorem 4.1", _near(-1, 0.15), BENIGN_RATES, conditions=benign)
def benign_rate_eps(evidence: Evidence) -> Measured:
    """T is inversely proportional to eps."""
    return rate(evidence, "eps", lambda n: n.loss)


@CLAIMS.add("thm4.1.rate_eta", "Theorem 4.1", _near(-1, 0.1), BENIGN_RATES, conditions=benign)
def benign_rate_eta(evidence: Evidence) -> Measured:
    """T is inversely proportional to the step size."""
    return rate(evidence, "eta", lambda n: n.rate)


@CLAIMS.add("thm4.1.rate_mu", "Theorem 4.1", _near(-2, 0.3), BENIGN_RATES, conditions=benign)
def benign_rate_mu(evidence: Evidence) -> Measured:
    """T falls as |mu|^-2."""
    return rate(evidence, "|mu|", lambda n: n.signal**0.5)


@CLAIMS.add("thm4.1.rate_wO", "Theorem 4.1", _near(-2, 0.3), BENIGN_RATES, conditions=benign)
def benign_rate_output(evidence: Evidence) -> Measured:
    """T falls as |w_O|^-2."""
    return rate(evidence, "|w_O|", lambda n: n.output_norm)


@CLAIMS.add("thm4.2.rate_N", "Theorem 4.2", _near(1, 0.2), HARMFUL_RATES, conditions=harmful)
def harmful_rate_samples(evidence: Evidence) -> Measured:
    """T of harmful overfitting is proportional to N."""
    return rate(evidence, "N", lambda n: n.samples)


@CLAIMS.add("thm4.2.rate_sigma", "Theorem 4.2", _near(-2, 0.3), HARMFUL_RATES, conditions=harmful)
def harmful_rate_noise(evidence: Evidence) -> Measured:
    """T of harmful overfitting falls as sigma_p^-2."""
    return rate(evidence, "sigma_p", lambda n: n.noise**0.5)


@CLAIMS.add(
    "thm4.1.testloss",
    "Theorem 4.1 (ii)",
    {"falls": at_least(1e-6), "as derived": _near(0, 0.15)},
    BENIGN_RATES,
    conditions=benign,
)
def benign_test_loss(evidence: Evidence) -> dict[str, Measured]:
    """The test loss goes to 0 with eps, for large d as eps^((2M-1) / (M^2 a)), a the attention left on the signal."""
    numbers, result = numbers_of(evidence), evidence.result
    chosen = _by_loss(numbers)
    eps = [numbers[place].loss for place in chosen]
    part = result.isel(cell=chosen).transpose("cell", "seed", ...)
    found = np.log(part.test_loss.values).T
    wanted = [
        [np.log(test_loss_limit(e, numbers[0].tokens, a)) for e, a in zip(eps, row, strict=True)]
        for row in part.attention_on_signal.values.T
    ]
    power = test_loss_exponent(numbers[0].tokens, float(part.attention_on_signal.mean()))
    falls = slope_by_seed("slope of log test loss on log eps", np.log(eps), found)
    informational = slope_by_seed(
        "that slope less the derived one", np.log(eps), found - np.array(wanted)
    )
    return {"falls": falls.noting(f"derived power {power:.3g}"), "as derived": informational}


def _by_loss(numbers: list[Numbers]) -> list[int]:
    """The cells that differ from the first in eps only."""

    def rest(n: Numbers) -> tuple:
        return n.rate, n.signal, n.output_norm, n.samples, n.hidden

    return [place for place, n in enumerate(numbers) if rest(n) == rest(numbers[0])]


@CLAIMS.add(
    "thm4.2.testloss",
    "Theorem 4.2 (ii), Lemma E.6",
    {"printed": at_least(0.1), "derived": at_least(0.237)},
    HARMFUL_END,
    conditions=harmful,
)
def harmful_test_loss(evidence: Evidence) -> dict[str, Measured]:
    """The test loss stays of order 1: at least .1 as the paper has it, and .237 by its own argument."""
    losses = evidence.result.test_loss.min("cell").values
    found = mean("test loss, the smaller of two starts", losses)
    return {"printed": found, "derived": found}


@CLAIMS.add(
    "thm4.2.test_error",
    "derived: does harmful overfitting mean errors?",
    at_least(0.1),
    HARMFUL_END,
    conditions=harmful,
)
def harmful_test_error(evidence: Evidence) -> dict[str, Measured]:
    """Harmful overfitting means errors: at least a tenth of fresh points are misclassified, for all initial values that
    condition (7) allows."""
    error = 1 - evidence.result.test_accuracy
    return {
        name: mean("test error", error.isel(cell=place).values)
        for place, name in enumerate(("largest start", "a thousandth of it"))
    }


@CLAIMS.add("derived.T_constants", "derived", between(0.75, 1.25), BENIGN_RATES, HARMFUL_RATES)
def constants_of_times(evidence: Evidence) -> dict[str, Measured]:
    """T is 2 / (a^2 eta eps |mu|^2 |w_O|^2) in benign training, N / (a^2 eta eps C_p^2 sigma_p^2 d |w_O|^2) in harmful,
    a the attention at the end on the signal or on the strong token."""
    looks: tuple[tuple[str, Theorem, str], ...] = (
        ("benign", "4.1", "attention_on_signal"),
        ("harmful", "4.2", "attention_on_strong_noise"),
    )
    parts = zip(looks, evidence.experiments, evidence.results, strict=True)
    return {
        name: _constant(experiment, result, theorem, attention)
        for (name, theorem, attention), experiment, result in parts
    }


def _constant(
    experiment: Experiment, result: xr.Dataset, theorem: Theorem, attention: str
) -> Measured:
    """T beside its formula at the smallest eps, where the formula is meant."""
    numbers = [Numbers.of(cell) for _, cell in cells(experiment)]
    place = min(range(len(numbers)), key=lambda at: numbers[at].loss)
    left = result[attention].isel(cell=place).values
    wanted = np.array([steps_derived(numbers[place], theorem, float(a)) for a in left])
    found = mean("T / formula", times(result)[place] / wanted)
    return found.noting(f"eps = {numbers[place].loss:g}, a = {left.mean():.3f}")


@CLAIMS.add(
    "derived.testloss_formula", "derived", at_most(0.03), BENIGN_RATES, informational=("large d",)
)
def formula_of_test_loss(evidence: Evidence) -> dict[str, Measured]:
    """The test loss is log(1 + exp(-a V_+)), a the attention of fresh points on their signal; for large d
    log(1 + eps^((2M-1) / (M^2 a))), a that of training points."""
    result, numbers = evidence.result, numbers_of(evidence)
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
    return {"measured attention": _apart(result, measured), "large d": _apart(result, limit)}


def _apart(result: xr.Dataset, formula: xr.DataArray) -> Measured:
    apart = abs(result.test_loss - formula).where(result.status == Status.CONVERGED).max("cell")
    return mean("largest |test loss - formula| over cells", apart.values)
