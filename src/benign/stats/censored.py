"""Lines through critical values of which some are only known to lie beyond the grid; seeds are the replicates.

The crossing of row i in seed s is `design_i @ coefficients + b_s + e_is`, with normal effects of seeds and of runs
(Tobin 1958, with random effects). A run that never crosses counts by the chance of that. The coefficients are the
joint maximum; the variances are estimated with it by expectation and maximisation (both ends of a censored normal are
known in closed form). Errors come from the jackknife over seeds, whose pseudo-values are one number a seed: with
complete data they are the coefficients fitted to each seed alone. So no assumption about runs of one seed enters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from benign.stats.runs import RunCrossings

ROUNDS, SETTLED = 40, 1e-3
"""of the estimation of variances: the most, and the change of a standard deviation at which it ends"""
LEAST_SD = 1e-3
"""smallest standard deviation of runs and of seeds, in log column"""


@dataclass(frozen=True, eq=False)
class CensoredFit:
    """Coefficients, their values without each seed, and the spread of seeds and runs."""

    coefficients: np.ndarray
    pseudo: np.ndarray
    """[seeds, coefficients]; NaN for a seed that says nothing"""
    model: np.ndarray
    """covariance of the coefficients by the model, from all runs: for a single seed, which has no pseudo-values"""
    seed_sd: float
    run_sd: float

    @property
    def replicates(self) -> int:
        return int(np.isfinite(self.pseudo).all(1).sum())


def fit_censored(found: RunCrossings, design: np.ndarray) -> CensoredFit:
    """Fit the coefficients of `design` [rows, coefficients] to the crossings of the runs, [rows, seeds]."""
    informative = found.informative
    seeds = np.asarray(informative.any(0))
    low, high = found.low[:, seeds], found.high[:, seeds]
    data = _Data(low, high, design)
    fitted = data.start()
    every = np.ones((1, data.seeds))
    for _ in range(ROUNDS):
        before, fitted = fitted, data.variances(data.newton(fitted, every))
        moved = np.abs(fitted.beta - before.beta).max(), abs(fitted.run_sd / before.run_sd - 1)
        if max(*moved, abs(fitted.seed_sd / before.seed_sd - 1)) < SETTLED:
            break
    fitted = data.newton(data.newton(fitted, every), every)
    pseudo = np.full((seeds.size, design.shape[1]), math.nan)
    if data.seeds > 1:
        without = 1.0 - np.eye(data.seeds)
        left = _State(
            np.repeat(fitted.beta, data.seeds, 0), np.repeat(fitted.b, data.seeds, 0), fitted.run_sd, fitted.seed_sd
        )  # fmt: skip
        for _ in range(6):
            left = data.newton(left, without)
        pseudo[seeds] = data.seeds * fitted.beta - (data.seeds - 1) * left.beta
    return CensoredFit(
        fitted.beta[0], pseudo, data.covariance(fitted), fitted.seed_sd, fitted.run_sd
    )


@dataclass(frozen=True, eq=False)
class _State:
    """Several fits of one data set with different weights of the seeds: [fits, coefficients], [fits, seeds]."""

    beta: np.ndarray
    b: np.ndarray
    run_sd: float
    seed_sd: float


class _Data:
    def __init__(self, low: np.ndarray, high: np.ndarray, design: np.ndarray) -> None:
        self.design, self.seeds = design, low.shape[1]
        self.known = np.isfinite(low) & np.isfinite(high)
        self.value = np.where(self.known, low, 0.0)
        above, below = np.isfinite(low) & ~self.known, np.isfinite(high) & ~self.known
        self.side = above.astype(float) - below  # 1: beyond the last column, -1: before the first
        self.bound = np.where(above, low, np.where(below, high, 0.0))
        self.runs = int((self.known | above | below).sum())

    def start(self) -> _State:
        """Return least squares through the values and the bounds."""
        y = np.where(self.side != 0, self.bound, self.value)
        used = self.known | (self.side != 0)
        rows = np.repeat(self.design[:, None], self.seeds, 1)[used]
        beta = np.linalg.lstsq(rows, y[used], rcond=None)[0]
        off = (y - (self.design @ beta)[:, None])[used]
        spread = max(float(off.std()), 10 * LEAST_SD)
        return _State(beta[None], np.zeros((1, self.seeds)), spread, spread)

    def slopes(self, at: _State) -> tuple[np.ndarray, np.ndarray]:
        """Return first derivative and negative second derivative of the log-likelihood of each run in its mean."""
        mean = (at.beta @ self.design.T)[:, :, None] + at.b[:, None, :]
        gradient = np.where(self.known, self.value - mean, 0.0) / at.run_sd**2
        curvature = np.where(self.known, 1 / at.run_sd**2, 0.0) + np.zeros_like(mean)
        if (self.side != 0).any():
            z, mills = self._tail(mean, at.run_sd)
            gradient = gradient + self.side * mills / at.run_sd
            curvature = curvature + (self.side != 0) * mills * (mills - z) / at.run_sd**2
        return gradient, curvature

    def _tail(self, mean: np.ndarray, sd: float) -> tuple[np.ndarray, np.ndarray]:
        """Return how far the bound lies beyond the mean, in standard deviations, and the hazard there."""
        z = np.clip(self.side * (self.bound - mean) / sd, -30, 1e4)
        return z, np.exp(-(z**2) / 2 - 0.5 * math.log(2 * math.pi) - log_ndtr(-z))

    def newton(self, at: _State, weights: np.ndarray) -> _State:
        """Return the next step of Newton's method; the effects of seeds are eliminated first."""
        gradient, curvature = self.slopes(at)
        prior = 1 / at.seed_sd**2
        cross = np.einsum("fis,ik->fsk", curvature, self.design)
        own = curvature.sum(1) + prior
        pull = gradient.sum(1) - at.b * prior
        square = np.einsum("fs,fis,ik,il->fkl", weights, curvature, self.design, self.design)
        square = square - np.einsum("fs,fsk,fsl->fkl", weights / own, cross, cross)
        right = np.einsum("fs,fis,ik->fk", weights, gradient, self.design)
        right = right - np.einsum("fs,fsk->fk", weights * pull / own, cross)
        ridge = 1e-9 * np.eye(square.shape[-1]) * (1 + np.abs(square).max())
        move = np.linalg.solve(square + ridge, right[..., None])[..., 0]
        most = np.abs(move @ self.design.T).max(1, keepdims=True)
        move = move * np.minimum(1.0, 2.0 / np.maximum(most, 1e-12))
        shift = (pull - np.einsum("fsk,fk->fs", cross, move)) / own
        return _State(at.beta + move, at.b + np.clip(shift, -2, 2), at.run_sd, at.seed_sd)

    def covariance(self, at: _State) -> np.ndarray:
        """Return the covariance of the coefficients by the model."""
        _, curvature = self.slopes(at)
        cross = np.einsum("is,ik->sk", curvature[0], self.design)
        own = curvature[0].sum(0) + 1 / at.seed_sd**2
        square = np.einsum("is,ik,il->kl", curvature[0], self.design, self.design)
        return np.linalg.pinv(square - np.einsum("s,sk,sl->kl", 1 / own, cross, cross))

    def variances(self, at: _State) -> _State:
        """Return the state with the next estimates of the two variances."""
        _, curvature = self.slopes(at)
        cross = np.einsum("is,ik->sk", curvature[0], self.design)
        own = curvature[0].sum(0) + 1 / at.seed_sd**2
        inverse = self.covariance(at)
        lever = cross / own[:, None]
        seeds = at.b[0] ** 2 + 1 / own + np.einsum("sk,kl,sl->s", lever, inverse, lever)
        away = self.design[:, None] - lever  # of each run
        doubt = 1 / own + np.einsum("isk,kl,isl->is", away, inverse, away)
        mean = (self.design @ at.beta[0])[:, None] + at.b[0]
        squares = np.where(self.known, (self.value - mean) ** 2 + doubt, 0.0)
        if (self.side != 0).any():
            z, mills = self._tail(mean, at.run_sd)
            squares = squares + (self.side != 0) * at.run_sd**2 * (1 + z * mills)
        run_sd = math.sqrt(max(float(squares.sum()) / self.runs, LEAST_SD**2))
        seed_sd = math.sqrt(max(float(seeds.mean()), LEAST_SD**2))
        return _State(at.beta, at.b, run_sd, seed_sd)
