"""Laws of robust boundaries: drawn and printed only where masked runs cannot move them."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PathCollection

import benign as bo
from benign.papers.registry import recipe
from benign.plot.maps import LARGEST_MARK
from benign.report.atlas import Atlas
from benign.spec.base import canonical
from benign.stats import audited_boundary
from benign.stats.audited import MASKED
from tests.says import holds

ROWS, COLUMNS, SEEDS = np.array([4, 8, 16, 32, 64]), np.geomspace(0.1, 16, 24), 5
LEVEL = 0.75
ALL = slice(None)


def accuracy(constant: float) -> xr.DataArray:
    """Accuracies that cross 0.75 at N SNR^2 = `constant`, times a factor of each seed."""
    axes = {"samples": ROWS, "snr": COLUMNS, "seed": range(SEEDS)}
    score = ROWS[:, None, None] * COLUMNS[None, :, None] ** 2 / constant
    score = score * np.geomspace(0.8, 1.25, SEEDS)
    return xr.DataArray(1 / (1 + 1 / (3 * score)), axes, ("samples", "snr", "seed"))


def result(flag: int = 0, columns: slice = ALL, seeds: slice = ALL, **certified) -> xr.Dataset:
    """A result with a clean boundary and a robust one; `flag` is set in some columns and seeds."""
    data = {"test_accuracy": accuracy(16), "robust_accuracy": accuracy(64)}
    codes = 0 * accuracy(64)
    codes[:, columns, seeds] = flag
    status = (0 * codes).astype(np.int8) + 1
    return xr.Dataset(data | certified | {"audit": codes, "status": status})


def fit(of: xr.Dataset, name: str = "robust_accuracy"):
    return audited_boundary(of, name, LEVEL)


def test_without_masked_runs_it_is_the_boundary():
    plain, audited = bo.boundary(result().robust_accuracy, LEVEL), fit(result())
    assert plain.fit is not None
    assert audited.fit is not None
    assert audited.fit.slope == plain.fit.slope
    assert fit(result(flag=1)).fit is not None  # this flag masks no run


@pytest.mark.parametrize("flag", [2, 32])
def test_masked_runs_that_could_move_it_take_the_law_away(flag):
    found = fit(result(flag))
    assert found.fit is None
    assert found.reason == MASKED
    assert MASKED in str(found)
    # Half of the seeds move the mean, so that the map no longer crosses the level.
    assert fit(result(flag, seeds=slice(3))).fit is None


def test_masked_runs_that_cannot_move_it_leave_the_law():
    """Far below the boundary every run fails anyway."""
    below = slice(0, 5)
    assert float(accuracy(64).max("seed").isel(snr=below).max()) < 0.4
    found = fit(result(2, columns=below))
    assert found.fit is not None
    assert not found.reason


def test_certificates_that_confirm_the_map_leave_the_law():
    near = accuracy(66).rename("robust_accuracy_certified")
    assert fit(result(2, robust_accuracy_certified=near)).fit is not None
    far = accuracy(640).rename("robust_accuracy_certified")
    assert fit(result(2, robust_accuracy_certified=far)).fit is None


def test_clean_boundaries_are_never_affected():
    assert fit(result(2), "test_accuracy").fit is not None
    dropped = result().drop_vars("audit")
    assert fit(dropped).fit is not None


def test_the_map_may_be_computed_from_the_result():
    def error(of: xr.Dataset) -> xr.DataArray:
        return 1 - of.robust_accuracy

    assert audited_boundary(result(), error, 0.25).fit is not None
    assert audited_boundary(result(2), error, 0.25).reason == MASKED


def test_a_robust_loss_has_no_upper_end_without_a_certificate():
    loss = (1 / accuracy(64) - 1).rename("robust_loss")
    of = result(2).assign(robust_loss=loss)
    assert audited_boundary(of, "robust_loss", 1 / 3).reason == MASKED
    assert audited_boundary(result().assign(robust_loss=loss), "robust_loss", 1 / 3).fit is not None


# Figures, pages and recipes.


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def dashed(figure) -> int:
    lines = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    return sum(len(line.get_xdata()) > 0 for line in lines)


def test_a_map_draws_no_line():
    sound, masked = (
        bo.plot.phase(each, "robust_accuracy", level=LEVEL) for each in (result(), result(2))
    )
    assert any(text.startswith("fit:") for text in texts(sound))
    assert dashed(sound) == 1
    assert MASKED in texts(masked)
    assert not any("fit:" in text for text in texts(masked))
    assert dashed(masked) == 0


def test_a_map_marks_masked_cells_by_their_share():
    """Two of five runs in the first five columns."""
    of = result(2, columns=slice(0, 5), seeds=slice(2))
    [ax, *_] = bo.plot.phase(of, "robust_accuracy").axes
    [text] = [each for each in texts(ax.figure) if "masked" in each]
    assert holds(text, "25 of 120 cells")
    [marks] = [each for each in ax.collections if each.get_label() == text]
    assert isinstance(marks, PathCollection)
    np.testing.assert_allclose(marks.get_sizes(), 0.4 * LARGEST_MARK)
    assert np.asarray(marks.get_offsets()).shape == (25, 2)
    for name, values in (("test_accuracy", of), ("robust_accuracy", result())):
        legend = bo.plot.phase(values, name).axes[0].get_legend()
        assert legend is None or not any("masked" in each.get_text() for each in legend.get_texts())


def test_a_page_marks_masked_cells_by_their_share():
    of = result(2, columns=slice(0, 5), seeds=slice(2))
    drawn = Atlas(of).figure("robust_accuracy")
    [marks] = [trace for trace in drawn["data"] if "masked" in str(trace.get("name"))]
    assert len(marks["x"]) == 25
    assert "Triangles" in drawn["about"]
    assert "Triangles" not in Atlas(of).figure("test_accuracy")["about"]


def test_a_figure_of_exponents_prints_no_exponent():
    names = ["test_accuracy", "robust_accuracy"]
    figure = bo.plot.exponents(result(2), names, level=LEVEL)
    assert f"robust accuracy 0.75: {MASKED}" in texts(figure)
    assert sum("fit: exponent" in text for text in texts(figure)) == 1


def test_a_page_explains_why():
    def drawn(of: xr.Dataset, name: str = "robust_accuracy"):
        return Atlas(of).figure(name)

    def has_fit(figure) -> bool:
        return any(str(trace.get("name", "")).startswith("fit:") for trace in figure["data"])

    assert has_fit(drawn(result()))
    assert has_fit(drawn(result(2), "test_accuracy"))
    assert not has_fit(drawn(result(2)))
    assert MASKED in drawn(result(2))["about"]


def test_a_recipe_prints_no_law_of_masked_runs():
    """Neither the fitted law nor the paper's with a constant fitted here."""
    figure = recipe("zhang/fig1")
    experiment = figure.experiment("smoke", figure.reading())
    of = {
        each: result(each).assign_attrs(experiment=canonical(experiment.as_dict()))
        for each in (0, 2)
    }
    assert figure.panels is not None
    for flag, laws in ((0, 2), (2, 1)):
        text = figure.summarise(of[flag])
        assert text.count("at exponent 2") == laws
        assert (MASKED in text) == bool(flag)
        clean, robust, *_ = figure.panels(of[flag])
        assert clean.printed is not None
        assert (robust.printed is None) == bool(flag)
        assert clean.masked is None
        assert (robust.masked is not None) == bool(flag)
    assert holds(figure.summarise(of[2]), "no boundary at this level")
