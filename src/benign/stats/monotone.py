"""Whether a map rises along a dimension.

largest_fall  the largest fall of the expected map, in its units: 0 if it rises everywhere. A claim that a map
              rises is a claim about this number.
monotone      Kendall's tau and the share of concordant pairs of the means over these seeds. They describe the
              measured map: noise alone keeps them below 1 where the expected map rises strictly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import xarray as xr

from benign.stats.crossing import RESAMPLES, resampled_means
from benign.stats.intervals import Estimate, check_confidence, t_quantile


@dataclass(frozen=True)
class Monotone:
    """The order of a map along a dimension: tau 1 is always up, tau -1 (share 0) always down."""

    along: str
    tau: Estimate
    """Kendall's tau-b, pooled: pairs of all lines counted together"""
    share: Estimate
    """among the pairs of a line that differ, the share in which the later value is larger"""
    pairs: int
    """number of pairs that differ"""
    lines: int
    """number of lines that move by more than `noise`"""
    of: int
    """number of all lines"""
    noise: float

    def __str__(self) -> str:
        moving = f"{self.lines} of {self.of} lines move by more than {self.noise:.3g}"
        return f"along {self.along}: tau = {self.tau}, {self.share} of {self.pairs} pairs rise; {moving}"


def monotone(
    values: xr.DataArray,
    along: str,
    seed_dim: str = "seed",
    noise: float | None = None,
    confidence: float = 0.95,
) -> Monotone:
    """Return Kendall's tau-b (1945) of the seed mean along a dimension, pooled over the lines of a map.

    The order of a flat line is noise, so lines that move by at most `noise` are left out; by default `noise` is four
    standard errors of a cell's mean. Intervals are Student's t with the standard error of a bootstrap over seeds,
    jointly for the map; one seed has no interval.

    >>> map = xr.DataArray([[0.5, 0.6, 0.8, 1.0], [0.5, 0.7, 0.9, 0.9]], dims=("samples", "snr"))
    >>> print(monotone(map, "snr"))
    along snr: tau = 0.957 [-1.00, 1.00], 1.00 [0.00, 1.00] of 11 pairs rise; 2 of 2 lines move by more than 0
    """
    check_confidence(confidence)
    if along not in values.dims:
        raise ValueError(f"`along` must be one of {values.dims}, got {along!r}")
    if seed_dim not in values.dims:
        values = values.expand_dims(seed_dim)
    data = values.sortby(along) if along in values.coords else values
    data = data.transpose(..., along, seed_dim)
    runs = data.values.astype(float).reshape(-1, *data.shape[-2:])
    seeds = runs.shape[-1]
    if noise is None:
        noise = _noise(runs)
    mean = resampled_means(runs, np.ones((1, seeds)))[0]
    moving = np.array([_range(line) > noise for line in mean])
    if not moving.any():
        raise ValueError(f"no line moves by more than {noise:.3g} along {along}: there is no order")
    tau, share, pairs = (each[0] for each in _concordance(mean[None, moving]))
    half = [math.inf, math.inf]
    if seeds > 1:
        drawn = _concordance(resampled_means(runs)[:, moving])
        factor = t_quantile(confidence, seeds - 1) * math.sqrt(seeds / (seeds - 1))
        half = [factor * float(np.nanstd(each)) for each in drawn[:2]]
    return Monotone(
        along=along,
        tau=Estimate(tau, max(tau - half[0], -1.0), min(tau + half[0], 1.0)),
        share=Estimate(share, max(share - half[1], 0.0), min(share + half[1], 1.0)),
        pairs=int(pairs),
        lines=int(moving.sum()),
        of=len(runs),
        noise=float(noise),
    )


@dataclass(frozen=True, eq=False)
class Fall:
    """The largest fall of the mean of a map along a dimension, between any two places of any line."""

    along: str
    value: float
    """of the mean over seeds: at least 0, and on average too large, as the largest of many noisy differences is"""
    start: float
    end: float
    """`start` and `end`: where along the dimension it is"""
    seeds: int
    falls: np.ndarray
    errors: np.ndarray
    """falls of the mean of all pairs of places, [lines, pairs], and their standard errors; NaN for missing cells"""

    def at(self, confidence: float) -> Estimate:
        """Return the fall with its interval, which is simultaneous over all pairs of places of all lines.

        The low end is above 0 only if a fall is significant, however many pairs there are; the high end bounds the
        falls of all pairs together.
        """
        check_confidence(confidence)
        if self.seeds < 2:
            return Estimate(self.value, 0.0, math.inf)
        largest = _largest_errors(*self.falls.shape, self.seeds)
        quantile = float(np.quantile(largest, (1 + confidence) / 2))
        if 1 - confidence < 2 / len(largest):  # further out than the samples: Bonferroni's bound
            each = 1 - (1 - confidence) / self.falls.size
            quantile = max(quantile, t_quantile(each, self.seeds - 1))
        reach = quantile * self.errors
        low, high = float(np.nanmax(self.falls - reach)), float(np.nanmax(self.falls + reach))
        return Estimate(self.value, max(low, 0.0), max(high, self.value))

    @cached_property
    def estimate(self) -> Estimate:
        """The fall with its 95 % interval."""
        return self.at(0.95)

    def __str__(self) -> str:
        place = f" (from {self.along} {self.start:.3g} to {self.end:.3g})" if self.value else ""
        return f"largest fall along {self.along}: {self.estimate}{place}"


