"""Trackers hold what the result holds, each run once, whether logged on the way or afterwards."""

import importlib.util
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from benign.sweep import dispatch
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.results import ResultWarning
from benign.sweep.track import tracker
from benign.sweep.track.mlflow import CONTENT, KEY
from benign.sweep.track.tensorboard import TensorBoard
from benign.sweep.track.tracker import RunLog, logs_of_result
from benign.sweep.track.tracking import tracker_of
from tests.says import holds, says
from tests.tiny import tiny, tiny_file

# MLflow uses deprecated features of SQLAlchemy and other packages.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZES = {"samples": [2, 4], "dim": [8, 6]}
ATTACK = "attack={kind: pgd, ball: {radius: 0.02}, steps: 2}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished sweep: 8 runs in two units, some of which end before the step cap."""
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    tiny(ATTACK).run(folder)
    return folder


@pytest.fixture(scope="module")
def result(folder) -> xr.Dataset:
    return open_result(folder)


def logs(folder: Path) -> list[RunLog]:
    return list(logs_of_result(open_experiment(folder), open_result(folder)))


def check_series(series: dict[str, dict[int, float]], at: xr.Dataset, exact: float = 0.0) -> None:
    """These are the curves and the end values of one run of a result."""
    end = int(at.steps)
    assert {"train_loss", "test_accuracy", "robust_accuracy", "attention_on_signal"} <= {*series}
    for name, points in series.items():
        if f"{name}_curve" in at:
            curve = at[f"{name}_curve"].dropna("step")
            expected = dict(zip(curve.step.values.tolist(), curve.values.tolist(), strict=True))
        else:
            expected = {}
        if np.isfinite(at[name]):
            expected[end] = float(at[name])
        assert points == pytest.approx(expected, rel=exact, abs=0), name
    scalars = [name for name, part in at.items() if not part.dims and name != "status"]
    assert {name for name in scalars if np.isfinite(at[name])} <= {*series}


def events(folder: Path) -> tuple[dict[str, dict[int, float]], dict[str, object]]:
    """Scalars by tag and step, and hyper-parameters, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    scalars = {}
    for tag in read.Tags()["scalars"]:
        points = [(event.step, event.value) for event in read.Scalars(tag)]
        assert len(points) == len(dict(points)), f"{tag} is logged twice"
        scalars[tag] = dict(points)
    content = read.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    plugin = plugin_data_pb2.HParamsPluginData  # pyright: ignore[reportAttributeAccessIssue]
    start = plugin.FromString(content).session_start_info
    values = {
        name: getattr(value, str(value.WhichOneof("kind"))) for name, value in start.hparams.items()
    }
    return scalars, values


def test_tensorboard_holds_the_curves_and_numbers_of_every_run(folder, result, tmp_path, run):
    where = f"tensorboard={tmp_path / 'logs'}"
    code, out, _ = run("export", folder, where)
    assert (code, out.count("\n")) == (0, 1)
    assert holds(out, f"8 runs of {folder} ", where, " 0 ")
    labels = {each.label: each.parameters for each in logs(folder)}
    assert "samples=2,snr=0.5,seed=0" in labels
    found = [path.parent for path in (tmp_path / "logs").rglob("events.*")]
    assert len(found) == 8
    for place in found:
        scalars, numbers = events(place)
        status = numbers.pop("status")
        assert labels[place.name] == numbers
        at = result.sel(numbers)
        assert status == ["", "converged", "step_cap"][int(at.status)]
        check_series(scalars, at, exact=1e-6)  # it keeps float32
    assert run("export", folder, where)[1].startswith("0 runs")
    assert len(list((tmp_path / "logs").rglob("events.*"))) == 8


def test_a_run_computed_again_takes_the_place_of_the_former(folder, tmp_path):
    board, first = TensorBoard(str(tmp_path), "mine"), logs(folder)[0]
    other = RunLog(first.key, first.parameters, first.status, {"train_loss": {3: 0.25}})
    assert [board.sync([each]) for each in (first, first, other, other)] == [1, 0, 1, 0]
    [file] = tmp_path.rglob("events.*")
    assert events(file.parent)[0] == {"train_loss": {3: 0.25}}
    assert board.known() == {first.key: other.content}


def test_names_are_short_and_no_run_takes_the_folder_of_another(tmp_path):
    board = TensorBoard(str(tmp_path), "mine")
    runs = [
        RunLog(letter * 32, {"snr": snr, "seed": 0}, "converged", {"train_loss": {3: snr}})
        for letter, snr in (("a", 0.25118864315095796), ("b", 0.2511))
    ]
    runs.append(
        RunLog("c" * 32, {"snr": 0.25119, "seed": 0}, "converged", {"train_loss": {3: 1.0}})
    )
    assert board.sync(runs) == 3
    folders = {path.parent.name for path in tmp_path.rglob("events.*")}
    assert folders == {"snr=0.2512,seed=0", "snr=0.2511,seed=0", "snr=0.2512,seed=0-cccccccc"}
    recompute = [
        RunLog(run.key, run.parameters, "converged", {"test_loss": {1: 1.0}}) for run in runs
    ]
    assert board.sync(recompute[::-1]) == 3
    assert board.known() == {run.key: run.content for run in recompute}
    assert {path.parent.name for path in tmp_path.rglob("events.*")} == folders


def test_no_name_leads_out_of_the_folder(tmp_path):
    board = TensorBoard(str(tmp_path / "logs"), "../../elsewhere")
    for label in ("../../x", "a" * 300, "", "<b>/\0"):
        board.write(RunLog(label.encode().hex()[:32].zfill(32), {"name": label}, "converged", {}))
    made = [path.relative_to(tmp_path / "logs") for path in tmp_path.rglob("events.*")]
    assert len(made) == 4
    assert {path.parts[0] for path in made} == {"elsewhere"}


@pytest.fixture(scope="module")
def database(folder, tmp_path_factory) -> str:
    """MLflow's: making its tables takes seconds, so there is one for all tests."""
    where = f"mlflow=sqlite:///{tmp_path_factory.mktemp('mlflow') / 'runs.db'}"
    mlflow = tracker_of(where, folder)
    assert mlflow.sync(logs(folder)) == 8
    return where


