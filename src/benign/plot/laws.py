"""What lies over a map: laws, fits and predictions as points and names, for whoever draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.plot.axis import RAISED, axis_name, axis_ticks, log_ticks
from benign.plot.lines import COLOURS
from benign.plot.sheet import Width, drawn_for, for_paper, legend_below, letter, sheet
from benign.plot.variables import caption_of, listed, plain, variable_of
from benign.stats.boundary import Boundary, boundary
from benign.stats.intervals import interval_text, number
from benign.stats.law import Law, PowerLaw

Limits = tuple[float, float]

NO_LAW = "no law is drawn: its slope may be 0"
"""said of a fit whose interval has no end: a curve would tell what the points do not"""


def curve_points(
    law: Law,
    x: str,
    limits: tuple[Limits, Limits],
    column_of: Callable[[np.ndarray], np.ndarray],
    between: Limits = (0.0, math.inf),
    count: int = 2000,
) -> tuple[np.ndarray, np.ndarray]:
    """Points of `column = column_of(row)` for rows `between` two values, over the axes `x` and another one.

    `limits` are those of x and y; NaN where the curve is outside them.
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
    """A law as a paper prints it, `samples * snr**2 = 1000`, and its name in a legend."""
    parsed = Law.parse(law)
    if parsed.exponent is None or parsed.constant is None:
        raise ValueError(f"`law` must be printed with its numbers, 'a * b**2 = 1000', got {law!r}")
    text = law_text(symbol(values, parsed.row), symbol(values, parsed.column), parsed.exponent)
    return parsed, f"{source}: {text} = {parsed.constant:g}"


def crossings_name(boundary: Boundary) -> str:
    """The critical points of a boundary in a legend."""
    known = boundary.critical.notnull().values
    several = boundary.critical_per_seed.shape[1] > 1
    of = symbol(boundary.critical, boundary.law.row)
    name = f"crosses {boundary.level:g} at {known.sum()} of {known.size} values of {of}"
    return name + ("; bars: range over seeds" if several else "")


def fit_name(boundary: Boundary, fit: PowerLaw) -> str:
    """The fitted law of a boundary in a legend."""
    law, critical = boundary.law, boundary.critical
    symbols = symbol(critical, law.row), str(critical.attrs.get("symbol", law.column))
    exponent = f"p = {number(fit.exponent)} {interval_text(fit.exponent_interval)}"
    return f"fit: {law_text(*symbols, 'p')} = {number(fit.constant)}, {exponent}"


def fitted_rows(boundary: Boundary) -> Limits:
    """The smallest and the largest row that has a critical value: a fit is drawn between them."""
    rows = boundary.critical.dropna(boundary.law.row)[boundary.law.row].values
    return float(rows.min()), float(rows.max())


def symbol(values: xr.DataArray, dim: str) -> str:
    """How the papers write an axis."""
    return str(values[dim].attrs.get("symbol", dim)) if dim in values.coords else dim


def law_text(row: str, column: str, exponent: float | str) -> str:
    """The law in plain characters: mathematical typesetting would scatter its words in an SVG."""
    power = exponent if isinstance(exponent, str) else f"{exponent:g}"
    raised = power.translate(RAISED) if set(power) <= set("0123456789-p") else f"^{power}"
    return f"{row} · {column}{raised}"


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
    for order, (colour, each) in enumerate(zip(COLOURS, sets, strict=False)):
        rows = each.boundary.critical[each.boundary.law.row].values.astype(float)
        found = each.boundary.critical.values
        spread = each.boundary.critical_per_seed.values
        known = np.isfinite(found)
        low, high = (
            np.array([pick(row[np.isfinite(row)], initial=mid) for row, mid in zip(spread, found, strict=True)])
            for pick in (np.min, np.max)
        )  # fmt: skip
        bars = [(found - low)[known], (high - found)[known]]
        point, place = POINTS[order], rows[known] * apart**order
        ax.errorbar(place, found[known], bars, fmt=point, color=colour, markersize=4)
        for name, pointed, lined in _legend_entries(each, apart=bands):
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


def _legend_entries(each: Critical, apart: bool) -> Iterator[tuple[str, bool, bool]]:
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
    """Where variables cross a level, over one axis, with the fitted power laws, their intervals and predicted ones.

    `law` is as in `bo.boundary`. `predicted` is a law as a paper prints it, `"samples * snr**2 = 1000"`, or one for
    each variable; without its constant it is drawn through the middle of the points. A fitted law whose slope may be 0
    is told and not drawn. `title` and `caption` are made of the result, "" leaves them out; `width` "column" or "page"
    is for papers.

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
    ['test accuracy 0.5', 'fit: exponent -0.50 [-0.504, -0.496]', 'predicted: exponent -0.5']
    """
    names = listed(variables)
    if isinstance(predicted, Mapping) and (unknown := set(predicted) - set(names)):
        raise ValueError(f"`predicted` names {sorted(unknown)}, which are not among {names}")
    sets = [_critical(result, name, level, law, predicted) for name in names]
    found = sets[0].boundary
    row, column = axis_name(found.critical[found.law.row]), axis_name(found.critical)
    if title is None:
        crosses = "crosses" if len(names) == 1 else "cross"
        title = f"Where {' and '.join(map(plain, names))} {crosses} {level:g}"
    if caption is None:
        caption = f"{caption_of(result)} {_caption(sets)}".strip()
    size = (4.2, 2.9 + 0.15 * (3 * len(names) + 1))
    with drawn_for(width), sheet(1, 1, size, title, caption, above=0.0) as (figure, [ax]):
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
    found, label = boundary(variable_of(result, name, 2), level, law), f"{plain(name)} {level:g}"
    printed = predicted.get(name) if isinstance(predicted, Mapping) else predicted
    if printed is None:
        return Critical(label, found)
    told = _predicted(printed, found)
    assert told.exponent is not None
    curve = None if told.constant is None else told.curve
    return Critical(label, found, curve, f"predicted: exponent {-1 / told.exponent:.3g}")


def _predicted(printed: str, found: Boundary) -> Law:
    """A law of the same rows and columns; one without a constant goes through the middle of the points, if any."""
    law, free = Law.parse(printed), found.law
    if law.exponent is None or (law.row, law.column) != (free.row, free.column):
        example = f"{free.row} * {free.column}**2"
        raise ValueError(
            f"`predicted` must be a law with its exponent, as {example!r}, got {printed!r}"
        )
    if law.constant is None and found.critical.notnull().any():
        return replace(law, constant=found.constant_for(law.exponent).value)
    return law


def _caption(sets: Sequence[Critical]) -> str:
    """What a caption must say of points and lines."""
    seeds = sets[0].boundary.critical_per_seed.shape[1] > 1
    percent = f"{100 * sets[0].boundary.confidence:g} %"
    told = (
        "Points: crossings of the mean over seeds, bars their range."
        if seeds
        else "Points: crossings."
    )
    fits = [each.boundary.fit for each in sets]
    drawn = any(fit is not None and fit.bounded for fit in fits)
    lines = f" Lines: fitted laws with {percent} intervals." if drawn else ""
    dashed = " Dashed: predicted." if any(each.predicted for each in sets) else ""
    return f"{told}{lines}{dashed}"
