"""Bisection finds the boundary of the whole grid with fewer runs, and reuses existing ones."""

import math
from pathlib import Path

import numpy as np
import pytest

import benign as bo
from benign.claims.locate import Located, locate_boundary
from benign.spec.axes import zipped
from benign.stats import boundary
from benign.stats.audited import MASKED
from tests.says import holds, says

LAW = "samples * signal**p"
LEVEL = 0.8


def sweep(columns: int = 33, seeds: int = 4, **data) -> bo.Experiment:
    fields = {"samples": [4, 8, 16, 64], "dim": 200, "signal": bo.logspace(0.5, 8, columns)} | data
    return bo.Experiment(
        data=bo.Mixture(**fields),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.05, max_steps=20),
        evaluation=bo.Evaluation(samples=500),
        seeds=seeds,
        pairing="common",  # a smooth map, which passes the level once in every row
    )


@pytest.fixture(scope="module")
def located(tmp_path_factory) -> tuple[Located, Path]:
    folder = tmp_path_factory.mktemp("located") / "runs"
    return locate_boundary(sweep(), LEVEL, LAW, folder=folder), folder


def test_it_is_the_boundary_of_the_dense_grid(located, tmp_path: Path):
    edge, _ = located
    dense = boundary(sweep().run(tmp_path).test_accuracy, LEVEL, LAW)
    assert dense.crossings.values.tolist() == [1, 1, 1, 1]
    np.testing.assert_array_equal(edge.critical, dense.critical)
    assert edge.finished
    assert (edge.runs, edge.grid_runs) == (4 * 7 * 4, 4 * 33 * 4)
    assert edge.saved == pytest.approx(1 - 7 / 33)
    ratio = edge.brackets.sel(end="high") / edge.brackets.sel(end="low")
    np.testing.assert_allclose(ratio, 16 ** (1 / 32), rtol=1e-5)  # neighbours of the grid
    assert (edge.brackets.sel(end="low") <= edge.critical).all()
    assert holds(str(edge), "112 runs", " 528 ", "79 %")


def test_masked_runs_that_could_move_it_take_the_law_away(located, monkeypatch):
    """As if a fifth of every accuracy were certified."""
    edge, folder = located

    def proven(result, end):
        assert end == "masked runs certified"
        return result.assign(test_accuracy=result.test_accuracy * 0.2)

    monkeypatch.setattr("benign.claims.locate.at_end", proven)
    doubtful = locate_boundary(sweep(), LEVEL, LAW, folder=folder)
    assert edge.fit is not None
    assert doubtful.fit is None
    assert doubtful.reason == MASKED
    np.testing.assert_array_equal(doubtful.critical, edge.critical)


def test_the_linear_theory_is_recovered(located):
    """Accuracy is Phi of a function of N |mu|^4 / d where N |mu|^2 << d (papers/zhang.md section 5)."""
    edge, _ = located
    assert edge.fit is not None
    assert edge.exponent_is(4)
    assert not edge.exponent_is(2)


def test_the_same_call_returns_at_once_and_another_level_goes_on(located):
    edge, folder = located
    again = locate_boundary(sweep(), LEVEL, LAW, folder=folder)
    assert again.runs == edge.runs
    np.testing.assert_array_equal(again.critical, edge.critical)
    other = locate_boundary(sweep(), 0.9, LAW, folder=folder)
    assert other.finished
    assert edge.runs < other.runs < 2 * edge.runs


def test_a_budget_ends_the_search_and_more_of_it_goes_on(tmp_path: Path):
    part = locate_boundary(sweep(9, 1), LEVEL, LAW, folder=tmp_path, budget=13)
    assert (part.finished, part.runs) == (False, 12)
    assert "budget" in str(part)
    whole = locate_boundary(sweep(9, 1), LEVEL, LAW, folder=tmp_path)
    assert (whole.finished, whole.runs) == (True, 20)
    with pytest.raises(ValueError, match=says("`budget`", "8 runs", " 7")):
        locate_boundary(sweep(9, 1), LEVEL, LAW, folder=tmp_path, budget=7)


def test_rows_that_never_cross_are_left_alone(tmp_path: Path):
    edge = locate_boundary(
        sweep(9, 1, signal=bo.logspace(0.01, 1.2, 9)), LEVEL, LAW, folder=tmp_path
    )
    assert (edge.finished, edge.runs) == (True, 8)
    assert edge.critical.isnull().all()
    assert all(map(math.isnan, edge.brackets.values.ravel()))
    (reason,) = set(edge.reasons.values)
    assert holds(reason, "below 0.8", "highest signal", "1.2")


def test_what_cannot_be_bisected_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=says("axes", "samples", "snr", "signal")):
        locate_boundary(sweep(), LEVEL, folder=tmp_path)
    pairs = {"samples": zipped("samples_", [2, 4]), "signal": [1.0, 2.0]}
    with pytest.raises(ValueError, match=says("axes", "samples_, signal")):
        locate_boundary(sweep(**pairs), LEVEL, LAW, folder=tmp_path)
    with pytest.raises(ValueError, match=says("`variable`", "train_loss_curve", "'step'")):
        locate_boundary(sweep(3, 1), LEVEL, LAW, folder=tmp_path, variable="train_loss_curve")
