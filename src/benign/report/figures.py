"""Figures for browsers, as plotly takes them: plain dicts with `data` and `layout`.

They have no ground of their own and no colour of text, so that a page gives them its own, light or dark
(`inked`). What a specification calls things is shown letter by letter, never taken for markup.
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
    printed_law,
)
from benign.plot.lines import COLOURS, LINES
from benign.plot.maps import Panel
from benign.plot.style import BLACK, BLUE, DARK_GREY, VERMILLION
from benign.plot.variables import value_range
from benign.report.cells import ENDED, Limits, Means, means, plain, rounded
from benign.stats.boundary import Boundary
from benign.stats.law import Law
from benign.sweep.results import RETRIED
from benign.training.descent import Status

TWO_COLOURS = [[0, "#414487"], [0.5, "#414487"], [0.5, "#f9e784"], [1, "#f9e784"]]
DASHES = dict(zip(LINES, ("solid", "dash", "dashdot", "dot"), strict=True))
LABELS = "labels"
"""attribute of a coordinate that counts things: their names"""
LONGEST_TITLE = 52
"""letters of the name of an axis"""
BAD_ENDS = tuple(ENDED[each] for each in (Status.DIVERGED, *RETRIED))
MOST_TICKS = 12
"""values of an axis that are all told"""
HALF = 0.5
"""where step 0 stands on a logarithmic axis"""
WIDE = 1000.0
"""ratio of the largest to the smallest positive value above which colours are logarithmic"""


def heat_map(panel: Panel, ended: np.ndarray | None = None, span: Limits | None = None) -> Figure:
    """A map of means over seeds with all that lies over it; `ended` tells how the runs of each cell [y, x] ended.

    Colours reach over the limits of the panel, or a `span` that several maps share. The first trace is the map: a
    click on it has the place `[row, column]` of the cell as its point number.
    """
    values = panel.values.sortby([panel.y, panel.x])
    found = means(values, panel.y, panel.x, within=value_range(panel.label))
    axes = [_axis(values[dim]) for dim in (panel.x, panel.y)]
    edges = [_edges(values[dim]) for dim in (panel.x, panel.y)]
    colours = _colours(panel, found.mean, span)
    cells: Figure = {
        "type": "heatmap",
        "x": rounded(edges[0]),
        "y": rounded(edges[1]),
        "text": _hover(values, [panel.y, panel.x], panel.label, found, ended),
        "hovertemplate": "%{text}<extra></extra>",
        "hoverongaps": True,
        "xgap": 1,
        "ygap": 1,
        **colours,
    }
    limits = _ends(edges[0]), _ends(edges[1])
    places = {
        "xaxis": axes[0] | _range(edges[0], axes[0]),
        "yaxis": axes[1] | _range(edges[1], axes[1]),
    }
    drawn = [*_bad_ends(values, [panel.x, panel.y], found, ended), *over(panel, limits)]
    layout = _layout(**places, hovermode="closest", showlegend=bool(drawn))
    layout["plot_bgcolor"] = "rgba(128,128,128,0.15)"  # of cells that have not run
    # On a ground of its own: what is drawn over a map is black or white.
    layout["legend"] |= {"bgcolor": "#cfcfd6", "font": {"color": "#1c1c22"}}
    return {"data": [cells, *drawn], "layout": layout}


def _bad_ends(
    values: xr.DataArray, axes: Sequence[str], found: Means, ended: np.ndarray | None
) -> list[Figure]:
    """A cross in every cell that has no value because its runs diverged or failed: it will not fill by itself."""
    if ended is None:
        return []
    bad = np.vectorize(lambda told: any(word in told for word in BAD_ENDS), otypes=[bool])(ended)
    rows, columns = np.nonzero(bad & np.isnan(found.mean))
    if not rows.size:
        return []
    x, y = axes
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": rounded(values[x].values[columns]),
            "y": rounded(values[y].values[rows]),
            "marker": {"symbol": "x", "size": 9, "color": VERMILLION},
            "name": "no value: runs diverged or failed",
            "hoverinfo": "skip",
        }
    ]


def lines(
    values: xr.DataArray,
    along: str,
    label: str,
    ended: np.ndarray | None = None,
) -> Figure:
    """Means over seeds along one axis, with 95 % intervals; the last trace holds the points."""
    values = values.sortby(along)
    bounds = value_range(label)
    found = means(values, along, within=bounds)
    x, colour = values[along].values.tolist(), COLOURS[0]
    points: Figure = {
        "type": "scatter",
        "x": x,
        "y": rounded(found.mean),
        "mode": "markers" if LABELS in values[along].attrs else "lines+markers",
        "line": {"color": colour},
        "marker": {"size": 9, "color": colour},
        "text": _hover(values, [along], label, found, ended),
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }
    data = [points]
    if (found.seeds > 1).any():
        low, high = (np.where(found.seeds > 1, end, found.mean) for end in (found.low, found.high))
        if LABELS in values[along].attrs:
            points["error_y"] = {
                "type": "data",
                "array": rounded(high - found.mean),
                "arrayminus": rounded(found.mean - low),
            }
        else:
            data = [*_shaded(x, rounded(low), rounded(high), colour), points]
    y: Figure = {"title": {"text": plain(label)}, "automargin": True}
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
) -> Figure:
    """Curves along the steps of training, one for each `(variable, name in the legend)`.

    `numbers(variable, kind)` gives what is drawn, for the kinds mean, low and high; the latter two make a
    `band`. A page may give references in their place and fill them in later.
    """
    x = [step or HALF for step in steps]
    data = []
    for number, (variable, name) in enumerate(names):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[LINES[number % len(LINES)]]
        if band:
            data += _shaded(x, numbers(variable, "low"), numbers(variable, "high"), colour)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": x,
                "y": numbers(variable, "mean"),
                "name": plain(name),
                "line": {"color": colour, "dash": dash, "width": 2},
                "hovertemplate": f"{plain(name)}: %{{y:.4g}}<extra></extra>",
            }
        )
    powers = range(math.ceil(math.log10(max(x[-1], 1))) + 1)
    ticks = {
        "tickvals": [HALF, *(10**k for k in powers)],
        "ticktext": ["0", *(f"{10**k:,}" for k in powers)],
    }
    xaxis = {"type": "log", "title": {"text": "training step"}, **ticks, "automargin": True}
    yaxis = {
        "title": {"text": plain(label)},
        "automargin": True,
        # 0.05 and not a bare 5; few enough that 1, 2 and 5 of a decade have their numbers.
        **({"type": "log", "tickformat": "~g", "nticks": 3} if log else {}),
    }
    layout = _layout(xaxis=xaxis, yaxis=yaxis, hovermode="x unified", showlegend=len(names) > 1)
    return {"data": data, "layout": layout}


def inked(figure: Figure, ink: str, paper: str) -> Figure:
    """The figure with this colour of text and ground."""
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


def _layout(**more: Any) -> Figure:
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
            # A line consists of several traces: hiding one of them would only confuse.
            "itemclick": False,
            "itemdoubleclick": False,
        },
        "hoverlabel": {"align": "left", "namelength": -1},
        "dragmode": False,
        **more,
    }


def _axis(coordinate: xr.DataArray) -> Figure:
    """Scale, ticks and name of an axis."""
    axis: Figure = {
        "title": {"text": plain(_title(coordinate))},
        "automargin": True,
        "showgrid": False,
    }
    if names := coordinate.attrs.get(LABELS):
        places = coordinate.values.tolist()
        ticks = {"tickvals": places, "ticktext": [plain(_short(name)) for name in names]}
        return axis | ticks | {"range": [-0.5, len(names) - 0.5], "zeroline": False}
    centres = coordinate.values.astype(float)
    own = {"tickvals": centres.tolist(), "ticktext": [f"{each:.3g}" for each in centres]}
    if log_spaced(centres):
        if centres.size <= MOST_TICKS:
            return axis | {"type": "log", **own}
        ticks = log_ticks(*_ends(cell_edges(centres, True)))
        return axis | {"type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]}
    return axis | own if centres.size <= MOST_TICKS else axis


def _title(coordinate: xr.DataArray) -> str:
    """What an axis is, or where that takes too many words its name."""
    told = axis_name(coordinate)
    symbol = coordinate.attrs.get("symbol")
    short = f"{coordinate.name} ({symbol})" if symbol else str(coordinate.name)
    return told if len(told) <= LONGEST_TITLE else short


def log_ticks(low: float, high: float) -> list[float]:
    """Plain numbers between two ends of a logarithmic axis: 0.2, 0.5, 1; powers of ten where there are many of them.

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


