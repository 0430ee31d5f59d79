"""What is read off heat maps over N and SNR: whether they rise, where they cross a level, and by which law."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import xarray as xr

from benign.claims import Measured, Undecided, exact
from benign.papers.zhang.setting import LEVEL
from benign.stats.boundary import Boundary, boundary

ERRORS = 2.0
"""standard errors by which two accuracies must differ to be no tie"""


def concordant(of: str, accuracy: xr.DataArray, axes: Sequence[str], points: int) -> Measured:
    """The share of pairs along rows and columns of a map that rise with their axis, of those that are no tie.

    `points` are the test points of a run, which decide what is a tie.
    """
    seeds = accuracy.sizes["seed"]
    tie = ERRORS * math.sqrt(2 * 0.25 / (points * seeds))
    mean = accuracy.mean("seed")
    rises = [rise for axis in axes for rise in _rises(mean, axis) if abs(rise) > tie]
    if not rises:
        raise Undecided(f"{of}: no two cells differ by more than chance")
    note = f"{len(rises)} pairs"
    return exact(of, float(np.mean([rise > 0 for rise in rises])), note)


def _rises(mean: xr.DataArray, axis: str) -> list[float]:
    lines = mean.sortby(axis).transpose(..., axis).values.reshape(-1, mean.sizes[axis])
    pairs = itertools.combinations(range(lines.shape[1]), 2)
    return [float(line[j] - line[i]) for i, j in pairs for line in lines]


def boundary_slope(of: str, accuracy: xr.DataArray) -> Measured:
    """Slope of log SNR* on log N, SNR* where accuracy is 0.75: -1/2 means N SNR^2 = const."""
    edge = boundary(accuracy, LEVEL)
    if edge.fit is None:
        raise Undecided(f"{of}: {edge.reason}")
    slope = edge.fit.growth
    return Measured(of, slope, f"{edge.fit.rows} rows")


def edges(result: xr.Dataset, level: float = LEVEL) -> tuple[Boundary, Boundary]:
    """Where clean and robust accuracy cross the level."""
    return boundary(result.test_accuracy, level), boundary(result.robust_accuracy, level)


def shift_of_boundary(result: xr.Dataset, level: float = LEVEL) -> np.ndarray:
    """log(c_rob / c_clean) of N SNR^2 = c, in every row where both accuracies cross."""
    clean, robust = edges(result, level)
    shift = 2 * (np.log(robust.critical.values) - np.log(clean.critical.values))
    found = shift[np.isfinite(shift)]
    if found.size < 2:
        raise Undecided(f"both accuracies cross {level} in {found.size} of {shift.size} rows only")
    return found
