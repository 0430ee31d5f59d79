"""Claims about figures on real images, on made-up results that hold, fail, or say nothing."""

from functools import cache

import numpy as np
import pytest
import xarray as xr

from benign.claims import Evidence, Outcome, judge
from benign.experiment import Experiment
from benign.papers.registry import claims, recipe
from benign.sweep.dataset import assemble

Result = tuple[xr.Dataset, Experiment]


def blank(name: str, seeds: int = 5, scale: str = "quick") -> Result:
    """A result of a recipe without numbers."""
    result, experiment = _blank(name, seeds, scale)
    return result.copy(deep=True), experiment


@cache
def _blank(name: str, seeds: int, scale: str) -> Result:
    fields = recipe(name).experiment(scale).as_dict()
    experiment = Experiment.from_dict({**fields, "seeds": seeds})
    return assemble(experiment, []), experiment


def fill(result: xr.Dataset, name: str, values: xr.DataArray | float, noise: float = 0.002) -> None:
    """Write a number, or numbers over some of the axes, with a little noise by seed."""
    like = result[name]
    spread = noise * np.random.default_rng(0).standard_normal(like.shape)
    table = xr.zeros_like(like) + values
    result[name] = table.transpose(*like.dims) + spread


def outcome(name: str, *results: Result) -> Outcome:
    evidence = Evidence("quick", {}, tuple(r for r, _ in results), tuple(e for _, e in results))
    verdict = judge(claims()[name], evidence)
    assert not verdict.error
    return verdict.outcome


# Wang


def transition(clean: float, robust: float, noise: float = 0.002) -> Result:
    """Accuracies that change at norms r* growing as these powers of d."""
    result, experiment = blank("wang/fig4")
    for name, power in (("test_accuracy", clean), ("robust_accuracy", robust)):
        critical = 0.3 * (result.dim / 25) ** power
        fill(result, name, 0.75 + 0.25 * np.tanh(np.log(result.norm / critical)), noise)
    return result, experiment


@pytest.mark.parametrize(
    ("powers", "expected"), [((0.02, 0.5), Outcome.FAILS), ((0.25, 0.02), Outcome.FAILS)]
)
def test_a_transition_by_other_powers_is_refuted(powers, expected):
    assert outcome("wang/fig4.mnist-transition", transition(*powers)) is expected


def test_a_transition_that_seeds_hide_is_not_judged():
    assert outcome("wang/fig4.mnist-transition", transition(0.25, 0.5, 0.3)) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("gap", "noise", "expected"),
    [
        (0.0, 0.001, Outcome.HOLDS),
        (-0.05, 0.001, Outcome.FAILS),
        (0.0, 0.1, Outcome.INCONCLUSIVE),
    ],
)
def test_undertraining_is_a_matter_of_the_rescaled_runs(gap, noise, expected):
    result, experiment = blank("wang/undertraining")
    rescaled = result.rate > 1
    for name in ("test_accuracy", "robust_accuracy"):
        fill(result, name, xr.where(rescaled, 0.9 + gap, 0.9), noise)
    assert outcome("wang/fig4.is-undertraining", (result, experiment)) is expected


@pytest.mark.parametrize(
    ("power", "noise", "expected"),
    [
        (-0.3, 0.002, Outcome.HOLDS),
        (0.3, 0.002, Outcome.FAILS),
        (0.0, 0.1, Outcome.INCONCLUSIVE),
    ],
)
def test_the_radius_for_equal_accuracy_falls_with_the_dimension(power, noise, expected):
    result, experiment = blank("wang/fig5")
    radius = result["attack.ball.radius"]
    critical = 0.2 * (result.dim / 120) ** power
    fill(result, "robust_accuracy", 0.8 - 0.4 * np.tanh(np.log(radius / critical)), noise)
    assert outcome("wang/fig5.tradeoff-mnist", (result, experiment)) is expected