def test_mlflow_holds_the_curves_and_numbers_of_every_run(folder, result, database, run):
    mlflow = tracker_of(database, folder)
    runs = list(mlflow._runs())  # pyright: ignore[reportAttributeAccessIssue]
    assert len(runs) == 8
    for each in runs:
        data = each.data
        numbers = {name: float(value) for name, value in data.params.items()}
        assert {*numbers} == {"samples", "snr", "seed"}
        at = result.sel(numbers)
        assert data.tags["status"] == ["", "converged", "step_cap"][int(at.status)]
        assert each.info.status == "FINISHED"
        client, series = mlflow._client, {}  # pyright: ignore[reportAttributeAccessIssue]
        for name in data.metrics:
            history = client.get_metric_history(each.info.run_id, name)
            series[name] = {point.step: point.value for point in history}
            assert len(series[name]) == len(history), f"{name} is logged twice"
        check_series(series, at)
    code, out, _ = run("export", folder, database)
    assert (code, out.count("\n")) == (0, 1)
    assert holds(out, f"0 runs of {folder} ", database, " 8 ")


def test_what_a_killed_process_left_in_mlflow_is_written_anew(folder, database):
    mlflow = tracker_of(database, folder)
    first, client = logs(folder)[0], mlflow._client  # pyright: ignore[reportAttributeAccessIssue]
    [there] = mlflow._runs(f"tags.`{KEY}` = '{first.key}'")  # pyright: ignore[reportAttributeAccessIssue]
    client.delete_tag(there.info.run_id, CONTENT)  # it is written last
    assert mlflow.sync(logs(folder)) == 1
    found = [run.data.tags[KEY] for run in mlflow._runs()]  # pyright: ignore[reportAttributeAccessIssue]
    assert sorted(found) == sorted(each.key for each in logs(folder))


def test_a_sweep_logs_as_it_goes_and_resuming_does_not_log_again(tmp_path, monkeypatch):
    folder, where = tmp_path / "runs", f"tensorboard={tmp_path / 'logs'}"
    written: list[str] = []
    write = TensorBoard.write
    monkeypatch.setattr(
        TensorBoard, "write", lambda s, run: [written.append(run.key), write(s, run)]
    )
    keep = dispatch._Dispatcher.keep

    def keep_then_stop(sweep, unit, done):
        keep(sweep, unit, done)
        raise KeyboardInterrupt  # after the first unit

    with monkeypatch.context() as patch:
        patch.setattr(dispatch._Dispatcher, "keep", keep_then_stop)
        with pytest.raises(KeyboardInterrupt):
            tiny().run(folder, track=where)
    assert len(written) == 4, "the runs of the first unit, as it ended"
    tiny().run(folder, track=[where])
    tiny("seeds=3").run(folder, track=where)
    tiny("seeds=3").run(folder, track=where)
    assert len(written) == len(set(written)) == 12


