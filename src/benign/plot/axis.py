"""One axis of a picture: its scale, its ticks and its name, and the edges of cells around its coordinates."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    SymmetricalLogLocator,
)

RAISED = str.maketrans("0123456789-p", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵖ")
FEW_STEPS = 20


def set_axis(ax: Axes, coordinate: xr.DataArray, name: str) -> np.ndarray:
    """Scale, ticks and name of one axis; returns the cell edges."""
    centres = coordinate.values.astype(float)
    axis = ax.xaxis if name == "x" else ax.yaxis
    log = log_spaced(centres)
    if log:
        (ax.set_xscale if name == "x" else ax.set_yscale)("log")
        log_ticks(axis, centres.min(), centres.max())
    else:
        axis.set_major_locator(MaxNLocator(6, integer=bool((centres == centres.round()).all())))
    axis.set_label_text(axis_name(coordinate))
    return cell_edges(centres, log)


def step_axis(ax: Axes, steps: xr.DataArray, name: str) -> None:
    """The steps of training: from 0 on, logarithmic after the first where there are many."""
    if steps.max() <= FEW_STEPS:
        set_axis(ax, steps, name)
        return
    many_steps(ax)
    ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1))
    level_powers(ax.xaxis)
    ax.set_xlabel(axis_name(steps))


def many_steps(ax: Axes) -> None:
    """A logarithmic x axis with room for step 0."""
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(left=0)


def level_powers(axis: Axis) -> None:
    """Powers of ten in letters of one size: raised ones would be too small in a paper."""

    def told(value: float, _: object) -> str:
        if value == 0 or 1e-4 < value < 1e5:
            return f"{value:g}"
        return "10" + str(round(np.log10(value))).translate(RAISED)

    axis.set_major_formatter(FuncFormatter(told))


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis: 0.2, 0.5, 1, 2, 5, 10; powers of ten where there are many of them."""
    decades = np.log10(high / low)
    if decades < 1:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 4 else (1,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def cell_edges(centres: np.ndarray, log: bool) -> np.ndarray:
    """Edges halfway between neighbouring centres, mirrored at the ends; positive axes stop at 0."""
    places = np.log(centres) if log else centres
    steps = np.diff(places) if places.size > 1 else np.ones(1)
    edges = np.concatenate(
        [
            [places[0] - steps[0] / 2],
            places[:-1] + np.diff(places) / 2,
            [places[-1] + steps[-1] / 2],
        ]
    )
    if log:
        return np.exp(edges)
    if centres[0] > 0:
        edges[0] = max(edges[0], 0.0)
    return edges


def log_spaced(centres: np.ndarray) -> bool:
    """Whether the steps of the logarithm vary less than the steps themselves."""
    if centres.size < 3 or centres[0] <= 0:
        return False
    linear, log = np.diff(centres), np.diff(np.log(centres))
    return bool(log.std() / log.mean() < linear.std() / linear.mean() - 1e-9)


def axis_name(coordinate: xr.DataArray) -> str:
    name = str(coordinate.attrs.get("long_name", coordinate.name))
    units = str(coordinate.attrs.get("units", ""))
    told = units in ("", "1") or name.endswith(units)  # steps need not be in steps
    return name if told else f"{name} ({units})"
