"""What every metric of every kind must do. A new one inherits these tests; a new kind of run adds a setup."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.images import Images
from benign.data.mixture import Mixture
from benign.networks.linear import Linear
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec.axes import replace
from benign.training.descent import Step, attacked_step, descend
from benign.training.feature_tests import FeatureTests
from benign.training.metrics import (
    METRICS,
    Declared,
    EvaluationMetric,
    Metric,
    PointMetric,
    RunningMetric,
    metrics_for,
    running_metrics_for,
)
from benign.training.metrics.evaluation import measure
from benign.training.setup import Evaluation, Setup
from tests.reference import run_ids, small_data, small_network, small_pgd, small_setup, start

Values = dict[str, Tensor]
"""by metric: its values [steps, runs]; of a running metric, what it would be if training ended at the step"""

STEPS = 4
NUMBERS = [(0.3, 0.1, 0.2), (0.5, 0.2, 0.3), (0.8, 0.3, 0.4)]
"""rate, radius and initial size (or flip rate) of each of three runs"""


def attention(rate: float, radius: float, size: float) -> Setup:
    data = small_data(samples=10, signal=3.0, flip=0.4, strong_noise_std=0.8, dim=40)
    return small_setup(data, small_network(size, heads=2), small_pgd(radius), rate=rate)


def clean_attention(rate: float, radius: float, size: float) -> Setup:
    return small_setup(small_data(dim=40), small_network(size), rate=rate)


def two_layer(rate: float, radius: float, size: float) -> Setup:
    data = Mixture(samples=10, dim=40, signal=3.0, flip=0.4)
    network = TwoLayer(width=8, init_std=size)
    return small_setup(data, network, small_pgd(radius), rate=rate, first_attacked_step=1)


def patches(rate: float, radius: float, size: float) -> Setup:
    data = FeaturePatches(samples=6, tokens=3, dim=40, alpha=2.0, beta=1.0, noise_std=size)
    network = PatchCNN(width=4, threshold=0.5, init_std=size / 4)
    return small_setup(data, network, small_pgd(radius, loss="cross_entropy"), rate=rate / 10)


def judged_patches(rate: float, radius: float, size: float) -> Setup:
    data = FeaturePatches(samples=6, tokens=3, dim=40, alpha=2.0, beta=1.0, noise_std=size)
    network = PatchCNN(width=4, threshold=0.5, init_std=size / 4)
    judge = PGD(ball=Ball(p="inf", radius=radius, per="sample"), steps=2)
    tests = Evaluation(samples=12, attack=judge, at="snapshots")
    attack = OneStep(rate=5.0, clip=radius)
    return replace(small_setup(data, network, attack, rate=rate / 10), {("evaluation",): tests})


def images(rate: float, radius: float, size: float) -> Setup:
    attack = PGD(ball=Ball(p="inf", radius=radius, per="sample", box=(0.0, 1.0)), steps=1, step=0.6)
    made = FeatureTests(attack=attack, samples=6, steps=2, pairs=((0, 1),), matching_steps=1)
    data = Images(source="digits", samples=20, classes=(1, 7, 4))
    network = PatchCNN(width=4, classes=3, threshold=1.0, init_std=size / 4)
    setup = small_setup(data, network, small_pgd(radius, loss="cross_entropy"), rate=rate / 10)
    return replace(setup, {("evaluation", "features"): made})


def linear(rate: float, radius: float, size: float) -> Setup:
    data = small_data(dim=30, noise_std=size)
    attack = small_pgd(radius)
    judge = EnsembleAttack(ball=attack.ball)
    return small_setup(data, Linear(init_std=size / 4), attack, rate=rate, test_attack=judge)


SETUPS: list[Callable[..., Setup]] = [
    linear,
    attention,
    clean_attention,
    two_layer,
    patches,
    judged_patches,
    images,
]
IN_SPACE = {judged_patches, images}
"""sign steps leave every small space, and images have none"""
IMAGES = {images}
"""references are trained next to the runs"""


def of_kind(*kinds: type[Declared]) -> list[str]:
    """Return the names of the package's metrics of these kinds."""
    return sorted(
        name
        for name, metric in METRICS.items()
        if isinstance(metric, kinds) and metric.function.__module__.startswith("benign.")
    )


ON_STEPS = of_kind(Metric, RunningMetric)
ON_FRESH_POINTS = of_kind(PointMetric, EvaluationMetric)


@cache
def cells(setup: Callable[..., Setup], **changes: Any) -> list[Setup]:
    """Three runs that differ in their numbers."""
    fields = {("training", "max_steps"): STEPS} | {
        (name,): value for name, value in changes.items()
    }
    return [replace(setup(*numbers), fields) for numbers in NUMBERS]


def measured(runs: Sequence[Setup], first: int = 0) -> Values:
    """Return every metric on steps that applies, at every step of these runs."""
    ids = run_ids(len(NUMBERS))[first : first + len(runs)]
    batch = start(runs, ids)
    by_step: dict[str, list[Tensor]] = {}
    states: dict[str, Tensor] = {}
    for step, _ in descend(batch):
        for name, value in at_step(step, states).items():
            by_step.setdefault(name, []).append(value)
    return {name: torch.stack(each) for name, each in by_step.items()}


def at_step(step: Step, states: dict[str, Tensor]) -> Values:
    """Return every metric at one step; `states` are those of the running metrics, which it updates."""
    setup, values = step.batch.setup, {}
    for running in running_metrics_for(setup):
        state = running.function(states.get(running.name), step)
        states[running.name] = state
        values[running.name] = running.finish(state).clone()
    return values | {each.name: each.function(step).clone() for each in metrics_for(setup)}


