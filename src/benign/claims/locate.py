"""The boundary of a map at a fraction of its runs: every row is bisected, all rows together in each round."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import xarray as xr

from benign.claims.points import GROUP, Point, points_in, run_points
from benign.experiment import Experiment, Folder
from benign.spec.axes import Path, axes_of, dimensions
from benign.stats.audited import unless_moved
from benign.stats.boundary import Boundary, boundary, rises
from benign.stats.law import Law
from benign.sweep.ends import at_end


@dataclass(frozen=True, eq=False)
class Located(Boundary):
    """A boundary found by bisection, with its cost."""

    brackets: xr.DataArray
    """over (row, end): the neighbouring computed columns between which the row crosses the level; NaN if it does not"""
    runs: int
    """number of runs in the folder"""
    grid_runs: int
    """number of runs of the whole grid"""
    finished: bool
    """whether every bracket is as narrow as the grid; False if the budget ended before"""

    @property
    def saved(self) -> float:
        """The share of the grid's runs that were not needed."""
        return 1 - self.runs / self.grid_runs

    def __str__(self) -> str:
        cost = f"{self.runs} runs instead of {self.grid_runs} ({100 * self.saved:.0f} % saved)"
        if not self.finished:
            cost += "; the budget ended before every bracket was as narrow as the grid"
        return f"{super().__str__()}\n  {cost}"


@dataclass(frozen=True)
class _Grid:
    """The experiment whose columns are the resolution, with its rows and columns and the fields that hold them."""

    experiment: Experiment
    names: tuple[str, str]
    paths: tuple[Path, Path]
    rows: list[float]
    columns: list[float]

    @classmethod
    def of(cls, experiment: Experiment, law: Law) -> _Grid:
        dims = {dim.name: dim for dim in dimensions(experiment)}
        if set(dims) != {law.row, law.column}:
            raise ValueError(
                f"the experiment must have the axes of the law, {law.row} and {law.column}, got {', '.join(dims)}"
            )
        for dim in dims.values():
            if any(axes_of(experiment)[path].group for path in dim.fields):
                raise ValueError(f"the axis {dim.name} must be a plain list, not a zipped group")
        (row, rows), (column, columns) = (
            (next(iter(dims[name].fields)), sorted(dims[name].values)) for name in (law.row, law.column)
        )  # fmt: skip
        return cls(experiment, (law.row, law.column), (row, column), rows, columns)

    def ends(self) -> list[Point]:
        """Return the lowest and the highest column of every row."""
        return [(row, column) for row in self.rows for column in (self.columns[0], self.columns[-1])]  # fmt: skip

    def run(
        self, done: list[Point], variable: str, folder: Folder, **how: Any
    ) -> tuple[xr.DataArray, xr.DataArray]:
        """Run some cells, and return the variable, and the same with masked runs at their certified end."""
        result = run_points(self.experiment, self.paths, done, folder, **how)
        proven = at_end(result, "masked runs certified")
        return self._map(result[variable], done), self._map(proven[variable], done)

    def _map(self, measured: xr.DataArray, done: list[Point]) -> xr.DataArray:
        """Return a variable over (row, column, seed), NaN at cells that were not run."""
        variable = str(measured.name)
        if measured.dims != (GROUP, "seed"):
            raise ValueError(f"`variable` must be one number a run, {variable} has {measured.dims}")
        rows, columns = zip(*done, strict=True)
        all_rows, all_columns = sorted({*self.rows, *rows}), sorted({*self.columns, *columns})
        values = np.full((len(all_rows), len(all_columns), measured.sizes["seed"]), math.nan)
        for (row, column), runs in zip(done, measured.values, strict=True):
            values[all_rows.index(row), all_columns.index(column)] = runs
        coords = [all_rows, all_columns, measured["seed"].values]
        return xr.DataArray(values, coords, (*self.names, "seed"), variable)


