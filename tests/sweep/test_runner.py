"""A sweep leaves no unit out and does none twice, whoever else works on it and whatever becomes of its processes."""

import os
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from benign.sweep import lease as taken
from benign.sweep import runner as drive
from benign.sweep.compute import Computed, compute
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.plan import Unit
from benign.sweep.results import RETRIED, ResultWarning, RunsFailed
from benign.sweep.store import Store, sealed, unsealed
from benign.training.descent import Status
from tests.registry import forgetting
from tests.says import holds, says
from tests.tiny import tiny, tiny_file


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the units that this process computes."""
    keys: list[str] = []

    def noted(unit: Unit, *given: object) -> Computed:
        keys.append(unit.key)
        return compute(unit, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("benign.sweep.executors.local.compute", noted)
    return keys


def belongs(folder: Path, key: str, **other: object) -> None:
    """Let a unit of a sweep belong to somebody else."""
    store = Store.open(folder)
    assert taken.take(store, key) is None
    path = folder / "taken" / f"{key}.json"
    path.write_bytes(sealed(asdict(taken.leases_in(store)[key]) | other))


def test_units_of_another_host_are_left_to_it(tmp_path, computed):
    folder = tmp_path / "run"
    tiny().prepare(folder)
    theirs, ours = (unit.key for unit in tiny().units())
    belongs(folder, theirs, host="far away")
    with pytest.warns(ResultWarning, match=says(str(folder), "far away", "--steal")):
        result = tiny().run(folder)
    assert computed == [ours]
    assert result.attrs["runs_missing"] == 4
    assert tiny().run(folder, steal=True).identical(tiny().run(tmp_path / "whole"))
    assert computed[1] == theirs
    assert not taken.leases_in(Store.open(folder))


def test_units_of_a_living_process_are_waited_for(tmp_path, computed, monkeypatch):
    """It records one and dies with the other."""
    monkeypatch.setattr(drive, "POLL_SECONDS", 0.05)
    folder, whole = tmp_path / "run", tmp_path / "whole"
    expected = tiny().run(whole)
    computed.clear()
    tiny().prepare(folder)
    recorded, left = (unit.key for unit in tiny().units())
    for key in (recorded, left):
        belongs(folder, key)

    def other() -> None:
        time.sleep(0.2)
        Store.open(folder).path(recorded).write_bytes(Store.open(whole).path(recorded).read_bytes())
        taken.release(Store.open(folder), recorded)
        time.sleep(0.2)
        belongs_to_nobody = folder / "taken" / f"{left}.json"
        text = unsealed(belongs_to_nobody.read_bytes())
        belongs_to_nobody.write_bytes(sealed(text | {"started": "long ago"}))

    thread = threading.Thread(target=other)
    thread.start()
    assert tiny().run(folder).identical(expected)
    thread.join()
    assert computed == [left]


def test_what_another_process_recorded_meanwhile_is_not_computed_again(tmp_path, computed):
    folder, whole = tmp_path / "run", tmp_path / "whole"
    expected = tiny().run(whole)
    store, work = tiny().prepare(folder)
    computed.clear()
    done = work.left[0].key
    store.path(done).write_bytes(Store.open(whole).path(done).read_bytes())
    drive.run_units(work.left, work.done, store, drive.Watcher(), drive.ExecutionConfig())
    assert computed == [work.left[1].key]
    assert open_result(folder).identical(expected)


OWN = """
import multiprocessing, os, signal, time
import torch
import benign as bo


@bo.metric("nothing")
def nothing(step):
    if multiprocessing.parent_process() and step.attacked.shape[1] == 2:
        {does}
    return torch.zeros(len(step.batch))
"""


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_unit_that_hangs_takes_no_other_with_it(run, tmp_path):
    (tmp_path / "own.py").write_text(OWN.format(does="time.sleep(1000)"))
    words = ["--plugin", tmp_path / "own.py", "run", tiny_file(tmp_path), "--out", tmp_path / "run"]
    with forgetting():
        code, out, _ = run(*words, "--workers", "2", "--unit-timeout", "2")
        assert code == 1
        assert holds(out, "2 s", "--unit-timeout")
        with pytest.warns(RunsFailed):
            status_of = open_result(tmp_path / "run").status
        assert (status_of.sel(samples=2) == Status.FAILED).all()
        assert status_of.sel(samples=4).isin([Status.CONVERGED, Status.STEP_CAP]).all()
        assert run(*words, "--workers", "1")[0] == 0, "here it does not"


ENDS = {2: "SIGSEGV", 4: "SIGKILL", 6: "exit code 7"}
DIFFERENTLY = """{2: lambda: os.kill(os.getpid(), signal.SIGSEGV), 4: lambda: os.kill(os.getpid(), signal.SIGKILL),
            6: lambda: os._exit(7), 8: int}[step.attacked.shape[1]]()"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_unit_whose_process_dies_takes_no_other_with_it_and_tells_how(run, tmp_path):
    own = OWN.replace(" and step.attacked.shape[1] == 2", "").format(does=DIFFERENTLY)
    (tmp_path / "own.py").write_text(own)
    file, folder = tiny_file(tmp_path, "data.samples=[2, 4, 6, 8]"), tmp_path / "run"
    words = ["--plugin", tmp_path / "own.py", "run", file, "--out", folder]
    with forgetting():
        assert run(*words, "--workers", "2")[0] == 1
        with pytest.warns(RunsFailed):
            result = open_result(folder)
        errors = {
            unit.runs[0].cell.data.samples: Store.open(folder).read(unit.key)
            for unit in open_experiment(folder).units()
        }
        for samples, how in ENDS.items():
            assert (result.status.sel(samples=samples) == Status.FAILED).all()
            record = errors[samples]
            assert record is not None
            assert how in record.meta["error"]
        assert not result.status.sel(samples=8).isin(RETRIED).any()
        assert run(*words, "--workers", "1")[0] == 0, "failed runs are tried again, here none dies"
        assert not open_result(folder).status.isin(RETRIED).any()
