"""Curves along training: what is drawn is the mean over seeds and its band, which the caption names."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.text import Text

from benign.plot.bars import Bars, bars_figure
from benign.plot.lines import COLOURS, Curves, curves_figure
from benign.plot.style import save
from benign.stats.intervals import mean_interval
from tests.says import says


def values(seeds: int = 4) -> xr.DataArray:
    steps = [0, 1, 2, 4, 8]
    data = np.arange(seeds)[:, None] + np.array(steps)[None, :] + 1.0
    return xr.DataArray(data, {"seed": range(seeds), "step": steps})


def edges(figure) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper edge of the first band at each x."""
    points = np.asarray(figure.axes[0].collections[0].get_paths()[0].vertices, dtype=float)
    at = np.unique(points[:, 0])
    low, high = (
        np.array([end(points[points[:, 0] == x, 1]) for x in at]) for end in (np.min, np.max)
    )
    return low, high


def test_lines_are_means_and_bands_are_their_95_percent_intervals():
    curve = values(5) ** 1.5
    panel = Curves([("one", curve), ("two", 2 * curve)], "loss", log=True, level=0.5)
    figure = curves_figure([[panel]], title="a title", caption="a caption")
    ax = figure.axes[0]
    first, second, level = ax.lines
    np.testing.assert_allclose(np.asarray(first.get_ydata()), curve.mean("seed"))
    np.testing.assert_allclose(np.asarray(second.get_ydata()), 2 * curve.mean("seed"))
    assert np.asarray(level.get_ydata()).tolist() == [0.5, 0.5]
    assert to_rgba(first.get_color()) == to_rgba(COLOURS[0])
    low, high = edges(figure)
    intervals = [mean_interval(seeds) for seeds in curve.values.T]
    np.testing.assert_allclose(low, [each.low for each in intervals])
    np.testing.assert_allclose(high, [each.high for each in intervals])
    assert ax.get_yscale() == "log"


def test_bands_of_few_seeds_are_their_range_and_the_caption_names_each():
    def drawn(seeds: int) -> tuple:
        panel = Curves([("one", values(seeds))], "loss")
        figure = curves_figure([[panel]], title="", caption="A caption.")
        return figure, " ".join(text.get_text() for text in figure.findobj(Text)).replace("\n", " ")

    figure, text = drawn(3)
    low, high = edges(figure)
    np.testing.assert_allclose(low, values(3).min("seed"))
    np.testing.assert_allclose(high, values(3).max("seed"))
    assert "A caption. Bands: range over 3 seeds." in text
    assert "Bands: 95 % intervals of the mean over seeds." in drawn(4)[1]
    assert "Bands" not in drawn(1)[1]


def test_whiskers_of_bars_are_the_same_intervals():
    runs = np.array([[0.2, 0.5, 0.4, 0.9], [0.1, 0.1, 0.3, np.nan]])
    figure = bars_figure([Bars(["a", "b"], {"ours": runs})], "share", title="", caption="")
    [whiskers] = figure.axes[0].collections
    first, second = (np.asarray(p.vertices)[:, 1] for p in whiskers.get_paths())
    interval = mean_interval(runs[0])
    np.testing.assert_allclose(sorted(first), [interval.low, interval.high])
    np.testing.assert_allclose(second, [1 / 6, 1 / 6])  # three of four seeds: no band
    text = " ".join(text.get_text() for text in figure.findobj(Text)).replace("\n", " ")
    assert "Whiskers: 95 % intervals of the mean over seeds, where at least 4 have a value." in text


def test_one_seed_has_no_band_and_an_ended_run_counts_no_more():
    alone = curves_figure([[Curves([("one", values(1))], "loss")]], title="", caption="")
    assert not alone.axes[0].collections
    ended = values()
    ended[0, 3:] = np.nan
    figure = curves_figure([[Curves([("one", ended)], "loss")]], title="", caption="")
    drawn = np.asarray(figure.axes[0].lines[0].get_ydata())
    np.testing.assert_allclose(drawn[3:], ended[1:, 3:].mean("seed"))


def test_many_curves_are_all_drawn_in_different_styles():
    panel = Curves([(f"curve {number}", number * values()) for number in range(20)], "loss")
    lines = curves_figure([[panel]], title="", caption="").axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 20


def test_a_panel_without_a_value_says_so_and_zeros_have_no_logarithm(tmp_path):
    none, zeros = np.nan * values(), 0 * values()
    rows = [[Curves([("one", each)], "loss", log=True) for each in (none, zeros)]]
    figure = curves_figure(rows, title="", caption="")
    drawn = save(figure, tmp_path / "picture.svg")[0].read_text(encoding="utf-8")
    assert drawn.count("no run has a value") == 1
    assert [ax.get_yscale() for ax in figure.axes] == ["linear", "linear"]


def test_the_picture_says_what_it_shows(tmp_path):
    panel = Curves([("r = 4", values())], "robust test error")
    figure = curves_figure([[panel, panel]], title="a title", caption="so many seeds")
    [svg] = save(figure, tmp_path / "picture.svg")
    drawn = svg.read_text(encoding="utf-8")
    for words in ("a title", "so many seeds", "r = 4", "robust test error", "descent steps", "(b)"):
        assert words in drawn
    with pytest.raises(ValueError, match=says("`rows`", "one row")):
        curves_figure([], title="", caption="")


def test_labels_of_close_marks_do_not_overlap():
    marks = [(1.0, "one"), (1.05, "near it"), (100.0, "far")]
    along = (
        values()
        .rename(step="race")
        .assign_coords(race=np.geomspace(0.5, 200, values().sizes["step"]))
    )
    panel = Curves([("one", along)], "loss", "race", "N SNR^2", marks)
    words = {
        text.get_text(): text
        for text in curves_figure([[panel]], title="", caption="").axes[0].texts
    }
    assert [words[name].get_verticalalignment() for name in ("one", "near it", "far")] == [
        "top",
        "bottom",
        "top",
    ]


def names(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def test_a_legend_lists_only_new_entries():
    one, two = ("one", values(2)), ("two", values(2))
    panels = [
        Curves([one, two], "loss"),
        Curves([one, two], "accuracy", level=0.5, level_name="chance"),
        Curves([two], "error"),  # whose colour is now that of the first
        Curves([one, two], "norm"),
    ]
    figure = curves_figure([panels], title="", caption="")
    assert [names(ax) for ax in figure.axes] == [["one", "two"], ["chance"], ["two"], []]
