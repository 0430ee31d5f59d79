"""What lies over a map, as traces of plotly: laws, fits with their bands, predictions, critical points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benign.plot.laws import (
    crossings_name,
    curve_points,
    fit_name,
    fitted_rows,
    printed_law,
)
from benign.plot.maps import Panel
from benign.plot.style import BLACK, BLUE, DARK_GREY, VERMILLION
from benign.report.cells import Limits, plain, rounded
from benign.stats.law import Law

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
        drawn += _between(ends, f"{100 * confidence:g} % band of the fit")
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


def _between(ends: list[tuple[np.ndarray, np.ndarray]], name: str) -> list[Figure]:
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
