"""How far a sweep is, whether its records are sound, and results as files for others, as a person asks for them."""

import csv
import json
import os
import shutil
import socket
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.spec.base import digest
from benign.sweep import export
from benign.sweep.lease import Lease
from benign.sweep.plan import keys_of, runs_of, units_of
from benign.sweep.results import RunsFailed
from benign.sweep.status import Counts, SweepStatus, stores_in, sweep_status
from benign.sweep.status_text import next_steps
from benign.sweep.store import Store, sealed
from benign.sweep.validation import fault_of
from benign.training import engine
from benign.training.descent import Status
from tests.says import holds
from tests.tiny import tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished folder of two records, not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    tiny().run(folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy to be changed."""
    return shutil.copytree(finished, tmp_path / "run")


def status_of(folder: Path, experiment=None) -> SweepStatus:
    return sweep_status(Store.open(folder, writing=False), [experiment or tiny()])


def first_record(folder: Path) -> Path:
    """The record of the runs with 2 samples."""
    return folder / "records" / f"{tiny().units()[0].key}.npz"


def take(folder: Path, unit: str, host: str, pid: int, started: str = "") -> None:
    path = folder / "taken" / f"{unit}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(sealed(asdict(Lease(host, pid, started, 1e9))))


def own_start() -> str:
    from benign.sweep import lease

    return lease._started(os.getpid())


# Status


def test_a_finished_sweep_is_done_along_every_axis(finished, run):
    status = status_of(finished)
    counts = status.counts
    assert (counts.runs, counts.done, counts.converged + counts.step_cap) == (8, 8, 8)
    assert counts == Counts(8, 8, counts.converged, counts.step_cap, 0, 0, 0, 0, 0)
    assert list(status.axes) == ["samples", "snr"]
    for values in status.axes.values():
        assert [(at.runs, at.done) for _, at in values] == [(4, 4), (4, 4)]
        assert sum(at.converged for _, at in values) == counts.converged > 0
    code, out, err = run("status", finished)
    assert (code, err) == (0, "")
    assert "8 of 8 done" in out
    assert "benign export" in out
    assert f"`benign report {finished}`" in " ".join(out.split())


def test_missing_runs_are_shown_along_the_axes(folder, run):
    first_record(folder).unlink()
    status = status_of(folder)
    assert (status.counts.done, status.counts.missing) == (4, 4)
    assert [counts.done for _, counts in status.axes["samples"]] == [0, 4]
    assert [counts.done for _, counts in status.axes["snr"]] == [2, 2]
    out = " ".join(run("status", folder)[1].split())
    assert holds(out, f"`benign resume {folder}`", "missing")


def test_failed_and_diverged_runs_are_counted(tmp_path, monkeypatch):
    experiment = tiny("training.rate=[0.5, 1e30]", "data.samples=4")
    experiment.run(tmp_path / "run")
    status = status_of(tmp_path / "run", experiment)
    assert [counts.diverged for _, counts in status.axes["rate"]] == [0, 4]
    assert status.counts.done == 8
    assert status.counts.converged + status.counts.step_cap == status.counts.diverged == 4
    steps = next_steps(tmp_path / "run", status)
    assert holds(steps[0], "4 runs", "diverged", "`training.rate`", "`benign show ")
    assert not any("audit" in line for line in steps)
    assert any("`benign audit" in line for line in next_steps(tmp_path / "run", status, True))

    def fail(*_):
        raise MemoryError("too large")

    monkeypatch.setattr(engine, "_train_batch", fail)
    with pytest.warns(RunsFailed):
        tiny().run(tmp_path / "failed")
    status = status_of(tmp_path / "failed")
    assert (status.counts.done, status.counts.failed + status.counts.out_of_memory) == (0, 8)


def test_units_of_living_processes_are_running_and_those_of_dead_ones_are_not(folder, run):
    first, second = (unit.key for unit in tiny().units())
    shutil.rmtree(folder / "records")
    take(folder, first, socket.gethostname(), os.getpid(), own_start())
    take(folder, second, socket.gethostname(), os.getpid(), "another process of this number")
    status = status_of(folder)
    assert (status.counts.running, status.counts.missing) == (4, 4)
    assert [counts.running for _, counts in status.axes["samples"]] == [4, 0]
    assert sorted(str(worker.alive) for worker in status.workers) == ["False", "True"]
    out = run("status", folder)[1]
    assert holds(out, socket.gethostname(), str(os.getpid()), " 2001-09-0", "ended")
    steps = [line for line in out.splitlines() if line.startswith("next:")]
    assert "4 runs" in steps[0]
    assert holds(steps[1], f"`benign resume {folder}`", "machine")


def test_a_process_on_another_host_counts_as_running(folder):
    first_record(folder).unlink()
    take(folder, first_record(folder).stem, "elsewhere", 1)
    take(folder, tiny().units()[1].key, "elsewhere", 1)  # computed already
    status = status_of(folder)
    assert (status.counts.running, status.counts.done, status.counts.missing) == (4, 4, 0)
    assert [(each.units, each.alive) for each in status.workers] == [(2, None)]
    assert "wait" in next_steps(folder, status)[0]
    assert not any("resume" in line for line in next_steps(folder, status))


def test_a_damaged_record_is_reported_and_its_runs_are_missing(folder, run):
    data = first_record(folder).read_bytes()
    first_record(folder).write_bytes(data[:-1])
    status = status_of(folder)
    assert list(status.damaged) == [first_record(folder).stem]
    assert status.counts.missing == 4
    assert f"benign store check {folder}" in " ".join(run("status", folder)[1].split())


def test_status_as_json_says_the_same(folder, run):
    first_record(folder).unlink()
    code, out, _ = run("status", folder, "--json")
    content = json.loads(out)
    assert code == 0
    assert (content["runs"], content["done"], content["missing"]) == (8, 4, 4)
    assert [each["done"] for each in content["axes"]["samples"]] == [0, 4]
    assert content["next"]


def test_several_folders_have_a_line_each(folder, run, tmp_path):
    broken = shutil.copytree(folder, tmp_path / "deeper/broken")
    (broken / "experiment.json").write_text("{}", encoding="utf-8")
    assert set(stores_in(tmp_path)) == {folder, broken}
    code, out, _ = run("status", tmp_path)
    assert code == 0
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert "8 of 8 done" in lines[str(folder)]
    assert "damaged" in next(text for name, text in lines.items() if "broken" in name)
    assert len(json.loads(run("status", tmp_path, "--json")[1])) == 2


def test_status_of_no_store_is_bad_input(run, tmp_path):
    for place in (tmp_path / "nowhere", tmp_path):
        code, _, err = run("status", place)
        assert (code, str(place) in err) == (2, True)


def test_a_long_axis_shows_what_is_left(tmp_path, run):
    experiment = tiny("data.samples=2", "data.snr={linspace: [0.5, 2, 30]}", "seeds=1")
    experiment.run(tmp_path / "run")
    assert holds(run("status", tmp_path / "run")[1], " 30 more values", " 30 of ")


# Keys and shapes, planned quickly


def test_keys_are_digests_of_what_is_computed():
    from benign.sweep.plan import NUMERICS

    experiment = tiny()
    plainly = []
    for run in runs_of(experiment):
        spec = run.cell.identity()
        spec.pop("seeds", None)
        plainly.append(digest({"numerics": NUMERICS, "spec": spec, "seed": run.seed}))
    assert keys_of(experiment) == plainly == [run.key for run in runs_of(experiment)]


def test_every_run_of_a_unit_has_its_shape():
    experiment = tiny(
        "training.rate={zipped: pair, values: [0.1, 0.2, 0.2]}",
        "data.tokens={zipped: pair, values: [2, 2, 3]}",
        "network=[{kind: attention, hidden: 4, init: {kind: torch_default}}, "
        "{kind: attention, hidden: 5, init: {kind: torch_default}}]",
    )
    units = units_of([experiment])
    shapes = [{run.shape for run in unit.runs} for unit in units]
    assert all(len(each) == 1 for each in shapes)
    assert len(set.union(*shapes)) == len(units) == 8


# Check


def test_an_intact_folder_passes(finished, run):
    code, out, err = run("store", "check", finished)
    assert (code, err) == (0, "")
    assert holds(out, "2 records", "8 runs", "intact")


def test_a_flipped_byte_is_found_and_computed_again(folder, run, finished):
    path = first_record(folder)
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    code, out, _ = run("store", "check", folder)
    assert code == 1
    assert str(path) in out
    assert holds(out, "1 damaged", f"`benign resume {folder}`")
    assert run("resume", folder)[0] == 0
    assert run("store", "check", folder)[0] == 0
    assert bo.open_result(folder).identical(bo.open_result(finished))


def test_check_removes_what_is_damaged_if_asked(folder, run):
    path = first_record(folder)
    path.write_bytes(b"")
    assert run("store", "check", folder, "--remove")[0] == 1
    assert not path.exists()
    assert run("store", "check", folder)[0] == 0


def test_other_files_and_a_damaged_specification_are_reported(folder, run, tmp_path):
    (folder / "records" / "notes.txt").write_text("mine", encoding="utf-8")
    code, out, _ = run("store", "check", folder, "--remove")
    assert (code, holds(out, "notes.txt", "record")) == (1, True)
    assert (folder / "records" / "notes.txt").exists()
    (folder / "experiment.json").write_text("[]", encoding="utf-8")
    code, out, _ = run("store", "check", folder)
    assert (code, holds(out, "experiment.json", "damaged")) == (1, True)
    assert "2 records" in out


def strange(arrays: dict, change: str) -> dict:
    """The arrays of a record with one thing wrong."""
    runs, ends = arrays["run"], arrays["status"]
    return {
        "[77]": {**arrays, "status": np.full_like(ends, 77)},
        "[0]": {**arrays, "status": np.zeros_like(ends)},
        "`steps`": {**arrays, "steps": arrays["steps"][:-1]},
        "`run`": {name: array for name, array in arrays.items() if name != "run"},
        "name": {**arrays, "run": runs[::-1].copy()},
    }[change]


@pytest.mark.parametrize("change", ["[77]", "[0]", "`steps`", "`run`", "name"])
def test_a_record_with_the_right_checksum_and_a_wrong_form_is_computed_again(
    folder, run, finished, change
):
    key, store = first_record(folder).stem, Store.open(folder)
    record = store.read(key)
    assert record is not None
    assert fault_of(key, record) == ""
    store.write(key, strange(dict(record.arrays), change), dict(record.meta))
    code, out, _ = run("store", "check", folder)
    assert (code, change in out) == (1, True)
    assert ("4 missing" in run("status", folder)[1]) is (
        "steps" not in change
    )  # which it reads not
    assert run("resume", folder)[0] == 0
    assert bo.open_result(folder).identical(bo.open_result(finished))


# Resume


def test_resume_computes_what_is_missing_and_nothing_else(folder, run, finished):
    kept = (folder / "records" / f"{tiny().units()[1].key}.npz").stat()
    first_record(folder).unlink()
    code, out, _ = run("resume", folder, "--workers", "1")
    assert (code, f"data: {folder}" in out) == (0, True)
    after = (folder / "records" / f"{tiny().units()[1].key}.npz").stat()
    assert (kept.st_mtime_ns, kept.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert bo.open_result(folder).identical(bo.open_result(finished))


def test_resume_wants_a_folder(run, tmp_path):
    code, _, err = run("resume", tmp_path / "nowhere")
    assert (code, holds(err, str(tmp_path / "nowhere"), "`benign run`")) == (2, True)


# Export


def plain(attrs) -> dict:
    return {name: np.asarray(value).tolist() for name, value in attrs.items()}


def read_back(file: Path) -> xr.Dataset:
    if file.suffix == ".nc":
        with xr.open_dataset(file, engine="h5netcdf") as back:
            return back.load()
    return xr.open_zarr(file, consolidated=False).load()


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_an_export_reads_back_as_the_result(finished, tmp_path, run, kind):
    pytest.importorskip("zarr" if kind == "zarr" else "h5netcdf")
    file, result = tmp_path / f"result.{kind}", bo.open_result(finished)
    code, out, err = run("export", finished, file)
    assert (code, out.count("\n"), err) == (0, 1, "")
    assert holds(out, "8 of 8 runs", str(finished), str(file))
    back = read_back(file)
    xr.testing.assert_equal(back, result)
    assert plain(back.attrs) == plain(result.attrs)
    assert all(plain(back[name].attrs) == plain(result[name].attrs) for name in result.variables)
    assert bo.Experiment.from_dict(json.loads(back.attrs["experiment"])) == tiny()
    assert os.listdir(tmp_path) == [file.name]


def test_a_table_has_a_row_a_run(finished, tmp_path, run):
    file, result = tmp_path / "result.csv", bo.open_result(finished)
    assert run("export", finished, file)[0] == 0
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 8
    assert not [name for name in rows[0] if name.endswith("_curve")]
    for row in rows:
        at = result.sel({name: float(row[name]) for name in ("samples", "snr", "seed")})
        assert row["status"] == Status(int(at.status)).name.lower()
        assert float(row["train_loss"]) == float(at.train_loss)


def test_an_export_replaces_only_what_it_may(finished, tmp_path, run):
    file = tmp_path / "result.csv"
    file.write_text("precious", encoding="utf-8")
    code, _, err = run("export", finished, file)
    assert (code, "--force" in err, file.read_text()) == (2, True, "precious")
    assert run("export", finished, file, "--force")[0] == 0
    assert file.read_text().startswith("samples,snr,seed")
    other = tmp_path / "other.zarr"
    other.mkdir()
    (other / "thesis.tex").touch()
    code, _, err = run("export", finished, other, "--force")
    assert (code, holds(err, str(other), "file"), (other / "thesis.tex").exists()) == (
        2,
        True,
        True,
    )


def test_a_former_zarr_is_replaced(finished, tmp_path, run):
    pytest.importorskip("zarr")
    for options in ((), ("--force",)):
        assert run("export", finished, tmp_path / "a.zarr", *options)[0] == 0
    assert run("export", finished, tmp_path / "a.zarr")[0] == 2
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_an_impossible_export_is_refused_with_the_remedy(finished, tmp_path, run, monkeypatch):
    code, _, err = run("export", finished, tmp_path / "a.xlsx")
    assert (code, holds(err, "a.xlsx", ".zarr, .nc, .csv")) == (2, True)
    code, _, err = run("export", finished, tmp_path / "none/a.csv")
    assert (code, holds(err, str(tmp_path / "none"), "folder")) == (2, True)
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    code, _, err = run("export", finished, tmp_path / "a.nc")
    assert (code, "pip install 'benign[export]'" in err) == (2, True)
    assert run("export", finished, tmp_path / "a.csv")[0] == 0


def test_a_failing_export_leaves_nothing(finished, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(export.KINDS, ".csv", (full, ()))
    with pytest.raises(OSError, match="No space"):
        export.export(bo.open_result(finished), tmp_path / "a.csv")
    assert os.listdir(tmp_path) == []
