"""Where each run of a map crosses a level: one critical column a run, or the side of the grid beyond which it lies.

The columns around a crossing say more than that it lies between them. All runs are taken to have transitions of one
shape, logistic in log column, of one width and, in a row, between the same plateaus, which are fitted to the map; every
run is compared with this shape at the four columns around its crossing only, so that far columns do not move it.
Where the transition is sharper than a column, nothing distinguishes the places between two columns, and their middle is
taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

WIDTHS = np.array([0.03, 0.06, 0.1, 0.15, 0.2, 0.28, 0.4, 0.55, 0.8, 1.2, 2.0, 4.0, 10.0])
"""widths that are tried, in columns"""
PLACES = np.linspace(-0.5, 1.5, 13)
FINE_PLACES = np.linspace(-1.0, 2.0, 49)
"""critical columns that are tried, between the columns around a crossing, 0 and 1"""
NEAR = np.arange(-1, 3)
"""columns with which the shape is compared, counted from the last one before the crossing"""
POOLED = 3.0
"""weight, in values, of the plateaus of the map in those of a row"""
LEAST_NOISE = 0.005
"""smallest standard deviation of a value, in heights of the transition"""


@dataclass(frozen=True, eq=False)
class RunCrossings:
    """Bounds of log column* of every run, [rows, seeds]; equal bounds are a known value."""

    low: np.ndarray
    high: np.ndarray
    """the run never crosses: `low` is its last column and `high` infinite; it is past the level at once: the reverse"""

    @property
    def known(self) -> np.ndarray:
        return np.isfinite(self.low) & np.isfinite(self.high)

    @property
    def informative(self) -> np.ndarray:
        return np.isfinite(self.low) | np.isfinite(self.high)

    def less(self, other: RunCrossings) -> RunCrossings:
        """Return the bounds of the difference to the crossings of the same runs by another quantity."""
        return RunCrossings(self.low - other.high, self.high - other.low)


def run_crossings(
    columns: np.ndarray, runs: np.ndarray, level: float, rising: bool
) -> RunCrossings:
    """Return where every run of a map [rows, columns, seeds] crosses the level; NaN are missing values.

    A run crosses where a rising curve fitted to it (isotonic regression) does: single values on the wrong side of the
    level do not count.
    """
    sign = 1.0 if rising else -1.0
    rows, _, seeds = runs.shape
    curves = sign * runs.transpose(0, 2, 1).reshape(rows * seeds, -1) - sign * level
    x, curves, count = _without_gaps(np.log(columns), curves)
    # The isotonic regression is at least 0 from the column on after which the sum of the values before is smallest.
    sums = np.concatenate([np.zeros((len(curves), 1)), np.nancumsum(curves, 1)], 1)
    sums[np.arange(sums.shape[1]) > count[:, None]] = math.inf
    before = sums.argmin(1) - 1
    each = np.arange(len(curves))
    last = np.maximum(count - 1, 0)
    starts, ends = (count > 0) & (before >= 0), (count > 0) & (before < last)
    low = np.where(starts, x[each, np.minimum(before, last)], -math.inf)
    high = np.where(ends, x[each, np.minimum(before + 1, last)], math.inf)
    crosses = np.isfinite(low) & np.isfinite(high)
    if crosses.any():
        row = np.repeat(np.arange(rows), seeds)[crosses]
        places = _places(x[crosses], curves[crosses], before[crosses], row)
        low[crosses] = high[crosses] = places
    return RunCrossings(low.reshape(rows, seeds), high.reshape(rows, seeds))


def _without_gaps(x: np.ndarray, curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x and values of each curve with missing values moved to its end, and the number of known ones."""
    missing = np.isnan(curves)
    count = (~missing).sum(1)
    if not missing.any():
        return np.broadcast_to(x, curves.shape), curves, count
    order = np.argsort(missing, 1, kind="stable")
    return x[order], np.take_along_axis(curves, order, 1), count


def _places(x: np.ndarray, curves: np.ndarray, before: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the critical x of curves [many, columns] that cross 0 after the column `before`."""
    near = before[:, None] + NEAR
    at = np.clip(near, 0, x.shape[1] - 1)
    xs, ys = np.take_along_axis(x, at, 1), np.take_along_axis(curves, at, 1)
    used = (near == at) & ~np.isnan(ys)
    xs, ys = np.where(used, xs, 0.0), np.where(used, ys, 0.0)
    start, step = xs[:, 1:2], xs[:, 2:3] - xs[:, 1:2]
    low, high = (np.full((len(x), 1), end) for end in np.nanquantile(curves, [0.03, 0.97]))
    widths, free = WIDTHS * np.median(step), max(int(used.sum()) - len(x) - 3, 1)
    places, tried = start, widths
    for first in (True, False, False):
        low, high = np.minimum(low, -1e-9), np.maximum(high, 1e-9)
        offset = np.clip(logit(-low / (high - low)), -4, 4)
        coarse = start + step * PLACES
        errors = _errors(xs, ys, used, coarse, tried[:, None, None, None], offset, low, high)
        width = float(tried[errors.min(-1).sum(-1).argmin()])
        fine = start + step * FINE_PLACES
        errors = _errors(xs, ys, used, fine, width, offset, low, high)
        least = errors.min(-1, keepdims=True)
        noise = np.maximum(float(least.sum()) / free, (LEAST_NOISE * (high - low)) ** 2)
        weights = np.exp(-(errors - least) / (2 * noise))
        places = (weights * fine).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
        low, high = _plateaus(expit((x - places) / width + offset), curves, row)
        tried = widths if first else np.array([width])
    return places[:, 0]


def _errors(
    xs: np.ndarray,
    ys: np.ndarray,
    used: np.ndarray,
    places: np.ndarray,
    width: np.ndarray | float,
    offset: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Return the sums of squares [..., many, places] of the shape at these critical x and widths."""
    share = expit((xs[:, :, None] - places[:, None, :]) / width + offset[:, :, None])
    off = (ys[:, :, None] - low[:, :, None] - (high - low)[:, :, None] * share) * used[:, :, None]
    return np.einsum("...nkp,...nkp->...np", off, off)


def _plateaus(
    share: np.ndarray, curves: np.ndarray, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the plateaus of each curve's row by least squares, given how far along its transition every value is.

    They are drawn to those of the whole map with the weight of `POOLED` values: a row may not reach a plateau.
    """
    known = ~np.isnan(curves)
    s, y = np.where(known, share, 0.0), np.where(known, curves, 0.0)
    rest = np.where(known, 1 - share, 0.0)
    sums = np.stack([rest * rest, rest * s, s * s, rest * y, s * y]).sum(-1)
    map_ends = _solved(sums.sum(1, keepdims=True) + 1e-9 * np.array([[1, 0, 1, 0, 0]]).T)
    of_rows = np.stack([np.bincount(row, each, row.max() + 1) for each in sums])
    drawn = POOLED * np.concatenate([np.array([[1.0], [0.0], [1.0]]), map_ends])
    low, high = _solved(of_rows + drawn)
    return low[row, None], high[row, None]


def _solved(sums: np.ndarray) -> np.ndarray:
    """Return the solutions [2, many] of [[a, b], [b, c]] (low, high) = (d, e), given a to e."""
    a, b, c, d, e = sums
    return np.stack([c * d - b * e, a * e - b * d]) / (a * c - b * b)