def test_a_sweep_that_ran_without_a_tracker_is_logged_by_the_next_call(folder, tmp_path):
    tiny(ATTACK).run(folder, track=f"tensorboard={tmp_path}")
    assert len(list(tmp_path.rglob("events.*"))) == 8


def test_a_tracker_that_fails_is_reported_and_loses_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    folder, where = tmp_path / "runs", f"tensorboard={tmp_path / 'logs'}"
    with monkeypatch.context() as patch:
        patch.setattr(TensorBoard, "write", full)
        with pytest.warns(
            ResultWarning,
            match=says("TensorBoard", str(tmp_path / "logs"), "No space left", "results"),
        ):
            result = tiny().run(folder, track=where)
    assert result.attrs["runs_missing"] == 0
    tiny().run(folder, track=where)
    assert len(list(tmp_path.rglob("events.*"))) == 8


def test_runs_that_failed_are_not_logged_and_zipped_axes_show_their_values(tmp_path):
    zipped = [f"data.{name}={{zipped: size, values: {values}}}" for name, values in SIZES.items()]
    experiment = tiny(*zipped)
    result = experiment.run(tmp_path / "runs")
    result.status[0, 0, 0] = 4
    found = list(logs_of_result(experiment, result))
    assert len(found) == 7
    assert found[-1].parameters == {"samples": 4, "dim": 6, "snr": 2.0, "seed": 1}


def test_the_command_line_reports_the_logged_runs_and_the_command_that_shows_them(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tiny_file(tmp_path, "seeds=1")
    track = ["--track", "tensorboard=my logs", "--track", "mlflow=sqlite:///m.db"]
    commands = [
        "`tensorboard --logdir 'my logs'`",
        "`mlflow ui --backend-store-uri sqlite:///m.db`",
    ]
    for _ in range(2):  # the second has nothing to log, and they are there
        code, out, _ = run("run", "tiny.yaml", *track)
        assert code == 0
        reported = [line for line in out.splitlines() if "tensorboard" in line or "mlflow" in line]
        assert len(reported) == 2
        for line, command in zip(reported, commands, strict=True):
            assert holds(line, "4 runs", command)
    out = run("run", "tiny.yaml")[1]
    assert not any(word in out for word in ("tensorboard", "mlflow"))


def test_a_tracker_that_fails_is_not_said_to_hold_runs(run, tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.chdir(tmp_path)
    tiny_file(tmp_path, "seeds=1")
    monkeypatch.setattr(TensorBoard, "known", broken)
    code, out, err = run("run", "tiny.yaml", "--track", "tensorboard=logs")
    assert code == 0
    assert "tensorboard" not in out
    assert holds(err, "Input/output error", "results")


FORMS = ("tensorboard=FOLDER", "mlflow=sqlite:///FILE")
REFUSED = {
    "tensorboard": ["`track`", *FORMS, "'tensorboard'"],
    "wandb=me": ["`track`", *FORMS, "'wandb=me'"],
    "mlflow=mlruns": ["MLflow", "mlflow=sqlite:///FILE", "'mlruns'"],
    "mlflow=sqlite:///none/a.db": ["none ", "folder"],
    "tensorboard=tiny.yaml": ["tiny.yaml ", "file", "folder"],
}


@pytest.mark.parametrize("word", REFUSED)
def test_what_is_no_tracker_is_refused_before_any_work(word, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_file(tmp_path)
    code, out, err = run("run", "tiny.yaml", "--track", word)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert holds(err, "benign: ", *REFUSED[word])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("word", "package"), [("tensorboard=a", "tensorboard"), ("mlflow=sqlite:///a.db", "mlflow")]
)
def test_a_missing_package_is_one_line_with_the_remedy(word, package, folder, run, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(tracker, "find_spec", lambda name: None if name == package else find(name))
    code, _, err = run("export", folder, word)
    assert (code, err.count("\n")) == (2, 1)
    assert holds(err, word.partition("=")[0], f" {package}", "pip install 'benign[track]'")


def test_a_file_that_is_no_database_is_one_line(folder, run, tmp_path):
    (tmp_path / "a.db").write_text("not a database")
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(tmp_path / "a.db").execute("select 1 from runs")
    code, _, err = run("export", folder, f"mlflow=sqlite:///{tmp_path / 'a.db'}")
    assert code == 2
    assert "file is not a database" in err
    assert len(err.splitlines()) == 1
