"""The seeds behind a line: their mean, the band around it, and what a caption says of both.

A 95 % interval of a mean over two seeds is 12.7 times as wide as the seeds lie apart: it covers everything, whatever
they do. So fewer than four seeds are shown by their range, as laws are not judged by fewer (`benign.stats.boundary`).
On a logarithmic axis mean and interval are those of logarithms, or a band would reach down to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from benign.stats.boundary import ENOUGH_SEEDS
from benign.stats.intervals import mean_interval


def means(rows: np.ndarray, log: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of `rows` [places, seeds] the mean of the seeds that have a value, and both ends of its band.

    NaN is a band of too few seeds, and, with `log`, what has no logarithm.
    """
    few = rows.shape[1] < ENOUGH_SEEDS
    mean, low, high = np.array([_mean(row[~np.isnan(row)], log, few) for row in rows]).T
    return mean, low, high


def _mean(seeds: np.ndarray, log: bool, few: bool) -> np.ndarray:
    found = np.full(3, np.nan)
    if not seeds.size or (log and seeds.min() <= 0):
        return found
    values = np.log(seeds) if log else seeds
    found[0] = values.mean()
    if few and values.size > 1:
        found[1:] = values.min(), values.max()
    elif values.size >= ENOUGH_SEEDS:
        found[1:] = mean_interval(values)[1:]
    return np.exp(found) if log else found


def bands(drawn: Sequence[xr.DataArray], log: bool = False) -> Iterator[str]:
    """What a caption says of lines and bands; nothing of one seed."""
    seeds = max(values.sizes.get("seed", 1) for values in drawn)
    if seeds > 1 and log:
        yield "Lines: geometric means."
    if 1 < seeds < ENOUGH_SEEDS:
        yield f"Bands: range over {seeds} seeds."
    elif seeds > 1:
        counts = np.concatenate([values.count("seed").values.ravel() for values in drawn])
        fewer = ((counts > 0) & (counts < ENOUGH_SEEDS)).any()
        where = f", where at least {ENOUGH_SEEDS} have a value" if fewer else ""
        yield f"Bands: 95 % intervals of the mean over seeds{where}."
    if log and any(bool((values <= 0).any()) for values in drawn):
        yield "No line where a seed is 0 or less: it has no logarithm."
