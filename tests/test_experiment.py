"""An experiment through its front door: run, resume, grow, refuse, replay, pack, merge, export."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.sweep.results import ResultWarning, RunsFailed
from benign.sweep.runner import Runner
from benign.sweep.store import Store, StoreError
from benign.training import engine
from benign.training.descent import Status
from benign.training.machine import check_device
from tests.says import says
from tests.tiny import tiny, tiny_file


def records(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Time and bytes of every record: an untouched one keeps both."""
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (folder / "records").glob("*.npz")
    }


def damage(folder: Path) -> Path:
    """Cut the first record in half."""
    path = min((folder / "records").glob("*.npz"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, xr.Dataset]:
    """A finished folder, not to be changed, and its result."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return folder, tiny().run(folder)


def copy_of(finished: tuple[Path, xr.Dataset], folder: Path) -> Path:
    return shutil.copytree(finished[0], folder / "run")


def test_the_result_is_labelled_and_documented(finished):
    _, result = finished
    assert dict(result.sizes) == {"samples": 2, "snr": 2, "seed": 2, "step": 19}
    assert result.status.dims == ("samples", "snr", "seed")
    assert result.train_loss_curve.dims == ("samples", "snr", "seed", "step")
    assert set(np.unique(result.status)) <= {Status.CONVERGED, Status.STEP_CAP}
    for name, variable in result.variables.items():
        assert variable.attrs.get("long_name"), name
    for name in result.data_vars:
        assert "units" in result[name].attrs, name
    assert result.attrs["runs"] == 8
    assert result.attrs["runs_converged"] + result.attrs["runs_step_cap"] == 8
    assert bo.Experiment.from_dict(json.loads(result.attrs["experiment"])) == tiny()


def test_a_second_call_computes_nothing(finished):
    folder, result = finished
    before = records(folder)
    assert tiny().run(folder).identical(result)
    assert bo.open_result(folder).identical(result)
    assert bo.open_experiment(folder) == tiny()
    assert records(folder) == before


def test_the_same_experiment_gives_the_same_bits(finished, tmp_path):
    assert tiny().run(tmp_path / "again").identical(finished[1])


def test_a_yaml_file_is_the_same_experiment(tmp_path):
    assert bo.Experiment.from_yaml(tiny_file(tmp_path)) == tiny()


def test_missing_and_truncated_records_are_computed_again(finished, tmp_path):
    folder = copy_of(finished, tmp_path)
    cut, gone = sorted((folder / "records").glob("*.npz"))
    damage(folder)
    with pytest.warns(ResultWarning, match=says("1", "damaged", "records")):
        partial = bo.open_result(folder)
    assert partial.attrs["runs_missing"] == 4
    assert np.isnan(partial.test_loss.values[partial.status == Status.MISSING]).all()
    gone.unlink()
    with pytest.warns(ResultWarning, match=says("1", "damaged", "records")):
        assert bo.open_result(folder).attrs["runs_missing"] == 8
    with pytest.warns(ResultWarning, match=says("1", "damaged", "records")):
        assert tiny().run(folder).identical(finished[1])
    assert cut.exists()
    assert not Store.open(folder).damaged


def test_growing_keeps_what_is_there(finished, tmp_path):
    folder = copy_of(finished, tmp_path)
    before = records(folder)
    more = tiny("seeds=3", "data.samples=[2, 4, 6]", "data.snr=[0.5, 1.0, 2.0]")
    result = more.run(folder)
    after = records(folder)
    assert before.items() <= after.items()  # neither rewritten nor renamed
    old = result.sel(samples=[2, 4], snr=[0.5, 2.0], seed=[0, 1])
    for name, values in finished[1].data_vars.items():
        np.testing.assert_array_equal(old[name], values, err_msg=str(name))
    assert result.attrs["runs"] == 27
    assert (result.status != Status.MISSING).all()
    assert len(Store.open(folder).history) == 2
    assert more.run(folder).identical(result)
    assert records(folder) == after


def test_a_run_does_not_depend_on_its_batch(tmp_path):
    """Neither on the cells beside it nor on the values an axis has: the same to rounding."""
    few = tiny("precision=float64", "data.snr=2.0").run(tmp_path / "few")
    many = tiny("precision=float64", "data.snr=[0.5, 1.0, 2.0, 4.0]").run(tmp_path / "many")
    same = many.sel(snr=2.0)
    for name in ("status", "steps"):
        np.testing.assert_array_equal(few[name], same[name])
    for name in ("train_loss_curve", "test_loss", "query_norm", "attention_on_signal"):
        np.testing.assert_allclose(few[name], same[name], rtol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("data.snr=0.75", "data.snr:"),
        ("training.rate=0.1", "training.rate"),
    ],
)
def test_another_experiment_is_refused_and_leaves_the_folder_alone(finished, change, difference):
    folder, result = finished
    before = records(folder)
    with pytest.raises(ValueError, match=says(str(folder), "--out FOLDER")) as refused:
        tiny(change).run(folder)
    assert difference in str(refused.value)
    assert records(folder) == before
    assert bo.open_result(folder).identical(result)


def test_pack_and_merge_carry_a_result(finished, tmp_path):
    folder, result = finished
    assert bo.pack(folder, tmp_path / "one.pack") == 2
    merged = bo.merge(tmp_path / "one.pack", tmp_path / "new")
    assert (merged.added, merged.present, merged.damaged) == (2, 0, 0)
    assert bo.open_result(tmp_path / "new").identical(result)
    recompute = bo.merge(tmp_path / "one.pack", tmp_path / "new")
    assert (recompute.added, recompute.present) == (0, 2)
    assert tiny().run(tmp_path / "new").identical(result)


def test_halves_made_apart_merge_into_the_whole(finished, tmp_path):
    tiny("data.samples=2").run(tmp_path / "here")
    tiny().run(tmp_path / "there")
    bo.pack(tmp_path / "there", tmp_path / "there.pack")
    bo.merge(tmp_path / "there.pack", tmp_path / "here")
    assert bo.open_experiment(tmp_path / "here") == tiny()
    assert bo.open_result(tmp_path / "here").identical(finished[1])


def test_a_merge_of_another_experiment_is_refused(finished, tmp_path):
    folder = copy_of(finished, tmp_path)
    tiny("training.rate=0.1").run(tmp_path / "other")
    with pytest.raises(StoreError, match=says("training.rate: ", "0.5", "0.1")):
        bo.merge(tmp_path / "other", folder)
    assert bo.open_result(folder).identical(finished[1])


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_exports_keep_values_and_meanings(finished, tmp_path, kind):
    result = finished[1]
    if kind == "netcdf":
        pytest.importorskip("h5netcdf", reason="benign[export] is not installed")
        pytest.importorskip("h5py", reason="benign[export] is not installed")
        result.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as back:
            back.load()
    else:
        pytest.importorskip("zarr", reason="benign[export] is not installed")
        result.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
        back = xr.open_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False).load()
    xr.testing.assert_equal(back, result)
    assert back.attrs == result.attrs
    for name in result.variables:
        kept = {key: np.asarray(value).tolist() for key, value in back[name].attrs.items()}
        attributes = {key: np.asarray(value).tolist() for key, value in result[name].attrs.items()}
        assert kept == attributes


def test_a_diverging_cell_is_an_outcome_and_the_sweep_goes_on(tmp_path):
    result = tiny("training.rate=[0.5, 1e30]", "data.samples=4").run(tmp_path / "run")
    assert (result.status.sel(rate=1e30) == Status.DIVERGED).all()
    assert (result.status.sel(rate=0.5) != Status.DIVERGED).all()
    assert result.attrs["runs_diverged"] == 4
    assert np.isnan(result.test_loss.sel(rate=1e30)).all()
    assert np.isfinite(result.test_loss.sel(rate=0.5)).all()
    alone = tiny("data.samples=4").run(tmp_path / "alone")
    np.testing.assert_allclose(result.test_loss.sel(rate=0.5), alone.test_loss, rtol=1e-3)


def test_a_unit_that_fails_is_recorded_and_tried_again(finished, tmp_path, monkeypatch):
    folder, train = tmp_path / "run", engine._train_batch

    def fail_at_four(cells, *arguments):
        if cells[0].data.samples == 4:
            raise ArithmeticError("the fan is broken")
        return train(cells, *arguments)

    monkeypatch.setattr(engine, "_train_batch", fail_at_four)
    message = says(
        "4 of 8", "failed", "ArithmeticError: the fan is broken", f"`benign show {folder}`"
    )
    with pytest.warns(RunsFailed, match=message):
        result = tiny().run(folder)
    with pytest.warns(RunsFailed, match=message):
        assert bo.open_result(folder).identical(result)
    assert (result.status.sel(samples=4) == Status.FAILED).all()
    assert np.isnan(result.steps.sel(samples=4)).all()
    assert result.sel(samples=2).equals(finished[1].sel(samples=2))
    errors = [record.meta["error"] for _, record in Store.open(folder).records()]
    assert any("the fan is broken" in (text or "") for text in errors)
    monkeypatch.undo()
    assert tiny().run(folder).identical(finished[1])


def test_a_run_that_does_not_fit_alone_is_out_of_memory(tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(engine, "_train_batch", full)
    with pytest.warns(RunsFailed, match=says("8 of 8", "failed", "out of memory", "benign show")):
        result = tiny().run(tmp_path / "run")
    assert (result.status == Status.OUT_OF_MEMORY).all()


PROMPT = """
import sys
import benign as bo

def tried(data, folder):
    sweep = bo.Experiment(
        data=data(samples=[4, 6], tokens=2, dim=8, snr=1.0, noise_std=1.0),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.1, max_steps=1),
    )
    try:
        sweep.run(sys.argv[1] + folder, workers=2)
    except ValueError as error:
        print(error)

