"""Claims about figures on real images, on made-up results that hold, fail, or say nothing."""

import numpy as np
import pytest
import xarray as xr

from benign.claims import Evidence, Outcome, judge
from benign.experiment import Experiment
from benign.papers.claims import claims
from benign.papers.recipes import recipe
from benign.sweep.dataset import assemble

Result = tuple[xr.Dataset, Experiment]


def blank(name: str, seeds: int = 5, scale: str = "quick") -> Result:
    """A result of a recipe without numbers."""
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
    fill(result, "train_loss", loss, 0.0)
    fill(result, "robust_accuracy", 1 - error, 0.0)
    assert outcome("wang/fig6.zero-zero", (result, experiment)) is expected