def largest_fall(values: xr.DataArray, along: str, seed_dim: str = "seed") -> Fall:
    """Return the largest fall of the expected map along a dimension, over all lines and pairs of places.

    `values` may have any further dimensions; each of their entries is a line. The more lines and places, the larger a
    fall must be to stand out: `largest_fall(values.mean("samples"), "snr")` asks of the average line, and resolves
    smaller falls. For a map that should fall, negate it. The noise of a cell is estimated from the seeds of the cell
    and of its neighbours.

    >>> map = xr.DataArray([[0.5, 0.8, 0.7], [0.5, 0.8, 0.6]], dims=("seed", "snr"))
    >>> round(largest_fall(map, "snr").value, 2)
    0.15
    """
    if along not in values.dims:
        raise ValueError(f"`along` must be one of {values.dims}, got {along!r}")
    if seed_dim not in values.dims:
        values = values.expand_dims(seed_dim)
    data = values.sortby(along) if along in values.coords else values
    data = data.transpose(seed_dim, ..., along)
    runs = data.values.astype(float).reshape(data.sizes[seed_dim], -1, data.sizes[along])
    if runs.shape[-1] < 2 or np.isnan(runs).all():
        raise ValueError(f"a fall along {along} needs two places with values")
    mean, variance = _mean_and_variance(runs)
    first, second = np.triu_indices(runs.shape[-1], 1)
    falls = mean[:, first] - mean[:, second]
    line, pair = np.divmod(int(np.nanargmax(falls)), falls.shape[1])
    places = data[along].values if along in data.coords else np.arange(data.sizes[along])
    return Fall(
        along=along,
        value=max(float(falls[line, pair]), 0.0),
        start=float(places[first[pair]]),
        end=float(places[second[pair]]),
        seeds=len(runs),
        falls=falls,
        errors=np.sqrt(variance[:, first] + variance[:, second]),
    )


def _mean_and_variance(runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over seeds of runs [seeds, lines, places] and the variance of that mean, from 3 x 3 cells.

    What all cells of a seed have in common cancels in differences, so it is no noise.
    """
    known = ~np.isnan(runs)
    count = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, runs, 0.0).sum(0) / count
        off = np.where(known, runs - mean, 0.0)
        shared = off.sum((1, 2)) / known.sum((1, 2))
        off = np.where(known, off - shared[:, None, None], 0.0)
        each = (off**2).sum(0), np.maximum(count - 1, 0).astype(float)
        squares, degrees = (_over_neighbours(part) for part in each)
        return mean, squares / degrees / count


def _over_neighbours(cells: np.ndarray) -> np.ndarray:
    """Return sums over 3 x 3 cells of [..., lines, places]."""
    for axis in (-2, -1):
        padded = np.pad(cells, [(1, 1) if axis == at else (0, 0) for at in range(-cells.ndim, 0)])
        size = cells.shape[axis]
        cells = np.stack(
            [np.take(padded, range(shift, shift + size), axis) for shift in range(3)]
        ).sum(0)
    return cells


@lru_cache(maxsize=64)
def _largest_errors(lines: int, pairs: int, seeds: int) -> np.ndarray:
    """Return samples of the largest error of a fall, in its estimated standard errors, for normal noise."""
    places = round((1 + math.sqrt(1 + 8 * pairs)) / 2)
    first, second = np.triu_indices(places, 1)
    rng, samples = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        mean, variance = _mean_and_variance(rng.standard_normal((seeds, lines, places)))
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = (mean[:, first] - mean[:, second]) / np.sqrt(
                variance[:, first] + variance[:, second]
            )
        samples.append(errors.max())
    return np.array(samples)


def _range(line: np.ndarray) -> float:
    known = line[~np.isnan(line)]
    return float(np.ptp(known)) if known.size else 0.0


def _noise(runs: np.ndarray) -> float:
    """Return four standard errors of a cell's mean, by the variance over seeds in the whole map; 0 for one seed."""
    seeds = runs.shape[-1]
    several = (~np.isnan(runs)).sum(-1) > 1
    if not several.any():
        return 0.0
    variance = np.nanvar(runs[several], axis=-1, ddof=1).mean()
    return 4 * math.sqrt(variance / seeds)


def _concordance(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tau-b, share of rising pairs and number of untied pairs of each map [many, lines, points]."""
    first, second = np.triu_indices(maps.shape[-1], 1)
    rise = maps[..., second] - maps[..., first]
    up, down, tied = ((test(rise, 0)).sum((1, 2)) for test in (np.greater, np.less, np.equal))
    untied = up + down
    with np.errstate(invalid="ignore", divide="ignore"):
        return (up - down) / np.sqrt(untied * (untied + tied)), up / untied, untied