def _ends(edges: np.ndarray) -> Limits:
    return float(edges[0]), float(edges[-1])


def _range(edges: np.ndarray, axis: Figure) -> Figure:
    ends = np.log10(edges[[0, -1]]) if axis.get("type") == "log" else edges[[0, -1]]
    return {"range": [float(end) for end in ends], "constrain": "domain"}


def _colours(panel: Panel, mean: np.ndarray, span: Limits | None) -> Figure:
    """What is drawn of a map, its colours, and the bar that explains them."""
    bar: Figure = {
        "title": {"text": plain(panel.label), "side": "right"},
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


def finite_range(values: np.ndarray) -> Limits:
    """Smallest and largest number; any range will do where there is none."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def _hover(
    values: xr.DataArray, dims: Sequence[str], label: str, found: Means, ended: np.ndarray | None
) -> list[Any]:
    """What is told of every cell over these axes."""
    names = [[f"{plain(dim)} {plain(name)}" for name in names_of(values[dim])] for dim in dims]
    told = np.empty(found.mean.shape, object)
    for place in np.ndindex(*told.shape):
        where = ", ".join(reversed([name[i] for name, i in zip(names, place, strict=True)]))
        lines = [where, f"{plain(label)} {found.text(place)}"]
        told[place] = "<br>".join(lines if ended is None else [*lines, str(ended[place])])
    return told.tolist()


def names_of(coordinate: xr.DataArray) -> list[str]:
    """What a coordinate says at each of its places."""
    found = coordinate.attrs.get(LABELS) or coordinate.values.tolist()
    return [f"{each:.4g}" if isinstance(each, float) else str(each) for each in found]


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _shaded(x: list, low: Any, high: Any, colour: str) -> list[Figure]:
    """The ground between two lines."""
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


Figure = dict[str, Any]
"""what plotly takes for a figure, or for a part of one; made of what JSON knows"""


def over(panel: Panel, limits: tuple[Limits, Limits]) -> list[Figure]:
    """The traces over a map whose axes x and y have these limits."""
    return [*_laws(panel, limits), *_crossings(panel), *_crosses(panel)]


def _laws(panel: Panel, limits: tuple[Limits, Limits]) -> list[Figure]:
    """The law that a paper prints, the one that was fitted with its band, and a prediction."""
    drawn = []
    if panel.printed is not None:
        law, name = printed_law(panel.printed, panel.values, panel.printed_by)
        drawn += _curve(panel.x, law, limits, law.curve, name, VERMILLION, "solid")
    edge = panel.boundary
    if edge is None:
        return drawn
    if edge.fit is not None and edge.fit.bounded:
        fit, between, confidence = edge.fit, fitted_rows(edge), edge.confidence
        ends = [
            curve_points(edge.law, panel.x, limits, each, between, 60)
            for each in (
                lambda rows: fit.band(rows, confidence)[0],
                lambda rows: fit.band(rows, confidence)[1],
            )
        ]
        drawn += _fit_band(ends, f"{100 * confidence:g} % band of the fit")
        drawn += _curve(
            panel.x, edge.law, limits, fit.curve, fit_name(edge, fit), BLACK, "dash", between
        )
    if panel.predicted is not None:
        drawn += _curve(panel.x, edge.law, limits, panel.predicted, panel.predicted_by, BLUE, "dot")
    return drawn


def _curve(
    x: str,
    law: Law,
    limits: tuple[Limits, Limits],
    column_of: Callable[[np.ndarray], np.ndarray],
    name: str,
    colour: str,
    dash: str,
    between: Limits = (0.0, math.inf),
) -> list[Figure]:
    """A line with a light rim, readable on dark and on bright cells."""
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
        at | {"name": plain(name), "line": {"color": colour, "width": 2.2, "dash": dash}},
    ]


def _fit_band(ends: list[tuple[np.ndarray, np.ndarray]], name: str) -> list[Figure]:
    """The ground between two curves of one fit."""
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


def _crossings(panel: Panel) -> list[Figure]:
    """Where the map crosses the level in each row, with the range over seeds."""
    edge = panel.boundary
    if edge is None or not edge.critical.notnull().any():
        return []
    known = edge.critical.dropna(edge.law.row)
    per_seed = edge.critical_per_seed.sel({edge.law.row: known[edge.law.row]})
    rows, order = known[edge.law.row].values.astype(float), 1 if edge.law.column == panel.x else -1
    # As lines and not as error bars: the mean may cross outside the range of its seeds.
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
            "name": plain(crossings_name(edge)),
        },
    ]


def _crosses(panel: Panel) -> list[Figure]:
    """Cells that a smaller step size changes."""
    if panel.moved is None:
        return []
    tried = panel.moved.transpose(panel.y, panel.x)
    rows, columns = np.nonzero(tried.values == 1)
    known = int(tried.notnull().sum())
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": rounded(tried[panel.x].values[columns]),
            "y": rounded(tried[panel.y].values[rows]),
            "marker": {"symbol": "x-thin", "size": 7, "line": {"color": DARK_GREY, "width": 1.5}},
            "name": f"a quarter of the step size moves it ({rows.size} of {known} cells tried)",
            "hoverinfo": "skip",
        }
    ]


PARTLY = "with the paper's exponent, and a constant fitted here"


def explain_map(panel: Panel, title: str, meaning: str) -> str:
    """A map and what lies over it."""
    return " ".join(_map_sentences(panel, title, meaning))


def explain_lines(title: str, meaning: str, seeds: int) -> str:
    """Points along one axis."""
    told = [f"Each point is one setting of the experiment: {_colour_text(title, meaning, seeds)}."]
    if seeds > 1:
        told.append("The band, and brackets: the 95 % interval of that mean (Student's t).")
    return " ".join([*told, "Choose one to see how it trained."])


def _map_sentences(panel: Panel, title: str, meaning: str) -> Iterator[str]:
    seeds = panel.values.sizes.get("seed", 1)
    if not np.isfinite(panel.values).any():
        yield f"There is no {title} here: it was not measured at this setting, or nothing has been computed yet."
        return
    sides = "dark is low, bright is high"
    if panel.cut is not None:
        sides = f"dark is below {panel.cut:g}, bright is above"
    yield f"Each cell is one setting of the experiment. Its colour is {_colour_text(title, meaning, seeds)}: {sides}."
    shown = panel.values.mean("seed") if "seed" in panel.values.dims else panel.values
    if not np.isfinite(shown).all():
        yield "Grey cells have no value."
    if seeds > 1:
        yield "Brackets: the 95 % interval of that mean (Student's t), as far as such numbers can lie."
    if panel.printed is not None:
        yield f"The orange line is the law {'that the paper prints' if panel.printed_by == 'paper' else PARTLY}."
    if panel.boundary is not None:
        yield from _boundary_sentences(panel.boundary)
        if panel.predicted is not None:
            yield "The dotted blue line is what theory predicts without training anything."
    if panel.moved is not None:
        yield "Crosses mark cells that change when the step size is divided by four."
    yield "Choose a cell to see how it trained."


def _colour_text(title: str, meaning: str, seeds: int) -> str:
    of = f"mean over {seeds} seeds" if seeds > 1 else "one run"
    same = meaning.lower() in ("", title.lower())
    return f"{title} ({of})" if same else f"{title} ({meaning}; {of})"


def _boundary_sentences(edge: Boundary) -> Iterator[str]:
    if not edge.critical.notnull().any():
        yield f"The map crosses {edge.level:g} nowhere."
        return
    yield f"White dots mark where the map crosses {edge.level:g}."
    if edge.fit is None:
        yield f"No law is fitted to them: {edge.reason}."
    elif not edge.fit.bounded:
        yield "No law is drawn through them: its slope may be 0."
    else:
        percent = f"{100 * edge.confidence:g} %"
        yield f"The dashed line is the power law fitted to them, the pale band its {percent} interval."