def locate_boundary(
    experiment: Experiment,
    level: float,
    law: str = "samples * snr**p",
    *,
    folder: Folder,
    variable: str = "test_accuracy",
    budget: int | None = None,
    confidence: float = 0.95,
    device: str = "cpu",
    workers: int = 1,
) -> Located:
    """Find where a variable crosses `level` in each row, running only the cells that bisection needs.

    The columns of the experiment are the resolution: a row of 33 columns needs 7 cells. Each round runs one more cell
    of every row, halfway in log(column) between the cells that bracket the first crossing; the cells of a round are
    one batch. Bisection finds one crossing of a row; only the whole grid would show several.

    - `folder`: where the runs go. Runs that it holds are used: the same call resumes, and another level reuses them.
    - `budget`: the largest number of runs in the folder.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=[4, 8, 16, 32], dim=50, signal=bo.logspace(0.5, 8, 17)),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=50),
    ...     evaluation=bo.Evaluation(samples=200),
    ...     seeds=4,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = bo.locate_boundary(sweep, 0.8, "samples * signal**p", folder=folder)
    >>> found.runs, found.grid_runs
    (96, 272)
    """
    grid = _Grid.of(experiment, Law.parse(law))
    ends = 2 * len(grid.rows) * experiment.seeds
    if budget is not None and budget < ends:
        raise ValueError(
            f"`budget` must be at least {ends} runs, both ends of every row, got {budget}"
        )
    done = points_in(folder, grid.paths)
    wanted = [cell for cell in grid.ends() if cell not in done]
    while True:
        done += wanted
        values, proven = grid.run(done, variable, folder, device=device, workers=workers)
        wanted = _halfway(values, level, set(done))
        if not wanted or (budget and (len(done) + len(wanted)) * experiment.seeds > budget):
            break
    located = boundary(values, level, law, confidence=confidence)
    if not proven.equals(values):
        located = unless_moved(located, proven)
    ends_of = {"end": ["low", "high"]}
    return Located(
        **{field.name: getattr(located, field.name) for field in fields(located)},
        brackets=xr.DataArray(
            [bracket or (math.nan, math.nan) for bracket in _brackets(values, level)],
            {grid.names[0]: located.critical[grid.names[0]], **ends_of},
            (grid.names[0], "end"),
        ),
        runs=len(done) * experiment.seeds,
        grid_runs=len(grid.rows) * len(grid.columns) * experiment.seeds,
        finished=not wanted,
    )


def _brackets(values: xr.DataArray, level: float) -> list[tuple[float, float] | None]:
    """Return for each row the neighbouring computed columns between which its mean first crosses the level, or None."""
    curves, columns = values.mean("seed").values, values[values.dims[1]].values
    sign = 1 if rises(curves) else -1
    return [_bracket(columns, sign * curve, sign * level) for curve in curves]


def _bracket(columns: np.ndarray, curve: np.ndarray, level: float) -> tuple[float, float] | None:
    known = np.flatnonzero(~np.isnan(curve))
    beyond = curve[known] >= level
    changes = np.flatnonzero(beyond[1:] & ~beyond[:-1])
    if beyond.size == 0 or beyond[0] or changes.size == 0:
        return None
    low, high = columns[known[changes[0] : changes[0] + 2]]
    return low, high


def _halfway(values: xr.DataArray, level: float, done: set[Point]) -> list[Point]:
    """Return for each row the cell nearest to the middle of its bracket, in the logarithm, that was not run."""
    rows, columns = (values[name].values for name in values.dims[:2])
    wanted = []
    for row, bracket in zip(rows, _brackets(values, level), strict=True):
        if bracket is None:
            continue
        low, high = bracket
        between = [c for c in columns if low < c < high and (row, c) not in done]
        if between:
            middle = math.log(low * high) / 2
            wanted.append((row.item(), min(between, key=lambda c: abs(math.log(c) - middle)).item()))  # fmt: skip
    return wanted