@cache
def values(setup: Callable[..., Setup], **changes: Any) -> Values:
    return measured(cells(setup, **changes))


@cache
def values_alone(setup: Callable[..., Setup]) -> Values:
    """The same of every run in a batch of its own."""
    alone = [measured([cell], run) for run, cell in enumerate(cells(setup))]
    return {name: torch.cat([each[name] for each in alone], 1) for name in alone[0]}


@cache
def values_twice(setup: Callable[..., Setup], broken: bool) -> Values:
    """The metrics of the first weights at a second attacked step; the weights of the second run may be NaN."""
    batch = start(cells(setup), run_ids(3))
    for name in batch.setup.network.trained(batch.params):
        batch.params[name][1] += torch.nan if broken else 0
    states: dict[str, Tensor] = {}
    with torch.no_grad():
        at_step(attacked_step(batch, 1), states)
        return at_step(attacked_step(batch, 1), states)


def evaluated(runs: Sequence[Setup], first: int = 0) -> Values:
    """Return every metric on fresh points at the first weights of these runs: values [runs, ...] by variable."""
    batch = start(runs, run_ids(len(NUMBERS))[first : first + len(runs)])
    setup = batch.setup
    with torch.no_grad():
        step = attacked_step(batch, setup.training.first_attacked_step)
        known = {each.name: each.function(step) for each in metrics_for(setup)}
    return measure(batch, setup.final_attack, at_end=True, known=known)


@cache
def values_on_fresh_points(setup: Callable[..., Setup]) -> Values:
    return evaluated(cells(setup))


@cache
def values_on_fresh_points_alone(setup: Callable[..., Setup]) -> Values:
    alone = [evaluated([cell], run) for run, cell in enumerate(cells(setup))]
    return {name: torch.cat([each[name] for each in alone]) for name in alone[0]}


def setups_of(metric: str) -> list[Callable[..., Setup]]:
    """Return the setups that it applies to."""
    found = [setup for setup in SETUPS if METRICS[metric].variables(cells(setup)[0])]
    assert found, f"{metric} applies to no setup of this table: add one"
    return found


def same(given: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(
        given, expected, rtol=tolerance, atol=tolerance, equal_nan=True, check_dtype=False
    )


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_has_a_definition_and_a_unit_and_gives_the_variables_it_declares(metric: str):
    declared = METRICS[metric]
    assert len(declared.definition.split()) > 1
    assert declared.units
    for setup in setups_of(metric):
        for name, variable in declared.variables(cells(setup)[0]).items():
            assert name.startswith(metric)
            assert "{}" not in variable.definition
            assert variable.units == declared.units


@pytest.mark.parametrize("metric", ON_STEPS)
def test_a_metric_is_one_number_a_run(metric: str):
    for setup in setups_of(metric):
        value = values(setup)[metric]
        assert value.shape == (STEPS + 1, 3)
        assert value.dtype == torch.float64
        assert value.isfinite().all()


@pytest.mark.parametrize("metric", ON_STEPS)
def test_a_metric_of_a_run_does_not_depend_on_the_others(metric: str):
    for setup in setups_of(metric):
        same(values(setup)[metric], values_alone(setup)[metric], 1e-10)


@pytest.mark.parametrize("metric", ON_STEPS)
def test_a_metric_is_nearly_the_same_in_float32(metric: str):
    """But at step 0, where f may be 0 and its sign is rounding."""
    for setup in set(setups_of(metric)) - IMAGES:
        same(values(setup, precision="float32")[metric][1:], values(setup)[metric][1:], 1e-3)


@pytest.mark.parametrize("metric", ON_STEPS)
def test_a_metric_is_the_same_in_projected_coordinates(metric: str):
    for setup in set(setups_of(metric)) - IN_SPACE:
        same(values(setup, coordinates="projected")[metric][1:], values(setup)[metric][1:], 1e-10)


@pytest.mark.parametrize("metric", ON_STEPS)
def test_a_metric_has_no_value_in_a_diverged_run(metric: str):
    """NaN > 0 is false, but that is no measurement; a first time that has not come is -1 still."""
    for setup in setups_of(metric):
        given, expected = (values_twice(setup, broken)[metric] for broken in (True, False))
        same(given[[0, 2]], expected[[0, 2]], 1e-10)
        running = isinstance(METRICS[metric], RunningMetric)
        assert given[1].isnan() or (running and float(given[1]) == -1)


@pytest.mark.parametrize("metric", ON_FRESH_POINTS)
def test_a_metric_on_fresh_points_is_a_value_of_every_run_of_the_declared_shape(metric: str):
    for setup in setups_of(metric):
        names = METRICS[metric].variables(cells(setup)[0])
        for name, variable in names.items():
            if not variable.along_steps:
                value = values_on_fresh_points(setup)[name]
                assert list(value.shape) == [3, *map(len, variable.axes.values())]
                assert value.isfinite().all()


@pytest.mark.parametrize("metric", ON_FRESH_POINTS)
def test_a_metric_on_fresh_points_does_not_depend_on_the_other_runs(metric: str):
    for setup in setups_of(metric):
        for name, variable in METRICS[metric].variables(cells(setup)[0]).items():
            if not variable.along_steps:
                alone = values_on_fresh_points_alone(setup)[name]
                same(values_on_fresh_points(setup)[name], alone, 1e-8)


def test_an_evaluation_gives_the_variables_that_are_declared_and_no_others():
    for setup in SETUPS:
        declared = METRICS.keys() - {*ON_STEPS}
        names = {
            name
            for metric in declared
            for name, variable in METRICS[metric].variables(cells(setup)[0]).items()
            if not variable.along_steps
        }
        assert values_on_fresh_points(setup).keys() == names
