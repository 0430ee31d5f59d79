"""Figures for browsers, in the form of plotly: dicts with `data` and `layout`; and texts that explain them.

A figure has no background and no colour of text: a page sets its own, light or dark (`coloured`). Names from
specifications are escaped, so that plotly never takes them for markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from benign.plot.axis import axis_name, cell_edges, log_spaced
from benign.plot.laws import (
    crossings_name,
    curve_points,
    fit_name,
    fitted_rows,
    masked_name,
    moved_name,
    printed_law,
)
from benign.plot.lines import COLOURS, LINES
from benign.plot.maps import SIDES, Panel, finite_range
from benign.plot.style import BLACK, BLUE, DARK_GREY, VERMILLION
from benign.plot.variables import value_range
from benign.report.cells import STATUS_TEXT, Limits, Means, escaped, means, rounded
from benign.stats.boundary import Boundary
from benign.stats.law import Law
from benign.sweep.results import RETRIED
from benign.training.descent import Status

TWO_COLOURS = [[0, SIDES[0]], [0.5, SIDES[0]], [0.5, SIDES[1]], [1, SIDES[1]]]
DASHES = dict(zip(LINES, ("solid", "dash", "dashdot", "dot"), strict=True))
LABELS = "labels"
"""attribute with the labels of a coordinate that only numbers its values"""
LONGEST_TITLE = 52
"""letters of the title of an axis"""
BAD_ENDS = tuple(STATUS_TEXT[each] for each in (Status.DIVERGED, *RETRIED))
LARGEST_MARK = 9.0
"""pixels of the mark of a cell whose runs are all masked"""
MOST_TICKS = 12
"""an axis of at most so many values has a tick for each"""
HALF = 0.5
"""position of step 0 on a logarithmic axis"""
WIDE = 1000.0
"""colours are logarithmic if the ratio of the largest to the smallest value is larger"""

PlotlyFigure = dict[str, Any]
"""a figure of plotly, or a part of one, made of values that JSON has"""


def heat_map(
    panel: Panel, ended: np.ndarray | None = None, span: Limits | None = None
) -> PlotlyFigure:
    """Return a map of means over seeds with its overlays; `ended` are texts about how the runs of cells [y, x] ended.

    The colour scale has the limits of the panel, or a `span` that several maps share. The first trace is the map: the
    point number of a click on it is `[row, column]` of the cell.
    """
    values = panel.values.sortby([panel.y, panel.x])
    averages = means(values, panel.y, panel.x, within=value_range(panel.label))
    axes = [_axis(values[dim]) for dim in (panel.x, panel.y)]
    edges = [_edges(values[dim]) for dim in (panel.x, panel.y)]
    colours = _colours(panel, averages.mean, span)
    cells: PlotlyFigure = {
        "type": "heatmap",
        "x": rounded(edges[0]),
        "y": rounded(edges[1]),
        "text": _hover_texts(values, [panel.y, panel.x], panel.label, averages, ended),
        "hovertemplate": "%{text}<extra></extra>",
        "hoverongaps": True,
        "xgap": 1,
        "ygap": 1,
        **colours,
    }
    limits = _limits(edges[0]), _limits(edges[1])
    ranges = {
        "xaxis": axes[0] | _axis_range(edges[0], axes[0]),
        "yaxis": axes[1] | _axis_range(edges[1], axes[1]),
    }
    traces = [*_bad_ends(values, [panel.x, panel.y], averages, ended), *overlays(panel, limits)]
    layout = _layout(**ranges, hovermode="closest", showlegend=bool(traces))
    layout["plot_bgcolor"] = "rgba(128,128,128,0.15)"  # of cells that have not run
    # The legend has its own background: overlays are black or white.
    layout["legend"] |= {"bgcolor": "#cfcfd6", "font": {"color": "#1c1c22"}}
    return {"data": [cells, *traces], "layout": layout}


def _bad_ends(
    values: xr.DataArray, axes: Sequence[str], averages: Means, ended: np.ndarray | None
) -> list[PlotlyFigure]:
    """Return crosses for the cells that will never have a value, because their runs diverged or failed."""
    if ended is None:
        return []
    bad = np.vectorize(lambda text: any(end in text for end in BAD_ENDS), otypes=[bool])(ended)
    rows, columns = np.nonzero(bad & np.isnan(averages.mean))
    if not rows.size:
        return []
    marker = {"symbol": "x", "size": 9, "color": VERMILLION}
    name = "no value: runs diverged or failed"
    x, y = axes
    return [_cell_marks(values[x], values[y], rows, columns, marker, name)]


def lines(
    values: xr.DataArray,
    along: str,
    label: str,
    ended: np.ndarray | None = None,
) -> PlotlyFigure:
    """Return means over seeds along one axis, with 95 % intervals; the last trace has the points."""
    values = values.sortby(along)
    bounds = value_range(label)
    averages = means(values, along, within=bounds)
    x, colour = values[along].values.tolist(), COLOURS[0]
    points: PlotlyFigure = {
        "type": "scatter",
        "x": x,
        "y": rounded(averages.mean),
        "mode": "markers" if LABELS in values[along].attrs else "lines+markers",
        "line": {"color": colour},
        "marker": {"size": 9, "color": colour},
        "text": _hover_texts(values, [along], label, averages, ended),
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }
    data = [points]
    several = averages.seeds > 1
    if several.any():
        low, high = (np.where(several, end, averages.mean) for end in (averages.low, averages.high))
        if LABELS in values[along].attrs:
            points["error_y"] = {
                "type": "data",
                "array": rounded(high - averages.mean),
                "arrayminus": rounded(averages.mean - low),
            }
        else:
            data = [*_band(x, rounded(low), rounded(high), colour), points]
    y: PlotlyFigure = {"title": {"text": escaped(label)}, "automargin": True}
    if np.isfinite(bounds).all():
        y["range"] = [bounds[0], bounds[1] + 0.02 * (bounds[1] - bounds[0])]
    return {
        "data": data,
        "layout": _layout(
            xaxis=_axis(values[along]), yaxis=y, hovermode="closest", showlegend=False
        ),
    }


def training(
    names: Sequence[tuple[str, str]],
    steps: Sequence[int],
    numbers: Callable[[str, str], Any],
    *,
    label: str,
    log: bool = False,
    band: bool = False,
) -> PlotlyFigure:
    """Return curves along the steps of training, one for each `(variable, name in the legend)`.

    `numbers(variable, kind)` returns the numbers of the kinds mean, low and high; the latter two make a `band`. A page
    may return references instead and fill them in later.
    """
    x = [step or HALF for step in steps]
    data = []
    for number, (variable, name) in enumerate(names):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[LINES[number % len(LINES)]]
        if band:
            data += _band(x, numbers(variable, "low"), numbers(variable, "high"), colour)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": x,
                "y": numbers(variable, "mean"),
                "name": escaped(name),
                "line": {"color": colour, "dash": dash, "width": 2},
                "hovertemplate": f"{escaped(name)}: %{{y:.4g}}<extra></extra>",
            }
        )
    powers = range(math.ceil(math.log10(max(x[-1], 1))) + 1)
    ticks = {
        "tickvals": [HALF, *(10**k for k in powers)],
        "ticktext": ["0", *(f"{10**k:,}" for k in powers)],
    }
    xaxis = {"type": "log", "title": {"text": "training step"}, **ticks, "automargin": True}
    yaxis = {
        "title": {"text": escaped(label)},
        "automargin": True,
        # "0.05" instead of "5"; few ticks, so that 1, 2 and 5 of a decade are all labelled.
        **({"type": "log", "tickformat": "~g", "nticks": 3} if log else {}),
    }
    layout = _layout(xaxis=xaxis, yaxis=yaxis, hovermode="x unified", showlegend=len(names) > 1)
    return {"data": data, "layout": layout}


def coloured(figure: PlotlyFigure, ink: str, paper: str) -> PlotlyFigure:
    """Return the figure with the colours of a page: `ink` of text and lines, `paper` of the background."""
    lines = {
        "gridcolor": f"{ink}22",
        "linecolor": ink,
        "zerolinecolor": f"{ink}44",
        "tickcolor": ink,
    }
    layout = figure["layout"]
    axes = {name: layout[name] | lines for name in ("xaxis", "yaxis")}
    box = {"bgcolor": paper, "bordercolor": ink, "font": {"color": ink}}
    return figure | {
        "layout": layout | axes | {"font": {"color": ink}, "hoverlabel": layout["hoverlabel"] | box}
    }


def _layout(**more: Any) -> PlotlyFigure:
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xref": "container",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            # A line consists of several traces, and a click would hide only one of them.
            "itemclick": False,
            "itemdoubleclick": False,
        },
        "hoverlabel": {"align": "left", "namelength": -1},
        "dragmode": False,
        **more,
    }


def _axis(coordinate: xr.DataArray) -> PlotlyFigure:
    """Return scale, ticks and title of an axis."""
    axis: PlotlyFigure = {
        "title": {"text": escaped(_axis_title(coordinate))},
        "automargin": True,
        "showgrid": False,
    }
    if names := coordinate.attrs.get(LABELS):
        numbers = coordinate.values.tolist()
        ticks = {"tickvals": numbers, "ticktext": [escaped(_shortened(name)) for name in names]}
        return axis | ticks | {"range": [-0.5, len(names) - 0.5], "zeroline": False}
    centres = coordinate.values.astype(float)
    own = {"tickvals": centres.tolist(), "ticktext": [f"{each:.3g}" for each in centres]}
    if log_spaced(centres):
        if centres.size <= MOST_TICKS:
            return axis | {"type": "log", **own}
        ticks = log_ticks(*_limits(cell_edges(centres, True)))
        return axis | {"type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]}
    return axis | own if centres.size <= MOST_TICKS else axis


def _axis_title(coordinate: xr.DataArray) -> str:
    """Return the long name of an axis, or, if it is too long, the short one."""
    name = axis_name(coordinate)
    symbol = coordinate.attrs.get("symbol")
    short = f"{coordinate.name} ({symbol})" if symbol else str(coordinate.name)
    return name if len(name) <= LONGEST_TITLE else short


def log_ticks(low: float, high: float) -> list[float]:
    """Return plain numbers between the ends of a logarithmic axis: 0.2, 0.5, 1; powers of ten if there are many.

    >>> log_ticks(0.15, 12)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    heads = (1, 2, 5) if len(decades) < 6 else (1,)
    every = math.ceil(len(decades) / 10)
    ticks = [float(f"{head}e{power}") for power in decades[::every] for head in heads]
    return [tick for tick in ticks if low <= tick <= high]


