"""The correctly specified model of a truth: what the runs of a map say about its law if all but the law is known.

The shape of the transition, the noise and all variances are those of the truth. Every run gives the mean and variance
of its crossing under the true likelihood of its values; runs whose crossing lies beyond the grid are censored. The
line is then fitted with effects of seeds, and its interval has the same quantile of Student's t as that of `boundary`,
times the mean of an estimated standard deviation: so much narrower is, on average, a model that estimates its scale.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special, stats

from tests.stats.truths import Truth

PLACES = 300


@lru_cache(maxsize=2)
def _expected(truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """Return places of a crossing, and the expected values [rows, columns, places] of runs that cross there."""
    places = np.linspace(truth.x[0] - 2, truth.x[-1] + 2, PLACES)
    away = truth.x[:, None] - places[None, :]
    return places, truth.mean_of(np.broadcast_to(away, (len(truth.rows), *away.shape)).copy())


def half_widths(truth: Truth, values: np.ndarray) -> tuple[float, float]:
    """Return the half-widths of 95 % intervals of the slope and of log c at the true exponent."""
    places, expected = _expected(truth)
    if truth.loss:
        off = values[:, :, None, :] - expected[..., None]
        likelihood = -(off**2).sum(1) / (2 * 0.005**2)
    else:
        share = np.clip(expected, 1e-6, 1 - 1e-6)
        likelihood = truth.points * (
            np.einsum("rms,rmp->rps", values, np.log(share))
            + np.einsum("rms,rmp->rps", 1 - values, np.log1p(-share))
        )
    weights = np.exp(likelihood - likelihood.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    mean = np.einsum("rps,p->rs", weights, places)
    variance = np.einsum("rps,p->rs", weights, places**2) - mean**2
    low = np.einsum("rps,p->rs", weights, places < truth.x[0]) > 0.5
    high = np.einsum("rps,p->rs", weights, places > truth.x[-1]) > 0.5
    side = high.astype(float) - low
    mean = np.where(high, truth.x[-1], np.where(low, truth.x[0], mean))
    scatter = truth.run_sd * np.geomspace(1, truth.uneven, len(truth.rows))[:, None]
    sd = np.sqrt(scatter**2 + np.where(side != 0, 0.0, np.maximum(variance, 0)))
    line = np.stack([np.ones(len(truth.rows)), truth.z], 1)
    slope = math.sqrt(_covariance(truth, line, mean, side, sd)[1, 1])
    level = mean - truth.slope * truth.z[:, None]
    height = math.sqrt(_covariance(truth, line[:, :1], level, side, sd)[0, 0])
    degrees = truth.seeds - 1 if truth.seeds > 1 else len(truth.rows) - 2
    scale = math.sqrt(2 / degrees) * math.exp(
        special.gammaln((degrees + 1) / 2) - special.gammaln(degrees / 2)
    )
    reach = float(stats.t.ppf(0.975, degrees)) * scale
    return reach * slope, reach * height * abs(truth.exponent)


def _covariance(
    truth: Truth, line: np.ndarray, mean: np.ndarray, side: np.ndarray, sd: np.ndarray
) -> np.ndarray:
    """Return the covariance of the coefficients of the line by the joint maximum with the effects of seeds."""
    known = line.shape[1]
    effects = np.stack([np.ones(len(line)), truth.z], 1)
    spread = [truth.seed_sd, truth.slope_sd]
    used = [place for place in (0, 1) if spread[place] > 0]
    size = known + truth.seeds * len(used)
    prior, design = np.zeros(size), np.zeros((*mean.shape, size))
    design[..., :known] = line[:, None]
    for seed in range(truth.seeds):
        for number, place in enumerate(used):
            at = known + seed * len(used) + number
            design[:, seed, at] = effects[:, place]
            prior[at] = 1 / spread[place] ** 2
    flat = design.reshape(-1, size)
    y, s, d = (part.ravel() for part in (mean, side, sd))
    at = np.linalg.lstsq(flat[:, :known], y, rcond=None)[0]
    at = np.concatenate([at, np.zeros(size - known)])
    for _ in range(12):
        eta = flat @ at
        z = np.clip(s * (y - eta) / d, -30, 1e4)
        mills = np.exp(-(z**2) / 2 - 0.5 * math.log(2 * math.pi) - special.log_ndtr(-z))
        gradient = np.where(s == 0, (y - eta) / d**2, s * mills / d)
        curvature = np.where(s == 0, 1 / d**2, mills * (mills - z) / d**2)
        square = flat.T @ (curvature[:, None] * flat) + np.diag(prior)
        at = at + np.clip(np.linalg.solve(square, flat.T @ gradient - prior * at), -2, 2)
    return np.linalg.inv(square)[:known, :known]
