"""Recipes that draw curves along training: a run that has ended stays at its last value, so no mean jumps."""

import numpy as np
import pytest
import xarray as xr

from benign.papers.registry import recipe
from benign.plot import lines
from benign.plot.variables import extended_curve
from benign.training.descent import Status
from tests.papers.test_partial import empty

ALONG_TRAINING = (
    *("jiang/fig3", "jiang/fig4", "li/fig3", "li/table1_mnist"),
    *("wang/fig2", "wang/fig6", "zhang/fig2", "zhang/fig3"),
)


def two_ends(name: str) -> xr.Dataset:
    """The result of a recipe whose first seed is at 0.2 until it ends early, and whose second one is at 0.8."""
    result = empty(name).copy(deep=True)
    steps = result.step.values
    ends = xr.DataArray([steps[len(steps) // 3], steps[-1]], dims="seed")
    level = xr.DataArray([0.2, 0.8], dims="seed")
    for variable in map(str, result.data_vars):
        here = level.where(result.step <= ends) if "step" in result[variable].dims else level
        result[variable] = xr.zeros_like(result[variable]).astype(float).fillna(0) + here
    result["status"] = xr.full_like(result.status, Status.CONVERGED).astype(int)
    result["steps"] = xr.zeros_like(result.steps).fillna(0) + ends
    return result


@pytest.mark.parametrize("name", ALONG_TRAINING)
def test_no_mean_jumps_where_a_run_ends(name, tmp_path, monkeypatch):
    drawn: list[xr.DataArray] = []
    draw = lines.draw_curves

    def noted(ax, panel: lines.Curves) -> None:
        drawn.extend(values for _, values in panel.curves if panel.along == "step")
        draw(ax, panel)

    monkeypatch.setattr(lines, "draw_curves", noted)
    result = two_ends(name)
    recipe(name).draw(result, tmp_path, "")
    assert drawn
    for values in drawn:
        assert values.step[-1] == result.step[-1]
        assert values.mean("seed").values == pytest.approx(np.full(values.step.shape, 0.5))


def test_a_diverged_run_is_not_held():
    """It has no last value: from its end on it is no part of a mean, whatever number it ended with."""
    result = xr.Dataset(
        {
            "loss_curve": (("seed", "step"), [[0.7, 0.9, np.nan, np.nan], [0.7, 0.6, 0.5, 0.4]]),
            "loss": ("seed", [1e30, 0.4]),
            "steps": ("seed", [1.0, 4.0]),
            "status": ("seed", [Status.DIVERGED, Status.STEP_CAP]),
        },
        {"step": [0, 1, 2, 4]},
    )
    curve = extended_curve(result, "loss").transpose("seed", "step").values
    assert curve[0] == pytest.approx([0.7, 0.9, np.nan, np.nan], nan_ok=True)
    assert curve[1] == pytest.approx([0.7, 0.6, 0.5, 0.4])


def test_a_curve_ends_at_the_value_of_its_own_attack():
    """What the judge finds at the end is another number than the training attack's, which the curve is of."""
    result = xr.Dataset(
        {
            "robust_accuracy_curve": (("seed", "step"), [[0.9, 0.8, np.nan], [0.9, 0.8, 0.7]]),
            "robust_accuracy_training_attack": ("seed", [0.75, 0.7]),
            "robust_accuracy": ("seed", [0.1, 0.1]),
            "steps": ("seed", [1, 2]),
        },
        {"step": [0, 1, 2]},
    )
    assert extended_curve(result, "robust_accuracy").sel(seed=0).values.tolist() == [0.9, 0.8, 0.75]
