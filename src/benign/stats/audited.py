"""Boundaries of robust quantities: a law only where the audit allows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from benign.stats.boundary import Boundary, boundary
from benign.sweep.ends import at_end, masked_count

MASKED = "no boundary at this level: masked runs could move it"
"""why a boundary has no law although its map has one"""


def audited_boundary(
    result: xr.Dataset,
    values: str | Callable[[xr.Dataset], xr.DataArray],
    level: float,
    law: str | None = None,
    confidence: float = 0.95,
) -> Boundary:
    """Find where a map of a result crosses `level`; fit its law only if masked runs cannot move it.

    `values` is a variable, or a function that takes the map from the result. Masked runs (docs/attacks.md) are put at
    their certified end, an accuracy of 0 where nothing is certified. If the law of that map leaves the interval of the
    first one in some row, or if there is none, `fit` is None and `reason` says so. Clean variables have no such end:
    for them it is `boundary`.

    >>> import numpy as np
    >>> import xarray as xr
    >>> import benign as bo
    >>> rows, columns = np.array([4, 8, 16, 32, 64]), np.geomspace(0.1, 16, 30)
    >>> score = rows[:, None, None] * columns[None, :, None] ** 2 / 64 * np.linspace(0.9, 1.1, 5)
    >>> axes = {"samples": rows, "snr": columns, "seed": range(5)}
    >>> accuracy = xr.DataArray(score / (1 + score), axes, ("samples", "snr", "seed"))
    >>> sound = xr.Dataset({"robust_accuracy": accuracy, "audit": 0 * accuracy, "status": 0 * accuracy})
    >>> audited_boundary(sound, "robust_accuracy", 0.5).reason
    ''
    >>> masked = sound.assign(audit=sound.audit + 2)  # every run
    >>> audited_boundary(masked, "robust_accuracy", 0.5).reason
    'no boundary at this level: masked runs could move it'
    """

    def take(of: xr.Dataset) -> xr.DataArray:
        return of[values] if isinstance(values, str) else values(of)

    drawn = take(result)
    found = boundary(drawn, level, law, confidence=confidence)
    if found.fit is None or not masked_count(result):
        return found
    proven = take(at_end(result, "masked runs certified"))
    return found if proven.equals(drawn) else unless_moved(found, proven)


def unless_moved(found: Boundary, proven: xr.DataArray) -> Boundary:
    """Return a boundary, without its law if that of the map with masked runs at their certified end is another."""
    if found.fit is None or _stays(found, proven):
        return found
    return replace(found, fit=None, reason=MASKED)


def _stays(found: Boundary, proven: xr.DataArray) -> bool:
    """Return whether the law of the map with masked runs at their certified end is inside the interval of the first."""
    try:
        law = f"{found.law.row} * {found.law.column}**p"
        moved = boundary(proven, found.level, law, confidence=found.confidence).fit
    except ValueError:  # a loss has no finite end without a certificate
        return False
    if moved is None or found.fit is None:
        return False
    rows = found.critical.dropna(found.law.row)[found.law.row].values.astype(float)
    low, high = found.fit.band(rows, found.confidence)
    curve = moved.curve(rows)
    return bool(np.all((low <= curve) & (curve <= high)))
