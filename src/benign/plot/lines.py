"""Quantities along training, or along an axis of the grid, one line a setting, with the spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.plot.axis import axis_ticks, level_powers, many_steps
from benign.plot.sheet import Width, drawn_for, for_paper, letter, sheet
from benign.plot.style import SMALL

# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

LINES = ("-", "--", "-.", ":")

GREY = "#8c8c8c"
BESIDE = {"fontsize": SMALL, "color": GREY, "ha": "right"}
CLOSE = 0.06
"""share of the width of a panel below which words beside two marks would cover one another"""


@dataclass(frozen=True, eq=False)
class Curves:
    """One panel: curves with dims (seed, step), or another than step, each with its name in the legend."""

    curves: Sequence[tuple[str, xr.DataArray]]
    """name and values of each curve"""
    label: str
    """names the quantity on the y axis"""
    along: str = "step"
    """the coordinate on the x axis"""
    along_label: str = "gradient descent steps"
    """name of the x axis"""
    marks: Sequence[tuple[float, str]] = ()
    """vertical lines, each with a word about it"""
    along_log: bool = True
    """whether the x axis is logarithmic; steps always are, with room for step 0"""
    log: bool = False
    """whether the y axis is logarithmic"""
    level: float | None = None
    """a horizontal line, such as an error that cannot be beaten"""
    level_name: str = ""
    """a word about it"""
    title: str = ""
    """what sets this panel apart from its neighbours, beside its letter"""
    legend: Literal["best", "upper left", "upper right", "lower left", "lower right"] = "best"
    """where the legend stands"""


def curves_figure(
    rows: Sequence[Sequence[Curves]], *, title: str, caption: str, width: Width | None = None
) -> Figure:
    """Panels in rows; bands are one standard error of the mean over seeds on either side.

    A legend tells what no panel before it has told. `width` "column" or "page" is for papers: rows become shorter.
    """
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError("`rows` must hold at least one row, and rows of equal length")
    panels, told = [panel for row in rows for panel in row], set[tuple[str, ...]]()
    count, size = len(panels), (3.55, 2.2)
    with drawn_for(width), sheet(count, len(rows[0]), size, title, caption) as (figure, axes):
        for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            draw_curves(ax, panel)
            _name_curves(ax, panel, told)
            ax.set_title(letter(number, count, panel.title))
    return figure


def look(number: int) -> tuple[str, str]:
    """Colour and line of a curve: no two of 24 alike, and of two that lie on one another both are seen."""
    return COLOURS[number % len(COLOURS)], LINES[(number + number // 12) % len(LINES)]


def draw_curves(ax: Axes, panel: Curves) -> None:
    """Mean and standard error over seeds along the steps; a run that has ended counts no more."""
    for number, (name, values) in enumerate(panel.curves):
        mean = values.mean("seed")
        x = mean[panel.along].values
        colour, line = look(number)
        ax.plot(x, mean, color=colour, linestyle=line, label=name)
        if values.sizes["seed"] > 1:
            band = values.std("seed", ddof=1) / np.sqrt(values.count("seed"))
            ax.fill_between(x, mean - band, mean + band, color=colour, alpha=0.2, linewidth=0)
    if panel.level is not None:
        name = panel.level_name or None
        ax.axhline(panel.level, color=GREY, linewidth=0.8, linestyle=":", label=name)
    for place, _ in panel.marks:
        ax.axvline(place, color=GREY, linewidth=0.8, linestyle="--")
    if panel.along == "step":
        many_steps(ax)
        if for_paper():
            level_powers(ax.xaxis)
    values = np.concatenate([each.values.ravel() for _, each in panel.curves])
    if not np.isfinite(values).any():  # nor has the x axis a scale then
        ax.text(0.5, 0.5, "no run has a value", transform=ax.transAxes, ha="center", color=GREY)
    elif panel.along != "step":
        if panel.along_log:
            ax.set_xscale("log")
        places = np.concatenate([each[panel.along].values for _, each in panel.curves])
        axis_ticks(ax.xaxis, places.astype(float), panel.along_log)
    if panel.log and (values > 0).any():
        ax.set_yscale("log")
        if for_paper():
            level_powers(ax.yaxis)
    ax.set_xlabel(panel.along_label)
    ax.set_ylabel(panel.label)
    _name_marks(ax, panel.marks)


def _name_curves(ax: Axes, panel: Curves, told: set[tuple[str, ...]]) -> None:
    """A legend of the lines whose names and looks are not `told`, which they are from here on."""
    looks = {
        (str(line.get_label()), str(line.get_color()), str(line.get_linestyle())): line
        for line in ax.lines
        if not str(line.get_label()).startswith("_")  # which matplotlib calls those without a name
    }
    new = [line for each, line in looks.items() if each not in told]
    told.update(looks)
    if new:
        # A pale ground: some legends have no place that is free.
        frame = {"frameon": True, "framealpha": 0.75, "edgecolor": "none", "fancybox": False}
        ax.legend(handles=new, loc=panel.legend, **frame)


def _name_marks(ax: Axes, marks: Sequence[tuple[float, str]]) -> None:
    """A word left of every mark, at the top, or at the bottom where one at the top would be in its way."""
    last = -np.inf
    for place, word in sorted(marks):
        across = ax.transAxes.inverted().transform(ax.transData.transform((place, 1.0)))[0]
        top = across - last > CLOSE
        last = across if top else last
        height, side = (0.98, "top") if top else (0.02, "bottom")
        at = {"xy": (place, height), "xycoords": ax.get_xaxis_transform(), "va": side}
        ax.annotate(word, **at, rotation=90, **BESIDE)
