"""Regimes of runs and of cells, on results made by hand."""

import re

import numpy as np
import pytest
import xarray as xr

from benign.stats.regimes import Regime, definition, majority_regime, regimes
from benign.training.descent import Status
from tests.says import holds, says

NAN = np.nan


def result(**values: list[float]) -> xr.Dataset:
    """Runs of one seed, one number of each variable a run; all have converged unless it is said."""
    runs = len(values["train_accuracy"])
    known = {"status": [float(Status.CONVERGED)] * runs} | values
    return xr.Dataset({name: ("snr", each) for name, each in known.items()}, {"snr": range(runs)})


def names(codes: xr.DataArray) -> list[str]:
    return [Regime(int(each)).words if each == each else "none" for each in codes.values]


def test_a_fit_is_benign_where_fresh_points_are_right():
    runs = result(train_accuracy=[1, 1, 1, 0.9], test_accuracy=[0.95, 0.94, 1, 1])
    assert names(regimes(runs)) == ["benign", "harmful", "benign", "not fitted"]
    assert names(regimes(runs, level=0.99)) == ["harmful", "harmful", "benign", "not fitted"]


def test_a_loss_is_benign_where_it_is_small():
    runs = result(train_accuracy=[1, 1], test_loss=[0.2, 0.21])
    assert names(regimes(runs, "test_loss", 0.2)) == ["benign", "harmful"]


def test_training_points_count_as_attacked_where_they_are():
    runs = result(
        train_accuracy=[1, 1, 1], train_robust_accuracy=[1, 0.9, NAN], test_accuracy=[1, 1, 1]
    )
    assert names(regimes(runs)) == ["benign", "not fitted", "benign"]


def test_runs_without_a_record_have_no_regime_and_diverged_ones_do_not_fit():
    ways = [Status.MISSING, Status.FAILED, Status.OUT_OF_MEMORY, Status.DIVERGED, Status.STEP_CAP]
    runs = result(
        status=[float(each) for each in ways],
        train_accuracy=[NAN, NAN, NAN, NAN, 1],
        test_accuracy=[NAN, NAN, NAN, NAN, 1],
    )
    assert names(regimes(runs)) == ["none", "none", "none", "not fitted", "benign"]
    unmeasured = result(train_accuracy=[1, 0], test_accuracy=[NAN, NAN])
    assert names(regimes(unmeasured)) == ["none", "not fitted"]


def test_axes_keep_their_meaning():
    runs = result(train_accuracy=[1], test_accuracy=[1])
    runs.snr.attrs["long_name"] = "signal-to-noise ratio SNR"
    assert regimes(runs).snr.attrs == runs.snr.attrs


def test_a_cell_is_what_most_of_its_seeds_are_and_the_worst_of_equals():
    codes = xr.DataArray(
        [[2, 2, 0], [2, 1, NAN], [0, 1, 2], [NAN, NAN, NAN], [NAN, NAN, 2]], dims=("cell", "seed")
    )
    assert names(majority_regime(codes)) == ["benign", "harmful", "not fitted", "none", "benign"]


def test_a_caption_states_the_rule_that_was_used():
    assert holds(definition("test_accuracy", None), "test accuracy", " 0.95")
    assert re.search(r"test accuracy .*\b0(?!\.\d)", definition("test_accuracy", 0.0))
    assert holds(definition("test_loss", 0.2), "test loss", " 0.2")


def test_a_result_without_regimes_is_refused_with_the_reason():
    runs = result(train_accuracy=[1], test_accuracy=[1], test_loss=[0.1], steps=[3])
    with pytest.raises(ValueError, match=says("'colour'", "status", "train_accuracy")):
        regimes(runs, "colour")
    with pytest.raises(
        ValueError, match=says("accuracy", "loss", "error", "'steps'", "'test_accuracy'")
    ):
        regimes(runs, "steps")
    with pytest.raises(ValueError, match=says("`level`", "'test_loss'")):
        regimes(runs, "test_loss")
    with pytest.raises(ValueError, match=says("'train_accuracy'")):
        regimes(runs.drop_vars("train_accuracy"))
