"""Which record counts for a run, what a result says about its runs, and a folder about its origin."""

import json
import linecache
import shutil
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import benign as bo
from benign.networks.network import Network
from benign.papers.registry import recipes
from benign.spec.axes import Axis, replace
from benign.spec.base import SpecError
from benign.spec.registry import Component
from benign.sweep.dataset import assemble, not_measured
from benign.sweep.own_code import own_code
from benign.sweep.plan import NUMERICS, runs_of
from benign.sweep.records import Record
from benign.sweep.results import ResultWarning, RunResolver, failures, outdoes, runs_in
from benign.sweep.status_text import folder_text
from benign.sweep.store import Store, StoreError
from benign.sweep.validation import RecordCache
from benign.training import engine
from benign.training.descent import Status
from benign.training.metrics import METRICS, variables
from benign.training.setup import stack
from tests.says import holds, says
from tests.tiny import tiny

STORES = Path(__file__).parent / "stores"


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """A finished folder, not to be changed."""
    folder = tmp_path_factory.mktemp("good") / "run"
    tiny().run(folder)
    return folder


@pytest.fixture
def failed(tmp_path, monkeypatch) -> Path:
    """A folder whose runs all failed."""

    def fail(*_):
        raise ArithmeticError("the fan is broken")

    with monkeypatch.context() as broken:
        broken.setattr(engine, "_train_batch", fail)
        with pytest.warns(
            ResultWarning, match=says("8 of 8 ", "failed", "ArithmeticError", "`benign show ")
        ):
            tiny().run(tmp_path / "failed")
    return tmp_path / "failed"


# Which record counts


def record(keys: str, statuses: list[Status], **meta) -> Record:
    names = {"run": np.array(list(keys)), "status": np.array(statuses, np.int8)}
    return Record({**names, **{name: names["status"] for name in meta.pop("names", ())}}, meta)


def test_a_run_that_ended_beats_one_that_failed_in_either_order():
    bad = record("ab", [Status.FAILED, Status.OUT_OF_MEMORY])
    fine = record("bc", [Status.DIVERGED, Status.CONVERGED])
    for first, second in ((bad, fine), (fine, bad)):
        runs = RunResolver()
        runs.add(first)
        runs.add(second)
        found = {key: at.status for key, at in runs.runs.items()}
        assert found == {"a": Status.FAILED, "b": Status.DIVERGED, "c": Status.CONVERGED}


def test_more_variables_beat_fewer_and_of_equals_the_last_counts():
    few, many = (record("a", [Status.CONVERGED], names=names) for names in (["x"], ["x", "y"]))
    runs = RunResolver()
    assert runs.add(many) == [(0, "a")]
    assert runs.add(few) == []
    assert runs.add(many) == [(0, "a")]


def test_runs_without_an_error_text_have_failed_by_their_status():
    runs = [*runs_in([record("ab", [Status.FAILED, Status.OUT_OF_MEMORY])]).values()]
    assert failures(runs) == {"failed": 1, "out of memory": 1}
    runs = runs_in([record("ab", [Status.FAILED, Status.DIVERGED], error="the fan is broken\n")])
    assert failures(runs.values()) == {"the fan is broken": 1}


def test_a_record_outdoes_another_if_none_of_its_runs_is_lost():
    ok, bad = Status.CONVERGED, Status.FAILED
    assert outdoes(record("ab", [ok, ok]), record("ab", [bad, bad]))
    assert outdoes(record("ab", [ok, ok]), record("ab", [bad, ok]))
    assert not outdoes(record("ab", [ok, bad]), record("ab", [bad, ok]))
    assert not outdoes(record("ab", [ok, ok]), record("ab", [ok, ok]))


def test_good_records_of_another_batching_repair_a_failed_folder(failed, good, tmp_path):
    """The first scenario: the same runs under other keys of units."""
    tiny("seeds=1").run(tmp_path / "grown")
    tiny().run(tmp_path / "grown")
    bo.merge(tmp_path / "grown", failed)
    result = bo.open_result(failed)
    assert result.attrs["runs_failed"] == 0
    np.testing.assert_array_equal(result.status, bo.open_result(good).status)
    assert "failed" not in folder_text(failed).partition("status")[2]
    before = sorted(path.stat().st_mtime_ns for path in failed.glob("records/*"))
    assert tiny().run(failed).identical(result)
    assert before == sorted(path.stat().st_mtime_ns for path in failed.glob("records/*"))


