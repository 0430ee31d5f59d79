"""The test of fit of a boundary: does the map cross its level once in each row, and on a power law?

Two tests share a rate of false alarms of 1 %, which is frozen: no verdict may depend on a choice made after seeing it.
Both compare seeds, so one seed tests nothing.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from benign.stats.runs import RunCrossings

ALARMS = 0.01
"""rate of false alarms of both tests together, where the law holds and the map is monotone"""


def misfit(
    runs: np.ndarray,
    level: float,
    rising: bool,
    found: RunCrossings,
    logs: np.ndarray,
    grid: np.ndarray,
) -> str:
    """Return why the boundary of a map [rows, columns, seeds] has no power law, or "" if nothing speaks against it.

    logs: log row. grid: the mean square error of each row's crossing that the grid leaves, equal in all seeds.
    """
    again = returns(runs, level, rising)
    if again < ALARMS / 2:
        return f"rows cross back over it (p = {again:.2g})"
    off = off_line(found, logs, grid)
    if off < ALARMS / 2:
        return f"critical values lie on no power law (p = {off:.2g})"
    return ""


def returns(runs: np.ndarray, level: float, rising: bool) -> float:
    """Return the p-value of the hypothesis that no row crosses back over the level.

    Half of the seeds choose, in every row whose mean is beyond the level and later before it again, the pair of columns
    with the largest fall; the other half measures the falls at these pairs, of which the choice knows nothing: if the
    map is monotone, their mean over rows is not above 0. Both halves take either part, so the p-value is doubled. The
    error is that of seeds, all of them, since half are few.
    """
    seeds = runs.shape[-1]
    if seeds < 2:
        return 1.0
    sign = 1.0 if rising else -1.0
    curves = sign * np.moveaxis(runs, -1, 0) - sign * level
    first = np.arange(seeds) % 2 == 0
    return min(1.0, 2 * min(_falls_again(curves, half) for half in (first, ~first)))


def _falls_again(curves: np.ndarray, choose: np.ndarray) -> float:
    """Return the p-value of curves [seeds, rows, columns] through 0, given which seeds choose the pairs of columns."""
    known = ~np.isnan(curves)
    filled = np.where(known, curves, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled[choose].sum(0) / known[choose].sum(0)
        off = np.where(known, curves - filled.sum(0) / known.sum(0), 0.0)
    highest = np.fmax.accumulate(mean, -1)
    back = np.where((highest >= 0) & (mean < 0), highest - mean, -math.inf)
    end = back.argmax(-1)
    rows = np.flatnonzero(back.max(-1) > -math.inf)
    if not rows.size:
        return 1.0
    end = end[rows]
    before = np.arange(mean.shape[-1]) <= end[:, None]
    start = np.where(before & ~np.isnan(mean[rows]), mean[rows], -math.inf).argmax(-1)
    falls = np.nan_to_num(curves[:, rows, start] - curves[:, rows, end]).mean(1)[~choose]
    noise = (off[:, rows, start] - off[:, rows, end]).mean(1)
    error = math.sqrt(float(noise @ noise) / (len(curves) - 1) / falls.size)
    if error <= 1e-12:
        return 0.0 if falls.mean() > 1e-12 else 1.0
    return float(special.stdtr(len(curves) - 1, -falls.mean() / error))


def off_line(found: RunCrossings, logs: np.ndarray, grid: np.ndarray) -> float:
    """Return the p-value of the hypothesis that the rows lie on a line of log column* on log row.

    The F test of the scatter of row means about the line against that of the runs about rows and seeds, over the rows
    that every seed crosses; the error of the grid, which all seeds share, adds to the latter.
    """
    seeds = found.informative.any(0)
    known = found.known[:, seeds]
    rows = known.all(1)
    count, replicates = int(rows.sum()), int(seeds.sum())
    if count < 3 or replicates < 2:
        return 1.0
    values, x = found.low[:, seeds][rows], logs[rows]
    means = values.mean(1)
    design = np.column_stack([np.ones(count), x - x.mean()])
    off = means - design @ np.linalg.lstsq(design, means, rcond=None)[0]
    inner = values - means[:, None] - values.mean(0) + values.mean()
    degrees = count - 2, (count - 1) * (replicates - 1)
    between = replicates * float(off @ off) / degrees[0]
    within = float((inner**2).sum()) / degrees[1] + replicates * float(grid[rows].mean())
    if between <= 1e-12:
        return 1.0
    return float(special.fdtrc(*degrees, between / max(within, 1e-15)))
