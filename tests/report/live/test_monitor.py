"""Sweeps read while other processes write them: new records are read, problems reported, nothing is written."""

import os
import shutil
import socket
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benign.report.live.drawing import load_sweep
from benign.report.live.monitor import (
    RunningUnit,
    StoreReader,
    SweepMonitor,
    SweepState,
    clock,
    empty_text,
    ended_text,
    left_text,
    made_text,
    progress_text,
    steps_text,
    trouble_text,
)
from benign.sweep import lease as leases
from benign.sweep import store as stores
from benign.sweep.lease import Note, write_note
from benign.sweep.progress import Pace, UnitPosition
from benign.sweep.runner import Runner
from benign.sweep.status import Counts, SweepStatus
from benign.sweep.store import sealed, unsealed
from tests.says import holds, says
from tests.tiny import tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished sweep of two records, not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    tiny().run(folder, made={"target": "tiny.yaml", "reading": {"noise": "std"}})
    return folder


@pytest.fixture
def root(finished, tmp_path) -> Path:
    """A folder with a copy of the sweep in it, to be changed."""
    shutil.copytree(finished, tmp_path / "a" / "tiny")
    return tmp_path


def monitored(root: Path) -> SweepMonitor:
    monitor = SweepMonitor(root)
    monitor.refresh()
    return monitor


def record(root: Path, number: int) -> Path:
    return root / "a" / "tiny" / "records" / f"{tiny().units()[number].key}.npz"


def work_on(root: Path, number: int, since: float) -> Path:
    """Write a lease of this process."""
    pid = os.getpid()
    lease = leases.Lease(socket.gethostname(), pid, leases._started(pid), since)
    path = root / "a" / "tiny" / "taken" / f"{tiny().units()[number].key}.json"
    path.write_bytes(sealed(asdict(lease)))
    return path


def content(root: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}


def test_a_finished_sweep_is_described_and_nothing_is_written(root):
    before = content(root)
    monitor = monitored(root)
    sweep = monitor.sweeps["a/tiny"]
    load_sweep(StoreReader(sweep.folder))
    assert "8 of 8" in progress_text(sweep)
    assert left_text(sweep, time.time()) == "finished"
    assert made_text(sweep) == "tiny.yaml; reading: noise=std"
    assert trouble_text(sweep) == ""
    assert content(root) == before


def test_records_are_read_once(root, monkeypatch):
    read = []
    whole, header = stores.read_record, stores.read_header
    monkeypatch.setattr(
        stores, "read_record", lambda path, *a: read.append(path) or whole(path, *a)
    )
    monkeypatch.setattr(
        stores, "read_header", lambda path, *a: read.append(path) or header(path, *a)
    )
    aside = root / "aside"
    record(root, 1).rename(aside)
    monitor, reader = monitored(root), StoreReader(root / "a" / "tiny")
    load_sweep(reader)
    version, sweep = monitor.version, monitor.sweeps["a/tiny"]
    assert "4 of 8" in progress_text(sweep)
    assert set(read) == {record(root, 0)}
    read.clear()
    monitor.refresh()
    load_sweep(reader)
    assert not read
    assert monitor.version == version
    assert monitor.sweeps["a/tiny"] is sweep
    aside.rename(record(root, 1))
    monitor.refresh()
    found = load_sweep(reader)
    assert set(read) == {record(root, 1)}
    assert monitor.version == version + 1
    assert "8 of 8" in progress_text(monitor.sweeps["a/tiny"])
    assert int(found.atlas.result["test_accuracy"].notnull().sum()) == 8


def test_a_record_that_is_being_written_is_damaged_until_it_is_whole(root):
    data = record(root, 0).read_bytes()
    record(root, 0).write_bytes(data[:100])
    monitor, reader = monitored(root), StoreReader(root / "a" / "tiny")
    for _ in range(2):  # also where nothing is read again
        assert "1 damaged" in trouble_text(monitor.sweeps["a/tiny"])
        assert int(load_sweep(reader).atlas.result["test_accuracy"].notnull().sum()) == 4
        monitor.refresh()
    with open(record(root, 0), "ab") as file:
        file.write(data[100:])
    monitor.refresh()
    assert trouble_text(monitor.sweeps["a/tiny"]) == ""
    assert int(load_sweep(reader).atlas.result["test_accuracy"].notnull().sum()) == 8


