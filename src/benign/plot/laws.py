"""Laws as curves and names in legends, for maps of matplotlib and of the report; figures of critical values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.plot.axis import RAISED, axis_name, axis_ticks, log_ticks
from benign.plot.lines import COLOURS
from benign.plot.sheet import Width, drawn_for, for_paper, legend_below, panel_title, sheet
from benign.plot.variables import as_list, caption_of, readable, variable_of
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.stats.intervals import interval_text, number
from benign.stats.law import Law, PowerLaw

Limits = tuple[float, float]

NO_LAW = "no law is drawn: its slope may be 0"
"""for a fit with an unbounded interval: its curve would claim more than the points show"""


def curve_points(
    law: Law,
    x: str,
    limits: tuple[Limits, Limits],
    column_of: Callable[[np.ndarray], np.ndarray],
    between: Limits = (0.0, math.inf),
    count: int = 2000,
) -> tuple[np.ndarray, np.ndarray]:
    """Return points of the curve `column = column_of(row)` for rows `between` two values, as x and y of a map.

    One axis of the map is the row of the law and one its column; `x` names the horizontal one. The curve is NaN outside
    the `limits` of x and y.
    """
    along_x = law.column == x
    (left, right), (low, high) = limits[::-1] if along_x else limits
    right = min(right, between[1])
    # A row axis may start at 0, where a law has no value.
    rows = np.geomspace(max(left, between[0], 1e-4 * right), right, count)
    columns = column_of(rows)
    columns = np.where((columns >= low) & (columns <= high), columns, np.nan)
    return (columns, rows) if along_x else (rows, columns)


def printed_law(law: str, values: xr.DataArray, source: str) -> tuple[Law, str]:
    """Return a law as a paper prints it, `samples * snr**2 = 1000`, and its name in a legend."""
    parsed = Law.parse(law)
    if parsed.exponent is None or parsed.constant is None:
        raise ValueError(f"`law` must be printed with its numbers, 'a * b**2 = 1000', got {law!r}")
    text = law_text(symbol(values, parsed.row), symbol(values, parsed.column), parsed.exponent)
    return parsed, f"{source}: {text} = {parsed.constant:g}"


def crossings_name(boundary: Boundary) -> str:
    """Return the name of the critical points of a boundary in a legend."""
    known = boundary.critical.notnull().values
    several = boundary.critical_per_seed.shape[1] > 1
    row = symbol(boundary.critical, boundary.law.row)
    name = f"crosses {boundary.level:g} at {known.sum()} of {known.size} values of {row}"
    return name + ("; bars: range over seeds" if several else "")


def fit_name(boundary: Boundary, fit: PowerLaw) -> str:
    """Return the name of the fitted law of a boundary in a legend."""
    law, critical = boundary.law, boundary.critical
    symbols = symbol(critical, law.row), str(critical.attrs.get("symbol", law.column))
    exponent = f"p = {number(fit.exponent)} {interval_text(fit.exponent_interval)}"
    return f"fit: {law_text(*symbols, 'p')} = {number(fit.constant)}, {exponent}"


def fitted_rows(boundary: Boundary) -> Limits:
    """Return the smallest and the largest row that has a critical value: a fit is drawn between them."""
    rows = boundary.critical.dropna(boundary.law.row)[boundary.law.row].values
    return float(rows.min()), float(rows.max())


def moved_name(tried: xr.DataArray) -> str:
    """Return the name of cells that change at a quarter of the step size: 1 in `tried`, NaN if not tried."""
    moved, known = int((tried == 1).sum()), int(tried.notnull().sum())
    return f"a quarter of the step size moves it ({moved} of {known} cells tried)"


def masked_name(share: xr.DataArray) -> str:
    """Return the name of marks on cells with masked runs, whose areas are the shares of these runs."""
    cells, known = int((share > 0).sum()), int(share.notnull().sum())
    return f"masked runs, area: their share ({cells} of {known} cells)"


def symbol(values: xr.DataArray, dim: str) -> str:
    """Return the symbol that the papers have for an axis, or its name."""
    return str(values[dim].attrs.get("symbol", dim)) if dim in values.coords else dim


def law_text(row: str, column: str, exponent: float | str) -> str:
    """Return a law in plain characters: mathematical typesetting would split its words in an SVG."""
    power = exponent if isinstance(exponent, str) else f"{exponent:g}"
    raised = power.translate(RAISED) if set(power) <= set("0123456789-p") else f"^{power}"
    return f"{row} · {column}{raised}"


MARKERS = "os^Dv*"
"""a marker for each colour, for prints in grey"""


@dataclass(frozen=True, eq=False)
class Critical:
    """One set of critical values, and perhaps their prediction by a theory."""

    name: str
    boundary: Boundary
    predicted: Callable[[np.ndarray], np.ndarray] | None = None
    predicted_name: str | None = None
    """of the prediction in the legend"""


def exponents_figure(
    sets: Sequence[Critical], *, x: str, y: str, title: str, caption: str
) -> Figure:
    """Draw crossings of the mean over seeds as points, their range over seeds as bars, predictions as dashed lines."""
    with sheet(1, 1, (5.2, 3.6), title, caption, extra_height=0.0) as (figure, [ax]):
        draw_critical(ax, sets, x, y)
        if for_paper():
            legend_below(ax)
        else:
            ax.legend(loc="upper left")
    return figure


def exponents_panels(
    panels: Mapping[str, Sequence[Critical]], *, x: str, y: str, title: str, caption: str
) -> Figure:
    """Draw sets of critical values side by side under their names, two in a row, each with its legend below."""
    size = (4.2, 2.7 + 0.16 * max(map(len, panels.values())))
    shared = {"sharex": True, "sharey": True}
    with sheet(len(panels), 2, size, title, caption, **shared) as (figure, axes):
        for number, (ax, (name, sets)) in enumerate(zip(axes, panels.items(), strict=True)):
            draw_critical(ax, sets, x, y, shift=1.02)
            ax.set_title(panel_title(number, len(panels), name))
            ax.tick_params(labelbottom=True, labelleft=True)
            legend_below(ax)
    return figure


def draw_critical(
    ax: Axes, sets: Sequence[Critical], x: str, y: str, shift: float = 1.0, bands: bool = False
) -> None:
    """Draw critical values with their range over seeds, the law fitted to them and the predicted curve.

    The points of each set are moved to the right by the factor `shift` from those of the set before, so that equal
    ones stay visible. With `bands` fitted laws have their intervals and their own legend entries; otherwise a set and
    its law share one entry. A law whose slope may be 0 is not drawn.
    """
    if len(sets) > len(COLOURS):
        raise ValueError(
            f"`sets` must hold at most {len(COLOURS)} laws, one for each colour, got {len(sets)}"
        )
    for order, (colour, each) in enumerate(zip(COLOURS, sets, strict=False)):
        rows = each.boundary.critical[each.boundary.law.row].values.astype(float)
        critical = each.boundary.critical.values
        per_seed = each.boundary.critical_per_seed.values
        known = np.isfinite(critical)
        low, high = (
            np.array([pick(row[np.isfinite(row)], initial=mid) for row, mid in zip(per_seed, critical, strict=True)])
            for pick in (np.min, np.max)
        )  # fmt: skip
        bars = [(critical - low)[known], (high - critical)[known]]
        marker, moved_rows = MARKERS[order], rows[known] * shift**order
        ax.errorbar(moved_rows, critical[known], bars, fmt=marker, color=colour, markersize=4)
        for name, with_marker, with_line in _legend_entries(each, separate=bands):
            entry: dict[str, Any] = {
                "marker": marker if with_marker else "none",
                "linestyle": "-" if with_line else "none",
            }
            ax.plot([], [], label=name, color=colour, markersize=4, linewidth=1, **entry)
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
    all_rows = [each.boundary.critical[each.boundary.law.row].values for each in sets]
    axis_ticks(ax.xaxis, np.concatenate(all_rows).astype(float), log=True)
    low, high = ax.yaxis.get_view_interval()
    if low > 0:  # otherwise nothing was drawn
        log_ticks(ax.yaxis, low, high)
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def _band(ax: Axes, boundary: Boundary, rows: np.ndarray, colour: str) -> None:
    """Draw the interval of the fitted law between the first and the last row with a crossing."""
    assert boundary.fit is not None
    fine = np.geomspace(rows.min(), rows.max(), 50)
    low, high = boundary.fit.band(fine, boundary.confidence)
    ax.fill_between(fine, low, high, color=colour, alpha=0.15, linewidth=0)


def _legend_entries(each: Critical, separate: bool) -> Iterator[tuple[str, bool, bool]]:
    """Yield the legend entries of a set and its law, `separate` or as one: name, with a marker, with a line."""
    fit = each.boundary.fit
    if fit is None:
        yield f"{each.name}: {each.boundary.reason}", True, False
        return
    exponent = f"exponent {fit.slope:.2f} {interval_text(fit.slope_interval)}"
    if separate and fit.bounded:
        yield each.name, True, False
        yield f"fit: {exponent}", False, True
    elif separate:
        yield f"{each.name}: {exponent}", True, False
        yield NO_LAW, False, False
    else:
        not_drawn = "" if fit.bounded else " (not drawn)"
        yield f"{each.name}: {exponent}{not_drawn}", True, fit.bounded


def exponents(
    result: xr.Dataset,
    variables: str | Sequence[str] = "test_accuracy",
    *,
    level: float,
    law: str | None = None,
    predicted: str | Mapping[str, str] | None = None,
    title: str | None = None,
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Draw where variables cross a level, over one axis, with fitted power laws, their intervals and predictions.

    `law` is as in `bo.boundary`. `predicted` is a law as a paper prints it, `"samples * snr**2 = 1000"`, or one for
    each variable; a law without a constant is drawn through the middle of the points. A fitted law whose slope may be 0
    is in the legend and not drawn. `title` and `caption` come from the result, "" leaves them out; `width` "column" or
    "page" is for papers.

    >>> import numpy as np
    >>> import xarray as xr
    >>> import benign as bo
    >>> rows, columns = np.array([4, 8, 16, 32]), np.geomspace(0.5, 16, 20)
    >>> score = rows[:, None, None] * columns[None, :, None] ** 2 / 64 * np.array([1.0, 1.1])
    >>> axes = {"samples": rows, "snr": columns, "seed": [0, 1]}
    >>> values = xr.DataArray(score / (1 + score), axes, ("samples", "snr", "seed"))
    >>> figure = bo.plot.exponents(
    ...     xr.Dataset({"test_accuracy": values}), level=0.5, predicted="samples * snr**2"
    ... )
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['test accuracy 0.5', 'fit: exponent -0.50 [-0.509, -0.495]', 'predicted: exponent -0.5']
    """
    names = as_list(variables)
    if isinstance(predicted, Mapping) and (unknown := set(predicted) - set(names)):
        raise ValueError(f"`predicted` names {sorted(unknown)}, which are not among {names}")
    sets = [_critical(result, name, level, law, predicted) for name in names]
    first = sets[0].boundary
    row, column = axis_name(first.critical[first.law.row]), axis_name(first.critical)
    if title is None:
        crosses = "crosses" if len(names) == 1 else "cross"
        title = f"Where {' and '.join(map(readable, names))} {crosses} {level:g}"
    if caption is None:
        caption = f"{caption_of(result)} {_caption(sets)}".strip()
    size = (4.2, 2.9 + 0.15 * (3 * len(names) + 1))
    with drawn_for(width), sheet(1, 1, size, title, caption, extra_height=0.0) as (figure, [ax]):
        draw_critical(ax, sets, row, f"critical {column}", bands=True)
        legend_below(ax)
    return figure


