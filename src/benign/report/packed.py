"""Numbers and texts made small enough for a page that is sent by mail."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from benign.report.settled import settled

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
