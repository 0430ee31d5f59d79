"""Power laws of a result: points, fits with their intervals, predictions."""

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

import benign as bo
from tests.plot.crossing import crossing
from tests.says import holds, says


def legend(figure) -> list[str]:
    ax: Any = figure.axes[0]
    return [text.get_text() for text in ax.get_legend().get_texts()]


def dashed(figure) -> list[np.ndarray]:
    lines = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    return [np.asarray(line.get_xydata()) for line in lines]


def test_the_fit_has_its_slope_its_interval_and_a_band_around_the_points():
    result = crossing()
    figure = bo.plot.exponents(result, level=0.5)
    found = bo.boundary(result.test_accuracy, 0.5)
    assert found.fit is not None
    points, law = legend(figure)
    assert points == "test accuracy 0.5"
    assert law.startswith(f"fit: exponent {found.fit.slope:.2f} [")
    ax: Any = figure.axes[0]
    dot, line = ax.get_legend().legend_handles
    assert (dot.get_linestyle(), line.get_linestyle(), line.get_marker()) == ("None", "-", "none")
    [band] = [each for each in figure.axes[0].collections if isinstance(each, PolyCollection)]
    edge = np.asarray(band.get_paths()[0].vertices, dtype=float)
    assert edge[:, 0].min() == pytest.approx(2)
    assert edge[:, 0].max() == pytest.approx(16)
    # In the middle the band is as wide as the interval of the height.
    centre = np.exp(np.log(result.samples.values).mean(keepdims=True))
    half = found.fit.errors.along([1, 0]).half_width(0.95)
    near = edge[np.abs(np.log(edge[:, 0] / centre)) < 0.03, 1]
    fitted = found.fit.curve(centre).item()
    assert near.max() == pytest.approx(fitted * np.exp(half), rel=0.02)
    assert near.min() == pytest.approx(fitted * np.exp(-half), rel=0.02)
    assert figure.axes[0].get_xlabel() == "number of training points N"
    assert figure.axes[0].get_ylabel() == "critical signal-to-noise ratio SNR"


def test_a_prediction_goes_where_it_is_printed_or_through_the_middle():
    result = crossing()
    [printed] = dashed(bo.plot.exponents(result, level=0.5, predicted="samples * snr**2 = 100"))
    np.testing.assert_allclose(printed[:, 0] * printed[:, 1] ** 2, 100)
    figure = bo.plot.exponents(result, level=0.5, predicted="samples * snr**4")
    [middle] = dashed(figure)
    np.testing.assert_allclose(
        middle[:, 0] * middle[:, 1] ** 4,
        bo.boundary(result.test_accuracy, 0.5).constant_for(4).value,
    )
    assert holds(legend(figure)[2], "predicted", "exponent -0.25")
    assert any("predicted" in text.get_text() for text in figure.texts)


def test_every_variable_may_have_a_prediction_of_its_own():
    result = crossing()
    result["robust_accuracy"] = result.test_accuracy * 0.9
    figure = bo.plot.exponents(
        result,
        ["test_accuracy", "robust_accuracy"],
        level=0.5,
        predicted={"robust_accuracy": "samples * snr**2"},
    )
    assert [name.split(":")[0] for name in legend(figure)] == [
        "test accuracy 0.5",
        "fit",
        "robust accuracy 0.5",
        "fit",
        "predicted",
    ]
    assert len(dashed(figure)) == 1
    shapes = {
        str(line.get_marker()) for line in figure.axes[0].lines if line.get_linestyle() == "None"
    }
    assert len(shapes) == 2, "distinguishable in grey too"


def test_a_law_whose_slope_may_be_0_is_in_the_legend_and_not_drawn():
    result = crossing(np.array([2.0, 4.0, 8.0, 16.0]), np.geomspace(0.1, 10, 40), seeds=1)
    places = np.array([0.5, 3.0, 0.4, 2.5])[:, None, None]
    result.test_accuracy[:] = (result.snr.values[None, :, None] > places).astype(float)
    figure = bo.plot.exponents(result, level=0.5)
    points, law = legend(figure)
    assert points.startswith("test accuracy 0.5: exponent ")
    assert holds(law, "law", "slope", "0")
    assert law in legend(bo.plot.phase(result, x="samples", y="snr", level=0.5))
    assert not any("fitted" in text.get_text() for text in figure.texts)
    drawn = [line for line in figure.axes[0].lines if len(np.asarray(line.get_xdata())) > 1]
    assert all(line.get_linestyle() == "None" for line in drawn)
    assert not [each for each in figure.axes[0].collections if isinstance(each, PolyCollection)]


def test_what_never_crosses_says_so():
    figure = bo.plot.exponents(crossing() * 0.1, level=0.5, predicted="samples * snr**2")
    assert "0 of 4 rows" in legend(figure)[0]
    assert not dashed(figure)


def test_wrong_predictions_are_refused_with_an_example():
    for wrong in ("samples * snr**p", "snr * samples**2", "dim * snr**2"):
        with pytest.raises(ValueError, match=says("`predicted`", "'samples * snr**2'", wrong)):
            bo.plot.exponents(crossing(), level=0.5, predicted=wrong)
    with pytest.raises(ValueError, match=says("`predicted`", "['colour']", "test_accuracy")):
        bo.plot.exponents(crossing(), level=0.5, predicted={"colour": "samples * snr**2"})
    with pytest.raises(ValueError, match=says("'colour'", "test_accuracy")):
        bo.plot.exponents(crossing(), "colour", level=0.5)
    with pytest.raises(ValueError, match=says("1 axes", "snr")):
        bo.plot.exponents(crossing().isel(samples=0), level=0.5)