def test_good_records_of_the_same_key_take_the_place_of_failed_ones(failed, good):
    """The second scenario."""
    merged = bo.merge(good, failed)
    assert (merged.added, merged.present, merged.damaged) == (2, 0, 0)
    assert bo.open_result(failed).identical(bo.open_result(good))
    assert bo.merge(good, failed).present == 2


def test_failed_records_never_take_the_place_of_good_ones(failed, good, tmp_path):
    kept = shutil.copytree(good, tmp_path / "kept")
    assert bo.merge(failed, kept).present == 2
    assert bo.open_result(kept).identical(bo.open_result(good))


def test_a_folder_of_failed_runs_is_shown(failed):
    message = folder_text(failed)
    assert "8 failed" in message
    assert holds(message, "8 runs", "ArithmeticError: the fan is broken")


def test_two_cells_that_are_one_run_are_no_result():
    experiment = tiny()
    doubled = replace(experiment, {("data", "snr"): Axis((0.5, 0.5))})
    with pytest.raises(AssertionError, match=says("cells", "run")):
        assemble(doubled, [])


# What was not measured


@pytest.fixture
def own_probe():
    """Registers a snapshot when it is called."""

    def register():
        @bo.metric("a loss of one's own")
        def loss_of_mine(step):
            return step.loss

    yield register
    METRICS.pop("loss_of_mine", None)


def test_a_variable_that_no_run_has_is_left_out_and_reported(good, tmp_path, own_probe):
    folder = shutil.copytree(good, tmp_path / "run")
    own_probe()
    names = ("`loss_of_mine`", "`loss_of_mine_curve`")
    message = says(str(folder), *names, "8 runs", "recompute=True", "--recompute")
    with pytest.warns(ResultWarning, match=message):
        result = tiny().run(folder)
    assert "loss_of_mine" not in result
    assert not_measured(result) == {"loss_of_mine": 8, "loss_of_mine_curve": 8}
    with pytest.warns(ResultWarning, match=message):
        bo.open_result(folder)
    result = tiny().run(folder, recompute=True)
    assert not_measured(result) == {}
    np.testing.assert_array_equal(result.loss_of_mine, result.train_loss)


def test_a_variable_that_some_runs_lack_is_reported(tmp_path, own_probe):
    tiny("seeds=1").run(tmp_path / "run")
    own_probe()
    with pytest.warns(ResultWarning, match=says("`loss_of_mine`", "4 runs", "--recompute")):
        result = tiny().run(tmp_path / "run")
    assert np.isnan(result.loss_of_mine.sel(seed=0)).all()
    assert np.isfinite(result.loss_of_mine.sel(seed=1)).all()
    assert not_measured(result)["loss_of_mine"] == 4
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("run/records/*")}
    result = tiny().run(tmp_path / "run", recompute=True)
    assert np.isfinite(result.loss_of_mine).all()
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("run/records/*")}
    assert sum(before[name] != after[name] for name in before) == 2  # those of seed 0


def test_a_result_without_runs_keeps_its_variables():
    result = assemble(tiny(), [])
    assert np.isnan(result.test_loss).all()
    assert np.isnan(result.steps).all()
    assert not_measured(result) == {}


@pytest.mark.parametrize("name", recipes())
def test_a_unit_measures_what_each_of_its_runs_should_have(name):
    """Otherwise every finished run would lack something."""
    for unit in recipes()[name].experiment("smoke").units():
        cells = [run.cell for run in unit.runs]
        together = variables(stack(cells, "cpu")).keys()
        assert all(variables(cell).keys() <= together for cell in cells)


# Code of one's own


def own_network(gain: int | str, comment: str = "") -> type[Network]:
    """A network from source that linecache knows, as that of a file or a notebook is."""
    source = (
        "class GainOfMine(Network):\n"
        "    def initial_params(self, data, streams, dtype):\n"
        "        return {'u': streams('init/u').normal(data.dim, dtype=dtype)}\n"
        "    def forward(self, params, x):\n"
        f"        return {gain} * torch.einsum('rnmd,rd->rn', x, params['u'])  # {comment}\n"
    )
    file = f"/nowhere/gain_{gain}{comment}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = types.ModuleType("module_of_mine")
    module.__dict__.update(Network=Network, torch=torch, __file__=file)
    sys.modules["module_of_mine"] = module
    exec(compile(source, file, "exec"), module.__dict__)
    return module.GainOfMine


