"""How often intervals and tests of boundaries miss on maps with a known law, compared with the nominal rate.

`python -m tests.stats.test_rates` prints the table of docs/own-lemma.md (minutes).
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from benign.stats import Boundary, boundary, wilson


@dataclass(frozen=True)
class Maps:
    """Maps of accuracy (or loss) whose transition is logistic in log column, on `row * column**exponent = c`."""

    name: str
    exponent: float
    rows: int = 9
    columns: int = 30
    seeds: int = 5
    width: float = 0.2
    """of the transition, in log column; a column is 4.6 / columns wide"""
    spread: float = 0.3
    """standard deviation of log column* over seeds"""
    shared: float = 0.0
    """share of that variance which the rows of a seed have in common"""
    loss: bool = False
    """a loss that falls from 0.69 to 0 and is cut at 0.2, on evenly spaced columns"""
    aligned: bool = False
    """columns are spaced as the law's, so that the grid errs alike in all rows"""

    @property
    def fine(self) -> bool:
        """Whether draws decide and not the grid: then rates are the nominal ones, and not only bounded by them."""
        return self.columns >= 30

    def draw(self, rng: np.random.Generator) -> tuple[xr.DataArray, float, float]:
        """A map, its level, its constant."""
        rows = 2.0 ** np.arange(1, self.rows + 1) if self.aligned else np.linspace(2, 22, self.rows)
        x, space = np.log(rows), np.linspace if self.loss else np.geomspace
        columns = space(0.16, 16, self.columns)
        if self.aligned:
            columns = 2.0 ** ((np.arange(self.columns) - self.columns / 2) / self.exponent)
        middle = rng.uniform(0.8, 1.8) if self.loss else rng.uniform(-0.2, 0.2) / self.exponent
        constant = float(np.exp(x.mean() + self.exponent * middle))
        parts = rng.standard_normal((1, self.seeds)), rng.standard_normal((self.rows, self.seeds))
        shift = np.sqrt(self.shared) * parts[0] + np.sqrt(1 - self.shared) * parts[1]
        critical = ((np.log(constant) - x) / self.exponent)[:, None] + self.spread * shift
        depth = (np.log(columns)[:, None] - critical[:, None]) / self.width
        if self.loss:
            values, level = 0.69 / (1 + np.exp(depth + np.log(0.49 / 0.2))), 0.2
        else:
            values, level = rng.binomial(1000, 0.5 + 0.5 / (1 + np.exp(-depth))) / 1000, 0.75
        coords = {"samples": rows, "snr": columns, "seed": range(self.seeds)}
        return xr.DataArray(values, coords, tuple(coords)), level, constant


KINDS = [
    Maps("fine grid", 2),
    Maps("fine grid, shared draws", 2, shared=0.8),
    Maps("3 rows", 2, rows=3),
    Maps("4 rows, 3 seeds", 2, rows=4, seeds=3),
    Maps("2 seeds", 2, seeds=2),
    Maps("1 seed", 2, seeds=1, spread=0.1),
    Maps("10 seeds", 2, seeds=10),
    Maps("coarse grid", 2, columns=10, spread=0.1),
    Maps("coarse grid, shared draws", 2, columns=10, spread=0.1, shared=1.0),
    Maps("jumps between columns", 2, columns=10, spread=0.02, width=0.03),
    Maps("jumps, spaced as the law", 2, rows=6, columns=14, spread=0.02, width=0.02, aligned=True),
    Maps("loss, even columns", 2, columns=10, spread=0.05, loss=True),
    Maps("loss, even columns, no noise", 2, columns=10, spread=0.0, loss=True, seeds=3),
]
SETTINGS = [replace(kind, exponent=p) for p in (2, 4) for kind in KINDS]
OFTEN = 1 - 1e-4
"""a count leaves its range once in 10,000 fresh seeds"""


def inside(interval: tuple[float, float], truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


def misses(maps: Maps, count: int) -> np.ndarray:
    """Whether the exponent's test, the constant at the exponent and the free constant miss, for each map with a fit."""
    rng, missed = np.random.default_rng(11), []
    for _ in range(count):
        values, level, constant = maps.draw(rng)
        found: Boundary = boundary(values, level)
        if found.fit is None:
            continue
        tested = found.exponent_is(maps.exponent)
        assert bool(tested) == (tested.p_value >= 0.05)
        at = found.constant_for(maps.exponent)
        missed.append(
            [
                not tested,
                not inside((at.low, at.high), constant),
                not inside(found.fit.constant_interval, constant),
            ]
        )
    return np.array(missed)


def check(maps: Maps, count: int) -> None:
    found = misses(maps, count)
    assert len(found) > 0.9 * count
    low, high = stats.binom.interval(OFTEN, len(found), 0.05)
    assert (found.sum(0) <= high).all(), found.mean(0)
    if maps.fine and maps.seeds >= 5:
        assert found[:, 0].sum() >= low, found.mean(0)


@pytest.mark.parametrize("maps", [KINDS[0], KINDS[3], KINDS[12]], ids=lambda m: m.name)
def test_intervals_miss_as_rarely_as_they_promise(maps: Maps):
    check(maps, 40)


@pytest.mark.slow
@pytest.mark.parametrize("maps", SETTINGS, ids=lambda m: f"{m.name}-{m.exponent:g}")
def test_many_intervals_miss_as_rarely_as_they_promise(maps: Maps):
    check(maps, 400)


@pytest.mark.slow
def test_a_wrong_exponent_is_rejected():
    """Twice the exponent, nine rows, five seeds: the test rejects it."""
    rng, maps = np.random.default_rng(3), Maps("", 2, spread=0.1)
    maps_drawn = [maps.draw(rng) for _ in range(100)]
    assert sum(not boundary(v, level).exponent_is(4) for v, level, _ in maps_drawn) > 95


def print_table(count: int) -> None:
    print("| maps | exponent | exponent test | constant at it | free constant |")
    print("| --- | --- | --- | --- | --- |")
    for maps in SETTINGS:
        rates = [f"{100 * share:.1f} %" for share in misses(maps, count).mean(0)]
        print(f"| {maps.name} | {maps.exponent:g} | {' | '.join(rates)} |", flush=True)
    ends = wilson(round(0.05 * count), count)
    print(f"of {count} maps, 5 % is {100 * ends.low:.1f} to {100 * ends.high:.1f} %")


if __name__ == "__main__":
    print_table(400)
