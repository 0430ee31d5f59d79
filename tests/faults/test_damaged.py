"""One flipped byte or a lost end, in any file of a store: noticed, reported, and repaired by running again."""

import random
import shutil
from collections.abc import Callable
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import benign as bo
from benign.sweep.folders import merge, pack
from benign.sweep.records import DamagedRecord, decode_record
from benign.sweep.results import ResultWarning
from benign.sweep.store import Store, StoreError, decode_about
from tests.faults.sweeps import THREE_UNITS, contents, files
from tests.says import holds, says
from tests.tiny import tiny

SWEEP = tiny(THREE_UNITS, "training.max_steps=2", "evaluation.samples=2", "seeds=1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished sweep, not to be changed."""
    folder = tmp_path_factory.mktemp(" damaged") / "whole"
    SWEEP.run(folder)
    return folder


@pytest.fixture(scope="module")
def scratch(whole):
    """A copy to damage, mended by whoever does."""
    return shutil.copytree(whole, whole.parent / "scratch")


def flipped(data: bytes, place: int, mask: int) -> bytes:
    """With the bits of `mask` flipped in one byte; cut off there for a mask of zero."""
    if not mask:
        return data[:place]
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


def places(size: int, step: int) -> list[tuple[int, int]]:
    """Where to flip which bits: any of one byte in `step`."""
    chance = random.Random(10)
    return [(place, chance.randint(1, 255)) for place in range(0, size, step)]


def outcome(use: Callable[..., Any], *given: Any) -> Any:
    """Return the result, or the message of the error."""
    try:
        return use(*given)
    except StoreError as error:
        return str(error)


# Records


@settings(max_examples=12)
@given(st.integers(0, 2), st.floats(0, 1, exclude_max=True), st.integers(0, 255))
def test_a_damaged_record_is_reported_and_computed_again(whole, scratch, which, where, mask):
    path = sorted((scratch / "records").glob("*.npz"))[which]
    sound = path.read_bytes()
    path.write_bytes(flipped(sound, int(where * len(sound)), mask))
    store, before = Store.open(scratch), files(scratch)
    if path.stem in {key for key, _ in store.records()}:  # a date in the zip, which nobody reads
        assert contents(scratch) == contents(whole)
        path.write_bytes(sound)
        return
    assert str(path) in store.damaged[path.stem]
    with pytest.warns(ResultWarning, match=says("1 ", " damaged")):
        assert bo.open_result(scratch).attrs["runs_missing"] == 2
    with pytest.warns(ResultWarning, match=says("1 ", " damaged")):
        result = SWEEP.run(scratch)
    assert result.identical(SWEEP.run(whole))
    assert contents(scratch) == contents(whole)
    now = files(scratch)
    assert {name for name in now if now[name] != before[name]} == {path.name}


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_any_byte_of_a_record(whole, step):
    sound = min((whole / "records").glob("*.npz")).read_bytes()
    expected = {name: array.tobytes() for name, array in decode_record(sound).arrays.items()}
    harmless, tried = 0, places(len(sound), step)
    for place, mask in tried:
        with pytest.raises(DamagedRecord):
            decode_record(sound[:place])
        try:
            arrays = decode_record(flipped(sound, place, mask)).arrays
        except DamagedRecord:
            continue
        assert {name: array.tobytes() for name, array in arrays.items()} == expected
        harmless += 1
    print(
        f"\nrecord of {len(sound)} bytes: {len(tried)} cuts refused; of {len(tried)} flips "
        f"{len(tried) - harmless} refused, {harmless} in parts of the zip that nobody reads"
    )
    assert harmless < 0.25 * len(tried)


# experiment.json


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_any_byte_of_the_experiment(whole, step):
    path = whole / "experiment.json"
    sound = path.read_bytes()
    expected = decode_about(sound, path)
    refused, tried = 0, places(len(sound), step)
    for place, mask in tried:
        with pytest.raises(StoreError, match=says(str(path), " damaged")):
            decode_about(sound[:place], path)
        message = outcome(lambda bad: decode_about(bad, path), flipped(sound, place, mask))
        assert message == expected or holds(
            message, str(path), " damaged"
        )  # and not: made by a newer benign
        refused += message != expected
    print(
        f"\nexperiment.json of {len(sound)} bytes: {len(tried)} cuts and {refused} of {len(tried)} flips refused"
    )
    assert refused > 0.95 * len(tried)  # not in the word `sha256`


def test_a_damaged_experiment_is_reported_with_a_remedy_that_works(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "picture.png").write_bytes(b"drawn")
    path, before = folder / "experiment.json", files(folder)
    path.write_bytes(path.read_bytes().replace(b'"samples":[2,4,6]', b'"samples":[2,4,7]'))
    for use in (SWEEP.run, bo.open_result, bo.open_experiment):
        with pytest.raises(StoreError, match=says(str(path), " damaged", "copy", "experiment")):
            use(folder)
    path.unlink()
    assert SWEEP.run(folder).identical(SWEEP.run(whole))
    assert files(folder) == before


# Packs


@pytest.mark.parametrize("step", [997, pytest.param(101, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_any_byte_of_a_pack(whole, tmp_path, step):
    pack(whole, tmp_path / "sound.pack")
    sound, packed = (tmp_path / "sound.pack").read_bytes(), contents(whole)
    bad, numbers = tmp_path / "bad", {"refused": 0, "damaged": 0, "harmless": 0}
    with ZipFile(tmp_path / "sound.pack") as archive:
        listed = places(len(sound), max(step // 100, 1))[archive.start_dir // max(step // 100, 1) :]
    for place, mask in [*places(archive.start_dir, step), *listed, (len(sound) // 2, 0)]:
        bad.write_bytes(flipped(sound, place, mask))
        merged = outcome(merge, bad, tmp_path / "target")
        if isinstance(merged, str):
            assert str(bad) in merged
            numbers["refused"] += 1
            continue
        found = contents(tmp_path / "target")
        shutil.rmtree(tmp_path / "target")
        assert all(found[key] == packed[key] for key in found)
        assert len(found) + merged.damaged == len(packed)
        numbers["damaged" if merged.damaged else "harmless"] += 1
    print(f"\npack of {len(sound)} bytes, flips: {numbers}")
    assert numbers["damaged"] > numbers["harmless"]
    assert numbers["refused"]
