"""A picture of any result: a heat map over two axes of its experiment, or lines along one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benign.experiment import experiment_of
from benign.plot.axis import set_axis
from benign.plot.caption import describe, endings
from benign.plot.curves import look
from benign.plot.phase import Panel, phase_figure
from benign.plot.style import SMALL, save, style
from benign.theory.boundary import boundary
from benign.theory.intervals import mean_interval

DRAWN = ("test_accuracy", "robust_accuracy")
"""what is drawn of an experiment of one's own, as far as it is measured"""


def phase(
    result: xr.Dataset,
    variable: str = "test_accuracy",
    *,
    x: str | None = None,
    y: str | None = None,
    level: float | None = None,
) -> Figure:
    """The mean of a variable over seeds as a heat map over two axes; `level` adds the fitted boundary at it.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=[4, 8], dim=20, signal=[1.0, 4.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=50),
    ...     evaluation=bo.Evaluation(samples=50),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    ...     paths = bo.save(bo.phase(result), f"{folder}/accuracy")
    >>> [path.name for path in paths]
    ['accuracy.png', 'accuracy.svg']
    """
    values = _values(result, variable, 2)
    found = [dim for dim in _axes(values) if dim not in (x, y)]
    x = x or found.pop(0)
    y = y or found.pop(0)
    edge = None if level is None else boundary(values, level, law=f"{x} * {y}**p")
    limits = (0.0, 1.0) if variable.endswith("accuracy") else None
    panel = Panel(values, x, y, _named(variable), limits=limits, boundary=edge)
    return phase_figure([panel], title=_named(variable).capitalize(), caption=_caption(result))


def curves(result: xr.Dataset, variables: str | Sequence[str] = "test_accuracy") -> Figure:
    """Means of variables over seeds along the one axis of an experiment, with 95 % intervals.

    Along the steps it takes curves, `"train_loss_curve"`; of one run (`result.sel(..., seed=0)`, or the trace of
    a replay) it draws that run.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=8, dim=20, signal=[1.0, 4.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=50),
    ...     evaluation=bo.Evaluation(samples=50),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> len(bo.curves(result, "test_accuracy").axes)
    1
    """
    names = [variables] if isinstance(variables, str) else list(variables)
    drawn = [_values(result, name, 1) for name in names]
    told = " ".join(filter(None, [_caption(result), *_of_seeds(drawn)]))
    lines = textwrap.wrap(told, width=int(4.2 * 72 / (0.54 * SMALL)))
    with style():
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
        figure = Figure(figsize=(4.2, 3.0 + 0.13 * len(lines)), layout=layout)
        ax = figure.subplots()
        for number, values in enumerate(drawn):
            _draw_line(ax, number, values)
        accuracies = all(_named(name).endswith("accuracy") for name in names)
        if accuracies:
            ax.set_ylim(0, 1.02)
        several = "accuracy" if accuracies else ", ".join(map(_named, names))
        ax.set_ylabel(several if len(names) > 1 else _named(names[0]))
        ax.legend()
        figure.supxlabel("\n".join(lines), x=0.012, ha="left", fontsize=SMALL, linespacing=1.3)
    return figure


def _draw_line(ax: Axes, number: int, values: xr.DataArray) -> None:
    """The mean over seeds along the one axis, and its interval where there are several."""
    [along] = _axes(values)
    values, name = values.sortby(along), _named(str(values.name))
    rows = values.transpose(along, "seed").values
    mean, *ends = np.array([_estimate(row[~np.isnan(row)]) for row in rows]).T
    colour, line = look(number)
    ax.plot(values[along], mean, color=colour, linestyle=line, marker=".", label=name)
    if values.sizes["seed"] > 1:
        low, high = (np.clip(end, *_possible(name)) for end in ends)
        ax.fill_between(values[along], low, high, color=colour, alpha=0.2, linewidth=0)
    set_axis(ax, values[along], "x")


def _possible(name: str) -> tuple[float, float]:
    """Where values of a variable can lie: an interval of their mean may reach beyond."""
    if name.endswith("accuracy"):
        return 0.0, 1.0
    return (0.0 if name.endswith("loss") else -np.inf), np.inf


def _of_seeds(drawn: Sequence[xr.DataArray]) -> Iterator[str]:
    """What must be said of the seeds behind curves."""
    if max(values.sizes["seed"] for values in drawn) > 1:
        yield "Bands: 95 % intervals of the mean over seeds."
    for values in drawn:
        training = values.count("seed").values
        training = training[training > 0]
        if "step" in values.dims and len(set(training.tolist())) > 1:
            ends = f"{training[0]} at first, {training[-1]} at last"
            yield f"At every step the mean of the runs still training: {ends}."
            return  # the runs are the same for every variable


def pictures(result: xr.Dataset, folder: Path) -> list[Path]:
    """Draw what can be drawn of a result into its folder: nothing unless one or two axes hold several numbers."""
    names = [name for name in DRAWN if name in result]
    axes = _axes(result[names[0]])
    if not all(np.issubdtype(result[axis].dtype, np.number) for axis in axes):
        return []
    if len(axes) == 1:
        return save(curves(result, names), folder / "accuracy")
    if len(axes) == 2:
        return [path for name in names for path in save(phase(result, name), folder / name)]
    return []


def _values(result: xr.Dataset, variable: str, count: int) -> xr.DataArray:
    """A variable without axes of one value; ValueError unless `count` others are left."""
    if variable not in result:
        raise ValueError(f"no variable {variable!r}; this result has {', '.join(map(str, result))}")
    values = result[variable]
    axes = _axes(values)
    if len(axes) != count:
        raise ValueError(
            f"`{variable}` has {len(axes)} axes with several values ({', '.join(axes) or 'none'}), "
            f"{count} can be drawn: select one value of the others, or average over them"
        )
    ones = [dim for dim in values.dims if dim not in (*axes, "seed")]
    values = values.squeeze(ones, drop=True)
    if "seed" in values.dims:
        return values
    return values.drop_vars("seed", errors="ignore").expand_dims("seed")


def _axes(values: xr.DataArray) -> list[str]:
    """The axes of the experiment that hold several values."""
    return [str(dim) for dim in values.dims if dim != "seed" and values.sizes[dim] > 1]


def _estimate(row: np.ndarray) -> tuple[float, float, float]:
    """Mean and interval of the seeds that have a value."""
    return mean_interval(row) if row.size else (np.nan, np.nan, np.nan)


def _caption(result: xr.Dataset) -> str:
    """What a result knows of itself: a trace of one run knows less."""
    chosen = [f"{name} = {each.item()}" for name, each in result.coords.items() if each.ndim == 0]
    told = [f"Here {', '.join(chosen)}."] if chosen else []
    if "experiment" in result.attrs:
        told.insert(0, describe(experiment_of(result)))
    if "status" in result:
        told.append(endings(result))
    return " ".join(filter(None, told))


def _named(variable: str) -> str:
    return variable.removesuffix("_curve").replace("_", " ")
