"""Packs and merges bring every intact record home and nothing else."""

import io
import os
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

from benign.sweep import pack as packing
from benign.sweep.pack import Merged, merge, pack
from benign.sweep.records import encode_record, temporary_name
from benign.sweep.store import About, Store, StoreError, encode_about
from tests.says import says

SPEC = {"seeds": 3}


def key(number):
    return f"{number:032x}"


def arrays(number):
    runs = {"run": np.full(5, key(number)), "status": np.ones(5, np.int8)}
    return {**runs, "loss": np.full(5, float(number))}


def make_store(folder, numbers, history=(SPEC,)):
    store = Store.open(folder, create=True)
    store.set_about(About(list(history)))
    for number in numbers:
        store.write(key(number), arrays(number), {"number": number})
    return store


def contents(folder):
    return {record.meta["number"] for _, record in Store.open(folder).records()}


def files(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def equal(target, source):
    if target != source:
        raise ValueError(f"seeds {target} and {source} differ")
    return target


def never(target, source):
    pytest.fail("there was nothing to agree on")


def damage(path):
    data = bytearray(path.read_bytes())
    data[data.index(b"\n") + 10] ^= 1
    path.write_bytes(data)


def make_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)


EXPERIMENT = ("experiment.json", encode_about(About([SPEC])))
RECORD = (f"records/{key(1)}.npz", encode_record(arrays(1), {"number": 1}))


def test_there_and_back(tmp_path):
    store = make_store(tmp_path / "a", range(5))
    assert pack(tmp_path / "a", tmp_path / "a.zip") == 5
    assert merge(tmp_path / "a.zip", tmp_path / "b", never) == Merged(5, 0, 0)
    assert files(tmp_path / "b") == files(store.folder)


def test_packing_twice_gives_the_same_bytes(tmp_path):
    make_store(tmp_path / "a", [3, 1, 2])
    make_store(tmp_path / "b", [2, 3, 1])
    pack(tmp_path / "a", tmp_path / "a.zip")
    pack(tmp_path / "b", tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        records = [f"records/{key(number)}.npz" for number in (1, 2, 3)]
        assert archive.namelist() == ["experiment.json", *records]
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def test_a_pack_is_replaced_and_leaves_damaged_records_behind(tmp_path):
    store = make_store(tmp_path / "a", range(3))
    assert pack(tmp_path / "a", tmp_path / "a.zip") == 3
    damage(store.path(key(1)))
    assert pack(tmp_path / "a", tmp_path / "a.zip") == 2
    merge(tmp_path / "a.zip", tmp_path / "b", never)
    assert contents(tmp_path / "b") == {0, 2}


def test_other_files_are_not_overwritten(tmp_path):
    make_store(tmp_path / "a", range(3))
    (tmp_path / "text").write_text("mine")
    make_zip(tmp_path / "photos.zip", [("photo.jpg", b"mine")])
    make_zip(tmp_path / "mixed.zip", [EXPERIMENT, ("photo.jpg", b"mine")])
    before = files(tmp_path)
    for name in ("text", "photos.zip", "mixed.zip"):
        with pytest.raises(StoreError, match=says(str(tmp_path / name), " pack")):
            pack(tmp_path / "a", tmp_path / name)
    with pytest.raises(StoreError, match=says(str(tmp_path / "a"), " folder", " file")):
        pack(tmp_path / "a", tmp_path / "a")
    with pytest.raises(StoreError, match=says("nowhere", "No such file", " folder")):
        pack(tmp_path / "a", tmp_path / "nowhere" / "a.zip")
    assert files(tmp_path) == before


def test_what_cannot_be_packed_or_merged(tmp_path):
    Store.open(tmp_path / "new", create=True)
    (tmp_path / "text").write_text("mine")
    with pytest.raises(StoreError, match=says("nowhere", " pack", " folder")):
        pack(tmp_path / "nowhere", tmp_path / "a.zip")
    with pytest.raises(
        StoreError, match=says(str(tmp_path / "new"), "specification", "experiment")
    ):
        pack(tmp_path / "new", tmp_path / "a.zip")
    with pytest.raises(StoreError, match=says("nowhere", " pack", " folder")):
        merge(tmp_path / "nowhere", tmp_path / "b", never)
    with pytest.raises(StoreError, match=says(str(tmp_path / "text"), " pack", "copy", "store")):
        merge(tmp_path / "text", tmp_path / "b", never)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "text"}


def test_a_killed_pack_is_cleaned_up_by_the_next(tmp_path):
    make_store(tmp_path / "a", range(3))
    mine, others = temporary_name(tmp_path / "a.zip"), temporary_name(tmp_path / "b.zip")
    for path in (mine, others):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - 4000, time.time() - 4000))
    pack(tmp_path / "a", tmp_path / "a.zip")
    assert not mine.exists()
    assert others.exists()


