"""What every probe must do. A new one inherits these tests; a new kind of run adds a setup."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.attacks.balls import Ball
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec.axes import replace
from benign.training.descent import Step, attacked_step, descend
from benign.training.metrics import METRICS, RUNNING_METRICS, metrics_for, running_metrics_for
from benign.training.setup import Evaluation, Setup
from tests.reference import run_ids, small_data, small_network, small_pgd, small_setup, start

Values = dict[str, Tensor]
"""by probe: its values [steps, runs]; of a tally, what it would be if training ended at the step"""

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


SETUPS: list[Callable[..., Setup]] = [
    attention,
    clean_attention,
    two_layer,
    patches,
    judged_patches,
]
IN_SPACE = {judged_patches}
"""sign steps leave every small space"""
PROBES = sorted(
    name
    for name, function in {
        **{name: probe.measure for name, probe in METRICS.items()},
        **{name: probe.update for name, probe in RUNNING_METRICS.items()},
    }.items()
    if function.__module__.startswith("benign.")
)


@cache
def cells(setup: Callable[..., Setup], **changes: Any) -> list[Setup]:
    """Three runs that differ in their numbers."""
    fields = {("training", "max_steps"): STEPS} | {
        (name,): value for name, value in changes.items()
    }
    return [replace(setup(*numbers), fields) for numbers in NUMBERS]


def measured(runs: Sequence[Setup], first: int = 0) -> Values:
    """Every probe that applies, at every step of these runs."""
    ids = run_ids(len(NUMBERS))[first : first + len(runs)]
    batch = start(runs, ids)
    seen: dict[str, list[Tensor]] = {}
    states: dict[str, Tensor] = {}
    for step, _ in descend(batch):
        for name, value in probed(step, states).items():
            seen.setdefault(name, []).append(value)
    return {name: torch.stack(each) for name, each in seen.items()}


def probed(step: Step, states: dict[str, Tensor]) -> Values:
    """Every probe at one step; `states` are those of the tallies, which it updates."""
    setup = step.batch.setup
    for tally in running_metrics_for(setup):
        states[tally.name] = tally.update(states.get(tally.name), step)
    snapshots = {probe.name: probe.measure(step).clone() for probe in metrics_for(setup)}
    return snapshots | {
        name: RUNNING_METRICS[name].finish(state).clone() for name, state in states.items()
    }


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
    """The first weights looked at twice, under the attack; those of the second run may be NaN."""
    batch = start(cells(setup), run_ids(3))
    for name in batch.setup.network.trained(batch.params):
        batch.params[name][1] += torch.nan if broken else 0
    states: dict[str, Tensor] = {}
    with torch.no_grad():
        probed(attacked_step(batch, 1), states)
        return probed(attacked_step(batch, 1), states)


def setups_of(probe: str) -> list[Callable[..., Setup]]:
    found = [setup for setup in SETUPS if probe in values(setup)]
    assert found, f"{probe} applies to no setup of this table: add one"
    return found


def same(given: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(
        given, expected, rtol=tolerance, atol=tolerance, equal_nan=True, check_dtype=False
    )


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_is_one_number_a_run(probe: str):
    for setup in setups_of(probe):
        value = values(setup)[probe]
        assert value.shape == (STEPS + 1, 3)
        assert value.dtype == torch.float64
        assert value.isfinite().all()


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_of_a_run_does_not_see_the_others(probe: str):
    for setup in setups_of(probe):
        same(values(setup)[probe], values_alone(setup)[probe], 1e-10)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_is_nearly_the_same_in_float32(probe: str):
    """But at step 0, where f may be 0 and its sign is rounding."""
    for setup in setups_of(probe):
        same(values(setup, precision="float32")[probe][1:], values(setup)[probe][1:], 1e-3)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_is_the_same_in_projected_coordinates(probe: str):
    for setup in set(setups_of(probe)) - IN_SPACE:
        same(values(setup, coordinates="projected")[probe][1:], values(setup)[probe][1:], 1e-10)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_tells_nothing_of_a_diverged_run(probe: str):
    """NaN > 0 is false, but that is no measurement; a first time that has not come is -1 still."""
    for setup in setups_of(probe):
        given, expected = (values_twice(setup, broken)[probe] for broken in (True, False))
        same(given[[0, 2]], expected[[0, 2]], 1e-10)
        assert given[1].isnan() or (probe in RUNNING_METRICS and float(given[1]) == -1)
