"""A sweep leaves no unit out and does none twice, whoever else works on it and whatever becomes of its processes."""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benign.sweep import dispatch, lease, plan, records
from benign.sweep.compute import Computed, compute
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.plan import Unit
from benign.sweep.results import RETRIED, ResultWarning, RunsFailed
from benign.sweep.runner import Runner
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
    assert lease.acquire(store, key) is None
    path = folder / "taken" / f"{key}.json"
    path.write_bytes(sealed(asdict(lease.leases_in(store)[key]) | other))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "ray"}, ["`executor`", "dask", "slurm", "tcp://", "'ray'"]),
        ({"executor": ""}, ["`executor`", "dask", "''"]),
        ({"executor": "slurm"}, ["`executor`", "slurm.yaml", "No such file"]),
        ({"executor": "no.json"}, ["`executor`", "no.json", "No such file"]),
        ({"executor": "dask", "keep_weights": True}, ["`keep_weights`", "`executor`", "'dask'"]),
    ],
)
def test_an_executor_is_checked_before_a_folder_is_made_and_without_dask(
    options, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "benign.sweep.executors.cluster", None)  # not importable
    with pytest.raises(ValueError, match=says(*words)):
        tiny().run(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_missing_dask_is_noticed_before_a_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("benign.sweep.executors.base.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=says("`executor`", "Dask", "pip install")):
        tiny().run(tmp_path / "run", executor="dask")
    assert not (tmp_path / "run").exists()


def test_units_of_another_host_are_left_to_it(tmp_path, computed):
    folder = tmp_path / "run"
    Runner(tiny(), folder)
    theirs, ours = (unit.key for unit in tiny().units())
    belongs(folder, theirs, host="far away")
    with pytest.warns(ResultWarning, match=says(str(folder), "far away", "--steal")):
        result = tiny().run(folder)
    assert computed == [ours]
    assert result.attrs["runs_missing"] == 4
    assert tiny().run(folder, steal=True).identical(tiny().run(tmp_path / "whole"))
    assert computed[1] == theirs
    assert not lease.leases_in(Store.open(folder))


def test_units_of_a_living_process_are_waited_for(tmp_path, computed, monkeypatch):
    """It records one and dies with the other."""
    monkeypatch.setattr(dispatch, "POLL_SECONDS", 0.05)
    folder, whole = tmp_path / "run", tmp_path / "whole"
    expected = tiny().run(whole)
    computed.clear()
    Runner(tiny(), folder)
    recorded, left = (unit.key for unit in tiny().units())
    for key in (recorded, left):
        belongs(folder, key)

    def other() -> None:
        time.sleep(0.2)
        Store.open(folder).path(recorded).write_bytes(Store.open(whole).path(recorded).read_bytes())
        lease.release(Store.open(folder), recorded)
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
    runner = Runner(tiny(), folder)
    computed.clear()
    recorded, left = (unit.key for unit in runner.plan.left)
    runner.store.path(recorded).write_bytes(Store.open(whole).path(recorded).read_bytes())
    assert runner.run().identical(expected)
    assert computed == [left]
    assert open_result(folder).identical(expected)


def count_calls(monkeypatch: pytest.MonkeyPatch, *functions: Callable[..., Any]) -> Counter[str]:
    """Count the calls of functions of the package, whichever module imported them."""
    calls = Counter[str]()

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            calls[function.__name__] += 1
            return function(*arguments, **named)

        return counted

    for function in functions:
        for name, module in list(sys.modules.items()):
            if name.startswith("benign.") and vars(module).get(function.__name__) is function:
                monkeypatch.setattr(module, function.__name__, counting(function))
    return calls


@pytest.mark.parametrize("seeds", [[], ["--seeds", "1"]], ids=["all seeds", "fewer seeds"])
def test_a_finished_folder_is_planned_opened_and_decoded_once(run, tmp_path, monkeypatch, seeds):
    command = ["run", "jiang/fig1", "--scale", "smoke", "--out", tmp_path / "run"]
    assert run(*command)[0] == 0
    opened: list[Path] = []
    calls = count_calls(monkeypatch, plan.units_of, plan.extend_history, records.decode_record)
    original = Store._open
    monkeypatch.setattr(
        Store, "_open", lambda store, *how: (opened.append(store.folder), original(store, *how))[1]
    )
    assert run(*command, *seeds)[0] == 0
    assert opened == [tmp_path / "run"]
    files = len(list((tmp_path / "run" / "records").iterdir()))
    assert calls == {"units_of": 1, "extend_history": 1, "decode_record": files}


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
        code, _, err = run(*words, "--workers", "2", "--unit-timeout", "2")
        assert code == 1
        assert holds(err, "2 s", "--unit-timeout")
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
def test_a_unit_whose_process_dies_takes_no_other_with_it_and_reports_how(run, tmp_path):
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
