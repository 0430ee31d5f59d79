"""Runs trained together are runs trained alone: every training method, attack, data model and network, curves included.

The components are the rows of tests/test_components.py, so that a new one is tested here as well. All is in float64:
products of more runs round otherwise, by 1e-16 of a number, and a few steps of ascent and descent multiply that by less
than 1e6. A wrong draw or another set of points moves a loss of a few points by more than 1e-4.
"""

import sys
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.data.images import Images
from benign.data.model import DataModel
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.linear import Linear
from benign.networks.network import Network
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import replace
from benign.training import descent
from benign.training.descent import Status
from benign.training.engine import train_runs
from benign.training.metrics import audit, evaluation
from benign.training.optimisers import MiniBatches, Training
from benign.training.setup import Evaluation, Setup
from tests import test_components as components
from tests.reference import run_ids, small_data, small_pgd, with_most_steps
from tests.test_components import Row, data_of, varied, victims
from tests.training.test_engine import Arrays, alone, assert_same

STEPS = 3
ENDS = [(0.3, 100.0), (0.2, 0.6), (0.1, 0.0)]
"""rate and stop loss of three runs: one ends at once, one where its loss is below 0.6, one at the step cap"""
BATCH = 4
"""most points of a mini-batch, of six"""
METHODS: list[Training] = [row.component for row in components.TRAININGS]
IN_BATCHES = next(method for method in METHODS if isinstance(method, MiniBatches))
ATTACKS: list[Attack | None] = [None]
ATTACKS += [
    replace(row.component, {("steps",): 3}) if hasattr(row.component, "steps") else row.component
    for row in [*components.ATTACKS, *components.KNOWING]
]
Way = tuple[str, int]
WAYS: list[Way] = list(product(["attacked", "clean"], [0, 2]))
"""which loss stops a run, and the first step that is attacked"""


def trainings(method: Training, way: Way) -> list[Training]:
    """The method for three runs that end at different steps."""
    fields: dict[str, Any] = {"stop_on": way[0], "first_attacked_step": way[1]}
    if isinstance(method, MiniBatches):
        fields |= {"batch": BATCH}
    capped = with_most_steps(method, STEPS).as_dict() | fields
    return [method.from_dict(capped | {"rate": rate, "stop_loss": stop}) for rate, stop in ENDS]


def cells(
    method: Training,
    data: DataModel,
    network: Network,
    attack: Attack | None,
    way: Way = WAYS[0],
    judge: Attack | None = None,
    coordinates: Any = "ambient",
) -> list[Setup]:
    """Three runs that differ in every number, tested at every snapshot; without a judge by the attack itself."""
    attacks = [None] * 3 if attack is None else varied(attack)
    parts = zip(trainings(method, way), varied(data), varied(network), attacks, strict=True)
    return [
        Setup(
            training=training,
            data=points,
            network=net,
            attack=moves,
            evaluation=Evaluation(samples=5, at="snapshots", attack=judge or moves),
            precision="float64",
            coordinates=coordinates,
        )
        for training, points, net, moves in parts
    ]


def check_together(runs: Sequence[Setup], first: int = 0, device: str = "cpu") -> None:
    """All at once, and each alone; curves from a snapshot on. The first run ends while the others go on."""
    ids = run_ids(len(runs))
    together = train_runs(runs, ids, device)
    assert together["steps"][0] <= 1 < together["steps"].max() == STEPS
    assert_same(cut(together, first), cut(alone(runs, ids, device), first), tolerance=1e-9)


def cut(found: Arrays, first: int) -> Arrays:
    return {
        name: values[:, first:] if name.endswith("_curve") else values
        for name, values in found.items()
    }


def label(attack: Attack | None, place: int) -> str:
    return f"{attack.kind if attack else 'clean'}{place}"


