"""A result as a table of runs, or of runs and steps."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import benign as bo
from benign.sweep.export import export
from tests.says import says
from tests.tiny import tiny


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> xr.Dataset:
    zipped = (
        "data.samples={zipped: size, values: [2, 4]}",
        "data.dim={zipped: size, values: [8, 6]}",
    )
    return tiny(*zipped).run(tmp_path_factory.mktemp("runs"))


def test_one_row_a_run(result):
    table = bo.to_dataframe(result)
    assert len(table) == result.attrs["runs"] == 8
    assert {"samples", "dim", "snr", "seed", "status", "steps", "test_accuracy"} <= {*table}
    assert not [name for name in table if str(name).endswith("_curve")]
    for row in table.to_dict("records"):
        at = result.sel(size=row["size"], snr=row["snr"], seed=row["seed"])
        assert (row["samples"], row["dim"]) == (int(at.samples), int(at.dim))
        assert row["train_loss"] == float(at.train_loss)
        assert row["status"] in {"converged", "step_cap"}


def test_steps_are_whole_and_missing_where_a_run_has_not_ended(result, tmp_path):
    some = result.copy(deep=True)
    some.steps[0, 0, 0] = np.nan
    steps = bo.to_dataframe(some).steps
    assert str(steps.dtype) == "Int64"
    assert steps.isna().sum() == 1
    assert steps.dropna().tolist() == some.steps.values.ravel()[1:].tolist()
    export(some, tmp_path / "runs.csv")
    written = pd.read_csv(tmp_path / "runs.csv", dtype=str)
    assert written.steps.dropna().tolist() == [str(int(each)) for each in steps.dropna()]


def test_one_row_a_run_and_step_until_the_run_ends(result):
    curves = bo.to_dataframe(result, curves=True)
    assert len(curves) == int(result.train_loss_curve.count())
    assert len(curves) < result.train_loss_curve.size, "some runs end early, and have no rows after"
    assert np.allclose(curves.train_loss_curve.sum(), float(result.train_loss_curve.sum()))
    lengths = curves.groupby(["size", "snr", "seed"]).step.max().to_xarray()
    assert (lengths <= result.steps).all()


def test_a_selection_down_to_one_run(result):
    one = result.sel(size=1, snr=2.0, seed=1)
    assert bo.to_dataframe(one).train_loss.tolist() == [float(one.train_loss)]
    assert len(bo.to_dataframe(one, curves=True)) == int(one.train_loss_curve.count())
    assert len(bo.to_dataframe(result.sel(snr=2.0))) == 4


def test_what_is_no_result_of_runs_is_refused(result):
    with pytest.raises(
        ValueError, match=says("`result`", "`run`", "`open_result`", "to_dataframe()")
    ):
        bo.to_dataframe(result.mean("seed"))
