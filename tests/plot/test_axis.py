"""Ticks: at the values that were run where they are few, with numbers that do not cover one another."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import benign as bo
from benign.plot.axis import axis_ticks
from benign.plot.lines import Curves, curves_figure
from tests.plot.crossing import crossing

ODD = np.array([0.1, 0.251188, 0.630957, 1.58489, 3.98107, 10.0])


def labels(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels() if text.get_visible()]


def laid_out(figure: Figure) -> Any:
    figure.draw_without_rendering()
    return figure.axes[0]


def test_few_values_of_an_axis_are_its_ticks():
    result = crossing(np.array([3.0, 6.0, 17.0]), ODD)
    names = ["0.1", "0.251", "0.631", "1.58", "3.98", "10"]
    for figure in (bo.plot.phase(result), bo.plot.phase(result, width="column")):
        ax = laid_out(figure)
        assert labels(ax.xaxis) == ["3", "6", "17"]
        assert labels(ax.yaxis) == names
        assert not ax.xaxis.get_minorticklocs().size
    assert labels(laid_out(bo.plot.curves(result, by="samples")).xaxis) == names
    ax = laid_out(bo.plot.exponents(result, level=0.5))
    assert labels(ax.xaxis) == ["3", "6", "17"]
    assert np.setdiff1d(ax.yaxis.get_majorticklocs(), ODD).size, "critical values are no axis"


def test_curves_of_recipes_have_ticks_at_their_values_too():
    values = crossing(snr=ODD).test_accuracy[0]
    figure = curves_figure([[Curves([("one", values)], "accuracy", "snr")]], title="", caption="")
    ax = laid_out(figure)
    np.testing.assert_allclose(ax.xaxis.get_majorticklocs(), ODD)


def test_many_values_have_round_ticks():
    ax = laid_out(bo.plot.phase(crossing(np.arange(2.0, 22.0, 2.0)), x="samples"))
    assert ax.xaxis.get_majorticklocs().size <= 8
    assert "0.5" in labels(ax.yaxis)


@pytest.mark.parametrize("width", [None, "column", "page"])
def test_numbers_that_would_cover_the_one_before_are_left_out(width: Any):
    """All ticks stay where the values are."""
    close = np.array([10000.0, 10500.0, 11000.0, 11500.0, 12000.0, 18000.0, 90000.0])
    result = crossing(np.array([2.0, 2.1, 2.2, 16.0]), close)
    result["robust_accuracy"] = result.test_accuracy
    both = ["test_accuracy", "robust_accuracy"]
    ax = laid_out(bo.plot.phase(result, both, x="snr", y="samples", width=width))
    for axis, values in ((ax.xaxis, close), (ax.yaxis, result.samples.values)):
        assert axis.get_majorticklocs().tolist() == values.tolist()
        texts = [each for each in axis.get_ticklabels() if each.get_text()]
        boxes = [each.get_window_extent() for each in texts]
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))
        assert 2 <= len(texts) < len(values)


def test_values_that_come_twice_have_one_tick():
    ax = Figure().subplots()
    axis_ticks(ax.xaxis, np.array([4.0, 4.0, 8.0]), log=False)
    assert ax.xaxis.get_majorticklocs().tolist() == [4, 8]
