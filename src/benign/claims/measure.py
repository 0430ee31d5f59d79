"""What a statistic returns: a number, its interval, and a description."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from benign.stats.intervals import Estimate, clopper_pearson, mean_interval, t_quantile

MOST_MISSING = 0.2
"""largest share of seeds without a number (diverged or failed) at which the other seeds decide"""
CONFIDENCE = 0.95
"""of every interval that is shown"""

Interval = Callable[[float], Estimate]
"""a number with its interval, by the confidence of the interval"""


class Undecided(Exception):
    """Raised if runs cannot decide about a claim: a vacuous bound, an unmet hypothesis, missing data."""


@dataclass(frozen=True)
class Measured:
    """A number with its interval and a description of its basis."""

    of: str
    """description of the number"""
    estimate: Estimate
    """with the interval of confidence 0.95"""
    basis: str
    """`12 seeds`, `exact`, `48 of 50 draws`"""
    note: str = ""
    """a remark for the reader"""
    interval: Interval | None = field(default=None, compare=False)
    """the same at another confidence; None for a number without sampling error"""

    def __post_init__(self) -> None:
        value, low, high = self.estimate
        if self.interval is None and (low, high) != (value, value):
            raise ValueError(
                f"{self.of}: a number with sampling error needs `interval`, its interval at any confidence"
            )

    @staticmethod
    def by(of: str, interval: Interval, basis: str, note: str = "") -> "Measured":
        """Return the number whose interval at any confidence is given."""
        return Measured(of, interval(CONFIDENCE), basis, note, interval)

    def at(self, confidence: float) -> Estimate:
        """Return the number with its interval at this confidence."""
        return self.interval(confidence) if self.interval else self.estimate

    def noting(self, text: str) -> "Measured":
        """Return the same with a further remark."""
        return replace(self, note="; ".join(filter(None, [self.note, text])))

    def within(self, low: float, high: float) -> "Measured":
        """Return the same with its interval cut to the possible values, [low, high]."""

        def cut(confidence: float) -> Estimate:
            value, start, end = self.at(confidence)
            return Estimate(value, max(start, low), min(end, high))

        return Measured.by(self.of, cut, self.basis, self.note)


def exact(of: str, value: float, note: str = "") -> Measured:
    """Return a number without sampling error, such as the error of an identity."""
    value = float(value)
    if math.isnan(value):
        raise Undecided(f"{of} is not a number")
    return Measured(of, Estimate(value, value, value), "exact", note)


def worst(of: str, values: ArrayLike) -> Measured:
    """Return the largest of many errors of an identity, which no draw can make larger than rounding.

    For a number that differs between runs use `worst_of_runs`: its largest value grows with the number of runs.
    """
    numbers = np.asarray(values, dtype=float)
    if numbers.size == 0:
        raise Undecided(f"{of}: there are no values")
    return replace(exact(of, numbers.max()), basis=f"largest of {numbers.size}")


def worst_of_runs(of: str, values: ArrayLike, log: bool = False) -> Measured:
    """Return the largest value among the runs, with the range in which the next seed's largest value lies.

    `values` has a row for each seed; the largest value of a row is that seed's. The lower end is the largest of them: a
    bound that one run exceeds does not hold for every run. The upper end is Student's prediction bound for the largest
    value of one more seed (of its logarithm with `log`, for positive values): the fewer seeds, the higher it is, and
    for one seed infinite.
    """
    rows = np.asarray(values, dtype=float)
    largest = rows.reshape(len(rows), -1).max(1) if rows.size else rows.ravel()
    finite, note = _finite(of, largest)
    if log and (finite <= 0).any():
        raise ValueError(f"{of}: `log` needs positive values, the smallest is {finite.min():.3g}")
    sample = np.log(finite) if log else finite
    count, top = finite.size, float(finite.max())

    def interval(confidence: float) -> Estimate:
        if count == 1:
            return Estimate(top, top, math.inf)
        quantile = t_quantile(2 * confidence - 1, count - 1) if confidence > 0.5 else 0.0
        bound = sample.mean() + quantile * sample.std(ddof=1) * math.sqrt(1 + 1 / count)
        with np.errstate(over="ignore"):  # few seeds at a high confidence leave it unbounded
            return Estimate(top, top, max(top, float(np.exp(bound) if log else bound)))

    return Measured.by(of, interval, f"largest of {_count(count, 'seed')}", note)


def largest_mean(
    of: str, values: ArrayLike, absolute: bool = False, resolution: float = 0.0
) -> Measured:
    """Return the largest of the means over seeds of several cells, with an interval that covers whichever is largest.

    `values` has a row for each seed and a column for each cell. The ends are the largest lower and the largest upper
    end of Student's t intervals that hold for all cells at once (Bonferroni): a statement about every cell is judged by
    all of them, not by the one that happens to be largest.
    absolute: the mean that is furthest from 0, as a distance.
    resolution: the step in which a number changes, such as one test point: the least spread that seeds are taken to
    have, so that two which agree by chance leave no interval of zero width.
    """
    rows = np.asarray(values, dtype=float)
    if rows.ndim != 2 or rows.size == 0:
        raise Undecided(f"{of}: there are no values")
    columns, notes = zip(*(_finite(of, column) for column in rows.T), strict=True)
    means = np.array([column.mean() for column in columns])
    means = np.abs(means) if absolute else means

    def interval(confidence: float) -> Estimate:
        each = 1 - (1 - confidence) / len(columns)
        half = np.array([_half_width(column, each, resolution) for column in columns])
        low, high = float((means - half).max()), float((means + half).max())
        return Estimate(float(means.max()), max(low, 0.0) if absolute else low, high)

    basis = _count(len(rows), "seed")
    basis = f"{len(columns)} cells of {basis}" if len(columns) > 1 else basis
    return Measured.by(of, interval, basis, next(filter(None, notes), ""))


def _half_width(sample: np.ndarray, confidence: float, resolution: float) -> float:
    if sample.size == 1:
        return math.inf
    spread = max(float(sample.std(ddof=1)), resolution)
    return t_quantile(confidence, sample.size - 1) * spread / math.sqrt(sample.size)


def smallest_mean(of: str, values: ArrayLike, resolution: float = 0.0) -> Measured:
    """Return the smallest of the means over seeds of several cells, as `largest_mean` returns the largest."""
    negative = largest_mean(of, -np.asarray(values, dtype=float), resolution=resolution)

    def interval(confidence: float) -> Estimate:
        value, low, high = negative.at(confidence)
        return Estimate(-value, -high, -low)

    return Measured.by(of, interval, negative.basis, negative.note)


def mean(of: str, values: ArrayLike) -> Measured:
    """Return the mean over seeds of one number a seed, with Student's t interval."""
    finite, note = _finite(of, values)
    return Measured.by(
        of, lambda confidence: mean_interval(finite, confidence), _count(finite.size, "seed"), note
    )


