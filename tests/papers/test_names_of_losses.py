"""What was trained and what is claimed have different names: the loss under the training attack, the robust loss."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from benign.papers.registry import recipe
from benign.plot.variables import ROBUST_LOSS, TRAINED_LOSS, training_losses
from benign.sweep.dataset import assemble
from benign.training.descent import Status

TRAINED, ROBUST = 0.0123, 0.456


def planted(name: str) -> xr.Dataset:
    """The result of a recipe whose runs all end with these losses; everything else is 0.5."""
    result = assemble(recipe(name).experiment("smoke"), [])
    result = result.map(lambda part: xr.full_like(part, 0.5, dtype=float))
    first = int(result.step.values[1])
    return result.assign(
        status=xr.full_like(result.status, Status.CONVERGED, dtype=np.int8),
        steps=xr.full_like(result.steps, first),
        train_loss=xr.full_like(result.train_loss, TRAINED),
        train_robust_loss=xr.full_like(result.train_loss, ROBUST),
        audit=xr.zeros_like(result.audit),
    ).assign_attrs(assemble(recipe(name).experiment("smoke"), []).attrs)


def test_both_losses_have_their_labels():
    result = xr.Dataset({"train_loss": ("seed", [1.0]), "train_robust_loss": ("seed", [2.0])})
    labels = {name: values.item() for name, values in training_losses(result).items()}
    assert labels == {TRAINED_LOSS: 1.0, ROBUST_LOSS: 2.0}
    assert list(training_losses(result[["train_loss"]])) == [TRAINED_LOSS]  # an older result


NAMES = ["zhang/fig2", "zhang/fig3", "wang/fig2"]


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_gives_both(name):
    text = recipe(name).summarise(planted(name))
    assert f"{TRAINED_LOSS} {TRAINED:g}" in text
    assert f"{ROBUST_LOSS} {ROBUST:g}" in text


@pytest.mark.parametrize("name", NAMES)
def test_an_axis_along_training_does_not_call_it_robust(name):
    figure = recipe(name).figure(planted(name), "")
    assert isinstance(figure, Figure)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert any(label.startswith(TRAINED_LOSS) for label in labels)
    assert not any(label.startswith("robust training loss") for label in labels)


@pytest.mark.parametrize("name", ["zhang/fig2", "zhang/fig3"])
def test_a_figure_draws_both_at_the_end(name):
    figure = recipe(name).figure(planted(name), "")
    assert isinstance(figure, Figure)
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    ends = {line.get_label(): np.asarray(line.get_ydata(), dtype=float) for line in lines}
    np.testing.assert_allclose(ends[TRAINED_LOSS], TRAINED)
    np.testing.assert_allclose(ends[ROBUST_LOSS], ROBUST)