def test_merging_a_folder_counts_and_keeps(tmp_path):
    source = make_store(tmp_path / "a", range(6))
    target = make_store(tmp_path / "b", [4, 5, 6])
    target.write(key(5), arrays(5), {"number": 55})  # the same key with other bytes
    damage(target.path(key(4)))  # counts as missing
    damage(source.path(key(0)))
    damage(source.path(key(5)))
    assert merge(source.folder, target.folder, equal) == Merged(added=4, present=1, damaged=1)
    assert contents(target.folder) == {1, 2, 3, 4, 55, 6}
    assert merge(source.folder, target.folder, equal) == Merged(added=0, present=5, damaged=1)


def test_nothing_in_the_source_is_touched(tmp_path):
    source = make_store(tmp_path / "a", range(3))
    stale = temporary_name(source.path(key(9)))
    stale.write_bytes(b"half")
    os.utime(stale, (0, 0))
    before = files(tmp_path / "a")
    merge(source.folder, tmp_path / "b", never)
    assert files(tmp_path / "a") == before


def test_a_failing_merge_leaves_a_history_and_no_part_of_a_record(tmp_path, monkeypatch):
    make_store(tmp_path / "a", [1])
    replace = os.replace

    def fail_on_records(source, target):
        if str(target).endswith(".npz"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_on_records)
    with pytest.raises(OSError, match=key(1)):
        merge(tmp_path / "a", tmp_path / "b", never)
    assert files(tmp_path / "b") == {"experiment.json": EXPERIMENT[1]}


def test_agree_decides_on_the_history(tmp_path):
    more = {"seeds": 5}
    make_store(tmp_path / "a", [1], [SPEC, more])
    make_store(tmp_path / "b", [2])
    calls = []

    def longer(target, source):
        calls.append((target, source))
        return max(target, source, key=len)

    merge(tmp_path / "a", tmp_path / "b", longer)
    assert calls == [([SPEC], [SPEC, more])]
    assert Store.open(tmp_path / "b").history == [SPEC, more]


def test_disagreement_changes_nothing(tmp_path):
    make_store(tmp_path / "a", [1], [{"seeds": 4}])
    make_store(tmp_path / "b", [2])
    before = files(tmp_path)
    with pytest.raises(StoreError, match=says(str(tmp_path / "a"), str(tmp_path / "b"), "seeds")):
        merge(tmp_path / "a", tmp_path / "b", equal)
    assert files(tmp_path) == before


def test_merging_into_itself_is_refused(tmp_path):
    make_store(tmp_path / "a", [1])
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for same in (tmp_path / "a", tmp_path / "link", tmp_path / "a" / ".." / "a"):
        with pytest.raises(StoreError, match=says(str(tmp_path / "a"), "itself", " folder")):
            merge(tmp_path / "a", same, equal)


def test_merging_into_a_folder_of_other_things_is_refused(tmp_path):
    make_store(tmp_path / "a", [1])
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match=says(str(tmp_path / "home"), "experiment.json", "choose")):
        merge(tmp_path / "a", tmp_path / "home", equal)
    assert os.listdir(tmp_path / "home") == ["thesis.tex"]


@pytest.mark.parametrize(
    "name",
    [
        f"../{key(1)}.npz",
        f"records/../../{key(1)}.npz",
        f"/records/{key(1)}.npz",
        f"records/{key(1)}.npz/",
        f"records/{key(1)}.npz\n",
        f"records\\{key(1)}.npz",
        f"records/{'A' * 32}.npz",
        f"{key(1)}.npz",
        "records/",
        "readme.txt",
        "Experiment.json",
    ],
)
def test_strange_names_in_a_pack_are_refused(tmp_path, name):
    path = tmp_path / "in" / "pack.zip"
    path.parent.mkdir()
    make_zip(path, [EXPERIMENT, RECORD, (name, RECORD[1])])
    with pytest.raises(StoreError, match=says("pack.zip", repr(name), "store")):
        merge(path, tmp_path / "in" / "b", never)
    assert [item.name for item in tmp_path.rglob("*")] == ["in", "pack.zip"]


