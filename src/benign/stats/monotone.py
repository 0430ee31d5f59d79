"""Whether a map rises along a dimension: Kendall's tau and the share of concordant pairs, over all lines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr

from benign.stats.crossing import resampled_means
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
