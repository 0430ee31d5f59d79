"""Files and folders from strangers: nothing in them is executed, and nothing outside is read or written."""

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import benign as bo
from benign.cli import main as cli
from benign.spec.yaml import DEEPEST, LARGEST_FILE, FileError, read_yaml
from benign.sweep.records import encode_record, temporary_name, write_record
from benign.sweep.results import ResultWarning
from benign.sweep.store import LARGEST_ABOUT, MOST_EXTENSIONS, Store, StoreError
from tests.faults.sweeps import THREE_UNITS, contents
from tests.says import says
from tests.tiny import tiny

SWEEP = tiny(THREE_UNITS, "training.max_steps=2", "evaluation.samples=2", "seeds=1")
SECRET = b"of nobody else's business"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers") / "whole"
    SWEEP.run(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy, next to a secret that must stay unchanged and must not be shown."""
    (tmp_path / "secret").write_bytes(SECRET)
    yield shutil.copytree(whole, tmp_path / "run")
    assert (tmp_path / "secret").read_bytes() == SECRET


# Specifications


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * 10) + "]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: !!python/object/apply:os.mkdir ['sprung']", "tag"),
        ("seeds: !!python/object/new:os.mkdir ['sprung']", "tag"),
        ("seeds: !!python/module:antigravity", "tag"),
        (laughs(30), "aliases"),
        ("seeds: [" * 5000, f"{DEEPEST} levels"),
        ("seeds: 1\nseeds: 2", "`seeds`"),
        ("seeds: " + "9" * 4000, "seeds"),
        ("seeds: .nan", "seeds"),
        ("seeds: 1e999", "seeds"),
        ("../../outside: 1", "../../outside"),
        ("data: {kind: ../../outside}", "data"),
        ("data: {kind: os.system}", "data"),
    ],
)
def test_a_hostile_file_is_refused_at_once(tmp_path, monkeypatch, capsys, text, message):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(text, encoding="utf-8")
    begin = time.process_time()
    assert cli.main(["run", "a.yaml"]) == 2
    assert time.process_time() - begin < 2
    assert message in capsys.readouterr().err
    assert os.listdir() == ["a.yaml"]


def test_a_file_of_100_megabytes_is_refused_unread(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"seeds: 1 #" + b"x" * 10**8)
    begin = time.process_time()
    with pytest.raises(FileError, match=says(str(path), f"{LARGEST_FILE:,} bytes")):
        read_yaml(path)
    assert time.process_time() - begin < 0.5


def test_a_file_that_never_ends_is_no_specification(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", Path("/dev/zero")):
        with pytest.raises(FileError, match=says(str(path), "device", "pipe")):
            read_yaml(path)


# Folders


def test_links_among_the_records_are_reported_and_replaced(folder, whole, capsys):
    path, other = sorted((folder / "records").glob("*.npz"))[:2]
    path.unlink()
    path.symlink_to(folder.parent / "secret")
    other.unlink()
    other.symlink_to(sorted((whole / "records").glob("*.npz"))[1])  # sound, but elsewhere
    assert cli.main(["show", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "1 intact, 2 damaged" in out
    assert SECRET.decode() not in out
    with pytest.warns(ResultWarning, match=says("2 ", "damaged")):
        SWEEP.run(folder)
    assert not path.is_symlink()
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize("name", ["records", "taken"])
def test_a_folder_of_the_store_that_leads_elsewhere_is_refused(folder, name):
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).symlink_to(elsewhere)
    for use in (SWEEP.run, bo.open_result):
        with pytest.raises(StoreError, match=says(str(folder / name), " link", f"{folder} ")):
            use(folder)
    assert not os.listdir(elsewhere)


def test_an_experiment_that_leads_elsewhere_is_refused(folder):
    path = folder / "experiment.json"
    shutil.move(path, folder.parent / "elsewhere.json")
    path.symlink_to(folder.parent / "elsewhere.json")
    with pytest.raises(StoreError, match=says(str(path), " link", " file")):
        SWEEP.run(folder)
    path.unlink()
    os.mkfifo(path)  # would wait for ever
    with pytest.raises(StoreError, match=says(str(path), " link", " file")):
        SWEEP.run(folder)


def test_temporary_names_lead_nowhere(folder):
    paths = [temporary_name(folder / "records" / "a.npz") for _ in range(2)]
    paths[0].symlink_to(folder.parent / "secret")
    paths[1].mkdir()
    os.utime(folder.parent / "secret", (0, 0))
    os.utime(paths[1], (0, 0))
    Store.open(folder)
    assert paths[1].exists()


def gigantic(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(2**40)  # a hole: a terabyte that takes no space


def test_gigantic_files_are_refused_unread(folder, whole):
    path = min((folder / "records").glob("*.npz"))
    gigantic(path)
    with pytest.warns(ResultWarning, match=says("1 ", "damaged")):
        SWEEP.run(folder)
    assert contents(folder) == contents(whole)
    gigantic(folder / "experiment.json")
    with pytest.raises(StoreError, match=says("experiment.json", f"{LARGEST_ABOUT} bytes")):
        SWEEP.run(folder)


def test_a_history_without_end_is_refused(folder):
    content = json.loads((folder / "experiment.json").read_bytes())
    content["history"] *= MOST_EXTENSIONS + 1
    del content["sha256"]
    (folder / "experiment.json").write_text(json.dumps(content))
    begin = time.process_time()
    with pytest.raises(StoreError, match=says("`history`", "1000", "1001")):
        bo.open_result(folder)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    "made",
    [{"changes": 5}, {"changes": "x"}, {"changes": [1]}, {"reading": ["x"]}, {"target": [1]}, {"scale": {}}],
)  # fmt: skip
def test_an_origin_of_other_types_is_refused(folder, made):
    content = json.loads((folder / "experiment.json").read_bytes())
    del content["sha256"]
    (folder / "experiment.json").write_text(json.dumps({**content, "made": made}))
    with pytest.raises(StoreError, match=says("experiment.json", "damaged")):
        Store.open(folder)


RUNS = {"run": np.array(["a", "b"]), "status": np.ones(2, np.int8)}


@pytest.mark.parametrize(
    ("arrays", "meta"),
    [
        ({}, {}),
        ({"run": RUNS["run"]}, {}),
        ({**RUNS, "status": np.ones(3, np.int8)}, {}),
        ({**RUNS, "status": np.array(["x", "y"])}, {}),
        ({**RUNS, "run": np.ones(2)}, {}),
        ({**RUNS, "run": np.array([["a", "b"]])}, {}),
        ({**RUNS, "run": np.array("a"), "status": np.array(1)}, {}),
        ({**RUNS, "loss": np.zeros(3)}, {}),
        ({**RUNS, "loss": np.array(["x", "y"])}, {}),
        (RUNS, {"code": 5}),
        (RUNS, {"code": {"x": []}}),
        (RUNS, {"seconds": "long"}),
    ],
)
def test_a_foreign_record_is_reported_and_computed_again(folder, whole, arrays, meta):
    """Intact by its checksum, but not of a unit."""
    path = min((folder / "records").glob("*.npz"))
    write_record(path, arrays, meta)
    with pytest.warns(ResultWarning, match=says("1 ", "damaged")):
        SWEEP.run(folder)
    assert contents(folder) == contents(whole)


def test_a_status_that_nobody_knows_is_computed_again(folder, whole):
    key, record = next(iter(Store.open(folder).records()))
    arrays = {**record.arrays, "status": np.full(2, 77, np.int8)}
    write_record(folder / "records" / f"{key}.npz", arrays, dict(record.meta))
    with pytest.warns(ResultWarning, match=says("1 ", "damaged")):
        SWEEP.run(folder)
    assert contents(folder) == contents(whole)


def test_a_foreign_record_does_not_enter_by_a_merge(folder, tmp_path):
    (folder / "records" / f"{'0' * 32}.npz").write_bytes(encode_record({"x": np.ones(1)}, {}))
    assert bo.merge(folder, tmp_path / "target").damaged == 1
    assert len(contents(tmp_path / "target")) == 3
