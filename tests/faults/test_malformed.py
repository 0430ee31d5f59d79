"""Files that no process wrote, in a folder of sweeps: no command ends in a traceback, and no sweep hides another."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benign.report.live import monitor as monitoring
from benign.report.live.monitor import SweepMonitor, progress_text, trouble_text
from tests.faults.sweeps import contents
from tests.tiny import tiny

BRACKETS = b"[" * 4000
PATIENCE = 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A finished sweep of two records, not to be changed."""
    folder = tmp_path_factory.mktemp("malformed") / "whole"
    tiny("training.max_steps=2", "evaluation.samples=2").run(folder)
    return folder


@pytest.fixture
def root(whole, tmp_path) -> Path:
    """A folder of two sweeps, each with one unit to do."""
    for name in ("a", "b"):
        shutil.copytree(whole, tmp_path / name)
        first_record(tmp_path / name).unlink()
    return tmp_path


def first_record(folder: Path) -> Path:
    """The record of the unit with 2 samples."""
    key = tiny("training.max_steps=2", "evaluation.samples=2").units()[0].key
    return folder / "records" / f"{key}.npz"


def lease(folder: Path) -> Path:
    """The file that says who works on that unit."""
    return folder / "taken" / f"{first_record(folder).stem}.json"


def until(holds: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.02)


@pytest.mark.parametrize(
    "content",
    [
        BRACKETS,
        b'{"a":' * 4000,
        b"\xff\xfe",
        b'{"host": "far away", "pid": 1, "started": "1", "since": 1e300}',
        b'{"host": "far away", "pid": 1, "started": "1", "since": NaN}',
        b'{"host": "far away", "pid": 1, "started": "1", "since": -1e999}',
        b'{"host": "far away", "pid": -1, "started": "1", "since": 1.0}',
        b'{"host": "far away", "pid": 1' + b"0" * 4000 + b"}",
    ],
    ids=lambda content: repr(content)[:60],
)
def test_a_malformed_lease_holds_no_unit_and_hides_no_sweep(content, root, whole, run, monkeypatch):
    monkeypatch.setattr(monitoring, "EVERY", 0.05)
    monkeypatch.setattr(monitoring, "SHARE", 1)
    monitor = SweepMonitor(root)
    monitor.start()
    until(lambda: len(monitor.sweeps) == 2)
    lease(root / "a").write_bytes(content)
    code, out, err = run("status", root / "a")
    assert (code, err) == (0, "")
    assert "far away" not in out
    assert run("status", root / "a", "--json")[0] == 0
    # The other sweep is followed, and a new one is found.
    shutil.copy(first_record(whole), first_record(root / "b"))
    shutil.copytree(whole, root / "c")
    until(lambda: "c" in monitor.sweeps)
    until(lambda: "8 of 8" in progress_text(monitor.sweeps["b"]))
    assert "4 of 8" in progress_text(monitor.sweeps["a"])
    assert run("resume", root / "a")[0] == 0
    assert contents(root / "a") == contents(whole)
    until(lambda: "8 of 8" in progress_text(monitor.sweeps["a"]))
    monitor.stop()


def test_whatever_one_sweep_raises_is_shown_and_the_others_are_followed(root, whole, monkeypatch):
    """Until it is gone."""
    plain = monitoring.leases_in

    def raising(store):
        if lease(store.folder).exists():
            raise AssertionError("nobody expected this")
        return plain(store)

    monkeypatch.setattr(monitoring, "leases_in", raising)
    monkeypatch.setattr(monitoring, "EVERY", 0.05)
    monkeypatch.setattr(monitoring, "SHARE", 1)
    monitor = SweepMonitor(root)
    monitor.start()
    until(lambda: len(monitor.sweeps) == 2)
    lease(root / "a").write_bytes(b"")
    until(lambda: "nobody expected this" in trouble_text(monitor.sweeps["a"]))
    shutil.copy(first_record(whole), first_record(root / "b"))
    until(lambda: "8 of 8" in progress_text(monitor.sweeps["b"]))
    lease(root / "a").unlink()
    until(lambda: "4 of 8" in progress_text(monitor.sweeps["a"]))
    monitor.stop()


def test_a_folder_that_cannot_be_watched_for_a_while_is_watched_again(root, monkeypatch):
    plain, broken = monitoring.stores_in, [False]

    def raising(folder):
        assert not broken[0], "nobody expected this"
        return plain(folder)

    monkeypatch.setattr(monitoring, "stores_in", raising)
    monkeypatch.setattr(monitoring, "EVERY", 0.05)
    monitor = SweepMonitor(root)
    monitor.start()
    until(lambda: len(monitor.sweeps) == 2)
    broken[0] = True
    until(lambda: "nobody expected this" in monitor.problem)
    version = monitor.version
    time.sleep(0.3)
    assert monitor.version == version, "pages are not drawn again for the same problem"
    broken[0] = False
    until(lambda: not monitor.problem and len(monitor.sweeps) == 2)
    monitor.stop()


@pytest.mark.parametrize(
    "content", [BRACKETS, b'{"runs": 1e999}', b'{"runs": 1' + b"0" * 4000 + b"}"]
)
def test_a_malformed_note_hides_no_sweep(content, root, run):
    from benign.sweep.lease import acquire, note_path
    from benign.sweep.store import Store

    store = Store.open(root / "a")
    assert acquire(store, first_record(root / "a").stem) is None
    note_path(store, first_record(root / "a").stem).write_bytes(content)
    monitor = SweepMonitor(root)
    monitor.refresh()
    assert [trouble_text(sweep) for sweep in monitor.sweeps.values()] == ["", ""]
    (unit,) = monitor.sweeps["a"].running
    assert unit.note is None


@pytest.mark.parametrize("seconds", [10**400, -1, 1e300, True], ids=lambda value: str(value)[:9])
def test_a_record_that_took_impossible_seconds_is_damaged(seconds, root, whole, run):
    from benign.sweep.records import read_record, write_record

    record = read_record(first_record(whole))
    path = first_record(root / "a")
    write_record(path, record.arrays, {**record.meta, "seconds": seconds})
    for command in (["show", root / "a"], ["status", root / "a"]):
        code, out, _ = run(*command)
        assert code == 0
        assert "damaged" in out
    assert run("store", "check", root / "a")[0] == 1
    monitor = SweepMonitor(root)
    monitor.refresh()
    assert "damaged" in trouble_text(monitor.sweeps["a"])
    assert run("resume", root / "a")[0] == 0
    assert contents(root / "a") == contents(whole)


@pytest.mark.parametrize("depth", [50, 400, 900, 100_000])
def test_a_specification_nested_without_end_is_damaged(depth, root, run):
    """By hand, without a checksum, as files of earlier versions."""
    path = root / "a" / "experiment.json"
    content = json.loads(path.read_bytes())
    del content["sha256"]
    text = json.dumps({**content, "history": ["DEEP"]})
    path.write_text(text.replace('"DEEP"', '{"data":' * depth + "1" + "}" * depth))
    for command in ("status", "resume", "store check"):
        assert run(*command.split(), root / "a")[0] in (1, 2), command
    run("show", root / "a")
    monitor = SweepMonitor(root)
    monitor.refresh()
    assert trouble_text(monitor.sweeps["a"])
    assert not trouble_text(monitor.sweeps["b"])