def _critical(
    result: xr.Dataset,
    name: str,
    level: float,
    law: str | None,
    predicted: str | Mapping[str, str] | None,
) -> Critical:
    label, measured = (
        f"{readable(name)} {level:g}",
        audited_boundary(result, lambda of: variable_of(of, name, 2), level, law),
    )
    printed = predicted.get(name) if isinstance(predicted, Mapping) else predicted
    if printed is None:
        return Critical(label, measured)
    prediction = _predicted(printed, measured)
    assert prediction.exponent is not None
    curve = None if prediction.constant is None else prediction.curve
    return Critical(label, measured, curve, f"predicted: exponent {-1 / prediction.exponent:.3g}")


def _predicted(printed: str, measured: Boundary) -> Law:
    """Parse a law about a boundary; without a constant it goes through the middle of the points."""
    law, free = Law.parse(printed), measured.law
    if law.exponent is None or (law.row, law.column) != (free.row, free.column):
        example = f"{free.row} * {free.column}**2"
        raise ValueError(
            f"`predicted` must be a law with its exponent, as {example!r}, got {printed!r}"
        )
    if law.constant is None and measured.fit is not None:
        return replace(law, constant=measured.constant_for(law.exponent).value)
    return law


def _caption(sets: Sequence[Critical]) -> str:
    """Return the sentences of a caption about points and lines."""
    seeds = sets[0].boundary.critical_per_seed.shape[1] > 1
    percent = f"{100 * sets[0].boundary.confidence:g} %"
    points = (
        "Points: crossings of the mean over seeds, bars their range."
        if seeds
        else "Points: crossings."
    )
    fits = [each.boundary.fit for each in sets]
    drawn = any(fit is not None and fit.bounded for fit in fits)
    lines = f" Lines: fitted laws with {percent} intervals." if drawn else ""
    dashed = " Dashed: predicted." if any(each.predicted for each in sets) else ""
    return f"{points}{lines}{dashed}"
