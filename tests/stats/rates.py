"""How often the intervals of statistics cover, how wide they are, and what tests of fit find: by simulation.

    python -m tests.stats.rates [--count 4000] [--only NAME] [--jobs N]

prints the tables of docs/statistics.md, and writes them there and to rates.json, which a fast test compares. The truths
(truths.py) were chosen before the estimators. `--only` replaces the entries whose name contains the text.
"""

from __future__ import annotations

import argparse
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from benign.stats import boundary, boundary_shift, clopper_pearson, largest_fall, mean_interval
from tests.stats.oracle import half_widths
from tests.stats.tables import failures, render
from tests.stats.truths import BROKEN, PAIRS, RISES, TRUTHS, Pair, Rise, Truth

JSON = Path(__file__).with_name("rates.json")
PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
CHUNK = 100
"""simulations of one task"""

MEANS = "high", "high of the average line"
"""quantities that are no shares, beside widths"""
Numbers = dict[str, float]
"""of one simulation: 1 or 0 for what holds or not, and widths; what is missing was not measured"""


@dataclass(frozen=True)
class Case:
    """A simulation: a name in a group, and a function that draws once and returns what it found."""

    group: str
    name: str
    run: Callable[[np.random.Generator], Numbers]


def covers(interval: Sequence[float] | np.ndarray, truth: float) -> float:
    """Return 1 if an interval, whose last two numbers are its ends, contains the truth."""
    return float(interval[-2] <= truth <= interval[-1])


def of_truth(truth: Truth) -> Callable[[np.random.Generator], Numbers]:
    def run(rng: np.random.Generator) -> Numbers:
        values = truth.draw(rng)
        found = boundary(values, truth.level)
        few = "rows cross it" in found.reason
        if few:
            return {}
        if found.fit is None:
            return {"no fit": 1.0}
        log_c = truth.log_constant
        at = found.constant_for(truth.exponent)
        numbers = {
            "no fit": 0.0,
            "slope": covers(found.fit.slope_interval, truth.slope),
            "constant": covers(np.log(at), log_c),
            "free constant": covers(found.fit.constant_interval, np.exp(log_c)),
            "slope width": float(np.diff(found.fit.slope_interval)[0]) / 2,
            "constant width": float(np.log(at.high / at.low)) / 2,
        }
        if not truth.grid_decides:
            slope, constant = half_widths(truth, values.values)
            numbers |= {"oracle slope width": slope, "oracle constant width": constant}
        return numbers

    return run


def of_broken(truth: Truth) -> Callable[[np.random.Generator], Numbers]:
    def run(rng: np.random.Generator) -> Numbers:
        reason = boundary(truth.draw(rng), truth.level).reason
        if "rows cross it" in reason:
            return {}
        return {"found": float(bool(reason)), "as rows that cross back": float("back" in reason)}

    return run


def of_pair(pair: Pair) -> Callable[[np.random.Generator], Numbers]:
    def run(rng: np.random.Generator) -> Numbers:
        edges = [boundary(each, pair.first.level) for each in pair.draw(rng)]
        try:
            shift = boundary_shift(edges[0], edges[1], pair.first.exponent).values
        except ValueError:
            return {}
        found = mean_interval(shift[np.isfinite(shift)])
        return {"shift": covers(found, pair.log_factor), "width": (found.high - found.low) / 2}

    return run


def of_rise(rise: Rise) -> Callable[[np.random.Generator], Numbers]:
    mean = rise.mean()
    whole, average = (
        max(float((np.maximum.accumulate(each, -1) - each).max()), 0.0)
        for each in (mean, mean.mean(0))
    )

    def run(rng: np.random.Generator) -> Numbers:
        values = rise.draw(rng)
        found, line = (
            largest_fall(each, "snr").estimate for each in (values, values.mean("samples"))
        )
        return {
            "interval": covers(found, whole),
            "low end": float(found.low <= whole),
            "significant": float(found.low > 0),
            "high": found.high,
            "interval of the average line": covers(line, average),
            "significant in the average line": float(line.low > 0),
            "high of the average line": line.high,
        }

    return run