def cases() -> list[Any]:
    """Every method with every attack in two ways that differ in both, in turn. The first tier has one of them, and
    mini-batches take turns there."""
    found: list[Any] = []
    for (turn, method), (place, attack) in product(enumerate(METHODS), enumerate(ATTACKS)):
        number = (turn + place // 2) % len(WAYS)
        for way in (WAYS[number], WAYS[-1 - number]):
            first = way == WAYS[number] and (not turn or (turn + place) % 2)
            marks = [] if first else [pytest.mark.slow]
            name = f"{method.kind}-{label(attack, place)}-{way[0]}-{way[1]}"
            found.append(pytest.param(method, attack, way, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("method", "attack", "way"), cases())
def test_a_run_does_not_depend_on_those_it_is_trained_with(method, attack, way):
    network, data = victims(attack)[-1] if attack else components.VICTIMS[0]
    check_together(cells(method, data, network, attack, way))


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.kind)
@pytest.mark.parametrize("attack", [None, small_pgd(steps=3), APGD(ball=Ball(radius=0.3), steps=3)])
def test_steps_that_a_gpu_records_do_not_depend_on_the_others(method, attack, monkeypatch):
    """Long enough for recorded steps, which begin anew whenever a run ends."""
    monkeypatch.setattr(sys.modules[__name__], "STEPS", 9)
    network, data = victims(attack)[-1] if attack else components.VICTIMS[0]
    check_together(cells(method, data, network, attack), device="cuda")


ROUND: list[Attack | None] = [
    None,
    PGD(ball=Ball(radius=0.3), steps=3),
    PGD(ball=Ball(radius=0.2, relative_to="signal", per="sample"), steps=3, keep="best"),
    APGD(ball=Ball(radius=0.3), steps=4),
]
"""attacks that are alike in every basis, which small coordinates ask for"""
WIDE = replace(components.SIGNED, {("dim",): 200})
# Larger scores saturate attention, where APGD chooses among equal margins by rounding: 3e-15 of the weights moved one
# metric of a run alone by 2 %.
FAINT = GaussianInit(score_std=0.05, value_std=0.1)
SMALL = {
    "attention": (Attention(hidden=3, init=FAINT), WIDE),
    "wide": (Attention(hidden=80, init=FAINT), WIDE),
    "patches": (components.VICTIMS[1][0], replace(components.CLASSES, {("dim",): 200})),
}


@pytest.mark.parametrize("coordinates", ["projected", "sampled", "approximate"])
@pytest.mark.parametrize("attack", ROUND, ids=lambda each: label(each, 0))
@pytest.mark.parametrize("victim", SMALL)
def test_small_coordinates_of_a_run_do_not_depend_on_the_others(victim, attack, coordinates):
    """Without an attack, trained or judged by, those of a wide network leave out a part of the weights."""
    if (victim, coordinates) == ("patches", "approximate"):
        return  # refused: it needs no approximation
    network, data = SMALL[victim]
    if attack is not None and attack.threat().relative_to and data.signal_norm() is None:
        attack = replace(attack, {("ball", "relative_to"): None})
    judge = attack and EnsembleAttack(ball=Ball(radius=0.3), steps=2, restarts=2)
    runs = cells(METHODS[0], data, network, attack, WAYS[3], judge, coordinates)
    assert {each.space.mode for each in runs} == {coordinates}
    check_together(runs)


@pytest.mark.parametrize("row", components.DATA, ids=components.name)
def test_points_in_mini_batches_do_not_depend_on_the_others(row: Row):
    classes = row.component.label_count()
    network = Linear(init_std=0.5)
    if classes is not None:
        network = PatchCNN(width=3, classes=classes, threshold=0.5, init_std=0.1)
    check_together(cells(IN_BATCHES, row.component, network, small_pgd(0.1, steps=2)))


@pytest.mark.parametrize("row", components.NETWORKS, ids=components.name)
def test_a_network_in_mini_batches_does_not_depend_on_the_others(row: Row):
    """But at step 0, where f may be 0 and its sign is rounding (`TwoLayer`)."""
    network = row.component
    data = data_of(network)
    if network.output_count() != data.label_count():
        data = Images(source="digits", samples=6, classes=(0, 1))
    check_together(cells(IN_BATCHES, data, network, None), first=1)


def test_more_points_than_are_measured_and_tested_at_once(monkeypatch):
    monkeypatch.setattr(descent, "MEASURED_POINTS", 4)
    monkeypatch.setattr(audit, "MEASURED_POINTS", 4)
    for module in (audit, evaluation):
        monkeypatch.setattr(module, "BLOCK", 3)
    check_together(cells(IN_BATCHES, components.SIGNED, Linear(init_std=0.5), small_pgd(steps=2)))


@cache
def to_split(method: Training) -> tuple[list[Setup], Arrays]:
    """Five runs, one of which diverges, and what they give together."""
    attack, data = small_pgd(steps=2, start="uniform"), small_data(samples=6, flip=0.3)
    runs = cells(method, data, components.VICTIMS[0][0], attack, ("clean", 1))
    wild = replace(runs[0], {("training", "rate"): 1e200, ("training", "stop_loss"): 0.0})
    late = replace(runs[1], {("training", "stop_loss"): 0.5})
    return (found := [*runs, wild, late]), train_runs(found, run_ids(5))


@pytest.mark.parametrize("method", [METHODS[0], IN_BATCHES], ids=["full", "mini-batches"])
@given(batches=st.lists(st.integers(0, 4), min_size=5, max_size=5))
@settings(max_examples=6)
def test_any_batches_of_a_list_of_runs_give_the_same(method, batches):
    runs, together = to_split(method)
    assert set(together["status"]) == {Status.CONVERGED, Status.STEP_CAP, Status.DIVERGED}
    for batch in set(batches):
        places = [place for place, its in enumerate(batches) if its == batch]
        found = train_runs([runs[place] for place in places], [run_ids(5)[p] for p in places])
        expected = {name: values[places] for name, values in together.items()}
        assert_same(found, expected, tolerance=1e-9)