@pytest.mark.parametrize(
    ("loss", "error", "expected"),
    [
        (0.01, 0.01, Outcome.HOLDS),
        (0.01, 0.05, Outcome.FAILS),
        (0.05, 0.01, Outcome.INCONCLUSIVE),  # at half of the figure's steps
    ],
)
def test_loss_and_error_go_to_zero(loss, error, expected):
    result, experiment = blank("wang/fig6")
    for name in ("train_loss", "train_robust_loss"):
        fill(result, name, loss, 1e-5)
    fill(result, "robust_accuracy", 1 - error, 0.0)
    assert outcome("wang/fig6.zero-zero", (result, experiment)) is expected


def test_the_loss_that_goes_to_zero_is_the_robust_one():
    result, experiment = blank("wang/fig6")
    fill(result, "train_loss", 0.01, 0.0)
    fill(result, "train_robust_loss", 0.1, 1e-5)
    fill(result, "robust_accuracy", 0.99, 0.0)
    assert outcome("wang/fig6.zero-zero", (result, experiment)) is Outcome.FAILS


# Zhang


def rising(name: str, sign: float, noise: float = 0.002, scale: str = "quick") -> Result:
    """Accuracies that rise (or fall) with N and SNR; robust ones later, by a factor of 2 in N SNR^2."""
    result, experiment = blank(name, 5, scale)
    race = np.log(result.samples * result.snr**2)
    middle = float(race.mean())
    fill(result, "test_accuracy", 0.7 + sign * 0.3 * np.tanh(race - middle), noise)
    late = race - np.log(2.0)
    fill(result, "robust_accuracy", 0.7 + sign * 0.3 * np.tanh(late - middle), noise)
    return result, experiment


@pytest.mark.parametrize(
    ("sign", "noise", "expected"),
    [
        (1.0, 0.002, Outcome.HOLDS),
        (-1.0, 0.002, Outcome.FAILS),
        (0.0, 0.002, Outcome.FAILS),  # a flat map does not rise
        (1.0, 0.5, Outcome.INCONCLUSIVE),
    ],
)
def test_accuracy_rises_on_every_image_set(sign, noise, expected):
    names = ("zhang/fig4", "zhang/fig5", "zhang/fig6")
    results = [rising(name, sign, noise) for name in names]
    assert outcome("zhang/fig4-6.monotone", *results) is expected


@pytest.mark.parametrize(
    ("change", "noise", "expected"),
    [
        (-0.1, 0.002, Outcome.HOLDS),
        (0.1, 0.002, Outcome.FAILS),
        (0.0, 0.1, Outcome.INCONCLUSIVE),
    ],
)
def test_several_norms_take_more_accuracy(change, noise, expected):
    results = blank("zhang/fig4"), blank("zhang/fig7")
    for (result, _), accuracy in zip(results, (0.6, 0.6 + change), strict=True):
        fill(result, "robust_accuracy", accuracy, 0.0)
    several = results[1][0]
    several["robust_accuracy"] = several.robust_accuracy + noise * (several.seed - 2)
    assert outcome("zhang/fig7.multinorm_lower", *results) is expected


def test_the_boundary_of_robust_accuracy_is_later():
    assert (
        outcome("zhang/fig8.boundary_shift", rising("zhang/fig8", 1.0, scale="paper"))
        is Outcome.HOLDS
    )
    swapped, experiment = rising("zhang/fig8", 1.0, scale="paper")
    names = {"test_accuracy": "robust_accuracy", "robust_accuracy": "test_accuracy"}
    assert (
        outcome("zhang/fig8.boundary_shift", (swapped.rename(names), experiment)) is Outcome.FAILS
    )
    low, experiment = blank("zhang/fig8", 3, "paper")
    for name in names:
        fill(low, name, 0.2)
    assert outcome("zhang/fig8.boundary_shift", (low, experiment)) is Outcome.INCONCLUSIVE


# Jiang


@pytest.mark.parametrize(
    ("by_samples", "expected"),
    [(1.0, Outcome.HOLDS), (-1.0, Outcome.FAILS), (0.0, Outcome.FAILS)],
)
def test_the_test_loss_falls_with_samples_and_ratio(by_samples, expected):
    result, experiment = blank("jiang/fig2", 2)
    loss = 2.0 - 0.3 * result.snr - by_samples * result.samples / 10_000
    fill(result, "test_loss", loss, 0.0005 if by_samples else 0.0)
    assert outcome("jiang/fig2.mnist", (result, experiment)) is expected
