"""Maps with a known law, on the grids of the papers. They were chosen before the estimator that they judge.

    run        y(x) = low + (high - low) * shape((x - c) / width), x = log column, c the run's crossing of the level
    crossing   c = height + slope * (log row - middle) + b + e, b shared by the rows of a seed, e of the run alone
    noise      the share of `points` test points that are classified correctly, or Gaussian (a loss)

`height` and `slope` are those of the mean of c over seeds and runs: of the typical run. A broken truth has no such law,
and the test of fit should find that; the other truths have one, though not always of the shape that is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import xarray as xr
from scipy.special import expit, logit

Shape = Literal["logistic", "gompertz"]
Broken = Literal["", "re-entrant", "re-entrant in half of the rows", "kink", "step", "curved"]


@dataclass(frozen=True)
class Truth:
    """Maps of accuracy that rise along the column (or of a loss that falls) through `level` on a known law."""

    name: str
    rows: tuple[float, ...] = tuple(range(2, 23, 2))
    columns: tuple[float, ...] = tuple(np.geomspace(0.16, 16, 12))
    seeds: int = 5
    slope: float = -0.5
    height: float = 0.5
    """log column at the mean log row"""
    seed_sd: float = 0.3
    slope_sd: float = 0.0
    """standard deviation of the slope over seeds"""
    run_sd: float = 0.1
    uneven: float = 1.0
    """run_sd of the last row divided by that of the first"""
    heavy: bool = False
    """Student's t with 5 degrees of freedom in place of normal seed effects and runs"""
    width: float = 0.2
    low: float = 0.5
    high: float = 1.0
    """`low` and `high`: the values far from the transition; a loss falls from high to low"""
    high_first: float | None = None
    """`high` of the first row; it grows evenly to `high` in the last"""
    level: float = 0.75
    loss: bool = False
    points: int = 1000
    """test points of a run; 0 means no noise of measurement (a loss: standard deviation 0.005)"""
    shape: Shape = "logistic"
    falls_back: float = 0.0
    """how far the accuracy falls again, 1.5 beyond the crossing, without reaching the level"""
    broken: Broken = ""
    grid_decides: bool = False
    """the seeds hardly differ, so that nothing but the grid limits what can be known: no width is asked for"""

    @cached_property
    def x(self) -> np.ndarray:
        return np.log(self.columns)

    @cached_property
    def z(self) -> np.ndarray:
        logs = np.log(self.rows)
        return logs - logs.mean()

    @property
    def exponent(self) -> float:
        """p of row * column**p = c."""
        return -1 / self.slope

    @property
    def log_constant(self) -> float:
        return float(np.log(self.rows).mean() + self.exponent * self.height)

    def centres(self) -> np.ndarray:
        """Return the mean log column* of every row."""
        line = self.height + self.slope * self.z
        if self.broken == "kink":
            return line - self.slope * np.maximum(self.z, 0)
        if self.broken == "step":
            return line + np.where(self.z > 0, 0.3, -0.3)
        return line + 0.25 * (self.z**2 - (self.z**2).mean()) * (self.broken == "curved")

    def crossings(self, rng: np.random.Generator) -> np.ndarray:
        """Draw log column* of every run, [rows, seeds]."""
        size = (len(self.rows), self.seeds)
        if self.heavy:
            seeds, runs = (rng.standard_t(5, s) / np.sqrt(5 / 3) for s in (self.seeds, size))
        else:
            seeds, runs = rng.standard_normal(self.seeds), rng.standard_normal(size)
        tilts = self.slope_sd * rng.standard_normal(self.seeds)
        scatter = self.run_sd * np.geomspace(1, self.uneven, len(self.rows))[:, None]
        own = self.seed_sd * seeds + tilts * self.z[:, None] + scatter * runs
        return self.centres()[:, None] + own

    def values(self, crossings: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw the map of these crossings, [rows, columns, seeds]."""
        rises = self.mean_of(self.x[:, None] - crossings[:, None, :])
        if self.loss:
            noise = 0.005 * (self.points > 0) * rng.standard_normal(rises.shape)
            return np.maximum(rises + noise, 0)
        return rng.binomial(self.points, rises) / self.points if self.points else rises

    def mean_of(self, away: np.ndarray) -> np.ndarray:
        """Return the expected value at a distance from the crossing, in log column; `away` is [rows, ..., seeds]."""
        high = np.full(len(self.rows), self.high)
        if self.high_first is not None:
            high = np.linspace(self.high_first, self.high, len(self.rows))
        high = high.reshape(-1, *[1] * (away.ndim - 1))
        part = (self.level - self.low) / (high - self.low)
        if self.shape == "logistic":
            sign = -1.0 if self.loss else 1.0
            share = expit(sign * away / self.width + logit(part))
        else:  # Gompertz: slow at first, then abrupt
            share = 1 - np.exp(-np.exp(away / self.width) * -np.log1p(-part))
        values = self.low + (high - self.low) * share
        back = expit((away - 1.5) / 0.1)
        if self.falls_back:
            values = values - self.falls_back * back
        if self.broken == "re-entrant":
            values = values - 0.35 * back
        if self.broken == "re-entrant in half of the rows":
            values[1::2] -= 0.35 * back[1::2]
        return np.clip(values, 0, 1)

    def draw(self, rng: np.random.Generator) -> xr.DataArray:
        """Draw a map."""
        return self.array(self.values(self.crossings(rng), rng))

    def array(self, values: np.ndarray) -> xr.DataArray:
        coords = {"samples": list(self.rows), "snr": list(self.columns), "seed": range(self.seeds)}
        return xr.DataArray(values, coords, tuple(coords), "loss" if self.loss else "accuracy")


JIANG = {"rows": tuple(range(2, 21, 2)), "loss": True, "low": 0.0, "high": 0.69, "level": 0.2}
JIANG_LINEAR = tuple(np.linspace(0.15625, 15.625, 10))
JIANG_LOG = tuple(np.geomspace(0.15625, 15.625, 10))
AT_1000 = (np.log(1000) - np.log(JIANG["rows"]).mean()) / 2
"""height of N SNR^2 = 1000: rows 2 and 4 cross beyond the grid"""
WANG = {
    "rows": tuple(500.0 * k for k in range(1, 13)),
    "columns": tuple(float(r) for r in range(1, 11)),
    "high": 0.9,
    "height": 1.3,
}

BASE = Truth("11 x 12, 5 seeds")
TRUTHS = [
    BASE,
    replace(BASE, name="1 seed, no seed effect", seeds=1, seed_sd=0.0),
    replace(BASE, name="2 seeds", seeds=2),
    replace(BASE, name="3 seeds", seeds=3),
    replace(BASE, name="4 seeds", seeds=4),
    replace(BASE, name="10 seeds", seeds=10),
    replace(BASE, name="20 seeds", seeds=20),
    replace(BASE, name="sharp: a quarter of a column", width=0.05),
    replace(BASE, name="wide: six columns", width=0.6),
    replace(BASE, name="seeds 0.2, runs 0.05", seed_sd=0.2, run_sd=0.05),
    replace(BASE, name="seeds 0.4, runs 0.2", seed_sd=0.4, run_sd=0.2),
    replace(BASE, name="sharp, seeds 0.4, runs 0.2", seed_sd=0.4, run_sd=0.2, width=0.05),
    replace(BASE, name="rows never cross, a third", height=2.4, slope=-1.0),
    replace(BASE, name="rows past the level at once, a third", height=-1.5, slope=-1.0),
    replace(BASE, name="rows never cross, 10 seeds", height=2.4, slope=-1.0, seeds=10, seed_sd=0.4),
    Truth("Jiang, even columns, loss at 0.2", columns=JIANG_LINEAR, height=AT_1000, **JIANG),
    Truth("Jiang, log columns, loss at 0.2", columns=JIANG_LOG, height=1.2, **JIANG),
    Truth("Jiang, log columns, sharp", columns=JIANG_LOG, height=1.2, width=0.05, **JIANG),
    replace(BASE, name="Zhang, even columns", columns=tuple(np.linspace(0.16, 16, 12)), height=1.6),
    replace(BASE, name="Zhang, slope -0.3", slope=-0.3, height=0.0),
    Truth("Wang, clean (d ~ r^4)", slope=0.25, seed_sd=0.2, **WANG),
    Truth("Wang, robust (d ~ r^2)", slope=0.5, seed_sd=0.2, **WANG),
    replace(BASE, name="uneven scatter", uneven=5.0, run_sd=0.06),
    replace(BASE, name="slopes of seeds differ", slope_sd=0.1),
    replace(BASE, name="heavy tails", heavy=True),
    replace(BASE, name="shape of Gompertz", shape="gompertz", width=0.3),
    replace(BASE, name="shape of Gompertz, level off the middle", shape="gompertz", level=0.9),
    replace(BASE, name="from 0.55 to 0.9", low=0.55, high=0.9),
    replace(BASE, name="plateaus of rows differ", high_first=0.85),
    replace(BASE, name="accuracy falls again, above the level", falls_back=0.15),
    replace(BASE, name="250 test points, 6 columns", points=250, columns=tuple(np.geomspace(0.16, 16, 6))),
    replace(BASE, name="seeds agree: grid alone", seed_sd=0.02, run_sd=0.02, width=0.03, grid_decides=True),
    replace(
        Truth("loss without noise: grid alone", columns=JIANG_LINEAR, height=AT_1000, **JIANG),
        seed_sd=0.0, run_sd=0.0, width=0.05, points=0, grid_decides=True,
    ),
]  # fmt: skip

BROKEN = [
    replace(BASE, name="re-entrant", broken="re-entrant", height=0.0),
    replace(BASE, name="re-entrant, 10 seeds", broken="re-entrant", height=0.0, seeds=10),
    replace(BASE, name="re-entrant, half the rows", broken="re-entrant in half of the rows", height=0.0),
    replace(BASE, name="kink: slope -0.5, then 0", broken="kink"),
    replace(BASE, name="step of 0.6", broken="step"),
    replace(BASE, name="curved: 0.25 (log N)^2", broken="curved"),
    replace(BASE, name="curved, seeds 0.4, runs 0.2", broken="curved", seed_sd=0.4, run_sd=0.2),
]  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two maps of the same runs, clean and robust: seeds share their effect, and the robust law is a factor away."""

    name: str
    first: Truth
    log_factor: float = float(np.log(4))
    """log(c_robust / c_clean) of row * column**p = c"""
    own_sd: float = 0.1
    """standard deviation over seeds of the difference, in log column"""
    second_slope: float | None = None
    """slope of the second boundary if it differs; the factor is then that at the mean log row"""

    def draw(self, rng: np.random.Generator) -> tuple[xr.DataArray, xr.DataArray]:
        truth = self.first
        first = truth.crossings(rng)
        apart = self.log_factor / truth.exponent + self.own_sd * rng.standard_normal(truth.seeds)
        runs = truth.run_sd * rng.standard_normal(first.shape)
        tilt = 0.0 if self.second_slope is None else self.second_slope - truth.slope
        second = first + apart + tilt * truth.z[:, None] + runs
        return tuple(truth.array(truth.values(each, rng)) for each in (first, second))  # pyright: ignore


PAIRS = [
    Pair("seeds 0.2", replace(BASE, seed_sd=0.2)),
    Pair("seeds 0.4", replace(BASE, seed_sd=0.4)),
    Pair("seeds 0.4, 3 seeds", replace(BASE, seed_sd=0.4, seeds=3)),
    Pair("seeds 0.4, 10 seeds", replace(BASE, seed_sd=0.4, seeds=10)),
    Pair("seeds 0.4, rows never cross", replace(BASE, seed_sd=0.4, height=1.4, slope=-1.0)),
    Pair("seeds 0.2, past the level at once", replace(BASE, seed_sd=0.2, height=-1.7, slope=-1.0)),
    Pair("no factor", replace(BASE, seed_sd=0.4), log_factor=0.0),
    Pair("other slopes", replace(BASE, seed_sd=0.4), second_slope=-0.35),
    Pair("sharp", replace(BASE, seed_sd=0.2, width=0.05)),
]


@dataclass(frozen=True)
class Rise:
    """Maps whose mean rises along both axes, but for a fall at the end of the columns in some rows."""

    name: str
    sd: float
    seeds: int = 5
    fall: float = 0.0
    falling_rows: int = 11
    shared: float = 0.0
    """share of the variance that all cells of a seed have in common"""
    where: Literal["everywhere", "in the transition"] = "everywhere"

    def mean(self) -> np.ndarray:
        rows, x = np.log(np.arange(2, 23, 2)), np.log(np.geomspace(0.16, 16, 12))
        values = 0.5 + 0.5 * expit((x - 0.5 + 0.5 * (rows[:, None] - rows.mean())) / 0.3)
        values[: self.falling_rows] -= self.fall * expit((x - 2.0) / 0.1)
        return values

    def draw(self, rng: np.random.Generator) -> xr.DataArray:
        mean = self.mean()
        own = rng.standard_normal((*mean.shape, self.seeds))
        both = (
            np.sqrt(self.shared) * rng.standard_normal(self.seeds) + np.sqrt(1 - self.shared) * own
        )
        sd = np.full(mean.shape, self.sd)
        if self.where == "in the transition":
            sd = self.sd * 4 * (mean - 0.5) * (1 - mean) / 0.25 + 0.01
        coords = {
            "samples": range(2, 23, 2),
            "snr": np.geomspace(0.16, 16, 12),
            "seed": range(self.seeds),
        }
        return xr.DataArray(mean[..., None] + sd[..., None] * both, coords, tuple(coords))


RISES = [
    *(Rise(f"rises, sd {sd:g}, {seeds} seeds", sd, seeds) for sd in (0.05, 0.2, 0.38) for seeds in (5, 10)),
    Rise("rises, sd 0.2, half of the variance shared", 0.2, shared=0.5),
    Rise("rises, sd 0.2 in the transition only", 0.2, where="in the transition"),
    *(Rise(f"falls by {fall:g}, sd {sd:g}, {seeds} seeds", sd, seeds, fall)
      for fall, sd in ((0.1, 0.05), (0.3, 0.2), (0.3, 0.38)) for seeds in (5, 10)),
    Rise("one row falls by 0.3, sd 0.05", 0.05, fall=0.3, falling_rows=1),
]  # fmt: skip
