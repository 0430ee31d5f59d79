"""Critical values over a parameter, on logarithmic axes, with the power law fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.plot.axis import axis_ticks, log_ticks
from benign.plot.legends import legend_below
from benign.plot.lines import COLOURS
from benign.plot.overlays import NO_LAW
from benign.plot.sheet import for_paper, letter, sheet
from benign.stats.boundary import Boundary
from benign.stats.intervals import interval_text

POINTS = "os^Dv*"
"""a shape for each colour, for prints in grey"""


@dataclass(frozen=True, eq=False)
class Critical:
    """One set of critical values, with what a theory says of them."""

    name: str
    boundary: Boundary
    predicted: Callable[[np.ndarray], np.ndarray] | None = None
    predicted_name: str | None = None
    """for the legend"""


def exponents_figure(
    sets: Sequence[Critical], *, x: str, y: str, title: str, caption: str
) -> Figure:
    """Points are crossings of the mean over seeds, bars their range over seeds, dashed lines predictions."""
    with sheet(1, 1, (5.2, 3.6), title, caption, above=0.0) as (figure, [ax]):
        draw_critical(ax, sets, x, y)
        if for_paper():
            legend_below(ax)
        else:
            ax.legend(loc="upper left")
    return figure


def exponents_panels(
    panels: Mapping[str, Sequence[Critical]], *, x: str, y: str, title: str, caption: str
) -> Figure:
    """Such sets side by side under their names, two in a row, each with its legend below."""
    size = (4.2, 2.7 + 0.16 * max(map(len, panels.values())))
    shared = {"sharex": True, "sharey": True}
    with sheet(len(panels), 2, size, title, caption, **shared) as (figure, axes):
        for number, (ax, (name, sets)) in enumerate(zip(axes, panels.items(), strict=True)):
            draw_critical(ax, sets, x, y, apart=1.02)
            ax.set_title(letter(number, len(panels), name))
            ax.tick_params(labelbottom=True, labelleft=True)
            legend_below(ax)
    return figure


def draw_critical(
    ax: Axes, sets: Sequence[Critical], x: str, y: str, apart: float = 1.0, bands: bool = False
) -> None:
    """Critical values with their range over seeds, the law fitted to them and the curve predicted.

    Points of one set are drawn `apart` times to the right of those before, so that equal ones are seen. With `bands`
    fitted laws have their intervals, and names of their own; without, a set and its law share one. A law whose slope
    may be 0 is not drawn.
    """
    if len(sets) > len(COLOURS):
        raise ValueError(f"at most {len(COLOURS)} laws can be told apart, got {len(sets)}")
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
        point, place = POINTS[number], rows[known] * apart**number
        ax.errorbar(place, found[known], bars, fmt=point, color=colour, markersize=4)
        for name, pointed, lined in _names(each, apart=bands):
            marker, line = point if pointed else "none", "-" if lined else "none"
            look = {"color": colour, "marker": marker, "linestyle": line, "linewidth": 1}
            ax.plot([], [], label=name, markersize=4, **look)
        fit = each.boundary.fit
        if fit is not None and fit.bounded:
            ax.plot(rows, fit.curve(rows), color=colour, linewidth=1)
            if bands:
                _band(ax, each.boundary, rows[known], colour)
        if each.predicted is not None:
            fine = np.geomspace(rows.min(), rows.max(), 100)
            name = each.predicted_name
            ax.plot(
                fine, each.predicted(fine), color=colour, linewidth=1, linestyle="--", label=name
            )
    ax.set_xscale("log")
    ax.set_yscale("log")
    places = [each.boundary.critical[each.boundary.law.row].values for each in sets]
    axis_ticks(ax.xaxis, np.concatenate(places).astype(float), log=True)
    low, high = ax.yaxis.get_view_interval()
    if low > 0:  # not so where nothing was drawn
        log_ticks(ax.yaxis, low, high)
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def _band(ax: Axes, boundary: Boundary, rows: np.ndarray, colour: str) -> None:
    """The interval of the fitted law at every row between the first and the last that cross."""
    assert boundary.fit is not None
    fine = np.geomspace(rows.min(), rows.max(), 50)
    away = np.log(fine) - np.log(rows).mean()
    errors = boundary.fit.errors
    half = np.array([errors.along([1, x]).half_width(boundary.confidence) for x in away])
    middle = boundary.fit.curve(fine)
    low, high = middle * np.exp(-half), middle * np.exp(half)
    ax.fill_between(fine, low, high, color=colour, alpha=0.15, linewidth=0)


def _names(each: Critical, apart: bool) -> Iterator[tuple[str, bool, bool]]:
    """What the legend says of a set and of its law, in one entry or `apart`: words, with a point, with a line."""
    fit = each.boundary.fit
    if fit is None:
        yield f"{each.name}: {each.boundary.reason}", True, False
        return
    told = f"exponent {fit.slope:.2f} {interval_text(fit.slope_interval)}"
    if apart and fit.bounded:
        yield each.name, True, False
        yield f"fit: {told}", False, True
    elif apart:
        yield f"{each.name}: {told}", True, False
        yield NO_LAW, False, False
    else:
        undrawn = "" if fit.bounded else " (not drawn)"
        yield f"{each.name}: {told}{undrawn}", True, fit.bounded
