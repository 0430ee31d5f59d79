"""Critical values over a parameter, on logarithmic axes, with the power law fitted to them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benign.plot.axis import log_ticks
from benign.plot.curves import COLOURS
from benign.plot.style import SMALL, style
from benign.theory.boundary import Boundary
from benign.theory.intervals import interval_text


@dataclass(frozen=True, eq=False)
class Critical:
    """One set of critical values, with what a theory says of them."""

    name: str
    boundary: Boundary
    predicted: Callable[[np.ndarray], np.ndarray] | None = None


def exponents_figure(
    sets: Sequence[Critical], *, x: str, y: str, title: str, caption: str
) -> Figure:
    """Points are crossings of the mean over seeds, bars their range over seeds, dashed lines predictions."""
    if len(sets) > len(COLOURS):
        raise ValueError(f"`sets` must hold at most {len(COLOURS)} sets, got {len(sets)}")
    with style():
        lines = textwrap.wrap(caption, width=int(5.2 * 72 / (0.54 * SMALL)))
        figure = Figure(
            figsize=(5.2, 3.6 + 0.13 * len(lines)),
            layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06),
        )
        ax = figure.subplots()
        draw_critical(ax, sets, x, y)
        ax.legend(loc="upper left")
        figure.suptitle(title)
        figure.supxlabel("\n".join(lines), x=0.012, ha="left", fontsize=SMALL, linespacing=1.3)
    return figure


def exponents_panels(
    panels: Mapping[str, Sequence[Critical]], *, x: str, y: str, title: str, caption: str
) -> Figure:
    """Such sets side by side under their names, two in a row, each with its legend below."""
    down = math.ceil(len(panels) / 2)
    with style():
        lines = textwrap.wrap(caption, width=int(8.4 * 72 / (0.54 * SMALL)))
        height = (2.7 + 0.16 * max(map(len, panels.values()))) * down + 0.4 + 0.13 * len(lines)
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
        figure = Figure(figsize=(8.4, height), layout=layout)
        axes = figure.subplots(down, 2, squeeze=False, sharex=True, sharey=True).flatten()
        for ax in axes[len(panels) :]:
            ax.remove()
        for number, (ax, (name, sets)) in enumerate(zip(axes, panels.items(), strict=False)):
            draw_critical(ax, sets, x, y, apart=1.02)
            ax.set_title(f"({'abcdefgh'[number]}) {name}")
            ax.tick_params(labelbottom=True, labelleft=True)
            ax.legend(loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0, borderpad=0)
        figure.suptitle(title)
        figure.supxlabel("\n".join(lines), x=0.012, ha="left", fontsize=SMALL, linespacing=1.3)
    return figure


def draw_critical(ax: Axes, sets: Sequence[Critical], x: str, y: str, apart: float = 1.0) -> None:
    """Critical values with their range over seeds, the law fitted to them and the curve predicted.

    Points of one set are drawn `apart` times to the right of those before, so that equal ones are seen.
    """
    for number, (colour, each) in enumerate(zip(COLOURS, sets, strict=False)):
        rows = each.boundary.critical[each.boundary.law.row].values.astype(float)
        found = each.boundary.critical.values
        spread = each.boundary.critical_per_seed.values
        known = np.isfinite(found)
        low, high = (
            np.array([pick(row[np.isfinite(row)], initial=mid) for row, mid in zip(spread, found, strict=True)])
            for pick in (np.min, np.max)
        )  # fmt: skip
        bars = [(found - low)[known], (high - found)[known]]
        ax.errorbar(
            rows[known] * apart**number, found[known], bars, fmt="o", color=colour, markersize=4
        )
        ax.plot([], [], "o", color=colour, label=f"{each.name}: {_slope(each.boundary)}")
        if each.boundary.fit is not None:
            ax.plot(rows, each.boundary.fit.curve(rows), color=colour, linewidth=1)
        if each.predicted is not None:
            fine = np.geomspace(rows.min(), rows.max(), 100)
            ax.plot(fine, each.predicted(fine), color=colour, linewidth=1, linestyle="--")
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        if low > 0:  # not so where nothing was drawn
            log_ticks(axis, low, high)
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def _slope(boundary: Boundary) -> str:
    fit = boundary.fit
    if fit is None:
        return boundary.reason
    return f"exponent {fit.slope:.2f} {interval_text(fit.slope_interval)}"