def share(of: str, hits: ArrayLike, unit: str = "seed") -> Measured:
    """Return the share of hits among independent trials.

    Each end of the interval is, by itself, an exact 95 % bound (Clopper and Pearson): 14 of 14 show 0.8.
    """
    trials = np.asarray(hits, dtype=bool).ravel()
    if trials.size == 0:
        raise Undecided(f"{of}: there are no trials")
    count = int(trials.sum())

    def interval(confidence: float) -> Estimate:
        both = max(2 * confidence - 1, 1e-12)  # the confidence of both ends together
        return clopper_pearson(count, trials.size, both)

    return Measured.by(of, interval, f"{count} of {_count(trials.size, unit)}")


def slope(of: str, x: ArrayLike, y: ArrayLike) -> Measured:
    """Return the slope of the least-squares line through points with independent errors, with Student's t interval."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    known = np.isfinite(xs) & np.isfinite(ys)
    if known.sum() < 3 or np.ptp(xs[known]) == 0:
        raise Undecided(f"{of}: {known.sum()} points are too few for a line with an interval")
    from scipy.stats import linregress  # not above: the import takes 0.4 s

    value, _, _, _, error = map(float, linregress(xs[known], ys[known]))
    degrees = int(known.sum()) - 2

    def interval(confidence: float) -> Estimate:
        half = t_quantile(confidence, degrees) * error
        return Estimate(value, value - half, value + half)

    return Measured.by(of, interval, f"{known.sum()} points")


def slope_by_seed(of: str, x: ArrayLike, y: ArrayLike) -> Measured:
    """Return the mean over seeds of the slope of each seed; `y` has a row for each seed.

    Runs of one seed may share draws along the axis, so their errors are dependent; seeds are independent.
    """
    xs, rows = np.asarray(x, dtype=float), np.atleast_2d(np.asarray(y, dtype=float))
    slopes = []
    for row in rows:
        known = np.isfinite(xs) & np.isfinite(row)
        enough = known.sum() >= 2 and np.ptp(xs[known]) > 0
        slopes.append(np.polyfit(xs[known], row[known], 1)[0] if enough else math.nan)
    return mean(of, slopes)


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
