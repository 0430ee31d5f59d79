"""A sweep whose units share slots has the records of one that computes unit by unit, whatever happens on the way."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benign.experiment import Experiment
from benign.sweep.dispatch import _executor
from benign.sweep.executors import slots as executors
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.executors.local import SerialExecutor
from benign.sweep.executors.slots import SlotExecutor
from benign.sweep.plan import Unit, units_of
from benign.sweep.progress import Watcher
from benign.sweep.runner import Runner
from benign.sweep.store import Store
from benign.training.descent import Status
from benign.training.engine import TESTING
from benign.training.slots import Slots
from tests.says import says
from tests.tiny import tiny

ATTACKED = (
    "attack={kind: pgd, ball: {radius: 0.3}, steps: 3}",
    "precision=float64",
    "data.samples=[2, 4, 3]",
    "training.max_steps=20",
)


def swept(
    experiment: Experiment, folder: Path, slots: int = 4, watcher: Watcher | None = None
) -> Store:
    Runner(experiment, folder, ExecutionConfig(slots=slots)).run(watcher or Watcher())
    return Store.open(folder)


def check_same(found: Store, expected: Store) -> None:
    records = dict(expected.records())
    assert set(found.keys()) == set(records)
    for key, record in found.records():
        assert record.arrays.keys() == records[key].arrays.keys()
        for name, values in records[key].arrays.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(record.arrays[name], values, 1e-10, 1e-10, err_msg=name)
            else:
                np.testing.assert_array_equal(record.arrays[name], values, err_msg=name)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return swept(tiny(*ATTACKED), tmp_path_factory.mktemp("plain") / "run", 0)


def test_a_sweep_in_slots_has_the_same_records(tmp_path, plain):
    found = swept(tiny(*ATTACKED), tmp_path / "slots", 5)
    check_same(found, plain)
    assert [record.meta["slots"] for _, record in found.records()] == [5, 5, 5]
    assert [record.meta["slots"] for _, record in plain.records()] == [0, 0, 0]
    assert not any((tmp_path / "slots" / "checkpoints").glob("*"))


def test_units_that_cannot_share_slots_are_computed_and_it_is_said(tmp_path):
    own_rate = ("training={kind: sgd, rate: 0.5, epochs: 3, batch: 2}", "precision=float64")
    with pytest.warns(RuntimeWarning, match="some runs train without them: `training` is sgd"):
        found = swept(tiny(*own_rate), tmp_path / "slots")
    check_same(found, swept(tiny(*own_rate), tmp_path / "plain", 0))
    assert {record.meta["slots"] for _, record in found.records()} == {0}
    assert all("sgd" in record.meta["why_no_slots"] for _, record in found.records())


def test_a_sweep_may_hold_both_kinds(tmp_path):
    mixed = ("attack=[{kind: pgd, ball: {radius: 0.3}, start: uniform}, null]", "precision=float64")
    with pytest.warns(RuntimeWarning, match="`attack`"):
        found = swept(tiny(*mixed), tmp_path / "slots")
    check_same(found, swept(tiny(*mixed), tmp_path / "plain", 0))
    assert sorted({record.meta["slots"] for _, record in found.records()}) == [0, 4]


@pytest.mark.parametrize("error", [RuntimeError("a kernel failed"), torch.OutOfMemoryError("full")])
def test_after_a_failed_step_units_are_computed_one_by_one(error, tmp_path, plain, monkeypatch):
    step, steps = Slots.step, []

    def fails(self: Slots) -> Any:
        steps.append(1)
        if len(steps) == 3:
            raise error
        return step(self)

    monkeypatch.setattr(Slots, "step", fails)
    with pytest.warns(RuntimeWarning, match=f"one by one, .* because of an error: .*{error}"):
        found = swept(tiny(*ATTACKED), tmp_path / "slots")
    check_same(found, plain)
    reasons = [record.meta.get("why_no_slots", "") for _, record in found.records()]
    assert any(str(error) in reason for reason in reasons)


def test_a_unit_that_cannot_start_fails_alone(tmp_path, plain, monkeypatch):
    begin = executors.Job.__init__

    def fails(self: Any, cells: Any, *rest: Any) -> None:
        if cells[0].data.samples == 3:
            raise ValueError("no such points")
        begin(self, cells, *rest)

    monkeypatch.setattr(executors.Job, "__init__", fails)
    with pytest.warns(RuntimeWarning, match="no such points"):
        found = swept(tiny(*ATTACKED), tmp_path / "slots")
    check_same(found, plain)
    assert sorted(record.meta["slots"] for _, record in found.records()) == [0, 4, 4]


class Killed(BaseException):
    """What a kill does to a process, as far as files go."""


def test_a_killed_sweep_goes_on_where_it_was(tmp_path, plain, monkeypatch):
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    step, begun = Slots.step, []

    def killed(self: Slots) -> Any:
        begun.append(1)
        if len(begun) == 6:
            raise Killed
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Slots, "step", killed)
        with pytest.raises(Killed):
            swept(tiny(*ATTACKED), tmp_path / "slots", 8)
    files = [*(tmp_path / "slots" / "checkpoints").glob("*/slots-*.safetensors")]
    assert files
    resumed = []

    class Job(executors.Job):
        def __init__(self, *given: Any):
            super().__init__(*given)
            resumed.append(int(self.numbers.max()))

    monkeypatch.setattr(executors, "Job", Job)
    check_same(swept(tiny(*ATTACKED), tmp_path / "slots", 8), plain)
    assert max(resumed) >= 3


class Noting(Watcher):
    """Notes the reports of every unit."""

    def __init__(self) -> None:
        self.steps: dict[str, list[tuple[int, int]]] = {}
        self.ended: list[str] = []
        self.seconds: list[float] = []

    def step(self, key: str, number: int, training: int) -> None:
        self.steps.setdefault(key, []).append((number, training))

    def unit_ends(self, unit: Unit, arrays: Any, seconds: float) -> None:
        self.ended.append(unit.key)
        self.seconds.append(seconds)


def test_progress_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "TURN", 0.0)
    watcher = Noting()
    swept(tiny(*ATTACKED), tmp_path / "slots", 3, watcher)
    assert set(watcher.steps) == set(watcher.ended)
    for reports in watcher.steps.values():
        assert reports[0] == (0, 4)
        assert reports[-1] == (TESTING, 4)
        numbers = [number for number, _ in reports[:-1]]
        assert numbers == sorted(numbers)
        assert numbers[-1] > 0
        left = [training for _, training in reports[:-1]]
        assert left == sorted(left, reverse=True)
    assert all(seconds > 0 for seconds in watcher.seconds)


def test_units_with_most_points_begin(tmp_path):
    watcher = Noting()
    experiment = tiny(*ATTACKED)
    swept(experiment, tmp_path / "slots", 3, watcher)
    by_key = {unit.key: unit.runs[0].cell.data.samples for unit in units_of([experiment])}
    assert [by_key[key] for key in watcher.steps] == [4, 3, 2]


def chosen(config: ExecutionConfig, folder: Path) -> Any:
    units = units_of([tiny()])
    with _executor(config, units, Watcher(), Store.open(folder, create=True)) as executor:
        return executor


def test_slots_are_the_default_on_a_gpu_alone(tmp_path, monkeypatch):
    assert isinstance(chosen(ExecutionConfig(), tmp_path), SerialExecutor)
    assert isinstance(chosen(ExecutionConfig(slots=2), tmp_path), SlotExecutor)
    monkeypatch.setattr(executors, "why_job_not", lambda cells, device: "there is no GPU here")
    assert isinstance(chosen(ExecutionConfig("cuda"), tmp_path), SlotExecutor)
    assert isinstance(chosen(ExecutionConfig("cuda", slots=0), tmp_path), SerialExecutor)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"slots": -1}, ("`slots`", "-1")),
        ({"slots": 8, "workers": 2}, ("`slots`", "`workers`")),
        ({"slots": 8, "unit_timeout": 3.0}, ("`slots`", "`unit_timeout`")),
    ],
)
def test_slots_are_for_one_process(fields, words):
    with pytest.raises(ValueError, match=says(*words)):
        ExecutionConfig(**fields).check()


def test_a_diverging_unit_is_recorded(tmp_path):
    wild = (*ATTACKED, "training.rate=1e200")
    found = swept(tiny(*wild), tmp_path / "slots")
    check_same(found, swept(tiny(*wild), tmp_path / "plain", 0))
    [(_, record), *_] = found.records()
    assert set(record.arrays["status"].tolist()) == {Status.DIVERGED}


@pytest.mark.gpu
def test_a_sweep_on_a_gpu_uses_slots(tmp_path):
    experiment = tiny(*ATTACKED)
    Runner(experiment, tmp_path / "slots", ExecutionConfig("cuda")).run(Watcher())
    Runner(experiment, tmp_path / "plain", ExecutionConfig("cuda", slots=0)).run(Watcher())
    found = Store.open(tmp_path / "slots")
    check_same(found, Store.open(tmp_path / "plain"))
    assert all(record.meta["slots"] >= 64 for _, record in found.records())
