"""Bands and whiskers of pictures: what they are, in numbers and in the words of the caption.

All pictures of means over seeds use `mean_bands`, and their captions use `band_notes`. The report computes the same
Student's t intervals for whole maps at once (`benign.report.cells`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from benign.stats.intervals import mean_interval

ENOUGH_SEEDS = 4
"""seeds from which on a band is an interval of their mean, and not their range"""


def mean_bands(rows: np.ndarray, log: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each of `rows` [points, seeds], the mean of the seeds that have a value and both ends of its band.

    The band is the 95 % interval of the mean (Student's t, seeds as replicates). That of two or three seeds in all is
    their range. It is NaN where too few seeds have a value, or where one is infinite; with `log` so are mean and band
    if a value has no logarithm.
    """
    few = rows.shape[1] < ENOUGH_SEEDS
    mean, low, high = np.array([_mean_band(row[~np.isnan(row)], log, few) for row in rows]).T
    return mean, low, high


def _mean_band(seeds: np.ndarray, log: bool, few: bool) -> np.ndarray:
    band = np.full(3, np.nan)
    if not seeds.size or (log and seeds.min() <= 0):
        return band
    values = np.log(seeds) if log else seeds
    band[0] = values.mean()
    if not np.isfinite(values).all():
        return band
    if few and values.size > 1:
        band[1:] = values.min(), values.max()
    elif values.size >= ENOUGH_SEEDS:
        band[1:] = mean_interval(values)[1:]
    return np.exp(band) if log else band


def fill_band(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> None:
    """Fill the area between both ends of a band."""
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def band_notes(
    drawn: Sequence[xr.DataArray], log: bool = False, name: str = "Bands"
) -> Iterator[str]:
    """Yield the sentences of a caption about lines and bands; there are none for a single seed."""
    seeds = max(values.sizes.get("seed", 1) for values in drawn)
    if seeds > 1 and log:
        yield "Lines: geometric means."
    if 1 < seeds < ENOUGH_SEEDS:
        yield f"{name}: range over {seeds} seeds."
    elif seeds > 1:
        counts = np.concatenate([values.count("seed").values.ravel() for values in drawn])
        fewer = ((counts > 0) & (counts < ENOUGH_SEEDS)).any()
        where = f", where at least {ENOUGH_SEEDS} have a value" if fewer else ""
        yield f"{name}: 95 % intervals of the mean over seeds{where}."
    if log and any(bool((values <= 0).any()) for values in drawn):
        yield "No line where a seed is 0 or less: it has no logarithm."
