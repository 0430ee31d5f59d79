"""The numbers behind a cell of a figure: its mean over seeds with an interval, its curves, and how its runs ended."""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from benign.plot.variables import extended_curve, with_seeds
from benign.stats.intervals import interval_text, number, t_quantile
from benign.sweep.dataset import masked
from benign.sweep.text import value_text
from benign.training.descent import Status

STATUS_TEXT = {
    Status.MISSING: "not run yet",
    Status.CONVERGED: "converged",
    Status.STEP_CAP: "stopped at the step cap",
    Status.DIVERGED: "diverged",
    Status.FAILED: "failed",
    Status.OUT_OF_MEMORY: "out of memory",
}
"""each status in words"""

CONFIDENCE = 0.95
Limits = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Means:
    """Means over seeds of every cell."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """ends of Student's t interval; infinite where only one seed has a value"""
    seeds: np.ndarray
    """number of seeds that have a value"""

    def text(self, cell: tuple[int, ...]) -> str:
        """Return the mean of a cell with its interval."""
        value, low, high = (float(part[cell]) for part in (self.mean, self.low, self.high))
        if math.isnan(value):
            return "no value"
        return (
            number(value) if math.isinf(high) else f"{number(value)} {interval_text((low, high))}"
        )


def means(values: xr.DataArray, *dims: str, within: Limits = (-math.inf, math.inf)) -> Means:
    """Return the means over seeds of a variable with these axes; intervals are clipped to the range `within`."""
    runs = with_seeds(values).transpose(*dims, "seed").values.astype(float)
    runs = np.where(np.isfinite(runs), runs, np.nan)
    seeds = np.isfinite(runs).sum(-1)
    total = np.nansum(runs, -1)
    mean = np.divide(total, seeds, out=np.full(total.shape, np.nan), where=seeds > 0)
    squares = np.nansum((runs - mean[..., None]) ** 2, -1)
    half = np.full(mean.shape, math.inf)
    for count in np.unique(seeds[seeds > 1]).tolist():
        cells = seeds == count
        error = np.sqrt(squares[cells] / (count - 1) / count)
        half[cells] = t_quantile(CONFIDENCE, count - 1) * error
    low, high = (
        np.where(seeds > 1, np.clip(mean + end, *within), mean + end) for end in (-half, half)
    )
    return Means(mean, low, high, np.asarray(seeds))


def ending_texts(result: xr.Dataset, *dims: str) -> np.ndarray:
    """Return how the runs of every cell ended and how many are masked: `3 seeds: 2 converged, 1 diverged; 1 masked`."""
    codes = result["status"].transpose(*dims, "seed").values.astype(int)
    counts = masked(result).transpose(*dims, "seed").values.sum(-1)
    texts = np.empty(codes.shape[:-1], dtype=object)
    for cell in np.ndindex(*texts.shape):
        texts[cell] = ending_text(codes[cell].tolist())
        if counts[cell]:
            texts[cell] += f"; {counts[cell]} masked"
    return texts


def ending_text(codes: Iterable[int]) -> str:
    """Return how runs ended, in words."""
    counts = Counter(codes)
    seeds = counts.total()
    parts = [STATUS_TEXT[Status(code)] for code in sorted(counts)]
    if len(parts) > 1:
        parts = [f"{counts[code]} {STATUS_TEXT[Status(code)]}" for code in sorted(counts)]
    return f"{seeds} seed{'s' * (seeds != 1)}: {', '.join(parts)}"


def escaped(text: Any) -> str:
    """Return a text in which plotly finds no markup."""
    return html.escape(value_text(text), quote=False)


def rounded(values: np.ndarray) -> list[Any]:
    """Return nested lists of numbers of five digits, as JSON writes them; None stands for NaN and infinity."""
    if values.ndim > 1:
        return [rounded(row) for row in values]
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.astype(float).tolist()]


