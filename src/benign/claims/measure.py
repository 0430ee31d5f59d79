"""What a statistic returns: a number, its interval, and a description."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from benign.stats.intervals import Estimate, clopper_pearson, mean_interval, t_quantile

MOST_MISSING = 0.2
"""largest share of seeds without a number (diverged or failed) at which the other seeds decide"""
ONE_SIDED = 0.9
"""confidence of both ends of a share together: each end alone is a 95 % bound, so 14 of 14 show 0.8"""


class Undecided(Exception):
    """Raised if runs cannot decide about a claim: a vacuous bound, an unmet hypothesis, missing data."""


@dataclass(frozen=True)
class Measured:
    """A number with its interval and a description of its basis."""

    of: str
    """description of the number"""
    estimate: Estimate
    basis: str
    """`12 seeds`, `exact`, `48 of 50 draws`"""
    note: str = ""
    """a remark for the reader"""

    def noting(self, text: str) -> "Measured":
        """Return the same with a further remark."""
        return replace(self, note="; ".join(filter(None, [self.note, text])))

    def within(self, low: float, high: float) -> "Measured":
        """Return the same with its interval cut to the possible values, [low, high]."""
        value, start, end = self.estimate
        return replace(self, estimate=Estimate(value, max(start, low), min(end, high)))


def exact(of: str, value: float, note: str = "") -> Measured:
    """Return a number without sampling error, such as the error of an identity."""
    value = float(value)
    if math.isnan(value):
        raise Undecided(f"{of} is not a number")
    return Measured(of, Estimate(value, value, value), "exact", note)


def worst(of: str, values: ArrayLike) -> Measured:
    """Return the largest of many numbers."""
    numbers = np.asarray(values, dtype=float)
    if numbers.size == 0:
        raise Undecided(f"{of}: there are no values")
    return replace(exact(of, numbers.max()), basis=f"largest of {numbers.size}")


def mean(of: str, values: ArrayLike, confidence: float = 0.95) -> Measured:
    """Return the mean over seeds of one number a seed, with Student's t interval."""
    finite, note = _finite(of, values)
    return Measured(of, mean_interval(finite, confidence), _count(finite.size, "seed"), note)


def share(of: str, hits: ArrayLike, unit: str = "seed") -> Measured:
    """Return the share of hits among independent trials.

    Each end of the interval is, by itself, an exact 95 % bound (Clopper and Pearson).
    """
    trials = np.asarray(hits, dtype=bool).ravel()
    if trials.size == 0:
        raise Undecided(f"{of}: there are no trials")
    count = int(trials.sum())
    estimate = clopper_pearson(count, trials.size, ONE_SIDED)
    return Measured(of, estimate, f"{count} of {_count(trials.size, unit)}")


def slope(of: str, x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> Measured:
    """Return the slope of the least-squares line through points with independent errors, with Student's t interval."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    known = np.isfinite(xs) & np.isfinite(ys)
    if known.sum() < 3 or np.ptp(xs[known]) == 0:
        raise Undecided(f"{of}: {known.sum()} points are too few for a line with an interval")
    value, _, _, _, error = map(float, stats.linregress(xs[known], ys[known]))
    half = t_quantile(confidence, int(known.sum()) - 2) * error
    return Measured(of, Estimate(value, value - half, value + half), f"{known.sum()} points")


def slope_by_seed(of: str, x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> Measured:
    """Return the mean over seeds of the slope of each seed; `y` has a row for each seed.

    Runs of one seed may share draws along the axis, so their errors are dependent; seeds are independent.
    """
    xs, rows = np.asarray(x, dtype=float), np.atleast_2d(np.asarray(y, dtype=float))
    slopes = []
    for row in rows:
        known = np.isfinite(xs) & np.isfinite(row)
        enough = known.sum() >= 2 and np.ptp(xs[known]) > 0
        slopes.append(np.polyfit(xs[known], row[known], 1)[0] if enough else math.nan)
    return mean(of, slopes, confidence)


def _finite(of: str, values: ArrayLike) -> tuple[np.ndarray, str]:
    """Return the finite values and a note on the others. Raise Undecided if too many are missing."""
    numbers = np.asarray(values, dtype=float).ravel()
    finite = numbers[np.isfinite(numbers)]
    if finite.size == 0 or finite.size < (1 - MOST_MISSING) * numbers.size:
        raise Undecided(f"{of}: only {finite.size} of {numbers.size} seeds have a number")
    lost = numbers.size - finite.size
    return finite, f"{lost} of {numbers.size} seeds have no number and are left out" if lost else ""


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}"