def test_a_sweep_that_vanishes_is_gone_and_comes_back(root):
    monitor = monitored(root)
    shutil.move(root / "a", root / "elsewhere.txt")
    shutil.move(root / "elsewhere.txt", root / "b")
    monitor.refresh()
    assert list(monitor.sweeps) == ["b/tiny"]
    shutil.rmtree(root)
    monitor.refresh()
    assert (monitor.sweeps, "No such file" in monitor.problem) == ({}, True)
    Runner(tiny(), root / "new")
    monitor.refresh()
    assert (list(monitor.sweeps), monitor.problem) == (["new"], "")
    assert "0 of 8" in progress_text(monitor.sweeps["new"])
    assert "nobody" in left_text(monitor.sweeps["new"], 0.0)


def test_a_folder_that_vanishes_while_it_is_read_is_reported(root, monkeypatch):
    def vanish(store, history):
        shutil.rmtree(root / "a")
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("benign.report.live.monitor.sweep_status", vanish)
    monitor = monitored(root)
    assert "No such file" in monitor.sweeps["a/tiny"].problem
    monitor.refresh()
    assert not monitor.sweeps


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 2}', '{"format": 99, "history": []}', "\x00" * 50]
)
def test_a_broken_specification_is_a_line_and_others_are_shown(root, finished, text):
    shutil.copytree(finished, root / "sound")
    (root / "a" / "tiny" / "experiment.json").write_text(text, encoding="utf-8")
    monitor = monitored(root)
    broken = monitor.sweeps["a/tiny"]
    assert broken.status is None
    assert "experiment.json" in trouble_text(broken)
    assert "\n" not in broken.problem
    assert "8 of 8" in progress_text(monitor.sweeps["sound"])
    with pytest.raises(ValueError, match=r"experiment\.json"):
        load_sweep(StoreReader(broken.folder))


def test_a_running_sweep_comes_first_with_an_estimate_of_its_end(root, finished):
    shutil.copytree(finished, root / "z")
    Runner(tiny(), root / "z2")  # the newest
    record(root, 0).unlink()
    file = work_on(root, 0, time.time())
    monitor = monitored(root)
    assert next(iter(monitor.sweeps)) == "a/tiny"
    sweep = monitor.sweeps["a/tiny"]
    assert holds(progress_text(sweep), "4 of 8", "4 running")
    assert (sweep.pace.units, sweep.pace.runs) == (1, 4)
    assert 0 < sweep.pace.seconds < 10
    file.unlink()  # and no record: it was killed
    monitor.refresh()
    assert "nobody" in left_text(monitor.sweeps["a/tiny"], time.time())
    assert next(iter(monitor.sweeps)) == "z2"


AT = UnitPosition(4, 3296, 6000, 3, False, 0.5, 0.5, 30.0, 0.0)


def write_position(root: Path, number: int, at: UnitPosition) -> None:
    write_note(StoreReader(root / "a" / "tiny"), tiny().units()[number].key, at)


def test_the_position_of_a_unit_is_shown_and_counts_as_a_change(root, monkeypatch):
    record(root, 0).unlink()
    work_on(root, 0, time.time())
    monitor = monitored(root)
    before = monitor.sweeps["a/tiny"]
    assert (steps_text(before), monitor.version) == ("", 1)
    monkeypatch.setattr(
        "benign.report.live.monitor.sweep_status", lambda *_: pytest.fail("read again")
    )
    write_position(root, 0, AT)
    monitor.refresh()
    sweep = monitor.sweeps["a/tiny"]
    assert monitor.version == 2
    assert holds(steps_text(sweep), "3,296", "6,000", " 3 ")
    assert sweep.changed >= before.changed
    assert time.time() - sweep.changed < 60
    assert sweep.status is before.status  # of which figures are made
    write_position(root, 0, replace(AT, testing=True, training=4))
    monitor.refresh()
    assert "4 runs" in steps_text(monitor.sweeps["a/tiny"])
    monitor.refresh()
    assert monitor.version == 3


def test_notes_of_dead_processes_are_ignored(root):
    record(root, 0).unlink()
    file = work_on(root, 0, time.time())
    write_position(root, 0, AT)
    claim = unsealed(file.read_bytes())
    file.write_bytes(sealed(claim | {"started": "another process of this number"}))
    sweep = monitored(root).sweeps["a/tiny"]
    assert (sweep.running, steps_text(sweep)) == ((), "")
    assert "nobody" in left_text(sweep, time.time())


def test_many_units_are_summarised():
    places = [replace(AT, step=100 * k) for k in range(1, 6)]
    sweep = active_sweep(*(RunningUnit(0.0, Note(at, 0.0)) for at in places))
    assert holds(steps_text(sweep), "5 units", " 100 ", " 500", "15 runs")
    two = active_sweep(*sweep.running[:2])
    assert steps_text(two).count("6,000") == 2


