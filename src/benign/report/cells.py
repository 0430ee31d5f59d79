"""The numbers behind a cell of a picture: its mean over seeds, an interval, and how its runs ended."""

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

from benign.plot.variables import extended_curve
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


def settled(result: xr.Dataset, name: str, points: list[int] | None = None) -> xr.DataArray:
    """A curve at some of its steps, all of them if not given.

    It ends at the first step after the end of the last run of its cell, with the number that the result has for that
    end.
    """
    base = name.removesuffix("_curve")
    used = [name, "steps", "status", base, f"{base}_training_attack"]
    part = result[[each for each in used if each in result]]
    part = part.isel(step=slice(None) if points is None else points)
    steps = part["step"].values
    last = part["steps"].max("seed").fillna(0).clip(max=steps[-1])
    until = last.copy(data=steps[np.searchsorted(steps, last.values)])
    curve = extended_curve(part, base).reindex(step=steps)
    if base not in part:
        return curve
    return curve.where(curve["step"] <= until).transpose(*part[name].dims)


MOST_POINTS, FEWEST_POINTS = 60, 15
"""steps that are kept of a curve"""
BUDGET = 1_500_000
"""numbers of all curves of a page: about four megabytes of it"""
KINDS = ("mean", "low", "high")
"""over seeds: what is drawn of a curve, and the band around it"""


@dataclass(frozen=True, eq=False)
class PackedCurves:
    """Curves of all cells."""

    names: tuple[str, ...]
    """variables, as far as there was room for them"""
    kinds: tuple[str, ...]
    points: list[int]
    """places of the steps that were kept"""
    numbers: np.ndarray
    """[cells, names, kinds, points]"""


def packed_curves(
    result: xr.Dataset, names: Sequence[str], dims: Sequence[str], budget: int
) -> PackedCurves:
    """As many of the curves, the first ones first, at as many steps as there is room for."""
    kinds = KINDS if result.sizes["seed"] > 1 else KINDS[:1]
    cells = int(np.prod([result.sizes[dim] for dim in dims], dtype=int))
    one = cells * len(kinds)
    room = min(len(names), budget // (one * min(FEWEST_POINTS, result.sizes["step"])))
    kept = tuple(names[:room])
    steps = min(MOST_POINTS, budget // (one * max(room, 1)))
    points = thinned(result.sizes["step"], steps)
    numbers = np.empty((cells, len(kept), len(kinds), len(points)), np.float32)
    for place, name in enumerate(kept):
        runs = settled(result, name, points).transpose(*dims, "seed", "step").values
        runs = runs.reshape(cells, result.sizes["seed"], len(points))
        numbers[:, place] = _over_seeds(runs, len(kinds))
    return PackedCurves(kept, kinds, points, numbers)


def thinned(count: int, most: int) -> list[int]:
    """At most so many of `count` places, evenly spread, the first and the last among them.

    >>> thinned(10, 4), thinned(3, 60)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _over_seeds(runs: np.ndarray, kinds: int) -> np.ndarray:
    """Mean, smallest and largest of the seeds that have a number, [cells, kinds, points]."""
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


def as_bytes(numbers: np.ndarray) -> bytes:
    """The upper three bytes of every float32, four digits and a half, byte by byte in a row: so they compress."""
    bits = np.ascontiguousarray(numbers, "<f4").view("<u4").ravel()
    # Half of what is cut off: rounds. NaN would overflow into something else, and is as good without.
    bits = np.where(np.isnan(numbers.ravel()), bits, bits + 0x80)
    return b"".join((bits >> shift & 0xFF).astype(np.uint8).tobytes() for shift in (24, 16, 8))


def squeezed(content: bytes) -> str:
    """Compressed, as text that needs no escaping anywhere; the same content gives the same text."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def json_bytes(content: Any) -> bytes:
    """As small as JSON gets."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
