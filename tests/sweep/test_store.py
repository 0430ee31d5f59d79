"""A store survives kills, damage, two writers and wrong folders."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from benign.sweep.records import REMEDY, temporary_name
from benign.sweep.store import About, Store, StoreError
from tests.says import says

KEY, OTHER = "0123456789abcdef" * 2, "f" * 32
RUNS = {"run": np.array(["a", "b", "c", "d"]), "status": np.ones(4, np.int8)}
ARRAYS, META = {**RUNS, "loss": np.arange(4.0)}, {"runs": [1, 2]}
SPEC = {"seeds": 3}


def python(code, *arguments, **options):
    """Start another process that runs `code` with the modules under test."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "run", create=True)
    store.set_about(About([SPEC]))
    return store


@pytest.fixture
def full_disk():
    """No file can grow while this is in force, not even for root."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_is_written_is_there_after_reopening(store):
    store.write(OTHER, RUNS, {})
    store.write(KEY, ARRAYS, META)
    store.set_about(About([SPEC, {"seeds": 5}]))
    recompute = Store.open(store.folder)
    assert recompute.history == [SPEC, {"seeds": 5}]
    assert recompute.keys() == {KEY, OTHER}
    assert [key for key, _ in recompute.records()] == [KEY, OTHER]
    record = recompute.read(KEY)
    assert record is not None
    assert record.meta == META
    np.testing.assert_array_equal(record.arrays["loss"], ARRAYS["loss"])
    assert recompute.read("0" * 32) is None
    assert not recompute.damaged


def test_layout_on_disk(store):
    store.write(KEY, ARRAYS, META)
    store.set_about(About([SPEC], {"benign": "0.1.0", "target": "my.yaml"}, 3))
    text = (store.folder / "experiment.json").read_text()
    made = '"made":{"benign":"0.1.0","target":"my.yaml"}'
    before, _, checksum = text.partition(',"sha256":')
    assert before == '{"format":2,"history":[{"seeds":3}],' + made + ',"numerics":3'
    assert json.loads(checksum[:-1]) == hashlib.sha256(f"{before}}}".encode()).hexdigest()
    files = {str(path.relative_to(store.folder)) for path in store.folder.rglob("*")}
    assert files == {"experiment.json", "records", f"records/{KEY}.npz"}


def test_a_damaged_record_is_noted_missing_and_overwritten(store):
    store.write(KEY, ARRAYS, META)
    store.write(OTHER, ARRAYS, META)
    path = store.path(KEY)
    path.write_bytes(path.read_bytes()[:-1])
    assert store.read(KEY) is None
    assert str(path) in store.damaged[KEY]
    assert REMEDY in store.damaged[KEY]
    assert path.exists()
    assert store.keys() == {OTHER}
    assert [key for key, _ in store.records()] == [OTHER]
    fresh = Store.open(store.folder)
    assert [key for key, _ in fresh.records()] == [OTHER]
    assert set(fresh.damaged) == {KEY}
    fresh.write(KEY, ARRAYS, META)
    assert not fresh.damaged
    assert fresh.keys() == {KEY, OTHER}
    # A store that was open before finds the repaired record as well.
    assert [key for key, _ in store.records()] == [KEY, OTHER]
    assert not store.damaged


def test_other_files_among_the_records_are_ignored(store):
    store.write(KEY, ARRAYS, META)
    records = store.folder / "records"
    for name in ("notes.txt", "A" * 32 + ".npz", "abc.npz", OTHER):
        (records / name).write_text("mine")
    (records / f"{OTHER}.npz").mkdir()
    temporary_name(records / f"{OTHER}.npz").write_bytes(b"half")
    assert store.keys() == {KEY}
    assert [key for key, _ in store.records()] == [KEY]


@pytest.mark.parametrize("key", ["", "abc", "G" * 32, "../" * 10 + "ab", KEY + "\n", KEY.upper()])
def test_a_key_is_32_hex_digits(store, key):
    for call in (lambda: store.read(key), lambda: store.write(key, ARRAYS, META)):
        with pytest.raises(ValueError, match=says("`key`", "32", repr(key))):
            call()


def test_history_is_fresh_and_checked(store):
    store.history.append({"changed": True})
    assert store.history == [SPEC]
    for wrong in ([{"a": float("nan")}], [{"a": (1, 2)}]):
        with pytest.raises(ValueError, match="JSON"):
            store.set_about(About(wrong))
    assert store.history == [SPEC]
    Store.open(store.folder).set_about(About([SPEC, SPEC]))
    assert store.history == [SPEC, SPEC]


def test_creating_again_keeps_everything(store):
    store.write(KEY, ARRAYS, META)
    recompute = Store.open(store.folder, create=True)
    assert recompute.history == [SPEC]
    assert recompute.keys() == {KEY}


def test_a_store_killed_while_it_was_made_can_be_made_again(tmp_path):
    temporary_name(tmp_path / "experiment.json").write_bytes(b"{")
    assert Store.open(tmp_path, create=True).history == []
    assert Store.open(tmp_path).history == []
    assert Store.open(tmp_path, create=True).keys() == set()


def file_in_the_way(folder):
    folder.write_text("mine")


DAMAGED_ABOUT = ["experiment.json", "damaged", "copy"]


def other_things(folder):
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")


def file_as_records(folder):
    folder.mkdir()
    (folder / "records").write_text("mine")


def file_as_parent(folder):
    folder.parent.rmdir()
    folder.parent.write_text("mine")


def experiment(text):
    def make(folder):
        folder.mkdir()
        (folder / "experiment.json").write_bytes(text)

    return make


@pytest.mark.parametrize(
    ("make", "create", "parts"),
    [
        (lambda folder: None, False, ["path", "experiment"]),
        (lambda folder: folder.mkdir(), False, ["empty", "path", "experiment"]),
        (file_in_the_way, False, ["file", " folder"]),
        (file_in_the_way, True, ["file", " folder"]),
        (file_as_parent, True, ["Not a directory", " folder"]),
        (file_as_records, True, ["run/records", " folder"]),
        (other_things, True, ["experiment.json", " folder"]),
        (other_things, False, ["experiment.json", " folder"]),
        (experiment(b'{"format":2,"runs":[]}'), True, DAMAGED_ABOUT),
        (experiment(b'{"format":2,"history":[]}'), True, [*DAMAGED_ABOUT, "made"]),
        (experiment(b'{"format":0,"history":[]}'), True, [*DAMAGED_ABOUT, "`format`", " 1 ", " 0"]),
        (
            experiment(b'{"format":3}'),
            True,
            ["experiment.json", "format 3", "benign"],
        ),
        (experiment(b'{"format":1,"history":7}'), True, DAMAGED_ABOUT),
        (experiment(b'{"format":1,"history":[1]}'), False, DAMAGED_ABOUT),
        (experiment(b'{"format":1,"history":[{}'), False, DAMAGED_ABOUT),
        (experiment(b'{"format":1,"history":[{"a":NaN}]}'), False, DAMAGED_ABOUT),
        (experiment(b"[]"), False, DAMAGED_ABOUT),
        (experiment(b"\xff\xfe"), False, DAMAGED_ABOUT),
        (experiment(b""), False, DAMAGED_ABOUT),
        (experiment(b"[" * 100_000), False, DAMAGED_ABOUT),
    ],
)
def test_a_wrong_folder_is_refused_with_path_and_remedy(tmp_path, make, create, parts):
    folder = tmp_path / "parent" / "run"
    folder.parent.mkdir()
    make(folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match=says(str(folder), *parts)):
        Store.open(folder, create=create)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_cannot_be_written_is_refused_before_work(store, full_disk):
    with pytest.raises(StoreError, match=says(str(store.folder), "File too large", " folder")):
        Store.open(store.folder)
    assert Store.open(store.folder, writing=False).history == [SPEC]
    assert not list(store.folder.rglob("*.tmp"))


def test_a_full_disk_keeps_the_old_record_and_names_the_file(store, full_disk):
    resource = pytest.importorskip("resource")
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    store.write(KEY, ARRAYS, META)
    with pytest.raises(OSError, match=KEY):
        store.write(KEY, {"loss": np.zeros(10_000)}, META)
    assert store.read(KEY) is not None
    assert not list(store.folder.rglob("*.tmp"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_read_only_folder_is_refused(store):
    (store.folder / "records").chmod(0o500)
    with pytest.raises(StoreError, match=says(str(store.folder), "permissions")):
        Store.open(store.folder)
    (store.folder / "records").chmod(0o700)


def test_opening_removes_stale_temporary_files_only(store):
    old = [temporary_name(store.folder / "experiment.json"), temporary_name(store.path(KEY))]
    new = temporary_name(store.path(KEY))
    for path in (*old, new):
        path.write_bytes(b"half")
    for path in old:
        os.utime(path, (time.time() - 4000, time.time() - 4000))
    Store.open(store.folder, writing=False)
    assert all(path.exists() for path in old)
    Store.open(store.folder)
    assert new.exists()
    assert not any(path.exists() for path in old)


WRITER = """
import itertools, sys
import numpy as np
from benign.sweep.store import About, Store
store = Store.open(sys.argv[1], create=True)
print("ready", flush=True)
for turn in itertools.count() if sys.argv[2] == "forever" else range(int(sys.argv[2])):
    store.set_about(About([{"text": "x" * 10_000, "number": number} for number in range(turn % 5 + 1)]))
    runs = {"run": np.full(100, "x"), "status": np.ones(100, int)}
    arrays = {**runs, "loss": np.full((100, 1000), turn % 7)}
    store.write(f"{turn % 7:032x}", arrays, {"turn": turn % 7})
