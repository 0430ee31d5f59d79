"""Runs that share slots are the runs of `train_runs`, whatever their slots, neighbours and numbers of points are."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import benign as bo
from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball
from benign.data.mixture import Mixture
from benign.data.model import DataModel
from benign.networks.linear import Linear
from benign.networks.network import Network
from benign.networks.resnet import ResNet
from benign.networks.two_layer import TwoLayer
from benign.spec import axes
from benign.streams import RunId
from benign.training.checkpoint import CheckpointConfig, DroppedCheckpoint, fault_of
from benign.training.descent import Status
from benign.training.engine import train_runs
from benign.training.jobs import Job, group_of, padded_samples, why_job_not, why_not
from benign.training.metrics import METRICS
from benign.training.optimisers import SGD, AdamW, GradientDescent
from benign.training.setup import Setup
from benign.training.slots import Slots
from tests.reference import run_ids, small_data, small_network, small_pgd, small_setup
from tests.training.test_engine import ATTACKED, Arrays, assert_same, different_runs

Unit = tuple[list[Setup], list[RunId]]


def with_samples(cell: Setup, samples: int) -> Setup:
    return axes.replace(cell, {("data", "samples"): samples, ("evaluation", "at"): "end"})


def units(attacked: bool, sizes: Sequence[int] = (4, 2, 7, 5)) -> list[Unit]:
    """Units of five runs that differ in every number, one for each number of points."""
    return [
        ([with_samples(cell, samples) for cell in different_runs(attacked)], run_ids(5, samples))
        for samples in sizes
    ]


def in_slots(
    given: Sequence[Unit], count: int, samples: int = 7, device: str = "cpu"
) -> list[Arrays]:
    """What the units give, in the order in which they are given."""
    jobs = [Job(*unit, device) for unit in given]
    slots = Slots(jobs[0], count, samples)
    for job in jobs:
        slots.add(job)
    results: dict[int, Arrays] = {}
    while slots.jobs:
        results |= {id(job): job.end() for job in slots.step()}
    return [results[id(job)] for job in jobs]


def assert_bitwise(actual: Arrays, expected: Arrays) -> None:
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values, err_msg=name)


@ATTACKED
def test_slots_train_the_runs_of_the_engine(attacked):
    given = units(attacked)
    results = in_slots(given, 6)
    assert len({n for found in results for n in found["steps"].tolist()}) > 6, "ends should differ"
    for found, unit in zip(results, given, strict=True):
        assert_same(found, train_runs(*unit))


@pytest.mark.parametrize("count", [1, 2, 16])
@ATTACKED
def test_any_number_of_slots_trains_the_same_runs(attacked, count):
    given = units(attacked)
    for found, expected in zip(in_slots(given, count), in_slots(given, 6), strict=True):
        assert_same(found, expected)


@ATTACKED
def test_padding_changes_nothing(attacked):
    """Also where no point is padded: `samples` is the own number of points."""
    given = units(attacked)
    for found, unit in zip(in_slots(given, 6, 20), given, strict=True):
        samples = unit[0][0].data.samples
        assert_same(found, in_slots([unit], 6, samples)[0])


@ATTACKED
def test_a_run_does_not_depend_on_its_slot_or_its_neighbours(attacked):
    """Bit for bit, with the same slots: whatever the order of the units, and which other units there are.

    On a CPU vector instructions leave out the end of a tensor, so the number of slots is a multiple of their width.
    """
    given = units(attacked)
    expected = dict(enumerate(in_slots(given, 16)))
    for order in ([3, 0, 2, 1], [2, 1], [1, 3, 0], [0]):
        found = in_slots([given[place] for place in order], 16)
        for place, arrays in zip(order, found, strict=True):
            assert_bitwise(arrays, expected[place])


@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    stops=st.lists(st.floats(0.0, 0.6), min_size=1, max_size=4),
    cap=st.integers(0, 15),
    count=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_any_queue_trains_the_runs_of_the_engine(sizes, stops, cap, count, seed):
    some = random.Random(seed)
    given = []
    for samples in sizes:
        cells = [
            small_setup(
                small_data(samples=samples, signal=some.choice([1.0, 3.0])),
                attack=small_pgd(some.choice([0.0, 0.3]), steps=2),
                rate=some.choice([0.5, 4.0, 1e200]),
                stop_loss=stop,
                max_steps=cap,
                test_samples=3,
            )
            for stop in stops
        ]
        given.append((cells, run_ids(len(cells), some.randrange(1000))))
    for found, unit in zip(in_slots(given, count, max(sizes)), given, strict=True):
        assert_same(found, train_runs(*unit))


def small_mixture(**fields: Any) -> Mixture:
    return Mixture(**({"samples": 5, "tokens": 1, "dim": 6, "signal": 2.0} | fields))


OTHERS: dict[str, Callable[[], Setup]] = {
    "stopped by the clean loss": lambda: small_setup(
        attack=small_pgd(), stop_on="clean", stop_loss=0.5, rate=2.0
    ),
    "drops": lambda: small_setup(rate=2.0, drop_every=3, drop_by=3.0),
    "the best iterate": lambda: small_setup(attack=small_pgd(keep="best")),
    "APGD": lambda: small_setup(attack=APGD(ball=Ball(radius=0.2), steps=4)),
    "heads": lambda: small_setup(network=small_network(heads=2), attack=small_pgd()),
    "exposed values": lambda: small_setup(
        network=small_network(exposed="values"), attack=small_pgd()
    ),
    "in the span": lambda: small_setup(
        small_data(dim=64, samples=3), small_network(), small_pgd(), max_steps=5
    ).model_copy(update={"coordinates": "projected"}),
    "linear": lambda: small_setup(network=Linear(), attack=small_pgd(), rate=1.0),
    "two layers": lambda: small_setup(
        small_mixture(), TwoLayer(width=6, init_std=0.3), small_pgd(), rate=1.0
    ),
}


@pytest.mark.parametrize("which", OTHERS)
def test_other_setups_train_the_runs_of_the_engine(which):
    cell = OTHERS[which]()
    assert why_not(cell) is None
    cells = [axes.replace(cell, {("training", "rate"): 0.7**k}) for k in range(3)]
    given: list[Unit] = [(cells[:2], run_ids(2, 1)), (cells, run_ids(3, 2))]
    for found, unit in zip(in_slots(given, 2, cell.data.samples), given, strict=True):
        assert_same(found, train_runs(*unit))


def test_a_diverging_run_leaves_the_others_alone():
    given = units(attacked=True)
    cells = list(given[0][0])
    cells[1] = axes.replace(cells[1], {("training", "rate"): 1e200})
    found = in_slots([(cells, given[0][1]), *given[1:]], 6)
    assert found[0]["status"][1] == Status.DIVERGED
    assert np.isnan(found[0]["test_loss"][1])
    assert_same(found[0], train_runs(cells, given[0][1]))
    for arrays, expected in zip(found[1:], in_slots(given[1:], 6), strict=True):
        assert_same(arrays, expected)


# Checkpoints


def resumed(folder: Path, given: Sequence[Unit], ticks: int) -> list[Arrays]:
    """Make this many steps with checkpoints, lose everything, and go on from the files."""
    configs = [
        CheckpointConfig(folder / str(place), None, 7, "code") for place in range(len(given))
    ]
    pairs = list(zip(given, configs, strict=True))
    jobs = [Job(*unit, "cpu", config) for unit, config in pairs]
    slots = Slots(jobs[0], 16, 7)
    for job in jobs:
        slots.add(job)
    for _ in range(ticks):
        slots.step()
        slots.write_checkpoints()
    jobs = [Job(*unit, "cpu", config) for unit, config in pairs]
    numbers = [job.numbers.copy() for job in jobs]
    slots = Slots(jobs[0], 16, 7)
    results = {}
    for job in jobs:
        if job.left:
            slots.add(job)
        else:
            results[id(job)] = job.end()
    while slots.jobs:
        results |= {id(job): job.end() for job in slots.step()}
    assert any(part.any() for part in numbers) == (ticks > 0)
    return [results[id(job)] for job in jobs]


@pytest.mark.parametrize("ticks", [0, 4, 20])
@ATTACKED
def test_a_killed_job_loses_no_training(attacked, ticks, tmp_path, monkeypatch):
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    given = units(attacked)
    found = resumed(tmp_path, given, ticks)
    for arrays, expected in zip(found, in_slots(given, 16), strict=True):
        assert_bitwise(arrays, expected)
    files = list(tmp_path.glob("*/*.safetensors"))
    assert len(files) == (4 if ticks else 0)
    assert [fault_of(file) for file in files] == [""] * len(files)


def test_a_job_killed_twice_keeps_runs_that_still_wait(tmp_path, monkeypatch):
    """A resumed run that has no slot yet is in the next checkpoint as well."""
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    unit = units(attacked=True)[0]
    config = CheckpointConfig(tmp_path)
    numbers = []
    for count, ticks in ((5, 2), (1, 4)):
        slots = Slots(job := Job(*unit, "cpu", config), count, 4)
        slots.add(job)
        for _ in range(ticks):
            slots.step()
            slots.write_checkpoints()
        numbers = [*numbers, Job(*unit, "cpu", config).numbers]
    first, second = numbers
    assert first.min() >= 1
    assert (second >= first).all()
    assert (second > first).any()
    job = Job(*unit, "cpu", config)
    slots = Slots(job, 5, 4)
    slots.add(job)
    while slots.jobs:
        slots.step()
    assert_same(job.end(), train_runs(*unit))


def test_a_checkpoint_of_other_runs_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    cells, ids = units(attacked=True)[0]
    resumed(tmp_path, [(cells, ids)], 2)
    [file] = tmp_path.glob("*/*.safetensors")
    config = CheckpointConfig(file.parent, None, 8, "code")  # other numerics
    with pytest.warns(DroppedCheckpoint, match="numerics"):
        job = Job(cells, ids, "cpu", config)
    assert not job.numbers.any()
    assert job.left == len(cells)


def test_the_weights_of_every_run_are_kept(tmp_path):
    unit = units(attacked=True)[0]
    train_runs(*unit, config=CheckpointConfig(None, tmp_path / "engine"))
    slots = Slots(job := Job(*unit, "cpu", CheckpointConfig(None, tmp_path / "slots")), 2, 4)
    slots.add(job)
    while slots.jobs:
        slots.step()
    job.end()
    names = sorted(path.name for path in (tmp_path / "engine").iterdir())
    assert sorted(path.name for path in (tmp_path / "slots").iterdir()) == names
    assert len(names) == 5


# Which runs


class Shuffled(Attack):
    """Moves every point by its neighbour: recordable, but points are not apart."""

    def perturb(self, target: Target) -> Points:
        return target.x + 0.1 * target.x.roll(1, 1)

    def recordable(self) -> bool:
        return True


class OwnLinear(Linear):
    """May do anything."""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training": SGD(rate=0.1, epochs=2, batch=2)}, ("`training`", "sgd")),
        ({"training": AdamW(rate=0.1, epochs=2)}, ("`training`", "adam_w")),
        ({"network": ResNet()}, ("`network`", "res_net")),
        ({"network": OwnLinear()}, ("`network`", "own_linear")),
        ({"attack": small_pgd(start="uniform")}, ("`attack`", "draws")),
        ({"attack": Shuffled()}, ("`attack`", "shuffled", "apart")),
        (
            {
                "attack": small_pgd(),
                "training": GradientDescent(rate=0.1, max_steps=3, first_attacked_step=1),
            },
            ("`training.first_attacked_step` is 1",),
        ),
        ({"evaluation": bo.Evaluation(at="snapshots")}, ("`evaluation.at`",)),
    ],
)
def test_what_slots_leave_out_is_said(changes, words):
    cell = small_setup(precision="float32").model_copy(update=changes)
    reason = why_not(cell)
    assert reason is not None
    assert all(word in reason for word in words), reason
    assert why_job_not([cell], "cpu") == reason


def test_runs_that_all_end_at_the_last_step_need_no_slots():
    cells = [small_setup(), small_setup()]
    assert "`training.stop_loss` is 0" in (why_job_not(cells, "cpu") or "")
    assert why_job_not([cells[0], small_setup(stop_loss=0.1)], "cpu") is None


def test_clean_training_on_products_needs_no_slots():
    wide = small_data(samples=8, tokens=4, dim=512)
    cell = small_setup(wide, small_network(hidden=32))
    assert "nothing is attacked" in (why_not(cell) or "")
    assert why_not(small_setup(wide, small_network(hidden=32), small_pgd())) is None


def test_metrics_of_a_users_own_are_left_out():
    cell = small_setup()
    assert why_not(cell) is None

    @bo.metric("its step")
    def own_step_number(step):
        return torch.full_like(step.loss, step.number)

    try:
        assert "`own_step_number`" in (why_not(cell) or "")
    finally:
        del METRICS["own_step_number"]


def test_a_job_beyond_memory_is_left_out(monkeypatch):
    monkeypatch.setattr("benign.training.engine.CPU_BUDGET", 1)
    assert "only 1 of its 2 runs fit into memory" in (
        why_job_not([small_setup(stop_loss=0.1)] * 2, "cpu") or ""
    )


def of(data: DataModel | None = None, network: Network | None = None, **fields: Any) -> str:
    return group_of(small_setup(data, network, **fields))


def test_runs_share_slots_if_they_differ_in_numbers_and_samples_alone():
    group = of(rate=0.5)
    assert of(rate=2.0, stop_loss=0.3) == group
    assert of(small_data(samples=9, noise_std=0.1)) == group
    assert of(small_data(dim=9)) != group
    assert of(network=small_network(hidden=6)) != group
    assert of(max_steps=13) != group
    assert of(attack=small_pgd()) != group


def test_runs_whose_coordinates_have_other_sizes_do_not_share_slots():
    """The span of the training tokens grows with their number."""
    small, large = (
        small_setup(small_data(dim=64, samples=samples)).model_copy(
            update={"coordinates": "projected"}
        )
        for samples in (2, 4)
    )
    assert group_of(small) != group_of(large)


def test_running_metrics_that_see_copies_keep_numbers_of_points_apart():
    """`activation_lost` is a mean over pairs of points and neurons."""
    network = TwoLayer(width=6, init_std=0.3)
    groups = {
        group_of(small_setup(small_mixture(samples=samples), network, small_pgd()))
        for samples in (4, 5)
    }
    assert len(groups) == 2


@pytest.mark.parametrize(
    ("samples", "largest", "padded"),
    [(22, 22, 22), (6, 22, 22), (5, 22, 5), (2, 22, 5), (1, 22, 1), (10, 10, 10), (1, 1, 1)],
)
def test_runs_are_padded_to_less_than_four_times_their_points(samples, largest, padded):
    assert padded_samples(samples, largest) == padded
    assert samples <= padded < 4 * samples


@pytest.mark.gpu
@pytest.mark.parametrize("which", ["linear", "two layers", "APGD", "drops", "exposed values"])
def test_other_setups_on_a_gpu(which):
    """Their steps and their metrics can be recorded."""
    cells = [axes.replace(OTHERS[which](), {("training", "rate"): 0.7**k}) for k in range(3)]
    given: list[Unit] = [(cells[:2], run_ids(2, 1)), (cells, run_ids(3, 2))]
    results = in_slots(given, 16, cells[0].data.samples, "cuda")
    for found, unit in zip(results, given, strict=True):
        assert_same(found, train_runs(*unit, "cuda"))


@pytest.mark.gpu
@ATTACKED
def test_slots_on_a_gpu(attacked):
    given = units(attacked)
    first = in_slots(given, 16, device="cuda")
    for order in ([3, 0, 2, 1], [2, 1], [1, 3, 0], [0]):
        found = in_slots([given[place] for place in order], 16, device="cuda")
        for place, arrays in zip(order, found, strict=True):
            assert_bitwise(arrays, first[place])
    for found, unit in zip(first, given, strict=True):
        assert_same(found, train_runs(*unit, "cuda"))
