"""Critical values on logarithmic axes."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

from benign.papers.wang.exponents import boundaries, predicted
from benign.plot.laws import Critical, exponents_figure, exponents_panels
from benign.stats.boundary import boundary
from tests.says import holds, says


def falling(power: float, seeds: int = 3) -> xr.DataArray:
    """Accuracy that falls through 0.8 at dim = 10 signal^power, a little elsewhere for each seed."""
    signals, dims = np.array([2.0, 4.0, 8.0, 16.0]), np.geomspace(10, 1e7, 60)
    shift = 1 + 0.1 * np.arange(seeds)
    depth = np.log(dims[None, :, None] / (10 * signals[:, None, None] ** power * shift))
    return xr.DataArray(
        0.5 + 0.5 / (1 + np.exp(depth) * 2 / 3),
        {"signal": signals, "dim": dims, "seed": range(seeds)},
        ("signal", "dim", "seed"),
        "accuracy",
    )


def test_a_figure_shows_points_fit_and_prediction():
    found = boundary(falling(4.0), 0.8, "signal * dim**p")
    assert found.fit is not None
    assert found.fit.slope == pytest.approx(4, abs=0.02)
    sets = [Critical("clean", found, lambda r: 10 * r**4), Critical("again", found)]
    figure = exponents_figure(sets, x="r", y="d*", title="A title", caption="A caption. " * 20)
    ax: Any = figure.axes[0]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    with pytest.raises(ValueError, match=says("6 laws", "7")):
        exponents_figure([sets[1]] * 7, x="r", y="d*", title="", caption="")
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0].startswith("clean: exponent 4.0")
    styles = [line.get_linestyle() for line in ax.get_lines()]
    assert styles.count("--") == 1
    points = ax.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(points[:, 0], [2, 4, 8, 16])
    np.testing.assert_allclose(points[:, 1], found.critical.values)


def test_a_set_without_a_boundary_says_so():
    nothing = boundary(falling(4.0) * 0.1, 0.8, "signal * dim**p")
    figure = exponents_figure([Critical("clean", nothing)], x="r", y="d*", title="t", caption="c")
    ax: Any = figure.axes[0]
    (text,) = ax.get_legend().get_texts()
    assert nothing.reason in text.get_text()


def test_a_shared_legend_entry_says_if_the_law_is_not_drawn():
    level = falling(4.0)
    level[:] = np.sort(level.values[:1], axis=1)[:, ::-1]  # every row crosses at the same dim
    flat = boundary(level, 0.8, "signal * dim**p")
    assert flat.fit is not None
    assert not flat.fit.bounded
    steep = boundary(falling(4.0), 0.8, "signal * dim**p")
    sets = {"a": [Critical("flat", flat), Critical("steep", steep)]}
    ax: Any = exponents_panels(sets, x="r", y="d*", title="", caption="").axes[0]
    flat_name, steep_name = (text.get_text() for text in ax.get_legend().get_texts())
    assert holds(flat_name, "] (", "drawn")
    assert steep_name.endswith("]")
    lines = [each.get_linestyle() for each in ax.get_legend().legend_handles]
    assert lines == ["None", "-"]


def test_the_boundaries_of_wang_come_from_its_cells():
    """A zipped grid of (signal, dim) becomes two maps; the predictor's own accuracy gives its own boundary."""
    maps = falling(3.0).rename("test_accuracy")
    flat = maps.stack(cell=("signal", "dim")).reset_index("cell")
    clean, robust = boundaries(xr.Dataset({"test_accuracy": flat, "robust_accuracy": flat**2}))
    assert clean.fit is not None
    assert clean.fit.slope == pytest.approx(3, abs=0.02)
    assert (robust.critical < clean.critical).all()


def test_the_prediction_is_the_one_derived():
    """papers/wang.md 2.5: clean exponent tends to 4, robust to 2."""
    r = np.array([1e3, 1e4])
    clean, robust = (np.diff(np.log(predicted(100, rho)(r))) / np.log(10) for rho in (0.0, 0.1))
    assert clean == pytest.approx(4, abs=1e-4)
    assert robust == pytest.approx(2, abs=0.02)
    assert predicted(100, 0.1)(np.array(5.0)) == pytest.approx(64 * (625 / 2.25 - 25))
