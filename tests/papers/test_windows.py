"""Figures 1 and 3 of Wang: the paper's grid, the predictor's curves, what is told of a known boundary."""

import json
import re
from functools import cache

import numpy as np
import pytest
import torch
import xarray as xr

from benign.experiment import Experiment
from benign.papers.registry import recipe
from benign.papers.wang import windows
from benign.papers.wang.bounds import averaged_alignment, critical_dim, linear_rule_errors
from benign.papers.wang.exponents import LEVEL
from benign.papers.wang.setting import FLIP, RHO
from benign.papers.wang.windows import FIG1, FIG3
from benign.sweep.dataset import assemble
from benign.training.descent import Status
from tests.says import holds

ABSOLUTE = FIG1.reading({"radius": "absolute"})


def blank(experiment: Experiment) -> xr.Dataset:
    """A result of an experiment in which every run ended, still without numbers."""
    result = assemble(experiment, [])
    result["status"][:] = Status.STEP_CAP
    return result


@cache
def as_predicted(name: str, scale: str = "paper") -> xr.Dataset:
    """Accuracies of the averaged linear predictor at every cell."""
    result = blank(recipe(name).experiment(scale))
    given = json.loads(result.attrs["experiment"])
    signal, dim = (result.get(name, xr.DataArray(5.0)) for name in ("signal", "dim"))
    radius = result["attack.ball.radius"] if "rho" in result.dims else xr.DataArray(RHO)
    cells = xr.broadcast(signal, dim, radius, result.test_accuracy)
    r, d, rho = (torch.as_tensor(each.values.copy()) for each in cells[:3])
    alpha = rho * r if given["attack"]["ball"].get("relative_to") else rho
    s = averaged_alignment(r, d, given["data"]["samples"], FLIP)
    noisy, clean = linear_rule_errors(s, alpha, FLIP), linear_rule_errors(s, alpha)
    found = {
        "test_noisy_error": noisy.clean,
        "robust_noisy_error": noisy.robust,
        "test_accuracy": 1 - clean.clean,
        "robust_accuracy": 1 - clean.robust,
        "train_robust_accuracy": torch.ones_like(r),
    }
    template = cells[3]
    return result.assign({name: template.copy(data=each) for name, each in found.items()})


def test_the_paper_scale_is_the_papers_grid():
    first, third = FIG1.experiment("paper"), FIG3.experiment("paper")
    assert sum(len(unit.runs) for unit in first.units()) == 1800
    assert sum(len(unit.runs) for unit in third.units()) == 1080
    for each in (first, third):
        written = each.as_dict()
        assert (written["data"]["samples"], written["network"]["width"]) == (100, 1000)
        assert (written["attack"]["steps"], written["attack"]["step"]) == (20, 0.2)
        assert each.training.most_steps() == 1000
        assert (each.evaluation.samples, each.seeds) == (2000, 10)


@pytest.mark.parametrize("kind", ["clean", "robust"])
@pytest.mark.parametrize("reading", [None, ABSOLUTE])
def test_the_curve_of_figure_1_is_where_the_predictor_has_the_level(kind, reading):
    result = blank(FIG1.experiment("paper", reading))
    dims = np.array([1000.0, 7000.0, 18000.0])
    r = torch.as_tensor(windows.predicted_signal(result, kind)(dims))
    alpha = {"clean": 0.0, "robust": RHO if reading else RHO * r}[kind]
    s = averaged_alignment(r, torch.as_tensor(dims), 100, FLIP)
    np.testing.assert_allclose(s - alpha, 1.0, rtol=1e-4)


def test_the_curve_of_figure_3_is_where_the_predictor_has_the_level():
    result = blank(FIG3.experiment("paper"))
    dims = np.array([1000.0, 6000.0])
    rho = windows.predicted_radius(result)(dims)
    np.testing.assert_allclose(
        critical_dim(5.0, 100, torch.as_tensor(5 * rho), FLIP), dims, rtol=1e-10
    )
    literal = windows.predicted_radius(blank(FIG3.experiment("paper", ABSOLUTE)))(dims)
    np.testing.assert_allclose(literal, 5 * rho, rtol=1e-12)


def test_a_map_of_the_predictor_has_its_boundary_and_no_power_of_2():
    result = as_predicted("wang/fig1")
    for kind, edge in windows.edges(result).items():
        assert edge.critical.notnull().all(), "every dimension crosses the level"
        expected = windows.predicted_signal(result, kind)(edge.critical.dim.values)
        np.testing.assert_allclose(edge.critical, expected, rtol=0.03)  # signals are 1 apart
        power = windows.growth(edge)
        assert power is not None
        assert 2.5 < power.low < power.value < power.high < 5.5
    told = FIG1.summarise(result)
    assert re.search(r"signal 1, 2\b\D+0\.8413", told)
    assert re.search(r"printed: 2\D+predictor\D+3\.", told)
    assert holds(told, "signal 5, 6, 7, 8, 9, 10:", "1800 of 1800 runs", "100 %")


def test_runs_that_do_not_fit_every_attacked_point_are_not_counted():
    result = as_predicted("wang/fig1", "smoke")
    short = result.train_robust_accuracy.copy()
    short[0, 0] = 0.99
    assert "5 of 6 runs" in FIG1.summarise(result.assign(train_robust_accuracy=short))


def test_the_printed_law_has_the_printed_power_and_a_constant_of_these_runs(tmp_path):
    result = as_predicted("wang/fig1")
    _, svg, _ = FIG1.draw(result, tmp_path, "a caption")
    drawn = svg.read_text(encoding="utf-8")
    for kind, power in (("clean", "⁻⁴"), ("robust", "⁻²")):
        found = windows.edges(result)[kind].constant_for(-windows.EXPONENTS[kind]).value
        assert f"d · |mu|{power} = {found:.4g}" in drawn
    assert "flipped labels" in drawn
    assert f"≥ {LEVEL:g}" in drawn


def test_figure_3_has_radii_for_an_axis():
    result = as_predicted("wang/fig3")
    shown = windows.by_radius(result)
    assert shown.robust_accuracy.dims == ("dim", "radius", "seed")
    assert shown.radius.values.tolist() == [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45]
    edge = windows.edge_3(shown)
    rows = edge.critical.dropna("dim")
    np.testing.assert_allclose(rows, windows.predicted_radius(result)(rows.dim.values), rtol=0.03)
    told = FIG3.summarise(result)
    assert "8 of 12 dim rows" in told
    assert re.search(r"rho\*.* d .*-0\.5", told)
