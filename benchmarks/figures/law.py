"""Whether contestants compute the same thing, from results that agree in law only: each draws its own points.

Under the hypothesis that two contestants have the same law in every cell, the runs of a cell are exchangeable: which
contestant made which run is arbitrary. So the names are permuted within cells, and the statistic is the largest
|difference of means| over its standard deviation under permutation, of all compared numbers and all bands. The largest
of many is compared with the largest of many, which makes the level of the whole comparison exact, whatever the number
of cells and of numbers (Westfall and Young 1993). Bonferroni's bound would lose power, as the numbers depend on each
other. No second seed of a cell is needed: with k cells of one run each it can reject at 1 % from k = 8 on. Simulated in
tests/benchmarks; one comparison of equals in a hundred fails by chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LEVEL = 0.01
"""chance that two equal contestants are taken for different"""
PERMUTATIONS = 20_000
ROUNDING = 1e-5
"""share of a number that is no difference: one contestant sums in float32 to 1.0000001 where another has 1"""

Values = Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """The numbers of one run of one contestant."""

    cell: int
    band: int
    values: Values


@dataclass(frozen=True)
class Law:
    """The comparison of two contestants."""

    equal: bool
    p: float
    runs: tuple[int, int]
    worst: str
    """the number, and the band of cells, with the largest difference"""
    difference: float
    """of means there"""
    resolved: float
    """the difference there that would be found every second time"""
    cells: int

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "runs": list(self.runs)}


def compare(first: Sequence[Outcome], second: Sequence[Outcome], seed: int = 0) -> Law:
    """Compare two contestants on the cells that both have."""
    cells = sorted({each.cell for each in first} & {each.cell for each in second})
    if not cells:
        raise ValueError("the contestants have no cell in common")
    rng, names = np.random.default_rng(seed), _names(first, second)
    values, sizes, shuffled = [], [], []
    bands = {each.cell: each.band for each in first}
    for cell in cells:
        one, two = ([e.values for e in side if e.cell == cell] for side in (first, second))
        pool = np.array([[row[name] for name in names] for row in (*one, *two)], float)
        # The number of a diverged run is no number: rank it worst, equally for both.
        pool = np.nan_to_num(pool, nan=1e6, posinf=1e6, neginf=-1e6)
        sizes.append(np.abs(pool).mean(0))
        pool = pool - pool[0]  # rounding alone would make a difference of equal numbers
        order = rng.random((PERMUTATIONS, len(pool))).argsort(1)
        order[0] = np.arange(len(pool))
        signs = np.where(order < len(one), 1 / len(one), -1 / len(two))
        shuffled.append(signs @ pool)
        values.append(bands[cell])
    # [cells, permutations, numbers]: differences of the means of each cell
    means = np.stack(shuffled)
    groups = {"all cells": np.ones(len(cells), bool)}
    if len(set(values)) > 1:
        groups |= {f"band {band}": np.array(values) == band for band in sorted(set(values))}
    statistics = np.stack([means[mask].mean(0) for mask in groups.values()])
    # Of the sizes over all contestants, which no permutation changes.
    least = ROUNDING * np.mean(sizes, axis=0)
    spread = np.hypot(statistics.std(1), least)
    scaled = np.abs(statistics) / np.where(spread > 0, spread, np.inf)[:, None]
    largest = scaled.max((0, 2))
    # Ties count: with few runs several permutations give the same split.
    p = float((largest >= largest[0] * (1 - 1e-9)).mean())
    group, number = np.unravel_index(scaled[:, 0].argmax(), scaled[:, 0].shape)
    critical = np.quantile(largest, 1 - LEVEL)
    return Law(
        p > LEVEL,
        p,
        (len(first), len(second)),
        f"{names[number]}, {list(groups)[group]}",
        float(statistics[group, 0, number]),
        float(critical * spread[group, number]),
        len(cells),
    )


def _names(first: Sequence[Outcome], second: Sequence[Outcome]) -> list[str]:
    """Return the numbers that both have. Raise ValueError if one lacks a number of the other."""
    one, two = set(first[0].values), set(second[0].values)
    if one != two:
        raise ValueError(f"one contestant lacks {sorted(one ^ two)}")
    return sorted(one)