tried(bo.SignalNoise, "0")

class Mine(bo.SignalNoise):
    pass

tried(Mine, "1")

@bo.metric("nothing")
def mine(step):
    return step.loss

tried(bo.SignalNoise, "2")
"""


def test_what_other_processes_cannot_import_is_refused(tmp_path):
    command = [sys.executable, "-", str(tmp_path / "run")]
    done = subprocess.run(command, input=PROMPT, capture_output=True, text=True, check=True)
    nothing, of_a_class, of_a_probe = done.stdout.splitlines()
    for line, part in ((nothing, "<stdin>"), (of_a_class, "`Mine`"), (of_a_probe, "`mine`")):
        assert re.search(says("`workers`", "1", part, "file"), line), line


def test_two_workers_give_the_same_bits_as_one(finished, tmp_path):
    assert tiny().run(tmp_path / "run", workers=2).identical(finished[1])


def test_a_replay_is_the_run(finished):
    one = tiny().replay(samples=4, snr=2, seed=1)
    run = finished[1].sel(samples=4, snr=2.0, seed=1)
    assert one.last.number == int(run.steps)
    assert float(one.last.loss) == pytest.approx(float(run.train_loss), rel=1e-4)
    trace = one.trace()
    assert trace.sizes["step"] == int(run.steps) + 1
    curve = run.train_loss_curve.dropna("step")
    np.testing.assert_allclose(trace.train_loss.sel(step=curve.step), curve, rtol=1e-4)
    assert one.train.x.shape == (1, 4, 3, 8)
    assert one.test(5).x.shape == (1, 5, 3, 8)


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        ({"samples": 4}, ("['samples', 'snr']", "['samples']")),
        ({"samples": 3, "snr": 2.0}, ("`samples`", "2, 4", "3")),
        ({"samples": 4, "snr": 2.0, "seed": 2}, ("`seed`", "0", "1", "2")),
    ],
)
def test_a_replay_of_no_run_says_which_there_are(where, parts):
    with pytest.raises(ValueError, match=says(*parts)):
        tiny().replay(**where)


def test_what_cannot_work_is_refused_before_a_folder_is_made(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=says("`device`", "cpu", "'cuda:99'")):
        tiny().run(folder, device="cuda:99")
    with pytest.raises(ValueError, match=says("`dim` 1000000000000", "`samples` 4", "GiB")):
        tiny("data.dim=1000000000000").run(folder)
    with pytest.raises(ValueError, match=says("`workers`", "1", "0")):
        tiny().run(folder, workers=0)
    assert not folder.exists()


def test_memory_is_that_of_the_largest_cell():
    Runner(tiny(), "nowhere", dry_run=True)
    with pytest.raises(ValueError, match=says("`tokens` 1000000000", "GiB")):
        Runner(tiny("data.tokens=[2, 1000000000]"), "nowhere", dry_run=True)


def test_a_cpu_computes_tf32_in_float32(tmp_path):
    """So that a recipe of that precision runs everywhere; its runs have a name of their own all the same."""
    exact, rounded = (
        tiny(f"precision={name}").run(tmp_path / name) for name in ("float32", "tf32")
    )
    np.testing.assert_array_equal(exact.train_loss, rounded.train_loss)


@pytest.mark.parametrize("device", ["", "gpu", "cuda:-1", "cpu:1", "cuda:x"])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(ValueError, match=says("`device`", "cpu", repr(device))):
        check_device(device)


def test_a_machine_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ValueError, match=says("`device`", "'cuda'", "torch", "CUDA")):
        check_device("cuda")


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match=str(folder)):
            tiny().run(folder)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_zipped_fields_are_coordinates_of_their_dimension(tmp_path):
    zipped = tiny(
        "data.samples={zipped: setting, values: [2, 2, 4]}",
        "data.snr={zipped: setting, values: [1.0, 2.0, 1.0]}",
    )
    result = zipped.run(tmp_path / "run")
    assert result.setting.values.tolist() == [0, 1, 2]
    assert result.samples.dims == result.snr.dims == ("setting",)
    assert result.samples.values.tolist() == [2, 2, 4]
    assert result.snr.values.tolist() == [1.0, 2.0, 1.0]
    assert (result.status != 0).all()
    assert zipped.replay(setting=2).run.cell.data.samples == 4


@pytest.mark.parametrize("values", ["[0.1, 0.2, 0.1]", "[0.0, 0.1, -0.0]"])
def test_repeated_rows_of_zipped_axes_are_refused(values):
    with pytest.raises(bo.SpecError, match=says("rows 0 and 2", "zipped", "`g`")):
        tiny(
            "data.samples={zipped: g, values: [2, 4, 2]}",
            f"data.flip={{zipped: g, values: {values}}}",
        )


def test_rows_that_repeat_in_one_part_and_differ_in_another_are_fine():
    rows = tiny(
        "data.samples={zipped: g, values: [2, 2]}", "training.rate={zipped: g, values: [0.1, 0.2]}"
    )
    assert len(rows.units()) == 1


def test_minus_zero_beside_zero_is_refused():
    with pytest.raises(bo.SpecError, match=says("data.flip: ", "axis", "0.0")):
        tiny("data.flip=[0.0, -0.0]")