def active_sweep(*running: RunningUnit, missing: int = 0, **more: Any) -> SweepState:
    runs = 4 * len(running)
    counts = Counts(runs + missing, 0, 0, 0, 0, runs, 0, 0, missing)
    return SweepState(
        "a", Path("a"), {}, SweepStatus(counts, {}, {}, [], []), running=running, **more
    )


def test_the_time_left_is_that_of_units_under_way_and_to_come():
    note = Note(AT, 1000.0)  # 30 s for half its steps
    assert active_sweep(RunningUnit(0.0, note)).left(1000.0) == 30.0
    assert active_sweep(RunningUnit(0.0, note)).left(1010.0) == 20.0
    assert active_sweep(RunningUnit(0.0, note)).left(2000.0) == 0.0
    both = active_sweep(RunningUnit(0.0, note), RunningUnit(999.0, None), missing=4)
    assert both.left(1000.0) == (30 + 30 + 60 / 4 * 4) / 2
    assert active_sweep(RunningUnit(0.0, None)).left(1000.0) is None


def test_the_text_of_the_time_left_promises_nothing():
    note = Note(AT, 1000.0)
    text = left_text(active_sweep(RunningUnit(0.0, note)), 1000.0)
    assert holds(text, "30 s", "training")
    some = Pace().plus(4, 60.0, capped=True)
    text = left_text(active_sweep(RunningUnit(0.0, note), pace=some), 1000.0)
    assert "30 s" in text
    assert "training" not in text
    assert "not known" in left_text(active_sweep(RunningUnit(0.0, None)), 1000.0)
    tested = Note(replace(AT, testing=True), 1000.0)
    assert "done" in left_text(active_sweep(RunningUnit(0.0, tested)), 1000.0)


def test_the_endings_of_runs_are_shown(tmp_path):
    tiny("training.rate=[0.5, 1e30]", "data.samples=4", "training.max_steps=9").run(tmp_path / "it")
    text = ended_text(monitored(tmp_path).sweeps["it"])
    assert holds(text, "4 diverged", "step cap")
    assert ended_text(active_sweep(RunningUnit(0.0, None))) == ""


def test_cells_that_have_not_run_do_not_fill_by_themselves_where_nobody_works():
    text = empty_text(active_sweep(RunningUnit(0.0, None)), "runs/a")
    assert "cells" in text
    assert "benign resume" not in text
    assert holds(empty_text(active_sweep(missing=4), "runs/a"), "cells", "`benign resume runs/a`")


def test_the_list_is_ordered_by_what_it_shows(root, finished):
    """Active sweeps keep their order whatever their steps; the others are ordered by their last change."""
    now = time.time()
    for name, age in (("old", 300), ("new", 100), ("middle", 200)):
        copy = shutil.copytree(finished, root / name)
        for path in (copy / "experiment.json", *(copy / "records").iterdir()):
            os.utime(path, (now - age, now - age))
    os.utime(root / "old" / "experiment.json")  # begun last
    os.utime(root / "middle" / "experiment.json", (1e9, 1e9))
    record(root, 0).unlink()
    work_on(root, 0, time.time())
    assert list(monitored(root).sweeps) == ["a/tiny", "old", "new", "middle"]


def test_errors_of_runs_and_their_cells_are_listed(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a <b>broken</b> part")

    monkeypatch.setattr("benign.sweep.compute.train_runs", fail)
    with pytest.warns(match=says("4 of 4 ", "failed", "RuntimeError: a <b>broken</b> part")):
        tiny("data.samples=2").run(tmp_path / "bad")
    sweep = monitored(tmp_path).sweeps["bad"]
    troubles = load_sweep(StoreReader(sweep.folder)).troubles
    assert trouble_text(sweep) == "4 failed"
    assert "4 runs: RuntimeError: a <b>broken</b> part" in troubles
    assert "snr 0.5: 2 seeds: failed" in troubles


def test_folders_that_lead_elsewhere_are_not_followed(root, finished, tmp_path_factory):
    (root / "link").symlink_to(finished)
    other = shutil.copytree(finished, root / "other")
    shutil.rmtree(other / "records")
    (other / "records").symlink_to(finished / "records")
    monitor = monitored(root)
    assert set(monitor.sweeps) == {"a/tiny", "other"}
    assert " link" in monitor.sweeps["other"].problem


def test_a_store_itself_can_be_followed_and_names_need_not_be_letters(finished, tmp_path):
    assert list(monitored(finished).sweeps) == ["run"]
    odd = os.fsdecode(b"odd \xff name")
    shutil.copytree(finished, tmp_path / odd)
    assert list(monitored(tmp_path).sweeps) == ["odd ? name"]


def test_times_of_day_have_a_date_where_it_is_another():
    now = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))
    assert clock(now - 60, now) == "11:59:00"
    assert clock(now - 86400, now) == "2026-05-03 12:00"
