"""Lines of a result: bands, a line for each value of a second axis, and attention along training."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PolyCollection

import benign as bo
from benign.stats.intervals import mean_interval
from tests.plot.crossing import crossing
from tests.says import holds, says
from tests.tiny import tiny


def captions(figure) -> str:
    """All words below and above the axes, their lines put together."""
    return " ".join(text.get_text().replace("\n", " ") for text in figure.texts)


def titles(figure) -> list[str]:
    return [text.get_text() for text in figure.texts if text is figure._suptitle]


def bands(ax) -> list[np.ndarray]:
    shaded = [each for each in ax.collections if isinstance(each, PolyCollection)]
    return [np.asarray(each.get_paths()[0].vertices, dtype=float) for each in shaded]


def test_a_second_axis_gives_a_line_with_its_band_for_each_value():
    result = crossing(seeds=4)
    figure = bo.plot.curves(result, by="samples")
    ax = figure.axes[0]
    assert [line.get_label() for line in ax.lines] == ["N = 2", "N = 4", "N = 8", "N = 16"]
    assert len({line.get_linestyle() for line in ax.lines}) == 4, "distinguishable in grey too"
    for line, band, (_, row) in zip(
        ax.lines, bands(ax), result.test_accuracy.groupby("samples", squeeze=False), strict=True
    ):
        np.testing.assert_allclose(np.asarray(line.get_ydata()), row.mean("seed").squeeze())
        ends = np.array([mean_interval(seeds)[1:] for seeds in row.values.reshape(-1, 4)])
        assert band[:, 1].min() == pytest.approx(ends.clip(0, 1).min())
        assert band[:, 1].max() == pytest.approx(ends.clip(0, 1).max())


def test_several_variables_by_an_axis_are_named_by_both():
    result = crossing().assign(train_accuracy=crossing().test_accuracy).sel(samples=[2.0, 4.0])
    ax = bo.plot.curves(result, ["test_accuracy", "train_accuracy"], by="samples").axes[0]
    assert ax.lines[3].get_label() == "train accuracy, N = 4"
    with pytest.raises(ValueError, match=says("`by`", "samples", "snr", "'dim'")):
        bo.plot.curves(result, by="dim")


def test_one_seed_that_is_left_has_no_band():
    """Its interval is unbounded: it would cover everything."""
    result = crossing(seeds=2).isel(samples=0)
    result.test_accuracy[10:, 1] = np.nan
    [band] = bands(bo.plot.curves(result).axes[0])
    assert band[:, 0].max() == pytest.approx(float(result.snr[9]))


def test_an_interval_ends_where_fewer_than_four_seeds_are_left(tmp_path):
    result = crossing(seeds=5).isel(samples=0)
    interval = "95 %", "mean", "seeds"
    whole = captions(bo.plot.curves(result))
    assert holds(whole, *interval)
    assert "at least" not in whole
    result.test_accuracy[10:, 3:] = np.nan
    figure = bo.plot.curves(result)
    [band] = bands(figure.axes[0])
    assert band[:, 0].max() == pytest.approx(float(result.snr[9]))
    assert holds(captions(figure), *interval, "at least 4 ")


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("log", [False, True])
def test_the_band_of_few_seeds_is_their_range(seeds: int, log: bool):
    """An interval of two is 12.7 times as wide as they lie apart: it would cover everything."""
    result = crossing(seeds=seeds).isel(samples=0)
    figure = bo.plot.curves(result, log=log)
    [band] = bands(figure.axes[0])
    accuracy = result.test_accuracy
    ends = {*accuracy.min("seed").values, *accuracy.max("seed").values}
    assert {float(f"{end:.9g}") for end in band[:, 1]} == {float(f"{end:.9g}") for end in ends}
    assert holds(captions(figure), "range", f"{seeds} seeds")


def test_on_a_logarithmic_axis_mean_and_interval_are_those_of_logarithms():
    """The arithmetic interval of these seeds reaches below 0: its band would fall to the bottom."""
    result = crossing(seeds=4).isel(samples=0, drop=True)
    result.test_accuracy[:] = [0.001, 0.01, 0.1, 1.0]
    assert mean_interval(result.test_accuracy[0])[1] < 0
    figure = bo.plot.curves(result, log=True)
    middle, low, high = np.exp(mean_interval(np.log([0.001, 0.01, 0.1, 1.0])))
    line = np.asarray(figure.axes[0].lines[0].get_ydata())
    np.testing.assert_allclose(line, 10**-1.5)
    assert middle == pytest.approx(10**-1.5)
    [band] = bands(figure.axes[0])
    assert band[:, 1].min() == pytest.approx(low)
    assert band[:, 1].max() == pytest.approx(min(high, 1.0)), "no accuracy is above 1"
    assert holds(captions(figure), "geometric means", "95 %", "seeds")


def test_values_without_a_logarithm_are_left_out_with_a_note():
    result = crossing(seeds=2).isel(samples=0)
    result.test_accuracy[3, 1] = 0.0
    figure = bo.plot.curves(result, log=True)
    missing = np.isnan(np.asarray(figure.axes[0].lines[0].get_ydata()))
    assert np.nonzero(missing)[0].tolist() == [3]
    assert holds(captions(figure), "line", "seed", "0", "logarithm")
    assert "logarithm" not in captions(bo.plot.curves(result))
    result.test_accuracy[:] = 0.0
    with pytest.raises(ValueError, match=says("`log`", "False", "test_accuracy", "0")):
        bo.plot.curves(result, log=True)


def test_curves_have_a_title_unless_it_is_left_out(trained: xr.Dataset):
    over = bo.plot.curves(crossing().isel(samples=0), ["test_accuracy", "test_accuracy"])
    assert [holds(each, "Test accuracy, test accuracy", "SNR") for each in titles(over)] == [True]
    along = bo.plot.curves(trained, "train_loss_curve", by="snr")
    assert [holds(each, "Train loss") for each in titles(along)] == [True]
    assert titles(bo.plot.curves(crossing().isel(samples=0), title="")) == []


def test_a_legend_of_curves_is_below_them_and_inside_the_figure():
    result = crossing(samples=np.arange(2.0, 14.0))
    for width in (None, "column", "page"):
        figure = bo.plot.curves(result, by="samples", width=width)
        figure.draw_without_rendering()
        ax: Any = figure.axes[0]
        box = ax.get_legend().get_window_extent()
        assert box.y1 < ax.xaxis.label.get_window_extent().y0
        assert box.x1 <= figure.bbox.x1
        assert ax.get_window_extent().height > 1.5 * figure.dpi, "there is space for the lines"
    assert bo.plot.curves(crossing().isel(samples=0)).axes[0].get_legend() is None


def test_a_logarithmic_axis_has_plain_numbers():
    figure = bo.plot.curves(crossing().isel(samples=0), log=True)
    figure.draw_without_rendering()
    ticks = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert figure.axes[0].get_yscale() == "log"
    assert "0.1" in ticks


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    changes = ("data.strong_noise_std=1.0", "data.tokens=4", "data.samples=4")
    attack = "attack={kind: pgd, ball: {radius: 0.1}, steps: 2}"
    return tiny(*changes, attack).run(tmp_path_factory.mktemp("attention") / "run")


def test_attention_of_all_tokens_adds_up_to_one(trained: xr.Dataset):
    ax = bo.plot.attention(trained.sel(snr=2.0)).axes[0]
    lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in ax.lines}
    assert list(lines) == [
        "signal token",
        "signal token, attacked",
        "strong noise token",
        "other noise token",
        "uniform, 1/M",
    ]
    whole = lines["signal token"] + lines["strong noise token"] + 2 * lines["other noise token"]
    np.testing.assert_allclose(whole, 1)
    assert lines["uniform, 1/M"].tolist() == [0.25, 0.25]
    assert len(bands(ax)) == 4
    assert holds(captions(ax.figure), "range", "2 seeds")


def test_a_run_that_has_ended_stays_where_it_was(trained: xr.Dataset):
    one = trained.sel(snr=2.0)
    ax = bo.plot.attention(one).axes[0]
    last = np.asarray(ax.lines[0].get_ydata())[-1]
    assert last == pytest.approx(float(one.attention_on_signal.mean()))
    assert np.asarray(ax.lines[0].get_xdata())[-1] >= float(one.steps.max())


def test_an_axis_gives_panels_and_one_seed_no_bands(trained: xr.Dataset):
    figure = bo.plot.attention(trained.sel(seed=0))
    assert [ax.get_title("left") for ax in figure.axes] == ["(a) SNR = 0.5", "(b) SNR = 2"]
    ends = [np.asarray(ax.lines[0].get_xdata())[-1] for ax in figure.axes]
    assert ends[0] == ends[1], "panels have the same steps, whenever their runs ended"
    assert not any(bands(ax) for ax in figure.axes)
    assert not any(word in captions(figure).lower() for word in ("bands", "range"))


def test_noise_tokens_are_counted_for_every_number_of_tokens(tmp_path):
    result = tiny("data.samples=4", "data.snr=2.0", "data.tokens=[2, 5]").run(tmp_path / "run")
    for ax, tokens in zip(bo.plot.attention(result).axes, (2, 5), strict=True):
        signal, noise, uniform = (np.asarray(line.get_ydata()) for line in ax.lines)
        np.testing.assert_allclose(signal + (tokens - 1) * noise, 1)
        assert uniform[0] == 1 / tokens
        assert ax.get_title("left").endswith(f"M = {tokens}")


def test_attention_that_was_not_measured_says_where_it_is(trained: xr.Dataset):
    with pytest.raises(
        ValueError, match=says("'attention_on_signal_curve'", "`network`", "`Attention`", "`data`")
    ):
        bo.plot.attention(crossing())
    many = xr.concat([trained.isel(snr=0)] * 9, xr.DataArray(range(9), dims="snr", name="snr"))
    with pytest.raises(ValueError, match=says("9 values", "'snr'", "panels", "sel(snr=")):
        bo.plot.attention(many)
    two = xr.concat([trained, trained], xr.DataArray([1, 2], dims="rate", name="rate"))
    with pytest.raises(ValueError, match=says("2 axes", "rate", "snr", "average")):
        bo.plot.attention(two)
