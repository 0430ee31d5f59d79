"""What lies over a map: laws, fits and predictions as points and names, for whoever draws them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import xarray as xr

from benign.plot.axis import RAISED
from benign.stats.boundary import Boundary
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