def others() -> Iterator[Case]:
    """Yield the cases of the statistics of claims, and of bisection."""
    from benign.claims import measure
    from benign.claims.locate import _halfway

    def two_sided(of: Callable[[np.random.Generator], measure.Measured], truth: float):
        return lambda rng: {"interval": covers(of(rng).estimate, truth)}

    x = np.linspace(0, 2, 6)

    def sloped(rng: np.random.Generator) -> np.ndarray:
        return 0.5 * x + 0.3 * rng.standard_normal((5, 1)) + 0.1 * rng.standard_normal((5, 6))

    def line(rng: np.random.Generator) -> measure.Measured:
        points = np.arange(8)
        return measure.slope("", points, 0.5 * points + rng.normal(size=8))

    means = {
        "mean, 5 normal seeds": (lambda r: measure.mean("", r.normal(1, 1, 5)), 1.0),
        "mean, 10 normal seeds": (lambda r: measure.mean("", r.normal(1, 1, 10)), 1.0),
        "slope, 8 points": (line, 0.5),
        "slope_by_seed, 5 seeds that share a shift": (
            lambda r: measure.slope_by_seed("", x, sloped(r)),
            0.5,
        ),
        "mean, 10 exponential seeds": (lambda r: measure.mean("", r.exponential(1, 10)), 1.0),
    }
    for name, (of, truth) in means.items():
        group = "skewed" if "exponential" in name else "mean"
        yield Case(group, name, two_sided(of, truth))
    for trials, chance in ((10, 0.9), (20, 0.7), (50, 0.95)):

        def ends(rng: np.random.Generator, trials: int = trials, chance: float = chance) -> Numbers:
            found = measure.share("", rng.random(trials) < chance).estimate
            return {"low end": float(found.low <= chance), "high end": float(found.high >= chance)}

        yield Case("bound", f"share, {trials} trials of {chance:g}", ends)
    middles = {"equal": np.zeros(12), "one above the others": np.array([1.0, *[0.0] * 11])}
    for name, middle in middles.items():
        for seeds, shared in ((5, 0.0), (5, 1.0), (12, 0.0)):

            def largest(rng, middle=middle, seeds=seeds, shared=shared) -> Numbers:  # fmt: skip
                rows = middle + shared * rng.normal(size=(seeds, 1)) + rng.normal(size=(seeds, 12))
                return {"interval": covers(measure.largest_mean("", rows).estimate, middle.max())}

            noise = f"{seeds} seeds{' with effects' if shared else ''}"
            yield Case("bound", f"largest_mean of 12 cells, {name}, {noise}", largest)
    draws: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], bool]] = {
        "normal": (lambda r, n: r.standard_normal((n, 20)), False),
        "normal with effects of seeds": (lambda r, n: r.standard_normal((n, 1)) + r.standard_normal((n, 20)), False),
        "exponential": (lambda r, n: r.exponential(1, (n, 20)), False),
        "exponential, by logarithms": (lambda r, n: r.exponential(1, (n, 20)), True),
        "log-normal": (lambda r, n: np.exp(r.standard_normal((n, 20))), False),
        "log-normal, by logarithms": (lambda r, n: np.exp(r.standard_normal((n, 20))), True),
    }  # fmt: skip
    for name, (draw, log) in draws.items():
        for seeds in (5, 10):

            def next_seed(rng, draw=draw, log=log, seeds=seeds) -> Numbers:  # fmt: skip
                top = measure.worst_of_runs("", draw(rng, seeds), log).estimate.high
                return {"high end": float(draw(rng, 1).max() <= top)}

            group = "bound" if log or name.startswith("normal") else "skewed bound"
            yield Case(group, f"worst_of_runs, {seeds} seeds, {name}", next_seed)

    fine = Truth("", columns=tuple(np.geomspace(0.16, 16, 33)))

    def bisected(rng: np.random.Generator) -> Numbers:
        whole = fine.draw(rng)
        rows, columns = whole.samples.values, whole.snr.values
        done = [(row, column) for row in rows for column in (columns[0], columns[-1])]
        wanted = done
        while wanted:
            values = xr.full_like(whole, np.nan)
            for row, column in done:
                at = {"samples": row, "snr": column}
                values.loc[at] = whole.loc[at]
            wanted = _halfway(values, fine.level, set(done))
            done = done + wanted
        found = boundary(values, fine.level)
        if found.fit is None:
            return {"no fit": 1.0}
        at = found.constant_for(fine.exponent)
        return {
            "no fit": 0.0,
            "slope": covers(found.fit.slope_interval, fine.slope),
            "constant": covers(np.log(at), fine.log_constant),
        }

    yield Case("bisection", "locate_boundary, 11 x 33, 5 seeds", bisected)