def finished_curve(result: xr.Dataset, name: str, points: list[int] | None = None) -> xr.DataArray:
    """Return a curve at some of its steps (all if not given), in which runs that have ended keep their final value.

    The curve of a cell ends at the first step after the end of its last run, with the final value of the result.
    """
    base = name.removesuffix("_curve")
    needed = [name, "steps", "status", base, f"{base}_training_attack"]
    part = result[[each for each in needed if each in result]]
    part = part.isel(step=slice(None) if points is None else points)
    steps = part["step"].values
    last = part["steps"].max("seed").fillna(0).clip(max=steps[-1])
    until = last.copy(data=steps[np.searchsorted(steps, last.values)])
    curve = extended_curve(part, base).reindex(step=steps)
    if base not in part:
        return curve
    return curve.where(curve["step"] <= until).transpose(*part[name].dims)


MOST_POINTS, FEWEST_POINTS = 60, 15
"""most and fewest steps of a curve on a page"""
BUDGET = 1_500_000
"""numbers of all curves of a page: about four megabytes"""
KINDS = ("mean", "low", "high")
"""over seeds: the line of a curve, and the band around it"""


@dataclass(frozen=True, eq=False)
class PackedCurves:
    """Curves of all cells, within the budget of a page."""

    names: tuple[str, ...]
    """variables, as many as the budget allows"""
    kinds: tuple[str, ...]
    points: list[int]
    """indices of the steps"""
    numbers: np.ndarray
    """[cells, names, kinds, points]"""


def packed_curves(
    result: xr.Dataset, names: Sequence[str], dims: Sequence[str], budget: int
) -> PackedCurves:
    """Return as many of the curves, in this order, and as many of their steps as `budget` numbers allow."""
    kinds = KINDS if result.sizes["seed"] > 1 else KINDS[:1]
    cells = int(np.prod([result.sizes[dim] for dim in dims], dtype=int))
    per_point = cells * len(kinds)
    count = min(len(names), budget // (per_point * min(FEWEST_POINTS, result.sizes["step"])))
    included = tuple(names[:count])
    steps = min(MOST_POINTS, budget // (per_point * max(count, 1)))
    points = thinned(result.sizes["step"], steps)
    numbers = np.empty((cells, count, len(kinds), len(points)), np.float32)
    for index, name in enumerate(included):
        runs = finished_curve(result, name, points).transpose(*dims, "seed", "step").values
        runs = runs.reshape(cells, result.sizes["seed"], len(points))
        numbers[:, index] = _over_seeds(runs, len(kinds))
    return PackedCurves(included, kinds, points, numbers)


def thinned(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` indices, evenly spread, with the first and the last.

    >>> thinned(10, 4), thinned(3, 60)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _over_seeds(runs: np.ndarray, kinds: int) -> np.ndarray:
    """Return mean, smallest and largest of the seeds that have a value, [cells, kinds, points]."""
    known = np.isfinite(runs)
    count = known.sum(1)
    total = np.where(known, runs, 0.0).sum(1)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    if kinds == 1:
        return mean[:, None]
    low = np.where(known, runs, np.inf).min(1)
    high = np.where(known, runs, -np.inf).max(1)
    ends = [np.where(count > 0, end, np.nan) for end in (low, high)]
    return np.stack([mean, *ends], 1)


def packed_bytes(numbers: np.ndarray) -> bytes:
    """Return the upper three bytes of every float32, about four digits; first bytes, then second, then third: they
    compress better so."""
    bits = np.ascontiguousarray(numbers, "<f4").view("<u4").ravel()
    # Adding half of the dropped byte rounds. NaN is left as it is: it would overflow.
    bits = np.where(np.isnan(numbers.ravel()), bits, bits + 0x80)
    return b"".join((bits >> shift & 0xFF).astype(np.uint8).tobytes() for shift in (24, 16, 8))


def compressed(content: bytes) -> str:
    """Return the content compressed, as text that needs no escaping; equal contents give equal texts."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def json_bytes(content: Any) -> bytes:
    """Return JSON without any spaces."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