@pytest.fixture
def forgetting():
    yield
    Component.families[Network].pop("gain_of_mine", None)


def with_network(network: Network) -> bo.Experiment:
    fields = tiny("data.samples=2", "training.max_steps=2").as_dict()
    return bo.Experiment.from_dict({**fields, "network": network})


def test_changed_code_of_ones_own_is_refused_and_computed_again(tmp_path, forgetting):
    first = with_network(own_network(1)()).run(tmp_path / "run")
    for _, record in Store.open(tmp_path / "run").records():
        assert list(record.meta["code"]) == ["network gain_of_mine"]
        assert record.meta["code"]["network gain_of_mine"]
    assert with_network(own_network(1, "a comment")()).run(tmp_path / "run").identical(first)
    changed = with_network(own_network(7)())
    folder = str(tmp_path / "run")
    message = says(folder, "`network gain_of_mine`", "4 runs", "recompute=True", "--recompute")
    with pytest.raises(StoreError, match=message):
        changed.run(tmp_path / "run")
    with pytest.raises(StoreError, match=message):
        bo.open_result(tmp_path / "run")
    assert holds(folder_text(tmp_path / "run"), "network gain_of_mine", "4 runs")
    second = changed.run(tmp_path / "run", recompute=True)
    assert (second.train_loss != first.train_loss).all()
    assert changed.run(tmp_path / "run").identical(second)


def test_code_of_a_notebook_is_known_by_its_methods(forgetting):
    digests = []
    for gain in (1, 1, 2):
        network = own_network(gain)
        del sys.modules["module_of_mine"].__file__
        digests += own_code([with_network(network()).units()[0].runs[0].cell]).values()
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests


def test_changed_code_may_repair_failed_runs(tmp_path, forgetting, monkeypatch):
    monkeypatch.setattr(
        "benign.sweep.runner.try_own_parts", lambda *given: None
    )  # or it would not begin
    with pytest.warns(ResultWarning, match=says("4 of 4 ", "failed", "ZeroDivisionError")):
        with_network(own_network("1 // 0")()).run(tmp_path / "run")
    result = with_network(own_network(1)()).run(tmp_path / "run")
    assert result.attrs["runs_failed"] == 0


def test_a_changed_probe_is_refused(tmp_path, own_probe):
    own_probe()
    tiny().run(tmp_path / "run")
    METRICS.pop("loss_of_mine")

    @bo.metric("a loss of one's own")
    def loss_of_mine(step):
        return 100 * step.loss

    with pytest.raises(StoreError, match=says("`metric loss_of_mine`", "8 runs", "--recompute")):
        tiny().run(tmp_path / "run")
    result = tiny().run(tmp_path / "run", recompute=True)
    np.testing.assert_allclose(result.loss_of_mine, 100 * result.train_loss, rtol=1e-6)


def test_the_packages_own_code_is_not_recorded(good):
    for _, record in Store.open(good, writing=False).records():
        assert record.meta["code"] == {}
        assert (record.meta["benign"], record.meta["numerics"]) == (bo.__version__, NUMERICS)


# Versions


def numerics(monkeypatch, number: int) -> None:
    for module in ("sweep.plan", "sweep.results", "sweep.compute", "sweep.dataset", "sweep.runner"):
        monkeypatch.setattr(f"benign.{module}.NUMERICS", number)


def test_a_folder_of_format_1_opens_and_becomes_one_of_today(tmp_path, monkeypatch):
    numerics(monkeypatch, 3)
    folder = shutil.copytree(STORES / "format_1", tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)  # probes that came later
        result = bo.open_result(folder)
        assert result.attrs["runs_missing"] == 0
        np.testing.assert_allclose(result.train_loss.values.ravel(), [0.69026351, 0.64383829])
        assert bo.open_experiment(folder).run(folder).identical(result)
    content = json.loads((folder / "experiment.json").read_text())
    assert (content["format"], content["numerics"], content["made"]) == (2, 3, {})


def test_runs_of_other_numerics_are_reported_and_computed_next_to_the_old(
    good, tmp_path, monkeypatch
):
    folder = shutil.copytree(good, tmp_path / "run")
    numerics(monkeypatch, NUMERICS + 1)
    versions = (f"numerics {NUMERICS}", f"numerics {NUMERICS + 1}")
    message = says(str(folder), "8 runs", *versions)
    with pytest.warns(ResultWarning, match=message):
        assert bo.open_result(folder).attrs["runs_missing"] == 8
    assert holds(" ".join(folder_text(folder).split()), "8 runs", *versions)
    with pytest.warns(ResultWarning, match=message):
        result = tiny().run(folder)
    assert result.attrs["runs_missing"] == 0
    assert len(Store.open(folder).keys()) == 4
    assert Store.open(folder).about.numerics == NUMERICS + 1