@pytest.mark.parametrize(
    ("members", "compression", "message"),
    [
        ([RECORD], zipfile.ZIP_STORED, "experiment.json"),
        ([], zipfile.ZIP_STORED, "experiment.json"),
        ([EXPERIMENT, RECORD], zipfile.ZIP_DEFLATED, "compressed"),
        ([("experiment.json", b"{"), RECORD], zipfile.ZIP_STORED, "damaged"),
        ([("experiment.json", b'{"format":9,"history":[]}')], zipfile.ZIP_STORED, "format 9"),
        ([("experiment.json", b'{"format":1,"history":[]}')], zipfile.ZIP_STORED, "specification"),
    ],
)
def test_foreign_packs_are_refused(tmp_path, members, compression, message):
    make_zip(tmp_path / "pack.zip", members, compression)
    with pytest.raises(StoreError, match=says("pack.zip", message)):
        merge(tmp_path / "pack.zip", tmp_path / "b", never)
    assert not (tmp_path / "b").exists()


def test_repeated_names_and_large_members_are_refused(tmp_path, monkeypatch):
    with pytest.warns(UserWarning, match="Duplicate name"):
        make_zip(tmp_path / "pack.zip", [EXPERIMENT, RECORD, RECORD])
    with pytest.raises(StoreError, match=says("pack.zip", "members", " name")):
        merge(tmp_path / "pack.zip", tmp_path / "b", never)
    make_zip(tmp_path / "pack.zip", [EXPERIMENT, RECORD])
    monkeypatch.setattr(packing, "LARGEST_RECORD", 100)
    assert merge(tmp_path / "pack.zip", tmp_path / "b", never) == Merged(0, 0, 1)
    monkeypatch.setattr(packing, "LARGEST_ABOUT", 10)
    with pytest.raises(StoreError, match=says("pack.zip", " 10 bytes")):
        merge(tmp_path / "pack.zip", tmp_path / "b", equal)


def test_overlapping_members_are_refused(tmp_path):
    """Members that share bytes could unfold to far more than the pack has."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr(*RECORD)
    headed = inner.getvalue()[: inner.getvalue().rindex(b"PK\x01\x02")]
    make_zip(tmp_path / "pack.zip", [EXPERIMENT, (f"records/{key(2)}.npz", headed)])
    with zipfile.ZipFile(tmp_path / "pack.zip", "a") as archive:
        outer = archive.getinfo(f"records/{key(2)}.npz")
        with zipfile.ZipFile(inner) as nested:
            entry = nested.getinfo(RECORD[0])
        entry.header_offset = outer.header_offset + 30 + len(outer.filename)
        archive.filelist.append(entry)
        archive.NameToInfo[entry.filename] = entry
        archive.comment = b"changed"  # so that closing writes the list of members anew
    with pytest.raises(StoreError, match=says("pack.zip", "members", "bytes", "file")):
        merge(tmp_path / "pack.zip", tmp_path / "b", never)


def test_a_damaged_pack_gives_intact_records_or_none(tmp_path):
    """Whatever byte is flipped or cut, what enters the store is what was packed."""
    make_store(tmp_path / "a", [1, 2])
    pack(tmp_path / "a", tmp_path / "a.zip")
    data = (tmp_path / "a.zip").read_bytes()
    outcomes = set()
    for position in range(0, len(data), 13):
        flipped = bytearray(data)
        flipped[position] ^= 0x80
        for number, bad in enumerate((flipped, data[:position])):
            (tmp_path / "bad.zip").write_bytes(bad)
            try:
                merged = merge(tmp_path / "bad.zip", tmp_path / f"{position}-{number}", equal)
            except StoreError:
                outcomes.add("refused")
                continue
            store = Store.open(tmp_path / f"{position}-{number}")
            for name, record in store.records():
                assert record.arrays["loss"][0] == record.meta["number"]
                assert name == key(record.meta["number"])
            assert not store.damaged
            outcomes.add("damaged" if merged.damaged else "whole")
    assert outcomes == {"refused", "damaged", "whole"}


MERGER = """
import sys
from benign.sweep.pack import merge
print("ready", flush=True)
merge(sys.argv[1], sys.argv[2], lambda target, source: target)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_merge_is_completed_by_repeating_it(tmp_path):
    make_store(tmp_path / "a", range(100))
    pack(tmp_path / "a", tmp_path / "a.zip")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", MERGER, str(tmp_path / "a.zip"), str(tmp_path / "b")]
    counts = []
    for delay in (0.03, 0.1):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        if (tmp_path / "b" / "experiment.json").exists():
            store = Store.open(tmp_path / "b")
            assert store.history == [SPEC]
            counts.append(sum(1 for _ in store.records()))
            assert not store.damaged
    rest = merge(tmp_path / "a.zip", tmp_path / "b", lambda target, source: target)
    assert counts == sorted(counts)
    assert rest.present >= max(counts, default=0)
    assert rest.added + rest.present == 100
    assert contents(tmp_path / "b") == set(range(100))
