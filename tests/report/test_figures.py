"""Figures for browsers show the numbers they are given, and what lies over them where it belongs."""

import json
import re
from typing import Any

import numpy as np
import pytest
import xarray as xr

from benign.plot.maps import Panel
from benign.report import figures
from benign.report.cells import ending_text, escaped, means
from benign.report.figures import LABELS
from benign.stats.boundary import boundary
from benign.stats.intervals import mean_interval
from tests.says import holds

ROWS = np.array([2.0, 4.0, 8.0, 16.0])
COLUMNS = np.geomspace(0.1, 10, 9)


def accuracy(seeds: int = 3, constant: float = 4.0) -> xr.DataArray:
    """Rises through 0.75 at samples * snr**2 = constant, up to noise."""
    noise = np.random.default_rng(0).normal(0, 0.01, (4, 9, seeds))
    size = ROWS[:, None, None] * COLUMNS[None, :, None] ** 2
    values = 0.5 + 0.5 / (1 + constant / size) + noise
    coords = {"samples": ROWS, "snr": COLUMNS, "seed": range(seeds)}
    return xr.DataArray(values, coords, ("samples", "snr", "seed"), "accuracy")


def panel(**more: Any) -> Panel:
    return Panel(accuracy(), "samples", "snr", "test accuracy", **more)


def named(figure: figures.PlotlyFigure, word: str) -> dict[str, Any]:
    (found,) = [trace for trace in figure["data"] if word in trace.get("name", "")]
    return found


def test_a_cell_shows_its_mean_its_interval_and_how_its_runs_ended():
    values = accuracy()
    ended = np.full((9, 4), "3 seeds: converged", dtype=object)
    cells = figures.heat_map(panel(limits=(0.0, 1.0)), ended)["data"][0]
    estimate = mean_interval(values[1, 5])
    assert cells["z"][5][1] == pytest.approx(estimate.value, rel=1e-4)
    assert cells["text"][5][1] == (
        f"samples 4, snr {COLUMNS[5]:.4g}<br>test accuracy {estimate}<br>3 seeds: converged"
    )
    assert (len(cells["x"]), len(cells["y"])) == (5, 10)  # edges of cells
    assert (cells["zmin"], cells["zmax"]) == (0.0, 1.0)


def test_means_leave_out_what_has_no_value():
    values = accuracy(seeds=4)
    values[3, 8] = [0.9, 1.0, 1.0, 1.0]
    assert means(values, "samples", "snr", within=(0.0, 1.0)).text((3, 8)) == "0.975 [0.895, 1.00]"
    values[0, 0, 1:] = np.nan
    values[0, 1] = np.nan
    values[0, 2, 0] = np.inf
    found = means(values, "samples", "snr")
    assert found.text((0, 0)) == f"{values[0, 0, 0].item():.3f}"  # one seed has no interval
    assert found.text((0, 1)) == "no value"
    assert found.text((0, 2)) == str(mean_interval(values[0, 2, 1:]))
    assert found.seeds[0, :4].tolist() == [1, 0, 3, 4]


def test_empty_cells_are_gaps_that_json_knows():
    values = accuracy()
    values[2, 3] = np.nan
    figure = figures.heat_map(Panel(values, "samples", "snr", "accuracy"))
    assert figure["data"][0]["z"][3][2] is None
    assert "no value" in figure["data"][0]["text"][3][2]
    json.dumps(figure, allow_nan=False)


def test_the_fit_lies_in_its_band_and_the_printed_law_where_it_says():
    edge = boundary(accuracy(), 0.75)
    figure = figures.heat_map(panel(boundary=edge, printed="samples * snr**2 = 4"))
    law = named(figure, "paper: samples · snr² = 4")
    x, y = (np.array(law[axis], dtype=float) for axis in ("x", "y"))
    inside = np.isfinite(y)
    assert inside.any()
    np.testing.assert_allclose(x[inside] * y[inside] ** 2, 4, rtol=1e-3)
    fit, band = named(figure, "fit:"), named(figure, "95 % band")
    assert edge.fit is not None
    low, high = edge.fit.band(ROWS, 0.95)
    assert (low < edge.fit.curve(ROWS)).all()
    assert (edge.fit.curve(ROWS) < high).all()
    assert min(band["y"]) < min(filter(None, fit["y"])) < max(filter(None, fit["y"])) < max(band["y"])  # fmt: skip
    points = named(figure, "0.75 at 4 of 4 values of samples")
    np.testing.assert_allclose(np.array(points["x"]) * np.array(points["y"]) ** 2, 4, rtol=0.2)
    ranges = figure["data"][figure["data"].index(points) - 1]
    np.testing.assert_allclose(ranges["x"][::3], ROWS)
    for start, end in ((0, "min"), (1, "max")):
        np.testing.assert_allclose(
            ranges["y"][start::3], getattr(edge.critical_per_seed, end)("seed"), rtol=1e-4
        )
    assert ranges["y"][2::3] == [None] * 4  # each row for itself


def test_what_misses_the_map_says_so():
    figure = figures.heat_map(panel(printed="samples * snr**2 = 1e9"))
    assert set(named(figure, "outside")["y"]) == {None}


def test_a_prediction_and_cells_that_move_are_drawn():
    edge = boundary(accuracy(), 0.75)
    moved = accuracy().mean("seed") * 0
    moved[1, 2] = 1
    drawn = panel(boundary=edge, predicted=lambda rows: 2 / rows**0.5, moved=moved)
    figure = figures.heat_map(drawn)
    assert named(figure, "predicted")["line"]["dash"] == "dot"
    cross = named(figure, "1 of 36 cells")
    assert (cross["x"], cross["y"]) == ([4.0], [pytest.approx(COLUMNS[2], rel=1e-4)])


