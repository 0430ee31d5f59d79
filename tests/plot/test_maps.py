"""Phase figures: cells, curves and words are the right ones, and files repeat exactly."""

import math
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure

from benign.plot.axis import cell_edges
from benign.plot.maps import MANY_CELLS, Panel, heat_map, phase_figure, printed_curve
from benign.plot.style import save
from benign.stats import boundary
from benign.stats.intervals import number
from tests.says import holds, says

PRINTED = "samples * snr**2 = 100"


def phase_map(samples=None, snr=None, seeds=3):
    samples = np.array([2.0, 4.0, 8.0, 16.0, 32.0]) if samples is None else samples
    snr = np.geomspace(0.5, 32, 7) if snr is None else snr
    seed = np.arange(seeds)
    score = np.log(samples[:, None, None] * snr[None, :, None] ** 2 / 100) + 0.3 * (seed - 1)
    values = xr.DataArray(
        1 / (1 + np.exp(-score)),
        {"samples": samples, "snr": snr, "seed": seed},
        ("samples", "snr", "seed"),
        name="accuracy",
    )
    values.samples.attrs = {"long_name": "training samples", "units": "images", "symbol": "N"}
    values.snr.attrs = {"long_name": "signal-to-noise ratio", "units": "1", "symbol": "SNR"}
    return values


def drawn(values, **options) -> tuple[Any, Any]:
    ax = Figure().subplots()
    mesh = heat_map(ax, values, "snr", "samples", label="accuracy", **options)
    return ax, mesh


def pieces(ax, kind):
    return [artist for artist in ax.collections if type(artist) is kind]


def line(ax, *parts) -> Any:
    return next(item for item in ax.lines if all(part in str(item.get_label()) for part in parts))


def svg_text(path):
    """All words of an SVG file, without the markup and the spaces between."""
    return "".join("".join(ElementTree.parse(path).getroot().itertext()).split())


def full_figure(values=None):
    values = phase_map() if values is None else values
    found = boundary(values, 0.5)
    shown = Panel(values, "snr", "samples", "robust accuracy", printed=PRINTED, boundary=found)
    cut = Panel(values, "snr", "samples", "robust accuracy", cut=0.5, printed=PRINTED)
    return phase_figure([shown, cut], title="A phase", caption="3 seeds; PGD; reading: as printed")


def test_one_cell_for_each_pair_with_the_mean_over_seeds():
    values = phase_map()
    ax, mesh = drawn(values.transpose("seed", "snr", "samples"))
    assert mesh.get_array().shape == (5, 7)
    np.testing.assert_allclose(mesh.get_array(), values.mean("seed"))
    corners = mesh.get_coordinates()
    np.testing.assert_allclose(corners[0, :, 0], cell_edges(values.snr.values, log=True))
    np.testing.assert_allclose(corners[:, 0, 1], cell_edges(values.samples.values, log=True))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        "signal-to-noise ratio",  # a ratio has no unit to name
        "training samples (images)",
    )


def test_only_many_cells_become_a_picture_in_a_vector_file():
    side = math.isqrt(MANY_CELLS)
    few, many = (phase_map(np.arange(1.0, 1 + side), np.arange(1.0, n)) for n in (side, side + 3))
    assert [bool(drawn(values)[1].get_rasterized()) for values in (few, many)] == [False, True]


def test_rows_and_columns_are_sorted():
    values = phase_map()
    _, mesh = drawn(values.isel(samples=[3, 0, 4, 1, 2], snr=slice(None, None, -1)))
    np.testing.assert_allclose(mesh.get_array(), values.mean("seed"))


def test_the_cut_shows_two_sides():
    values = phase_map()
    ax, mesh = drawn(values, cut=0.5)
    np.testing.assert_array_equal(mesh.get_array(), values.mean("seed") >= 0.5)
    labels = [tick.get_text() for tick in ax.child_axes[0].get_yticklabels()]
    assert labels == ["< 0.5", "≥ 0.5"]


def test_limits_are_those_of_the_colours_and_values_beyond_are_announced():
    _, mesh = drawn(phase_map(), limits=(0.2, 2.0))
    assert mesh.get_clim() == (0.2, 2.0)
    assert mesh.colorbar.extend == "min"
    with pytest.raises(ValueError, match=says("`limits`", "1.0, 0.0")):
        drawn(phase_map(), limits=(1.0, 0.0))


@pytest.mark.parametrize(
    ("centres", "log", "edges"),
    [
        ([1.0, 3.0, 4.0], False, [0.0, 2.0, 3.5, 4.5]),
        ([0.1, 3.0], False, [0.0, 1.55, 4.45]),  # a positive axis does not reach below 0
        ([-1.0, 1.0], False, [-2.0, 0.0, 2.0]),
        ([1.0, 4.0, 64.0], True, [0.5, 2.0, 16.0, 256.0]),
        ([5.0], False, [4.5, 5.5]),
    ],
)
def test_edges_lie_halfway_between_centres(centres, log, edges):
    np.testing.assert_allclose(cell_edges(np.array(centres), log), edges)


