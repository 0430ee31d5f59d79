"""One axis of a figure: its scale, ticks and name, and the edges of cells around its coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import (
    FixedLocator,
    Formatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    SymmetricalLogLocator,
)
from numpy.typing import ArrayLike

from benign.plot.style import SMALL

RAISED = str.maketrans("0123456789-p", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵖ")
FEW_STEPS = 20
FEW_VALUES = 8
"""an axis of at most so many values has a tick for each"""
DIGIT, LINE = 0.64, 1.2
"""width of a digit and height of a line, in font sizes"""


def set_axis(ax: Axes, coordinate: xr.DataArray, name: str) -> np.ndarray:
    """Set the scale, ticks and name of one axis and return the edges of its cells."""
    centres = coordinate.values.astype(float)
    axis = ax.xaxis if name == "x" else ax.yaxis
    log = log_spaced(centres)
    if log:
        (ax.set_xscale if name == "x" else ax.set_yscale)("log")
    axis_ticks(axis, centres, log)
    axis.set_label_text(axis_name(coordinate))
    return cell_edges(centres, log)


def axis_ticks(axis: Axis, values: np.ndarray, log: bool) -> None:
    """Set a tick at each value if there are few, otherwise at round numbers."""
    values = np.unique(values)
    if values.size <= FEW_VALUES:
        axis.set_major_locator(FixedLocator(values.tolist()))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(ValueNames())
    elif log:
        log_ticks(axis, values[0], values[-1])
    else:
        round_ticks(axis, values)


def round_ticks(axis: Axis, values: np.ndarray) -> None:
    """Set at most seven ticks at round numbers, at integers if all values are."""
    axis.set_major_locator(MaxNLocator(6, integer=bool((values == values.round()).all())))


class ValueNames(Formatter):
    """Labels of ticks at given values; a label that would overlap the one before it is left out."""

    axis: Any
    """set by matplotlib"""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return tick_label(x)

    def format_ticks(self, values: ArrayLike) -> list[str]:
        """Return the labels; called when the figure is drawn, because only then the length of the axis is known."""
        numbers, names, last = np.asarray(values, dtype=float), [], -np.inf
        for name, middle in zip(map(tick_label, numbers), self._positions(numbers), strict=True):
            half = SMALL * (LINE if self._upright else DIGIT * len(name) + 0.5) / 2
            fits = middle - half >= last
            names.append(name if fits else "")
            last = middle + half if fits else last
        return names

    @property
    def _upright(self) -> bool:
        return self.axis.axis_name == "y"

    def _positions(self, values: np.ndarray) -> np.ndarray:
        """Return the distance of each value from the start of the axis, in points."""
        transform, box = self.axis.get_transform(), self.axis.axes.bbox
        ends = transform.transform(np.sort(self.axis.get_view_interval()))
        share = (transform.transform(values) - ends[0]) / np.ptp(ends)
        return share * (box.height if self._upright else box.width) * 72 / self.axis.figure.dpi


def tick_label(value: float) -> str:
    """Return a number as the label of a tick, all in one font size.

    >>> [tick_label(value) for value in (0, 16, 0.2512, 1234.5, 1e6, 2.5e-5)]
    ['0', '16', '0.251', '1234', '10⁶', '2.5·10⁻⁵']
    """
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        whole = value == round(value) or abs(value) >= 1000
        return f"{value:.0f}" if whole else f"{value:.3g}"
    factor, power = f"{value:.1e}".split("e")
    raised = "10" + str(int(power)).translate(RAISED)
    factor = factor.removesuffix(".0")
    return raised if factor == "1" else f"{factor}·{raised}"


def step_axis(ax: Axes, steps: xr.DataArray) -> None:
    """Set the axis of training steps: it starts at 0 and, if there are many steps, is logarithmic from step 1 on."""
    if steps.max() <= FEW_STEPS:
        round_ticks(ax.xaxis, steps.values)
        ax.set_xlabel(axis_name(steps))
        return
    many_steps(ax)
    ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1))
    full_size_powers(ax.xaxis)
    ax.set_xlabel(axis_name(steps))


def many_steps(ax: Axes) -> None:
    """Make the x axis logarithmic from 1 on, so that it includes step 0."""
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(left=0)


def full_size_powers(axis: Axis) -> None:
    """Write powers of ten in one font size: superscripts of matplotlib would be too small in a paper."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value)))


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Set ticks of a logarithmic axis at plain numbers, 0.2, 0.5, 1, 2, 5, 10; at powers of ten if there are many."""
    decades = np.log10(high / low)
    if decades < 1:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 4 else (1,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def cell_edges(centres: np.ndarray, log: bool) -> np.ndarray:
    """Return edges halfway between neighbouring centres, mirrored at the ends; a positive axis stops at 0."""
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
    """Return whether differences of logarithms vary less than differences of the values."""
    if centres.size < 3 or centres[0] <= 0:
        return False
    linear, log = np.diff(centres), np.diff(np.log(centres))
    return bool(log.std() / log.mean() < linear.std() / linear.mean() - 1e-9)


def axis_name(coordinate: xr.DataArray) -> str:
    """Return the long name of an axis, with its unit if it has one."""
    name = str(coordinate.attrs.get("long_name", coordinate.name))
    units = str(coordinate.attrs.get("units", ""))
    unit_known = units in ("", "1") or name.endswith(units)  # "steps (steps)" would say it twice
    return name if unit_known else f"{name} ({units})"