def test_a_cut_shows_sides_and_keeps_the_numbers():
    cells = figures.heat_map(panel(cut=0.75))["data"][0]
    assert {value for row in cells["z"] for value in row} == {0.0, 1.0}
    assert cells["colorbar"]["ticktext"] == ["< 0.75", "≥ 0.75"]
    assert "0.99" in cells["text"][-1][-1]


def test_colours_are_logarithmic_where_values_differ_by_orders():
    values = accuracy() * 0 + 10.0 ** np.arange(9)[None, :, None]
    cells = figures.heat_map(Panel(values, "samples", "snr", "loss"))["data"][0]
    assert (cells["zmin"], cells["zmax"]) == (0.0, 8.0)
    assert "1e+08" in cells["colorbar"]["ticktext"]


def test_a_cell_that_will_never_have_a_value_is_crossed():
    values = accuracy()
    values[1, 5], values[2, 6] = np.nan, np.nan
    ended = np.full((9, 4), "3 seeds: converged", dtype=object)
    ended[5, 1], ended[6, 2] = "3 seeds: diverged", "3 seeds: not run yet"
    drawn = figures.heat_map(Panel(values, "samples", "snr", "accuracy"), ended)
    crosses = named(drawn, "diverged or failed")
    assert (crosses["x"], crosses["y"]) == ([4.0], [pytest.approx(COLUMNS[5], rel=1e-4)])


def test_axes_are_logarithmic_as_coordinates_are_spaced():
    layout = figures.heat_map(panel())["layout"]
    assert layout["xaxis"]["type"] == layout["yaxis"]["type"] == "log"
    assert layout["yaxis"]["ticktext"] == [f"{each:.3g}" for each in COLUMNS]  # all that were run
    many = accuracy().interp(snr=np.geomspace(0.1, 10, 20))
    layout = figures.heat_map(Panel(many, "samples", "snr", "accuracy"))["layout"]
    assert layout["yaxis"]["ticktext"] == ["0.1", "0.2", "0.5", "1", "2", "5", "10"]


def test_a_very_wide_axis_has_a_few_ticks():
    ticks = figures.log_ticks(1e-1, 1e38)
    assert len(ticks) <= 10
    assert np.allclose(np.diff(np.log10(ticks)), np.log10(ticks[1] / ticks[0]))


def test_lines_have_bands_within_what_is_possible():
    values = accuracy().isel(samples=3, drop=True)
    low, high, points = figures.lines(values, "snr", "accuracy")["data"]
    assert high["fill"] == "tonexty"
    assert max(high["y"]) <= 1.0
    assert all(a <= b <= c for a, b, c in zip(low["y"], points["y"], high["y"], strict=True))
    assert points["text"][0].startswith("snr 0.1<br>accuracy 0.5")


def test_labels_are_counted_and_shown_letter_by_letter():
    attrs = {LABELS: ["<b>one</b>", "two", "three", "four"]}
    values = accuracy().assign_coords(samples=("samples", np.arange(4), attrs))
    figure = figures.heat_map(Panel(values, "samples", "snr", "a < b & c"))
    assert figure["layout"]["xaxis"]["ticktext"][0] == "&lt;b&gt;one&lt;/b&gt;"
    text = figure["data"][0]["text"][0][0]
    assert text.startswith("samples &lt;b&gt;one&lt;/b&gt;, snr")
    assert "a &lt; b &amp; c" in text
    line = figures.lines(values.isel(snr=0, drop=True), "samples", "accuracy")
    assert line["data"][0]["mode"] == "markers"
    assert line["data"][0]["error_y"]["array"][0] > 0


def test_training_starts_at_step_0_of_a_logarithmic_axis():
    requests = []

    def numbers(name: str, kind: str) -> list[float]:
        requests.append((name, kind))
        return [3.0, 2.0, 1.0]

    named = [("train_loss_curve", "train loss"), ("test_loss_curve", "test loss")]
    figure = figures.training(named, [0, 1, 100], numbers, label="loss", log=True, band=True)
    assert figure["layout"]["xaxis"]["ticktext"][:3] == ["0", "1", "10"]
    assert figure["data"][0]["x"] == [0.5, 1, 100]
    kinds = [kind for name, kind in requests if name == "train_loss_curve"]
    assert kinds == ["low", "high", "mean"]
    assert len({trace["line"].get("color") for trace in figure["data"]}) == 3  # two and no colour


def test_a_page_gives_figures_its_colours_and_changes_nothing_else():
    figure = figures.heat_map(panel())
    before = json.dumps(figure)
    inked = figures.coloured(figure, "#eeeeee", "#111111")
    assert inked["layout"]["font"]["color"] == "#eeeeee"
    assert inked["layout"]["hoverlabel"]["bgcolor"] == "#111111"
    assert json.dumps(figure) == before


def test_endings_are_written_in_words():
    assert ending_text([1, 1]) == "2 seeds: converged"
    assert holds(ending_text([0]), "1 seed: ", "not run")
    parts = re.split("[:,] ", ending_text([3, 1, 1, 2]))
    expected = ["4 seeds", "2 converged", "1 .*step cap", "1 diverged"]
    for part, words in zip(parts, expected, strict=True):
        assert re.fullmatch(words, part)


def test_markup_is_escaped():
    assert escaped("</script><b>") == "&lt;/script&gt;&lt;b&gt;"
    assert escaped(0.1 + 0.2) == "0.3"