def test_evenly_spaced_axes_are_linear():
    ax, _ = drawn(phase_map(np.arange(2.0, 22.0, 2.0), np.linspace(0.16, 15.6, 10)))
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")
    assert ax.get_xlim()[0] == 0


def test_missing_cells_are_hatched_and_named():
    values = phase_map()
    values[1, 2, :] = math.nan
    values[4, 6, :] = math.inf
    values[0, 0, 1] = math.nan
    ax, mesh = drawn(values)
    assert set(zip(*np.nonzero(np.ma.getmaskarray(mesh.get_array())), strict=True)) == {
        (1, 2),
        (4, 6),
    }
    (hatched,) = pieces(ax, PolyCollection)
    assert hatched.get_hatch()
    x, y = cell_edges(values.snr.values, log=True), cell_edges(values.samples.values, log=True)
    first = hatched.get_paths()[0].get_extents()
    np.testing.assert_allclose([first.x0, first.x1, first.y0, first.y1], [x[2], x[3], y[1], y[2]])
    assert len(hatched.get_paths()) == 2
    dots = line(ax, "seeds missing")
    np.testing.assert_allclose(dots.get_xydata(), [[0.5, 2.0]])
    assert set(ax.get_legend_handles_labels()[1]) == {"no value", "some seeds missing"}


def test_a_map_without_any_value_is_still_drawn(tmp_path):
    values = phase_map() * math.nan
    figure = phase_figure([Panel(values, "snr", "samples", "accuracy")], title="t", caption="c")
    assert all(path.exists() for path in save(figure, tmp_path / "empty"))


@pytest.mark.parametrize(("x", "y"), [("snr", "samples"), ("samples", "snr")])
def test_a_printed_law_lies_on_its_curve_inside_the_axes(x, y):
    values = phase_map()
    ax = Figure().subplots()
    heat_map(ax, values, x, y, label="accuracy")
    before = ax.get_xlim(), ax.get_ylim()
    printed_curve(ax, PRINTED, values, x, y)
    assert (ax.get_xlim(), ax.get_ylim()) == before
    points = line(ax, "paper").get_xydata()
    points = points[~np.isnan(points).any(1)]
    assert len(points) > 100
    snr, samples = points.T if x == "snr" else points.T[::-1]
    np.testing.assert_allclose(samples * snr**2, 100)
    assert (snr.min() >= 0.35) & (snr.max() <= 46)


def test_a_printed_law_outside_the_map_says_so():
    values = phase_map()
    ax, _ = drawn(values)
    printed_curve(ax, "samples * snr**2 = 1e9", values, "snr", "samples")
    assert holds(str(line(ax, "paper").get_label()), "= 1e+09", "map")


def test_a_boundary_shows_points_their_range_and_the_fit():
    values = phase_map()
    found = boundary(values, 0.5)
    figure = phase_figure(
        [Panel(values, "snr", "samples", "accuracy", boundary=found)], title="t", caption="c"
    )
    ax = figure.axes[0]
    points = line(ax, "0.5", "of 5 values of N")
    assert points.get_label() == "crosses 0.5 at 5 of 5 values of N; bars: range over seeds"
    np.testing.assert_allclose(points.get_xdata(), found.critical)
    np.testing.assert_allclose(points.get_ydata(), values.samples)
    (bars,) = pieces(ax, LineCollection)
    ends = np.array(bars.get_segments())
    np.testing.assert_allclose(ends[:, 0, 0], found.critical_per_seed.min("seed"))
    np.testing.assert_allclose(ends[:, 1, 0], found.critical_per_seed.max("seed"))
    fit = line(ax, "fit")
    snr, samples = fit.get_xydata().T
    assert found.fit is not None
    np.testing.assert_allclose(snr, found.fit.curve(samples))
    assert (samples.min(), samples.max()) == pytest.approx((2, 32))


def test_a_boundary_that_is_nowhere_found_draws_no_points(tmp_path):
    values = phase_map()
    found = boundary(values, 2.0)
    panel = Panel(values, "samples", "snr", "accuracy", boundary=found)
    figure = phase_figure([panel], title="t", caption="c")
    assert line(figure.axes[0], "2 ", "0 of 5 values of N").get_xdata().size == 0
    save(figure, tmp_path / "nowhere")


def test_the_files_carry_the_words(tmp_path):
    values = phase_map()
    values[1, 2, :] = math.nan
    pdf, svg, png = save(full_figure(values), tmp_path / "made" / "fig1.v2")
    assert [path.name for path in (pdf, svg, png)] == ["fig1.v2.pdf", "fig1.v2.svg", "fig1.v2.png"]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert sorted(png.parent.iterdir()) == [pdf, png, svg]
    text, fit = svg_text(svg), boundary(values, 0.5).fit
    assert fit is not None
    for words in [
        "A phase",
        "training samples (images)",
        "signal-to-noise ratio",
        "robust accuracy",
        "paper: N · SNR² = 100",
        f"fit: N · SNRᵖ = {number(fit.constant)}, p = {number(fit.exponent)} [",
        "5 of 5 values of N",
        "range over seeds",
        "no value",
        "3 seeds; PGD; reading: as printed",
        "(a)",
        "(b)",
    ]:
        assert "".join(words.split()) in text, words


