"""What a statistic gives: a number with an interval, and what it is a number of."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from benign.stats.intervals import Estimate, clopper_pearson, mean_interval, t_quantile

MOST_MISSING = 0.2
"""share of seeds without a number (diverged, failed) above which the others do not speak for them"""
ONE_SIDED = 0.9
"""confidence of both ends of a share together: each end alone is a 95 % bound, so 14 of 14 show 0.8"""


class Undecided(Exception):
    """Why runs say nothing about a claim: a vacuous bound, a hypothesis that is not met, nothing to look at."""


@dataclass(frozen=True)
class Measured:
    """A number, its interval, and what it was computed from."""

    of: str
    """what was measured, in words"""
    estimate: Estimate
    basis: str
    """`12 seeds`, `exact`, `48 of 50 draws`"""
    note: str = ""
    """what a reader should know beside it"""

    def noting(self, text: str) -> "Measured":
        return replace(self, note="; ".join(filter(None, [self.note, text])))

    def within(self, low: float, high: float) -> "Measured":
        """With an interval that ends where no such number can lie."""
        value, start, end = self.estimate
        return replace(self, estimate=Estimate(value, max(start, low), min(end, high)))


def exact(of: str, value: float, note: str = "") -> Measured:
    """A number without error of sampling: an identity, arithmetic, the largest of what was looked at."""
    value = float(value)
    if math.isnan(value):
        raise Undecided(f"{of} is not a number")
    return Measured(of, Estimate(value, value, value), "exact", note)


def worst(of: str, values: ArrayLike) -> Measured:
    """The largest of many numbers."""
    found = np.asarray(values, dtype=float)
    if found.size == 0:
        raise Undecided(f"{of}: there is nothing to look at")
    return replace(exact(of, found.max()), basis=f"largest of {found.size}")


def mean(of: str, values: ArrayLike, confidence: float = 0.95) -> Measured:
    """The mean of one number for each seed, with Student's t interval."""
    kept, note = _kept(of, values)
    return Measured(of, mean_interval(kept, confidence), _count(kept.size, "seed"), note)


def share(of: str, hits: ArrayLike, unit: str = "seed") -> Measured:
    """How often something happened in independent trials, with exact (Clopper and Pearson) 95 % bounds, each alone."""
    found = np.asarray(hits, dtype=bool).ravel()
    if found.size == 0:
        raise Undecided(f"{of}: there is nothing to count")
    count = int(found.sum())
    estimate = clopper_pearson(count, found.size, ONE_SIDED)
    return Measured(of, estimate, f"{count} of {_count(found.size, unit)}")


def slope(of: str, x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> Measured:
    """Slope of the line through points whose errors are independent, with Student's t interval."""
    given, found = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    known = np.isfinite(given) & np.isfinite(found)
    if known.sum() < 3 or np.ptp(given[known]) == 0:
        raise Undecided(f"{of}: {known.sum()} points are too few for a line with an interval")
    value, _, _, _, error = map(float, stats.linregress(given[known], found[known]))
    half = t_quantile(confidence, int(known.sum()) - 2) * error
    return Measured(of, Estimate(value, value - half, value + half), f"{known.sum()} points")


def slope_by_seed(of: str, x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> Measured:
    """The mean over seeds of each seed's own slope; `y` has a row for each seed.

    Runs of one seed may share their draws along the axis; seeds are independent.
    """
    given, rows = np.asarray(x, dtype=float), np.atleast_2d(np.asarray(y, dtype=float))
    slopes = []
    for row in rows:
        known = np.isfinite(given) & np.isfinite(row)
        enough = known.sum() >= 2 and np.ptp(given[known]) > 0
        slopes.append(np.polyfit(given[known], row[known], 1)[0] if enough else math.nan)
    return mean(of, slopes, confidence)


def _kept(of: str, values: ArrayLike) -> tuple[np.ndarray, str]:
    """The finite ones, and a note on the others; undecided where too many are missing."""
    found = np.asarray(values, dtype=float).ravel()
    kept = found[np.isfinite(found)]
    if kept.size == 0 or kept.size < (1 - MOST_MISSING) * found.size:
        raise Undecided(f"{of}: only {kept.size} of {found.size} seeds have a number")
    lost = found.size - kept.size
    return kept, f"{lost} of {found.size} seeds have no number and are left out" if lost else ""


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}"