def cases() -> list[Case]:
    return [
        *(Case("boundary", each.name, of_truth(each)) for each in TRUTHS),
        *(Case("broken", each.name, of_broken(each)) for each in BROKEN),
        *(Case("shift", each.name, of_pair(each)) for each in PAIRS),
        *(Case("fall", each.name, of_rise(each)) for each in RISES),
        *others(),
    ]


def simulate(place: int, first: int, count: int) -> list[Numbers]:
    """Return some of the simulations of a case, the same whatever runs beside them."""
    case = cases()[place]
    key = zlib.crc32(f"{case.group} {case.name}".encode())
    return [
        case.run(np.random.default_rng([key, number])) for number in range(first, first + count)
    ]


def summary(numbers: list[Numbers]) -> dict[str, dict[str, float]]:
    """Return for each quantity its mean and number of simulations, and for shares the 99 % band."""
    found = {}
    for name in dict.fromkeys(name for each in numbers for name in each):
        values = np.array([each[name] for each in numbers if name in each])
        found[name] = {"mean": round(float(values.mean()), 5), "of": values.size}
        if name not in MEANS and "width" not in name:
            band = clopper_pearson(int(values.sum()), values.size, 0.99)
            found[name] |= {"low": round(band.low, 4), "high": round(band.high, 4)}
    return found


def rates(count: int, only: str = "", jobs: int = 1) -> dict:
    """Simulate the cases whose group or name contains `only`, and return their summaries by group and name."""
    every = cases()
    chosen = [n for n, each in enumerate(every) if only in each.group or only in each.name]
    tasks = [(n, first, min(CHUNK, count - first)) for n in chosen for first in range(0, count, CHUNK)]  # fmt: skip
    if jobs == 1:
        done = map(simulate, *zip(*tasks, strict=True))
        return _collected(every, tasks, done)
    with ProcessPoolExecutor(jobs) as pool:
        return _collected(every, tasks, pool.map(simulate, *zip(*tasks, strict=True)))


def _collected(every: list[Case], tasks: list[tuple[int, int, int]], done) -> dict:
    parts: dict[int, list[Numbers]] = {}
    found: dict[str, dict] = {}
    for position, ((place, _, _), numbers) in enumerate(zip(tasks, done, strict=True)):
        parts.setdefault(place, []).extend(numbers)
        if position + 1 == len(tasks) or tasks[position + 1][0] != place:
            case = every[place]
            found.setdefault(case.group, {})[case.name] = summary(parts.pop(place))
            print(f"{case.group}: {case.name}: {found[case.group][case.name]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    stored = json.loads(JSON.read_text()) if given.only and JSON.exists() else {}
    for group, found in rates(given.count, given.only, given.jobs).items():
        stored.setdefault(group, {}).update(found)
    order = {(each.group, each.name): n for n, each in enumerate(cases())}
    stored = {
        group: {name: of[name] for name in sorted(of, key=lambda n: order.get((group, n), 0))}
        for group, of in stored.items()
    }
    JSON.write_text(json.dumps(stored, indent=1) + "\n")
    PAGE.write_text(render(PAGE.read_text(), stored))
    print("\n".join(["what does not hold:", *failures(stored)]))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