def test_axes_without_attributes_are_named_by_their_dimension(tmp_path):
    values = phase_map()
    values.samples.attrs, values.snr.attrs = {}, {}
    figure = phase_figure(
        [Panel(values, "snr", "samples", "accuracy", printed=PRINTED)], title="t", caption="c"
    )
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("snr", "samples")
    assert line(ax, "paper").get_label() == "paper: samples · snr² = 100"


def test_two_renders_are_identical(tmp_path):
    first, second = save(full_figure(), tmp_path / "a"), save(full_figure(), tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_failed_save_leaves_the_old_file_alone(tmp_path, monkeypatch):
    pdf, svg, png = save(Figure(), tmp_path / "a")
    old = png.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(Figure(figsize=(1, 1)), tmp_path / "a")
    assert png.read_bytes() == old
    assert sorted(tmp_path.iterdir()) == [pdf, png, svg]


def test_legends_and_captions_cover_neither_cells_nor_each_other():
    long = "a long caption that has to be wrapped because it says a great deal; " * 6
    values = phase_map()
    found = boundary(values, 0.5)
    panel = Panel(values, "snr", "samples", "accuracy", printed=PRINTED, boundary=found)
    figure: Any = phase_figure([panel] * 2, title="t", caption=long)
    figure.draw_without_rendering()
    caption = next(text for text in figure.texts if "great deal" in text.get_text())
    caption = caption.get_window_extent()
    assert caption.x1 <= figure.bbox.x1
    for ax in figure.axes:
        legend = ax.get_legend().get_window_extent()
        assert legend.y1 < ax.xaxis.label.get_window_extent().y0
        assert caption.y1 < legend.y0
        assert legend.x1 <= figure.bbox.x1
        assert not any(isinstance(item, QuadMesh) for item in ax.get_legend().legend_handles)


def test_wrong_panels_are_refused():
    values = phase_map()
    with pytest.raises(ValueError, match=says("`panels`", "1", "8", "0")):
        phase_figure([], title="t", caption="c")
    with pytest.raises(ValueError, match=says("axis 'radius'", "samples", "snr")):
        heat_map(Figure().subplots(), values, "radius", "samples", label="x")
    with pytest.raises(ValueError, match=says("average", "width")):
        drawn(values.expand_dims("width"))
    with pytest.raises(ValueError, match=says("'snr'", "numbers", "'a'")):
        drawn(values.assign_coords(snr=list("abcdefg")))
    ax, _ = drawn(values)
    with pytest.raises(ValueError, match=says("`law`", "radius", "'snr'", "'samples'")):
        printed_curve(ax, "samples * radius**2 = 3", values, "snr", "samples")
    with pytest.raises(ValueError, match=says("`law`", "numbers", "'samples * snr**p'")):
        printed_curve(ax, "samples * snr**p", values, "snr", "samples")


def test_a_law_that_the_points_do_not_determine_is_not_drawn():
    """Crossings that go up and down: the slope may be 0, so its curve would say something untrue."""
    snr, samples = np.geomspace(0.1, 10, 40), np.array([2.0, 4.0, 8.0, 16.0])
    places = np.array([0.5, 3.0, 0.4, 2.5])
    values = xr.DataArray(
        (snr[None, :, None] > places[:, None, None]).astype(float),
        {"samples": samples, "snr": snr, "seed": [0]},
        ("samples", "snr", "seed"),
    )
    found = boundary(values, 0.5)
    assert found.fit is not None
    assert not found.fit.bounded
    figure = phase_figure(
        [Panel(values, "samples", "snr", "accuracy", boundary=found)], title="t", caption="c"
    )
    labels = [str(each.get_label()) for each in figure.axes[0].lines]
    assert any(holds(label, "law", "slope", "0") for label in labels)
    assert not any(label.startswith("fit") for label in labels)


def test_cells_that_a_smaller_step_moves_are_crossed_and_counted():
    values = phase_map()
    moved = xr.full_like(values.isel(seed=0, drop=True), np.nan)
    moved[1, 2], moved[3, 4] = 1.0, 0.0
    panel = Panel(values, "snr", "samples", "accuracy", moved=moved)
    ax = phase_figure([panel], title="t", caption="c").axes[0]
    crosses = line(ax, "step size")
    assert "1 of 2 cells" in crosses.get_label()
    assert crosses.get_xydata().tolist() == [[float(values.snr[2]), float(values.samples[1])]]


def test_maps_stand_in_rows_and_a_prediction_has_its_own_line():
    values = phase_map()
    panel = Panel(
        values,
        "snr",
        "samples",
        "accuracy",
        boundary=boundary(values, 0.5),
        predicted=lambda rows: 10 / np.sqrt(rows),
        predicted_by="linear theory",
    )
    figure = phase_figure([panel] * 3, title="t", caption="c", columns=2)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["(a)", "(b)", "(c)"]
    x, y = line(figure.axes[0], "linear theory").get_data()
    inside = np.isfinite(x)
    np.testing.assert_allclose(x[inside] ** 2 * y[inside], 100)