def test_a_part_of_a_folder_is_not_of_another_version(good):
    tiny("seeds=1").run(good)  # no warning, which would be an error


def test_a_folder_without_an_experiment_says_so(tmp_path):
    Store.open(tmp_path / "new", create=True)
    with pytest.raises(StoreError, match=says(str(tmp_path / "new"), "experiment")):
        bo.open_result(tmp_path / "new")


def test_python_makes_folders_that_know_their_version(good):
    about = Store.open(good, writing=False).about
    assert about.made == {"benign": bo.__version__}
    assert about.numerics == NUMERICS


def test_a_specification_that_cannot_be_read_names_folder_version_and_remedy(good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "run")
    store = Store.open(folder)
    about = store.about
    about.history[0]["data"]["kind"] = "rings_of_mine"
    store.set_about(about)
    parts = ("specification", "code", f"benign {bo.__version__}", "kind", "rings_of_mine")
    with pytest.raises(StoreError, match=says(str(folder), *parts)):
        bo.open_result(folder)
    message = folder_text(folder)
    assert "rings_of_mine" in message
    assert "converged" in message


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        (2, ["benign: ", "version 2", " 1"]),
        ("x", ["benign: ", "version", " 1", "'x'"]),
        (True, ["benign: ", "version", " 1", "True"]),
    ],
)
def test_a_specification_may_state_the_version_of_its_format(version, parts):
    fields = tiny().as_dict()
    assert bo.Experiment.from_dict({"benign": 1, **fields}) == tiny()
    with pytest.raises(SpecError, match=says(*parts)):
        bo.Experiment.from_dict({"benign": version, **fields})


# A part of what is there


def test_a_part_of_what_is_there_is_returned(good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "run")
    whole, about = bo.open_result(folder), Store.open(folder).about
    for changes, where in (
        (["seeds=1"], {"seed": [0]}),
        (["data.snr=2.0"], {"snr": 2.0}),
        (["data.samples=[4]", "seeds=1"], {"samples": [4], "seed": [0]}),
    ):
        part = tiny(*changes).run(folder)
        for name, values in whole.sel(where).data_vars.items():
            np.testing.assert_array_equal(part[name], values, err_msg=str(name))
    assert Store.open(folder).about == about


def test_a_part_computes_only_the_units_it_needs(good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "run")
    for path in folder.glob("records/*"):
        path.unlink()
    part = tiny("data.samples=4", "seeds=1")
    assert part.run(folder).attrs["runs_missing"] == 0
    assert len(Store.open(folder).keys()) == 1
    assert bo.open_result(folder).attrs["runs_missing"] == 4
    assert {run.key for run in runs_of(part)} < {run.key for run in runs_of(tiny())}


# Records in memory


def test_records_in_memory_are_decoded_again_only_if_their_file_has_changed(
    good, tmp_path, monkeypatch
):
    folder = shutil.copytree(good, tmp_path / "run")
    store, decoded = Store.open(folder), []
    read = store.read
    monkeypatch.setattr(store, "read", lambda key: (decoded.append(key), read(key))[1])
    records, keys = RecordCache(store), sorted(store.keys())
    assert runs_in(records).keys() == runs_in(records).keys()
    assert decoded == keys
    first = store.path(keys[0])
    first.write_bytes(first.read_bytes()[:-1])  # damaged
    assert len(list(records)) == len(keys) - 1
    assert list(store.damaged) == keys[:1]
    shutil.copy(Store.open(good, writing=False).path(keys[0]), first)
    assert len(list(records)) == len(keys)
    assert decoded == [*keys, keys[0], keys[0]]


def test_records_that_would_take_too_much_memory_are_decoded_each_time(good, monkeypatch):
    store, decoded = Store.open(good, writing=False), []
    read = store.read
    monkeypatch.setattr(store, "read", lambda key: (decoded.append(key), read(key))[1])
    records, keys = RecordCache(store, most_bytes=0), sorted(store.keys())
    assert [len(list(records)), len(list(records))] == [len(keys)] * 2
    assert decoded == [*keys, *keys]
