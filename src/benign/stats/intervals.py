"""Numbers with intervals: Student's t for means, exact and score intervals for shares; and how they are written."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special


class Estimate(NamedTuple):
    """A value and its confidence interval; an end may be infinite."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value)} {interval_text((self.low, self.high))}"


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must lie strictly between 0 and 1, got {confidence}")


@lru_cache
def t_quantile(confidence: float, degrees: int) -> float:
    """Return the half-width of a two-sided Student's t interval, in standard errors. Cached: many rows share it."""
    return float(special.stdtrit(degrees, (1 + confidence) / 2))


@lru_cache
def normal_quantile(confidence: float) -> float:
    """Return the half-width of a two-sided normal interval, in standard deviations."""
    return float(special.ndtri((1 + confidence) / 2))


def wilson(hits: int, trials: int, confidence: float = 0.95) -> Estimate:
    """Return a share (an accuracy) with Wilson's score interval (1927).

    It covers at the nominal rate on average over shares.

    >>> print(wilson(hits=990, trials=1000))
    0.990 [0.982, 0.995]
    """
    return _share(hits, trials, confidence, "wilson")


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> Estimate:
    """Return a share with the exact interval of Clopper and Pearson (1934).

    It covers at least at the nominal rate, whatever the share.

    >>> print(clopper_pearson(hits=1000, trials=1000))
    1.00 [0.996, 1.00]
    """
    return _share(hits, trials, confidence, "exact")


def _share(
    hits: int, trials: int, confidence: float, method: Literal["wilson", "exact"]
) -> Estimate:
    check_confidence(confidence)
    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"`hits` must be at most `trials`, both counts, got {hits} of {trials}")
    from scipy.stats import binomtest  # not above: the import takes 0.4 s

    ends = binomtest(hits, trials).proportion_ci(confidence, method)
    return Estimate(hits / trials, float(ends.low), float(ends.high))


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Return the mean of independent values with Student's t interval; one value has no finite interval.

    Raise ValueError if a value is not finite: the caller leaves runs out and reports how many.
    """
    check_confidence(confidence)
    sample = np.asarray(values, dtype=float)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"`values` must be a non-empty list of numbers, got shape {sample.shape}")
    if not np.isfinite(sample).all():
        infinite = int((~np.isfinite(sample)).sum())
        raise ValueError(
            f"{infinite} of {sample.size} `values` are not finite: leave them out and report their number"
        )
    mean = float(sample.mean())
    if sample.size == 1:
        return Estimate(mean, -math.inf, math.inf)
    half = (
        t_quantile(confidence, sample.size - 1) * float(sample.std(ddof=1)) / math.sqrt(sample.size)
    )
    return Estimate(mean, mean - half, mean + half)


def number(value: float) -> str:
    """Return a number with three significant digits; whole numbers up to 99999 are written out (1012, not 1.01e+03)."""
    if not math.isfinite(value):
        return str(value)
    if 100 <= abs(value) < 99999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}"


def interval_text(interval: tuple[float, float]) -> str:
    low, high = interval
    return (
        "[unbounded]"
        if low == -math.inf and high == math.inf
        else f"[{number(low)}, {number(high)}]"
    )
