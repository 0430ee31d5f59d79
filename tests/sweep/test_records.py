"""A record reads back exactly as it was written, or is refused."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from benign.sweep import records
from benign.sweep.records import (
    DamagedRecord,
    canonical_json,
    decode_record,
    encode_record,
    is_temporary,
    read_record,
    remove_stale,
    replacing,
    temporary_name,
    write_record,
)
from tests.says import says

ARRAYS = {
    "loss": np.linspace(1, 0, 6).reshape(2, 3),
    "status": np.array(["converged", "diverged"]),
    "steps": np.array([7, 9], dtype=np.int32),
}
META = {"seed": 3, "axes": {"snr": [0.5, 2.0]}, "name": "größe"}


def same(record, arrays, meta):
    assert record.meta == meta
    assert sorted(record.arrays) == sorted(arrays)
    for name, array in arrays.items():
        got = record.arrays[name]
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        assert got.tobytes() == array.tobytes()


def zipped(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


plain = hnp.arrays(
    dtype=st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
        hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
        hnp.unicode_string_dtypes(endianness="?"),
        hnp.byte_string_dtypes(),
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True), plain, max_size=2
    ),
    st.dictionaries(st.text(), json_values, max_size=4),
)
def test_any_arrays_and_meta_read_back_exactly(arrays, meta):
    same(decode_record(encode_record(arrays, meta)), arrays, meta)


def test_write_then_read(tmp_path):
    write_record(tmp_path / "a.npz", ARRAYS, META)
    same(read_record(tmp_path / "a.npz"), ARRAYS, META)
    assert os.listdir(tmp_path) == ["a.npz"]


def test_order_strides_and_names_do_not_matter():
    fortran = {"x": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "file": np.array(1.0)}
    strided = {"file": np.array(1.0), "x": np.arange(12.0).reshape(2, 6)[:, ::2] / 2}
    assert encode_record(fortran, {"a": 1, "b": 2}) == encode_record(strided, {"b": 2, "a": 1})


def test_numpy_opens_a_record(tmp_path):
    write_record(tmp_path / "a.npz", ARRAYS, META)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["loss"], ARRAYS["loss"])
        assert json.loads(file["meta.json"]) == META


def test_a_record_cannot_be_changed(tmp_path):
    write_record(tmp_path / "a.npz", ARRAYS, META)
    with pytest.raises(ValueError, match="read-only"):
        read_record(tmp_path / "a.npz").arrays["loss"][0] = 2


@pytest.mark.parametrize(
    ("arrays", "meta", "parts"),
    [
        ({"x": np.array([{}], dtype=object)}, {}, ["`x`", "dtype object", "numbers"]),
        ({"x": np.zeros(2, dtype="f8,i4")}, {}, ["`x`", "f8", "i4", "numbers"]),
        ({"x": np.zeros(2, dtype="M8[s]")}, {}, ["`x`", "datetime64", "numbers"]),
        ({"x": np.ma.masked_array([1.0], [True])}, {}, ["`x`", "MaskedArray", "numpy"]),
        ({"../x": np.zeros(1)}, {}, ["'../x'", "`_`", "`-`"]),
        ({"": np.zeros(1)}, {}, ["''", "`_`", "`-`"]),
        ({}, {"x": float("nan")}, ["JSON", "finite"]),
        ({}, {"x": float("inf")}, ["JSON", "finite"]),
        ({}, {"x": (1, 2)}, ["JSON", "lists", "tuples"]),
        ({}, {"x": {1: 2}}, ["JSON", "text", "keys"]),
        ({}, {"x": np.int64(1)}, ["JSON", "int64"]),
    ],
)
def test_what_would_not_read_back_is_refused(tmp_path, arrays, meta, parts):
    with pytest.raises(ValueError, match=says(*parts)):
        write_record(tmp_path / "a.npz", arrays, meta)
    assert not list(tmp_path.iterdir())


def test_canonical_json_is_one_text_per_value():
    assert canonical_json({"b": [1, 2.5], "a": "é"}) == '{"a":"\\u00e9","b":[1,2.5]}'


def test_every_truncation_is_refused():
    data = encode_record(ARRAYS, META)
    for length in range(len(data)):
        with pytest.raises(DamagedRecord):
            decode_record(data[:length])


@pytest.mark.parametrize("mask", [0x01, 0x08, 0x80, 0xFF])
def test_every_flipped_byte_is_refused_or_harmless(mask):
    data = encode_record(ARRAYS, META)
    places = [(data.index(content), len(content)) for _, content in members_of(data)]
    content = {start + step for start, length in places for step in range(length)}
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= mask
        try:
            record = decode_record(bytes(flipped))
        except DamagedRecord:
            continue
        same(record, ARRAYS, META)
        assert position not in content  # but in a date or attribute of the zip


def test_every_flipped_content_byte_is_refused_even_with_a_repaired_zip():
    members = members_of(encode_record(ARRAYS, META))
    for index, (name, content) in enumerate(members):
        for position in range(len(content)):
            flipped = bytearray(content)
            flipped[position] ^= 0x01
            forged = [*members[:index], (name, bytes(flipped)), *members[index + 1 :]]
            try:
                record = decode_record(zipped(forged))
            except DamagedRecord:
                continue
            # The length field of the npy header is redundant here.
            assert (name[-4:], position) in {(".npy", 8), (".npy", 9)}
            same(record, ARRAYS, META)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_garbage_never_passes(data):
    whole = bytearray(encode_record(ARRAYS, META))
    start = data.draw(st.integers(0, len(whole) - 1))
    garbage = data.draw(st.binary(max_size=40))
    whole[start : start + data.draw(st.integers(0, 40))] = garbage
    try:
        record = decode_record(bytes(whole))
    except DamagedRecord:
        return
    same(record, ARRAYS, META)


def forged(**changes):
    """An otherwise intact record with members changed (bytes), added or left out (None)."""
    members = dict(members_of(encode_record(ARRAYS, META)))
    members |= {name.replace("__", "."): data for name, data in changes.items()}
    return zipped([(name, data) for name, data in members.items() if data is not None])


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_pickles_are_refused_and_never_executed(tmp_path):
    folder = tmp_path / "sprung"
    pickled = npy(np.array([Trap(folder)], dtype=object), allow_pickle=True)
    np.lib.format.read_array(io.BytesIO(pickled), allow_pickle=True)
    folder.rmdir()  # the trap works
    for name in ("loss__npy", "extra__npy", "meta__json", "sha256"):
        with pytest.raises(DamagedRecord):
            decode_record(forged(**{name: pickled}))
    assert not folder.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        npy(np.zeros(3)),
        zipped([]),
        zipped([("a.txt", b"hello")]),
        zipped([("loss.npy", npy(np.zeros(3)))]),
        forged(sha256=b"0" * 64),
        forged(sha256=None),
        forged(meta__json=None),
        forged(meta__json=b"[" * 100_000),
        forged(meta__json=b"\xff"),
        forged(meta__json=b"[]"),
        forged(meta__json=b'{"seed":NaN}'),
        forged(loss__npy=None),
        forged(extra__npy=npy(np.zeros(3))),
        forged(extra__txt=b"hello"),
        forged(loss__npy=npy(ARRAYS["loss"].astype(np.float32))),
        forged(loss__npy=npy(ARRAYS["loss"].view(np.int64))),
        forged(loss__npy=npy(ARRAYS["loss"].reshape(3, 2))),
        forged(loss__npy=npy(ARRAYS["loss"]).replace(b"(2, 3)", b"(9, 9)")),
        forged(loss__npy=npy(ARRAYS["loss"]).replace(b"(2, 3), }    ", b"(9999999999), }")),
    ],
    ids=range(21),
)
def test_foreign_and_forged_files_are_refused(tmp_path, data):
    path = tmp_path / "a.npz"
    path.write_bytes(data)
    with pytest.raises(DamagedRecord, match=says(str(path), records.REMEDY)):
        read_record(path)


def test_repeated_names_are_refused():
    members = members_of(encode_record(ARRAYS, META))
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zipped([*members, members[0]])
    with pytest.raises(DamagedRecord, match=says("members", "name")):
        decode_record(twice)


def test_zip_bombs_are_refused_unread(monkeypatch):
    """Compressed members, and stored ones that claim more than the file has."""
    bomb = zipped([("loss.npy", bytes(10_000_000))], zipfile.ZIP_DEFLATED)
    assert len(bomb) < 20_000
    lying = bytearray(zipped([("loss.npy", b"short")]))
    central = lying.rindex(b"PK\x01\x02")
    lying[central + 24 : central + 28] = (2**31).to_bytes(4, "little")
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("a member was read"))
    for data, reason in ((bomb, "compressed"), (bytes(lying), "bytes")):
        with pytest.raises(DamagedRecord, match=says("member", reason)):
            decode_record(data)


def test_oversized_files_are_neither_read_nor_written(tmp_path, monkeypatch):
    write_record(tmp_path / "a.npz", ARRAYS, META)
    monkeypatch.setattr(records, "LARGEST_RECORD", 500)
    with pytest.raises(DamagedRecord, match=says("a.npz", "500 bytes")):
        read_record(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=says("500 bytes", "unit", "steps")):
        write_record(tmp_path / "b.npz", ARRAYS, META)


def test_a_missing_file_is_not_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "a.npz")


def test_the_file_is_on_disk_before_it_is_renamed_and_the_folder_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle):
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def note_replace(source, target):
        calls.append("rename")
        assert os.path.dirname(source) == os.path.dirname(target)
        read_record(source)  # whole before it is visible
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_record(tmp_path / "a.npz", ARRAYS, META)
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not list open files")
    assert calls == ["file", "rename", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_write_keeps_the_old_record_and_leaves_nothing(tmp_path, monkeypatch, step):
    write_record(tmp_path / "a.npz", ARRAYS, META)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match=says("No space left on device", "a.npz")):
        write_record(tmp_path / "a.npz", {}, {})
    assert os.listdir(tmp_path) == ["a.npz"]
    same(read_record(tmp_path / "a.npz"), ARRAYS, META)


def test_an_interrupt_while_writing_leaves_nothing(tmp_path):
    def write():
        with replacing(tmp_path / "a") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not list(tmp_path.iterdir())


def test_temporary_names_are_recognised_and_never_repeat(tmp_path):
    names = {temporary_name(tmp_path / "a.npz").name for _ in range(1000)}
    assert len(names) == 1000
    assert all(is_temporary(name) and is_temporary(name, of="a.npz") for name in names)
    assert not any(is_temporary(name, of="b.npz") for name in names)
    assert not any(map(is_temporary, ("a.npz", ".a.tmp", "a.tmp", "experiment.json", ".hidden")))


def test_only_stale_temporary_files_are_removed(tmp_path):
    old, new = temporary_name(tmp_path / "a.npz"), temporary_name(tmp_path / "a.npz")
    other, mine = temporary_name(tmp_path / "b.npz"), tmp_path / ".notes.tmp"
    for path in (old, new, other, mine):
        path.touch()
    now = new.stat().st_mtime
    for path in (old, other, mine):
        os.utime(path, (now - 3700, now - 3700))
    remove_stale(tmp_path, now, of="a.npz")
    assert set(tmp_path.iterdir()) == {new, other, mine}
    remove_stale(tmp_path, now)
    assert set(tmp_path.iterdir()) == {new, mine}
