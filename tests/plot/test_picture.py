"""Pictures of an experiment of one's own."""

import re

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.plot.caption import endings
from benign.plot.maps import pictures
from benign.training.descent import Status
from tests.says import holds, says
from tests.tiny import tiny


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    return tiny("data.samples=[2, 4, 6]").run(tmp_path_factory.mktemp("picture") / "run")


def words(figure, tmp_path) -> str:
    """What the picture says, its lines put together."""
    drawn = bo.plot.save(figure, tmp_path / "picture.svg")[0].read_text(encoding="utf-8")
    return " ".join(
        re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
        + re.findall(r"<!-- (.*?) -->", drawn, re.DOTALL)
    )


def test_two_axes_are_a_heat_map_of_means(result, tmp_path):
    figure = bo.plot.phase(result)
    [mesh] = [each for each in figure.axes[0].collections if hasattr(each, "get_coordinates")]
    mean = result.test_accuracy.mean("seed").transpose("snr", "samples")
    np.testing.assert_allclose(np.asarray(mesh.get_array()), mean, atol=1e-12)
    drawn = words(figure, tmp_path)
    for text in ("Test accuracy", "number of training points N", "2 seeds", "Test attack: none"):
        assert text in drawn
    turned = bo.plot.phase(result, "test_loss", x="snr")
    assert turned.axes[0].get_ylabel() == "number of training points N"


def test_a_level_adds_the_boundary(result, tmp_path):
    assert "crosses 0.75" in words(
        bo.plot.phase(result, x="samples", y="snr", level=0.75), tmp_path
    )


def test_one_axis_is_a_line_with_the_interval_of_the_mean(result, tmp_path):
    figure = bo.plot.curves(result.sel(samples=4), ["test_accuracy", "train_accuracy"])
    first, second = figure.axes[0].lines
    mean = result.test_accuracy.sel(samples=4).mean("seed")
    np.testing.assert_allclose(np.asarray(first.get_ydata()), mean, atol=1e-12)
    assert second.get_label() == "train accuracy"
    assert holds(words(figure, tmp_path), "range", "2 seeds")


def test_more_variables_than_colours_are_all_drawn(result):
    names = [
        "test_accuracy",
        "train_accuracy",
        "test_loss",
        "train_loss",
        "steps",
        "test_accuracy",
        "test_loss",
    ]
    lines = bo.plot.curves(result.sel(samples=4), names).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 7


def test_failed_runs_are_counted_in_the_caption_and_left_out_of_means(result, tmp_path):
    failed = result.sel(samples=4).copy(deep=True)
    failed.status[0, 0], failed.test_accuracy[0, 0] = Status.FAILED, np.nan
    failed.status[1], failed.test_accuracy[1] = Status.DIVERGED, np.nan
    figure = bo.plot.curves(failed)
    drawn = np.asarray(figure.axes[0].lines[0].get_ydata())
    assert drawn[0] == failed.test_accuracy[0, 1]
    assert np.isnan(drawn[1])
    parts = "4 runs", "1 at the step cap", "2 diverged", "1 failed"
    assert holds(words(figure, tmp_path), *parts)


def test_a_caption_counts_runs_as_the_command_line_does(result):
    assert endings(result.where(False, Status.CONVERGED)) == ""
    ways = result.isel(samples=0, seed=0).copy(deep=True)
    ways.status[0], ways.status[1] = Status.MISSING, Status.OUT_OF_MEMORY
    assert holds(endings(ways), "2 runs", "1 out of memory", "1 missing")


def test_the_curve_of_one_run_is_that_run(result, tmp_path):
    one = result.sel(samples=4, snr=2.0, seed=0)
    figure = bo.plot.curves(one, "train_loss_curve")
    [line] = figure.axes[0].lines
    np.testing.assert_array_equal(np.asarray(line.get_ydata()), one.train_loss_curve)
    assert not figure.axes[0].collections
    drawn = words(figure, tmp_path)
    assert "N = 4, SNR = 2, seed = 0" in drawn
    assert not re.search("bands", drawn, re.IGNORECASE)
    assert line.get_label() == figure.axes[0].get_ylabel() == "train loss"
    assert figure.axes[0].get_xlabel() == "gradient descent steps"


def test_a_replay_is_drawn_too(result):
    trace = tiny("data.samples=[2, 4, 6]").replay(samples=4, snr=2.0, seed=0).trace()
    [line] = bo.plot.curves(trace, "train_loss").axes[0].lines
    np.testing.assert_array_equal(np.asarray(line.get_ydata()), trace.train_loss)


def test_curves_say_how_many_runs_are_still_training(result, tmp_path):
    cell = result.sel(samples=4, snr=2.0).copy(deep=True)
    cell = cell.drop_dims("step").assign(
        train_loss_curve=(("seed", "step"), np.array([[3.0, 2.0, 1.0], [1.0, 0.5, np.nan]]))
    )
    note = re.compile(r"step\D+mean\D+runs\D+2\b\D+1\b")
    assert note.search(words(bo.plot.curves(cell, "train_loss_curve"), tmp_path))
    cell.train_loss_curve[1, 2] = 0.1
    assert not note.search(words(bo.plot.curves(cell, "train_loss_curve"), tmp_path))


def test_bands_stay_where_values_can_be(result):
    cell = result.sel(samples=4).copy(deep=True)
    cell.test_accuracy[:] = [[0.0, 1.0], [0.9, 1.0]]
    cell.test_loss[:] = [[0.0, 1.0], [0.1, 5.0]]
    figure = bo.plot.curves(cell, ["test_accuracy", "test_loss"])
    accuracy, loss = (
        np.asarray(each.get_paths()[0].vertices)[:, 1] for each in figure.axes[0].collections
    )
    assert (accuracy.min(), accuracy.max()) == (0, 1)
    assert loss.min() == 0
    assert figure.axes[0].get_ylabel() == "test accuracy, test loss"
    both = bo.plot.curves(cell, ["test_accuracy", "train_accuracy"])
    assert both.axes[0].get_ylabel() == "accuracy"


def test_what_cannot_be_drawn_says_why(result, tmp_path):
    with pytest.raises(ValueError, match=says("'colour'", "test_accuracy")):
        bo.plot.phase(result, "colour")
    with pytest.raises(ValueError, match=says("1 axes", "(snr)", "2")):
        bo.plot.phase(result.sel(samples=4))
    with pytest.raises(ValueError, match=says("2 axes", "(samples, snr)", "average")):
        bo.plot.curves(result)
    assert pictures(result.isel(samples=0, snr=0), tmp_path) == []


def test_an_axis_of_words_is_not_drawn(result, tmp_path):
    named = result.sel(samples=4).assign_coords(snr=["low", "high"])
    assert pictures(named, tmp_path) == []
