"""Maps of a result: regimes as cells of their colours, and what is drawn on top."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import to_rgba

import benign as bo
from benign.papers.requests import RequestOptions, requests_of
from benign.plot.axis import cell_edges
from benign.plot.maps import REGIME_COLOURS
from benign.plot.variables import caption_of
from benign.stats.regimes import Regime
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.runner import Runner
from benign.training.descent import Status
from tests.plot.crossing import crossing
from tests.says import holds, says


@pytest.fixture
def result() -> xr.Dataset:
    """Benign for large SNR; one cell that no seed fits, one without a run, one whose seeds differ."""
    result = crossing(seeds=2, snr=np.array([0.5, 2.0, 16.0]))
    result["test_accuracy"][:] = [[[0.5] * 2, [0.8] * 2, [1.0] * 2]] * 4
    result["train_accuracy"] = xr.ones_like(result.test_accuracy)
    result["status"] = xr.full_like(result.test_accuracy, Status.CONVERGED)
    result.train_accuracy[0, 0] = 0.5
    result.status[1, 1] = Status.FAILED
    result.test_accuracy[2, 2, 0] = 0.6
    return result


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_every_cell_has_the_colour_of_its_regime(result: xr.Dataset):
    figure = bo.plot.regimes(result, x="snr", y="samples")
    ax: Any = figure.axes[0]
    mesh: Any = next(each for each in ax.collections if isinstance(each, QuadMesh))
    codes = np.asarray(np.ma.filled(mesh.get_array(), np.nan))
    worst, harmful, benign = (float(each) for each in Regime)
    expected = np.array([[harmful, harmful, benign]] * 4)
    expected[0, 0], expected[1, 1], expected[2, 2] = worst, np.nan, harmful
    np.testing.assert_array_equal(codes, expected)
    mesh.update_scalarmappable()
    for code, colour in zip(codes.ravel(), mesh.get_facecolor(), strict=True):
        if np.isfinite(code):
            assert tuple(colour) == pytest.approx(to_rgba(REGIME_COLOURS[Regime(int(code))]))


def test_the_legend_counts_cells_and_names_what_is_on_them(result: xr.Dataset):
    figure = bo.plot.regimes(result, x="snr", y="samples", printed="samples * snr**2 = 40")
    assert legend(figure.axes[0]) == [
        "benign (test accuracy ≥ 0.95): 3 of 11 cells",
        "harmful: 7",
        "not fitted: 1",
        "seeds differ",
        "paper: N · SNR² = 40",
        "no value",
    ]
    [dots] = [line for line in figure.axes[0].lines if line.get_label() == "seeds differ"]
    assert np.asarray(dots.get_xydata()).tolist() == [[16.0, 8.0]]


def test_cells_of_one_regime_are_parted_by_thin_lines(result: xr.Dataset):
    ax: Any = bo.plot.regimes(result, x="snr", y="samples").axes[0]
    between = [each for each in ax.collections if isinstance(each, LineCollection)]
    down, across = (np.array(each.get_segments()) for each in between)
    snr, samples = (cell_edges(result[name].values, log=True) for name in ("snr", "samples"))
    np.testing.assert_allclose(down[:, 0, 0], snr[1:-1])
    np.testing.assert_allclose(across[:, 0, 1], samples[1:-1])
    mesh: Any = next(each for each in ax.collections if isinstance(each, QuadMesh))
    assert all(each.get_zorder() > mesh.get_zorder() for each in between)
    assert mesh.get_linewidth()[0] > 0, "edges of the cells' own colours hide seams in vector files"


def test_the_legend_states_the_rule_of_regimes(result: xr.Dataset):
    result["test_loss"] = 1 - result.test_accuracy
    figures = bo.plot.regimes(result, caption=""), bo.plot.regimes(result, "test_loss", 0.2, caption="")  # fmt: skip
    first, second = (legend(figure.axes[0])[0] for figure in figures)
    assert first.startswith("benign (test accuracy ≥ 0.95): ")
    assert second.startswith("benign (test loss ≤ 0.2): ")


def test_a_law_of_ones_own_is_not_called_the_papers(result: xr.Dataset):
    law: Any = {"printed": "samples * snr**2 = 40", "printed_by": "my guess"}
    for draw in (bo.plot.phase, bo.plot.regimes):
        assert "my guess: N · SNR² = 40" in legend(draw(result, **law).axes[0])


def test_titles_and_captions_can_be_left_out_or_written(result: xr.Dataset):
    texts = {text.get_text() for text in bo.plot.regimes(result).texts}
    assert any("Regimes" in text for text in texts)
    assert any(holds(text, "Benign: ", "training point") for text in texts)
    for draw in (bo.plot.phase, bo.plot.regimes):
        assert not draw(result, title="", caption="").texts
        own = draw(result, title="mine", caption="and mine")
        assert [text.get_text() for text in own.texts] == ["mine", "and mine"]


def test_maps_of_several_variables_stand_side_by_side_and_share_the_law(result: xr.Dataset):
    drawn = bo.plot.phase(
        result, ["test_accuracy", "train_accuracy"], x="snr", printed="samples * snr**2 = 40"
    )
    assert [ax.get_title("left") for ax in drawn.axes] == ["(a)", "(b)"]
    assert all("paper: N · SNR² = 40" in legend(ax) for ax in drawn.axes)


def test_an_axis_that_is_not_there_is_named(result: xr.Dataset):
    for draw in (bo.plot.phase, bo.plot.regimes):
        with pytest.raises(ValueError, match=says("`x`", "samples", "snr", "'radius'")):
            draw(result, x="radius")
        with pytest.raises(ValueError, match=says("`y`", "samples", "snr", "'sampels'")):
            draw(result, y="sampels")
    with pytest.raises(ValueError, match=says("1 axes", "(snr)", "2")):
        bo.plot.regimes(result.sel(samples=4))


def test_a_caption_names_recipe_scale_reading_and_changes(tmp_path: Path):
    (request,) = requests_of(
        "jiang/fig1", RequestOptions("smoke", ["w_O=divided"], None, ["training.rate=0.2"])
    )
    Runner(request.experiment, tmp_path, ExecutionConfig(made=request.made))
    caption = caption_of(bo.open_result(tmp_path))
    assert caption.startswith("jiang/fig1 ")
    assert holds(caption, "smoke scale", "w_O=divided", "training.rate=0.2", " d = ")


def test_the_caption_of_an_own_experiment_names_no_recipe(tmp_path: Path):
    Runner(bo.recipe("jiang/fig1").experiment("smoke"), tmp_path)
    assert caption_of(bo.open_result(tmp_path)).startswith("d = ")
