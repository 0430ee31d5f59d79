"""The figures, the runs of them that are compared, and the experiment that holds exactly these runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.figures.cases import Case, as_dict
from benchmarks.figures.reading import case_of
from benign.data.mixture import Mixture
from benign.experiment import Experiment
from benign.networks.linear import Linear
from benign.papers.registry import recipe
from benign.spec.axes import Axis, axes_of, cells, logspace, replace
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation


def clean_linear(scale: str) -> Experiment:
    """Clean training of a linear network on two clusters: sample size against signal, 10 % of labels flipped."""
    dim, samples, signals, seeds, tests = {
        "smoke": (60, [6, 12], 4, 2, 60),
        "quick": (400, [10, 20, 40], 6, 3, 500),
        "paper": (2000, [20, 40, 60, 80, 100], 10, 10, 2000),
    }[scale]
    return Experiment(
        data=Mixture(samples=samples, dim=dim, signal=logspace(0.5, 16.0, signals), flip=0.1),
        network=Linear(),
        training=GradientDescent(rate=0.01, stop_loss=0.01, max_steps=20_000),
        evaluation=Evaluation(samples=tests),
        seeds=seeds,
    )


@dataclass(frozen=True)
class Figure:
    build: Callable[[str], Experiment]
    rows: str
    """the axis of which a sample has every value: of sizes, which cost differently"""
    bands: str
    """the axis of which a sample has a value of every band"""
    batches: dict[str, tuple[tuple[int, int], ...]]
    """(runs of a batch, fresh points attacked at once) that JAX tries, by device"""
    other: str | None = None
    """other coordinates that benign is timed in as well: the default, or exact ones"""
    runs: dict[str, int] = field(default_factory=dict)
    """runs of a sample at paper scale, by device, where the whole figure would take a peer hours"""
    part: dict[str, Sequence[float]] | None = None
    """values of axes on a CPU at paper scale, where the whole figure would take days"""


def _recipe(name: str) -> Callable[[str], Experiment]:
    return lambda scale: recipe(name).experiment(scale)


FIGURES = {
    "jiang/fig1": Figure(
        _recipe("jiang/fig1"),
        "samples",
        "snr",
        {"cpu": ((1, 250), (4, 250)), "cuda": ((50, 250), (500, 50))},
        other="ambient",
    ),
    "zhang/fig1": Figure(
        _recipe("zhang/fig1"),
        "samples",
        "snr",
        {"cpu": ((1, 250), (8, 50)), "cuda": ((60, 250), (660, 50))},
        runs={"cpu": 44},
    ),
    "wang/fig1": Figure(
        _recipe("wang/fig1"),
        "dim",
        "signal",
        {"cpu": ((1, 250),), "cuda": ((10, 250), (50, 250))},
        other="ambient",
        runs={"cuda": 36},
        part={"dim": [1000, 2000], "signal": [2.0, 4.0, 6.0, 8.0]},
    ),
    "li/fig3": Figure(
        _recipe("li/fig3"), "clip", "clip", {"cpu": ((1, 250), (5, 250)), "cuda": ((10, 250),)}
    ),
    "linear": Figure(
        clean_linear,
        "samples",
        "signal",
        {"cpu": ((10, 500), (50, 500)), "cuda": ((500, 500),)},
        other="projected",
    ),
}


MOST_BANDS = 4
LOOP_RUNS = 44


@dataclass(frozen=True)
class Run:
    """A run of the comparison."""

    cell: int
    """number of its cell in the figure"""
    seed: int
    row: float
    """value of the axis of sizes"""
    band: int
    """band of the other axis, from the lowest"""
    case: Case

    @property
    def stratum(self) -> tuple[float, int]:
        """Runs of one stratum cost about the same."""
        return self.row, self.band

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "case": as_dict(self.case)}


@dataclass(frozen=True)
class Sample:
    """Some runs of a figure: chosen cells, with the first seeds of each."""

    figure: str
    experiment: Experiment
    """holds exactly these runs"""
    runs: tuple[Run, ...]
    figure_runs: int
    """of the whole figure"""
    part: bool
    """the figure was cut to the part for CPUs"""

    def thinned(self, count: int) -> "tuple[Run, ...]":
        """Return about so many of the runs, a share of every stratum."""
        if count >= len(self.runs):
            return self.runs
        strata: dict[tuple[float, int], list[Run]] = {}
        for run in self.runs:
            strata.setdefault(run.stratum, []).append(run)
        each = max(1, round(count / len(strata)))
        rng = np.random.default_rng(0)
        chosen = []
        for runs in strata.values():
            places = rng.permutation(len(runs))[:each]
            chosen += [runs[place] for place in sorted(places)]
        return tuple(chosen)


def sample_of(
    figure: str, scale: str, device: str, count: int | None, loop_runs: int = LOOP_RUNS
) -> Sample:
    """Return all runs of a figure, or about `count`: of every size one cell of each band, with one seed.

    count: None takes the whole figure, or the part of it for this device.
    loop_runs: runs that the loop computes; with fewer than four of every size the bands are wider.
    """
    its = FIGURES[figure]
    whole = its.build(scale)
    part = its.part if device == "cpu" and scale == "paper" else None
    kept = {name: set(values) for name, values in (part or {}).items()}
    grid = [
        (number, where, cell)
        for number, (where, cell) in enumerate(cells(whole))
        if all(where[name] in values for name, values in kept.items())
    ]
    rows = sorted({where[its.rows] for _, where, _ in grid})
    columns = sorted({where[its.bands] for _, where, _ in grid})
    bands = 1 if its.rows == its.bands else max(1, min(MOST_BANDS, loop_runs // len(rows)))
    seeds = 1 if part else whole.seeds
    if count is not None and count < len(grid) * seeds:
        bands, seeds = max(1, min(len(columns), round(count / len(rows)))), 1
    bands = min(bands, len(columns))
    band_of = {value: place * bands // len(columns) for place, value in enumerate(columns)}
    chosen = grid
    if count is not None and count < len(grid):
        rng, chosen = np.random.default_rng(0), []
        for row in rows:
            for band in range(bands):
                fitting = [
                    each
                    for each in grid
                    if each[1][its.rows] == row and band_of[each[1][its.bands]] == band
                ]
                chosen.append(fitting[rng.integers(len(fitting))])
    runs = tuple(
        Run(number, seed, where[its.rows], band_of[where[its.bands]], case_of(cell))
        for number, where, cell in chosen
        for seed in range(seeds)
    )
    total = seeds_of(whole)
    return Sample(
        figure, restricted(whole, [cell for *_, cell in chosen], seeds), runs, total, bool(part)
    )


def seeds_of(experiment: Experiment) -> int:
    """Return the number of runs of an experiment."""
    return sum(1 for _ in cells(experiment)) * experiment.seeds


def restricted(experiment: Experiment, chosen: Sequence, seeds: int) -> Experiment:
    """Return the experiment of these cells alone: its axes move together. Draws and keys of a run stay the same."""

    def at(cell, path):
        for name in path:
            cell = getattr(cell, name)
        return cell

    changes = {
        path: Axis(tuple(at(cell, path) for cell in chosen), "cell") for path in axes_of(experiment)
    }
    return replace(experiment, {**changes, ("seeds",): seeds})