"""


def check_written(folder):
    """Whatever WRITER left is whole; returns the keys."""
    store = Store.open(folder)
    for key, record in store.records():
        assert record.meta["turn"] == int(key, 16)
        assert (record.arrays["loss"] == int(key, 16)).all()
    assert not store.damaged
    numbers = [spec["number"] for spec in store.history]
    assert numbers == list(range(len(numbers)))
    json.loads((folder / "experiment.json").read_bytes())
    return store.keys()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_kill_at_any_moment_leaves_a_readable_store(tmp_path):
    folder = tmp_path / "run"
    for delay in (0.02, 0.035, 0.05, 0.011, 0.027, 0.043):
        with python(WRITER, folder, "forever") as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(delay)
            writer.send_signal(signal.SIGKILL)
        assert writer.returncode == -signal.SIGKILL
        if (folder / "experiment.json").exists():
            check_written(folder)
    assert check_written(folder)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_death_at_each_step_of_a_write_keeps_the_old_content(store, step):
    store.write(KEY, ARRAYS, META)
    code = f"""
import os, sys
from benign.sweep.store import About, Store
store = Store.open(sys.argv[1])
os.{step} = lambda *_: os._exit(9)
store.write("{KEY}", {{}}, {{}}) if sys.argv[2] == "record" else store.set_about(About())
"""
    for what in ("record", "history"):
        with python(code, store.folder, what) as dying:
            assert dying.wait() == 9
    assert len(list(store.folder.rglob(".*.tmp"))) == 2
    recompute = Store.open(store.folder)
    assert recompute.history == [SPEC]
    assert [(key, record.meta) for key, record in recompute.records()] == [(KEY, META)]


def test_two_processes_may_write_one_store(tmp_path):
    folder = tmp_path / "run"
    with python(WRITER, folder, 60) as first, python(WRITER, folder, 60) as second:
        while first.poll() is None or second.poll() is None:
            if (folder / "experiment.json").exists():
                check_written(folder)
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(check_written(folder)) == 7
    assert not list(folder.rglob(".*.tmp"))
