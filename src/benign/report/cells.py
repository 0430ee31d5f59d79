"""The numbers behind a cell of a picture: its mean over seeds, an interval, and how its runs ended."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from benign.stats.intervals import interval_text, number, t_quantile
from benign.sweep.text import value_text
from benign.training.descent import Status

ENDED = {
    Status.MISSING: "not run yet",
    Status.CONVERGED: "converged",
    Status.STEP_CAP: "stopped at the step cap",
    Status.DIVERGED: "diverged",
    Status.FAILED: "failed",
    Status.OUT_OF_MEMORY: "out of memory",
}
"""what a status means, in words"""

CONFIDENCE = 0.95
Limits = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Means:
    """Means over seeds, cell by cell."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """ends of Student's t interval; infinite where one seed has a value"""
    seeds: np.ndarray
    """seeds that have a value"""

    def text(self, place: tuple[int, ...]) -> str:
        """A cell in words."""
        value, low, high = (float(part[place]) for part in (self.mean, self.low, self.high))
        if math.isnan(value):
            return "no value"
        return (
            number(value) if math.isinf(high) else f"{number(value)} {interval_text((low, high))}"
        )


def means(values: xr.DataArray, *dims: str, within: Limits = (-math.inf, math.inf)) -> Means:
    """The means over seeds of a variable with these axes, and their intervals, which end where values cannot lie."""
    if "seed" not in values.dims:
        values = values.drop_vars("seed", errors="ignore").expand_dims("seed")
    runs = values.transpose(*dims, "seed").values.astype(float)
    runs = np.where(np.isfinite(runs), runs, np.nan)
    seeds = np.isfinite(runs).sum(-1)
    total = np.nansum(runs, -1)
    mean = np.divide(total, seeds, out=np.full(total.shape, np.nan), where=seeds > 0)
    squares = np.nansum((runs - mean[..., None]) ** 2, -1)
    half = np.full(mean.shape, math.inf)
    for count in np.unique(seeds[seeds > 1]).tolist():
        here = seeds == count
        error = np.sqrt(squares[here] / (count - 1) / count)
        half[here] = t_quantile(CONFIDENCE, count - 1) * error
    low, high = (
        np.where(seeds > 1, np.clip(mean + end, *within), mean + end) for end in (-half, half)
    )
    return Means(mean, low, high, np.asarray(seeds))


def endings(status: xr.DataArray, *dims: str) -> np.ndarray:
    """How the runs of every cell ended, in words: `3 seeds: 2 converged, 1 diverged`."""
    codes = status.transpose(*dims, "seed").values.astype(int)
    told = np.empty(codes.shape[:-1], dtype=object)
    for place in np.ndindex(*told.shape):
        told[place] = ending_text(codes[place].tolist())
    return told


def ending_text(codes: Iterable[int]) -> str:
    """How runs ended, in words."""
    counts = Counter(codes)
    seeds = counts.total()
    told = [ENDED[Status(code)] for code in sorted(counts)]
    if len(told) > 1:
        told = [f"{counts[code]} {ENDED[Status(code)]}" for code in sorted(counts)]
    return f"{seeds} seed{'s' * (seeds != 1)}: {', '.join(told)}"


def plain(text: Any) -> str:
    """A text as plotly shows it letter by letter: it would take some markup for its own."""
    return html.escape(value_text(text), quote=False)


def rounded(values: np.ndarray) -> list[Any]:
    """Nested lists of five digits, as JSON writes them; None where there is no number."""
    if values.ndim > 1:
        return [rounded(row) for row in values]
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.astype(float).tolist()]