def _edges(coordinate: xr.DataArray) -> np.ndarray:
    centres = coordinate.values.astype(float)
    return cell_edges(centres, LABELS not in coordinate.attrs and log_spaced(centres))


def _limits(edges: np.ndarray) -> Limits:
    return float(edges[0]), float(edges[-1])


def _axis_range(edges: np.ndarray, axis: PlotlyFigure) -> PlotlyFigure:
    ends = np.log10(edges[[0, -1]]) if axis.get("type") == "log" else edges[[0, -1]]
    return {"range": [float(end) for end in ends], "constrain": "domain"}


def _colours(panel: Panel, mean: np.ndarray, span: Limits | None) -> PlotlyFigure:
    """Return the numbers of a map, their colours and the colour bar."""
    bar: PlotlyFigure = {
        "title": {"text": escaped(panel.label), "side": "right"},
        "thickness": 14,
        "outlinewidth": 0,
    }
    if panel.cut is not None:
        sides = np.where(np.isfinite(mean), mean >= panel.cut, np.nan)
        bar |= {"tickvals": [0.25, 0.75], "ticktext": [f"< {panel.cut:g}", f"≥ {panel.cut:g}"]}
        return {
            "z": rounded(sides),
            "zmin": 0,
            "zmax": 1,
            "colorscale": TWO_COLOURS,
            "colorbar": bar,
        }
    low, high = panel.limits or span or finite_range(mean)
    if panel.limits is None and 0 < low * WIDE < high:
        ends = math.floor(math.log10(low)), math.ceil(math.log10(high))
        step = max(1, (ends[1] - ends[0]) // 6)
        ticks = list(range(ends[0], ends[1] + 1, step))
        bar |= {"tickvals": ticks, "ticktext": [f"{10.0**k:g}" for k in ticks]}
        bar["title"]["text"] += " (log scale)"
        mean, (low, high) = np.log10(mean), (math.log10(low), math.log10(high))
    return {"z": rounded(mean), "zmin": low, "zmax": high, "colorscale": "Viridis", "colorbar": bar}


def _hover_texts(
    values: xr.DataArray, dims: Sequence[str], label: str, averages: Means, ended: np.ndarray | None
) -> list[Any]:
    """Return the text about every cell over these axes: its coordinates, its mean, and how its runs ended."""
    names = [[f"{escaped(dim)} {escaped(name)}" for name in labels_of(values[dim])] for dim in dims]
    texts = np.empty(averages.mean.shape, object)
    for cell in np.ndindex(*texts.shape):
        where = ", ".join(reversed([name[i] for name, i in zip(names, cell, strict=True)]))
        lines = [where, f"{escaped(label)} {averages.text(cell)}"]
        texts[cell] = "<br>".join(lines if ended is None else [*lines, str(ended[cell])])
    return texts.tolist()


def labels_of(coordinate: xr.DataArray) -> list[str]:
    """Return the labels of the values of a coordinate, or the values as text."""
    values = coordinate.attrs.get(LABELS) or coordinate.values.tolist()
    return [f"{each:.4g}" if isinstance(each, float) else str(each) for each in values]


def _shortened(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _band(x: list, low: Any, high: Any, colour: str) -> list[PlotlyFigure]:
    """Return the shaded area between two lines."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    edge = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "line": {"width": 0},
        "showlegend": False,
        "hoverinfo": "skip",
    }
    return [
        edge | {"y": low},
        edge | {"y": high, "fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.2)"},
    ]


def overlays(panel: Panel, limits: tuple[Limits, Limits]) -> list[PlotlyFigure]:
    """Return the traces over a map whose axes x and y have these limits."""
    return [*_laws(panel, limits), *_crossings(panel), *_crosses(panel)]


def _laws(panel: Panel, limits: tuple[Limits, Limits]) -> list[PlotlyFigure]:
    """Return the law that a paper prints, the fitted law with its band, and the prediction."""
    traces = []
    if panel.printed is not None:
        law, name = printed_law(panel.printed, panel.values, panel.printed_by)
        traces += _curve(panel.x, law, limits, law.curve, name, VERMILLION, "solid")
    edge = panel.boundary
    if edge is None:
        return traces
    if edge.fit is not None and edge.fit.bounded:
        fit, between, confidence = edge.fit, fitted_rows(edge), edge.confidence
        ends = [
            curve_points(edge.law, panel.x, limits, each, between, 60)
            for each in (
                lambda rows: fit.band(rows, confidence)[0],
                lambda rows: fit.band(rows, confidence)[1],
            )
        ]
        traces += _fit_band(ends, f"{100 * confidence:g} % band of the fit")
        traces += _curve(
            panel.x, edge.law, limits, fit.curve, fit_name(edge, fit), BLACK, "dash", between
        )
    if panel.predicted is not None:
        traces += _curve(
            panel.x, edge.law, limits, panel.predicted, panel.predicted_by, BLUE, "dot"
        )
    return traces


def _curve(
    x: str,
    law: Law,
    limits: tuple[Limits, Limits],
    column_of: Callable[[np.ndarray], np.ndarray],
    name: str,
    colour: str,
    dash: str,
    between: Limits = (0.0, math.inf),
) -> list[PlotlyFigure]:
    """Return a line with a light rim, visible on dark and on bright cells."""
    points = np.asarray(curve_points(law, x, limits, column_of, between, 200))
    if not np.isfinite(points).all(0).any():
        name = f"{name} (outside the map)"
    at = {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(points[0]),
        "y": rounded(points[1]),
        "hoverinfo": "skip",
    }
    rim = {"line": {"color": "white", "width": 4.5}, "opacity": 0.7, "showlegend": False}
    return [
        at | rim,
        at | {"name": escaped(name), "line": {"color": colour, "width": 2.2, "dash": dash}},
    ]


def _fit_band(ends: list[tuple[np.ndarray, np.ndarray]], name: str) -> list[PlotlyFigure]:
    """Return the area between the two ends of the interval of a fit."""
    (x, y), (x_back, y_back) = ends
    around = np.concatenate([x, x_back[::-1]]), np.concatenate([y, y_back[::-1]])
    known = np.isfinite(around).all(0)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": rounded(around[0][known]),
            "y": rounded(around[1][known]),
            "fill": "toself",
            "fillcolor": "rgba(255,255,255,0.35)",
            "line": {"width": 0},
            "name": name,
            "hoverinfo": "skip",
        }
    ]


def _crossings(panel: Panel) -> list[PlotlyFigure]:
    """Return where the map crosses the level in each row, with the range over seeds."""
    edge = panel.boundary
    if edge is None or not edge.critical.notnull().any():
        return []
    known = edge.critical.dropna(edge.law.row)
    per_seed = edge.critical_per_seed.sel({edge.law.row: known[edge.law.row]})
    rows, order = known[edge.law.row].values.astype(float), 1 if edge.law.column == panel.x else -1
    # Lines, not error bars: the mean may cross outside the range of its seeds.
    ends = np.stack([per_seed.min("seed"), per_seed.max("seed"), np.full(rows.size, np.nan)], -1)
    range_x, range_y = (ends.ravel(), np.repeat(rows, 3))[::order]
    x, y = (known.values, rows)[::order]
    at = {"type": "scatter", "hoverinfo": "skip"}
    bars = at | {"mode": "lines", "x": rounded(range_x), "y": rounded(range_y), "showlegend": False}
    dots = at | {"mode": "markers", "x": rounded(x), "y": rounded(y)}
    rim = {"color": BLACK, "width": 1.2}
    return [
        bars | {"line": {"color": BLACK, "width": 2}},
        dots
        | {
            "marker": {"size": 8, "color": "white", "line": rim},
            "name": escaped(crossings_name(edge)),
        },
    ]


def _crosses(panel: Panel) -> list[PlotlyFigure]:
    """Return marks of cells: those that a smaller step size changes, and those with masked runs."""
    return [*_moved(panel), *_masked(panel)]


def _masked(panel: Panel) -> list[PlotlyFigure]:
    """Return triangles for the cells with masked runs, of an area that is their share."""
    if panel.masked is None:
        return []
    share = panel.masked.transpose(panel.y, panel.x)
    rows, columns = np.nonzero(share.values > 0)
    sizes = rounded(LARGEST_MARK * np.sqrt(share.values[rows, columns]))
    line = {"color": BLACK, "width": 1}
    marker = {"symbol": "triangle-down", "size": sizes, "color": "white", "line": line}
    return [_cell_marks(share[panel.x], share[panel.y], rows, columns, marker, masked_name(share))]


def _moved(panel: Panel) -> list[PlotlyFigure]:
    if panel.moved is None:
        return []
    tried = panel.moved.transpose(panel.y, panel.x)
    rows, columns = np.nonzero(tried.values == 1)
    marker = {"symbol": "x-thin", "size": 7, "line": {"color": DARK_GREY, "width": 1.5}}
    return [_cell_marks(tried[panel.x], tried[panel.y], rows, columns, marker, moved_name(tried))]


def _cell_marks(
    x: xr.DataArray,
    y: xr.DataArray,
    rows: np.ndarray,
    columns: np.ndarray,
    marker: PlotlyFigure,
    name: str,
) -> PlotlyFigure:
    """Return a mark in the middle of each cell of these rows and columns."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(x.values[columns]),
        "y": rounded(y.values[rows]),
        "marker": marker,
        "name": name,
        "hoverinfo": "skip",
    }


FITTED_CONSTANT = "with the paper's exponent and a constant fitted here"


def explain_map(panel: Panel, title: str, meaning: str) -> str:
    """Return an explanation of a map and its overlays."""
    return " ".join(_map_sentences(panel, title, meaning))


def explain_lines(title: str, meaning: str, seeds: int) -> str:
    """Return an explanation of points along one axis."""
    sentences = [
        f"Each point is one setting of the experiment: {_quantity_text(title, meaning, seeds)}."
    ]
    if seeds > 1:
        sentences.append(
            "The band and the brackets show the 95 % interval of that mean (Student's t)."
        )
    return " ".join([*sentences, "Choose a point to see its training."])


def _map_sentences(panel: Panel, title: str, meaning: str) -> Iterator[str]:
    seeds = panel.values.sizes.get("seed", 1)
    if not np.isfinite(panel.values).any():
        yield (
            f"This map has no values of {title}: "
            "it was not measured at this setting, or nothing has been computed yet."
        )
        return
    sides = "dark is low, bright is high"
    if panel.cut is not None:
        sides = f"dark is below {panel.cut:g}, bright is above"
    yield f"Each cell is one setting of the experiment. Its colour is {_quantity_text(title, meaning, seeds)}: {sides}."
    drawn = panel.values.mean("seed") if "seed" in panel.values.dims else panel.values
    if not np.isfinite(drawn).all():
        yield "Grey cells have no value."
    if seeds > 1:
        yield "Brackets show the 95 % interval of that mean (Student's t), within the possible values."
    if panel.printed is not None:
        law = "that the paper prints" if panel.printed_by == "paper" else FITTED_CONSTANT
        yield f"The orange line is the law {law}."
    if panel.boundary is not None:
        yield from _boundary_sentences(panel.boundary)
        if panel.predicted is not None:
            yield "The dotted blue line is the prediction of the theory, without any training."
    if panel.moved is not None:
        yield "Crosses mark cells that change when the step size is divided by four."
    if panel.masked is not None:
        yield "Triangles mark cells with masked runs; the area is their share."
    yield "Choose a cell to see its training."


def _quantity_text(title: str, meaning: str, seeds: int) -> str:
    """Return the title of a quantity, its definition if it has one, and over how many seeds it is averaged."""
    average = f"mean over {seeds} seeds" if seeds > 1 else "one run"
    defined = meaning.lower() not in ("", title.lower())
    return f"{title} ({meaning}; {average})" if defined else f"{title} ({average})"


def _boundary_sentences(edge: Boundary) -> Iterator[str]:
    if not edge.critical.notnull().any():
        yield f"The map does not cross {edge.level:g}."
        return
    yield f"White dots mark where the map crosses {edge.level:g}."
    if edge.fit is None:
        yield f"No law is drawn: there is {edge.reason}."
    elif not edge.fit.bounded:
        yield "No law is drawn through them: its slope may be 0."
    else:
        percent = f"{100 * edge.confidence:g} %"
        yield f"The dashed line is the power law fitted to them, the pale band its {percent} interval."
