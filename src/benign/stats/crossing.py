"""Where a curve first crosses a level, and where between two columns the crossing may lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

RESAMPLES = 999
"""bootstrap samples of seeds: enough to know a standard error to 2 %"""


@dataclass(frozen=True)
class Crossing:
    """The first crossing of one curve, in the units of the column."""

    column: float
    """the column of the crossing; NaN without one"""
    low: float
    high: float
    """`low` and `high`: between which the grid leaves the crossing undetermined"""
    count: int
    """how often the curve crosses"""
    reason: str
    """why there is no crossing, "" if there is one"""


def first_crossing(
    columns: np.ndarray, curve: np.ndarray, level: float, rising: bool, name: str
) -> Crossing:
    """Return the first crossing of a curve, interpolated linearly in log(column). NaN is skipped."""
    known = ~np.isnan(curve)
    columns, curve = columns[known], curve[known]
    if curve.size == 0:
        return _none(0, "every value is missing")
    beyond = curve >= level if rising else curve <= level
    changes = np.flatnonzero(beyond[1:] != beyond[:-1])
    if beyond[0]:
        side = "above" if rising else "below"
        reason = f"already at or {side} {level:g} at the lowest {name}, {columns[0]:.3g}"
        return _none(changes.size, reason)
    if changes.size == 0:
        side = "below" if rising else "above"
        return _none(0, f"stays {side} {level:g} up to the highest {name}, {columns[-1]:.3g}")
    at = int(changes[0])
    x = np.log(columns)
    chord = _meets(x, curve, at, at + 1, level)
    low, high = _open(x, curve, at, level)
    ends = (math.exp(min(low, chord)), math.exp(max(high, chord)))
    return Crossing(math.exp(chord), *ends, changes.size, "")


def _none(count: int, reason: str) -> Crossing:
    return Crossing(math.nan, math.nan, math.nan, count, reason)


def _meets(x: np.ndarray, curve: np.ndarray, a: int, b: int, level: float) -> float:
    """Return where the line through two points meets the level; NaN if it is flat."""
    rise = curve[b] - curve[a]
    return float(x[a] + (level - curve[a]) / rise * (x[b] - x[a])) if rise else math.nan


def _open(x: np.ndarray, curve: np.ndarray, at: int, level: float) -> tuple[float, float]:
    """Return where the crossing may lie between columns `at` and `at + 1`.

    A convex or concave curve lies between its chord and the lines through the two points before and the two points
    after. So a straight curve has a single crossing, and a jump may be anywhere between the columns.
    """
    start, end = float(x[at]), float(x[at + 1])
    ahead = _meets(x, curve, at - 1, at, level) if at > 0 else math.nan
    back = _meets(x, curve, at + 1, at + 2, level) if at + 2 < x.size else math.nan
    # A line that meets the level on the wrong side of its points is no bound.
    ahead = min(ahead, end) if ahead >= start else end
    back = max(back, start) if back <= end else start
    return min(ahead, back), max(ahead, back)


def draws_of_seeds(seeds: int) -> np.ndarray:
    """Return how often each seed is drawn, [resamples, seeds]; the same at every call."""
    drawn = np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES)
    return drawn.astype(float)


def resampled_means(runs: np.ndarray, drawn: np.ndarray | None = None) -> np.ndarray:
    """Return means over seeds drawn with replacement, [resamples, rows, columns], the same seeds for the whole map.

    `runs` is [rows, columns, seeds]. Runs of one seed may share draws over the whole grid; only seeds are independent.
    If all drawn seeds of a cell are missing, its mean over the known seeds is used.
    """
    drawn = draws_of_seeds(runs.shape[-1]) if drawn is None else drawn
    known = (~np.isnan(runs)).astype(float)
    filled = np.nan_to_num(runs)
    with np.errstate(invalid="ignore"):
        plain = filled.sum(-1) / known.sum(-1)
        means = np.tensordot(drawn, filled, (1, 2)) / np.tensordot(drawn, known, (1, 2))
    return np.where(np.isnan(means), plain, means)
