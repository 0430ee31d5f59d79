"""The search for a small counterexample: random cells inside a theorem's conditions; the first that fails is shrunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

import numpy as np
import xarray as xr

from benign.claims.conditions import Conditions
from benign.claims.points import GROUP, Point, points_in, run_points
from benign.experiment import Experiment, Folder
from benign.spec.axes import Path, dimensions, replace, walk
from benign.sweep.dataset import ended

Predicate = Callable[[xr.Dataset], Any]
Inside = Callable[[Experiment], Conditions | bool]
Space = Mapping[str, Sequence[Any]]

BATCH = 16
"""cells in a round, run as one experiment"""
DRAWS = 200
"""draws for each cell of a round after which the space counts as exhausted"""
FILE = "counterexample.yaml"


@dataclass(frozen=True)
class Counterexample:
    """A cell at which the predicate fails, as an experiment without axes."""

    experiment: Experiment
    where: dict[str, Any]
    failing: tuple[int, ...]
    """seeds with which the predicate fails"""
    file: File

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {_value_text(value)}" for name, value in self.where.items())
        seeds = f"{len(self.failing)} of {self.experiment.seeds} seeds"
        replay = f'bo.Experiment.from_yaml("{self.file}").replay(seed={self.failing[0]})'
        return f"{at}: fails with {seeds}\n  replay: {replay}"


@dataclass(frozen=True)
class Search:
    """The result of a search for a counterexample, and its cost."""

    counterexample: Counterexample | None
    runs: int
    cells: int
    points: int
    """drawn points of the space; those outside the conditions, or not valid as an experiment, were not run"""
    exhausted: bool
    """whether the search ended with budget left, as no further cell inside the conditions was found"""
    left_out: int = 0
    """number of runs that failed; they are not counted as counterexamples"""

    def __str__(self) -> str:
        cost = f"{self.runs} runs ({self.cells} cells inside, of {self.points} points drawn)"
        if self.cells == 0:
            return f"nothing was tried: no cell inside the conditions among {self.points} points"  # fmt: skip
        if self.counterexample is not None:
            return f"counterexample after {cost}\n  {self.counterexample}"
        exhausted = "; the space holds no more cells inside" if self.exhausted else ""
        failed = f"; {self.left_out} runs failed and do not count" if self.left_out else ""
        return f"no counterexample in {cost}{exhausted}{failed}"


def falsify(
    experiment: Experiment,
    predicate: Predicate,
    *,
    space: Space,
    folder: Folder,
    inside: Inside | None = None,
    budget: int = 100,
    allowed: float = 0.0,
    device: str = "cpu",
    workers: int = 1,
) -> Search:
    """Search a space for a cell at which the predicate fails, and shrink it.

    - `predicate`: a function of one run, such as `lambda run: run.test_accuracy > 0.9`.
    - `space`: for each searched field of the experiment (`samples`, or `data.samples`) a list of values, or a pair
      (low, high), drawn uniformly in the logarithm; whole numbers stay whole.
    - `folder`: where the runs go. Its runs are used, and a counterexample is written to `counterexample.yaml`.
    - `inside`: a function of a cell; only cells at which it returns True (or conditions that hold) are run.
    - `budget`: the largest number of runs. Everything is deterministic: the same call in the same folder returns at
      once, and a call with a larger budget continues.
    - `allowed`: the delta of "with probability 1 - delta": a cell is a counterexample if the predicate fails with more
      than this share of the seeds.

    The whole numbers of a counterexample are made smaller as long as it stays a counterexample.

    >>> import tempfile
    >>> import benign as bo
    >>> claim = bo.Experiment(
    ...     data=bo.Mixture(samples=20, dim=20, signal=1.0),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=50),
    ...     evaluation=bo.Evaluation(samples=200),
    ...     seeds=2,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = bo.falsify(
    ...         claim,
    ...         lambda run: run.test_accuracy > 0.9,  # false: a weak signal is not learned
    ...         space={"samples": (2, 64), "signal": (0.5, 4.0)},
    ...         inside=lambda cell: cell.data.signal < 1,
    ...         budget=60,
    ...         folder=folder,
    ...     )
    >>> found.counterexample.where["samples"]
    2
    """
    if dimensions(experiment):
        raise ValueError("the experiment must have no axes: `space` gives the fields to search")
    search = _Search(experiment, predicate, _Space.of(experiment, space), inside, budget, allowed)
    how = {"device": device, "workers": workers}
    point = search.at_random(folder, how)
    if point is not None:
        point = search.shrunk(point, folder, how)
    return search.result(point, File(folder))


@dataclass(frozen=True)
class _Space:
    """The searched fields, by name, and the values of each."""

    names: tuple[str, ...]
    paths: tuple[Path, ...]
    values: tuple[Sequence[Any], ...]

    @classmethod
    def of(cls, experiment: Experiment, space: Space) -> _Space:
        known = [path for path, role, _ in walk(experiment) if role]
        paths = []
        for name, values in space.items():
            matches = [path for path in known if name in (path[-1], ".".join(path))]
            if len(matches) != 1:
                can = ", ".join(map(".".join, known))
                raise ValueError(f"`space` must name fields that may be axes ({can}), got {name!r}")
            if len(values) == 0 or (_is_range(values) and not 0 < values[0] <= values[1]):
                raise ValueError(
                    f"`space` of {name} must be a list or a pair 0 < low <= high, got {values}"
                )
            paths += matches
        return cls(tuple(space), tuple(paths), tuple(space.values()))

    def draw(self, rng: np.random.Generator) -> Point:
        return tuple(_draw(values, rng) for values in self.values)

    def smaller(self, point: Point) -> Iterator[Point]:
        """Yield the point with one whole number made smaller: the smallest value, halfway to it, one step."""
        for index, (value, values) in enumerate(zip(point, self.values, strict=True)):
            if type(value) is not int:
                continue
            low = min(values)
            steps = {low, (low + value) // 2, value - 1}
            if not _is_range(values):
                steps = {each for each in values if each < value}
            for step in sorted(each for each in steps if low <= each < value):
                yield (*point[:index], step, *point[index + 1 :])

    def size(self, point: Point) -> float:
        """Return the size of a cell: the logarithm of the product of its whole numbers."""
        return sum(math.log(max(value, 1)) for value in point if type(value) is int)


def _is_range(values: Sequence[Any]) -> bool:
    return isinstance(values, tuple) and len(values) == 2


def _draw(values: Sequence[Any], rng: np.random.Generator) -> Any:
    if not _is_range(values):
        return values[int(rng.integers(len(values)))]
    low, high = values
    drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    if type(low) is type(high) is int:
        return min(max(round(drawn), low), high)
    return float(f"{drawn:.6g}")  # as in `logspace`: every machine writes the same numbers


@dataclass
class _Search:
    """One search. `tried` grows with every round, and so does the experiment in the folder."""

    experiment: Experiment
    predicate: Predicate
    space: _Space
    inside: Inside | None
    budget: int
    allowed: float
    tried: dict[Point, tuple[int, ...]] = field(default_factory=dict)
    """for each cell that was run, the seeds with which the predicate fails"""
    points: int = 0
    left_out: int = 0
    exhausted: bool = False

    @property
    def affordable(self) -> int:
        """The number of cells that the rest of the budget allows."""
        return self.budget // self.experiment.seeds - len(self.tried)

    def at_random(self, folder: Folder, how: Mapping[str, Any]) -> Point | None:
        """Run rounds of random cells. Return the smallest counterexample of the first round that has one, or None."""
        rng = np.random.default_rng(0)
        while self.affordable > 0:
            batch = self._draw(min(BATCH, self.affordable), rng)
            if not batch:
                self.exhausted = True
                return None
            if failing := self._try(batch, folder, how):
                return min(failing, key=self.space.size)
        return None

    def shrunk(self, point: Point, folder: Folder, how: Mapping[str, Any]) -> Point:
        """Return a smaller counterexample: move to the smallest smaller cell that fails, as long as there is one."""
        while self.affordable > 0:
            smaller = list(self.space.smaller(point))
            failing = [each for each in smaller if self._fails(self.tried.get(each, ()))]
            new = [each for each in smaller if each not in self.tried and self._is_inside(each)]
            if new:
                failing += self._try(new[: self.affordable], folder, how)
            if not failing:
                break
            point = min(failing, key=self.space.size)
        return point

    def result(self, point: Point | None, folder: File) -> Search:
        """Return the result of the search; write the counterexample, if there is one, into the folder."""
        counterexample = None
        if point is not None:
            cell, file = self._cell(point), folder / FILE
            where = dict(zip(self.space.names, point, strict=True))
            counterexample = Counterexample(cell, where, self.tried[point], file)
            comment = "\n".join(f"# {line}" for line in str(counterexample).splitlines())
            file.write_text(f"{comment}\n{cell.to_yaml()}", encoding="utf-8")
        runs = len(self.tried) * self.experiment.seeds
        return Search(counterexample, runs, len(self.tried), self.points, self.exhausted, self.left_out)  # fmt: skip

    def _draw(self, count: int, rng: np.random.Generator) -> list[Point]:
        """Return new cells inside the conditions; fewer than `count` if the space seems exhausted."""
        batch: list[Point] = []
        for _ in range(DRAWS * count):
            point = self.space.draw(rng)
            if point not in self.tried and point not in batch and self._is_inside(point):
                batch.append(point)
                if len(batch) == count:
                    break
        return batch

    def _cell(self, point: Point) -> Experiment:
        """Return the experiment of one cell. Raise ValueError if it is not valid."""
        changes = dict(zip(self.space.paths, point, strict=True))
        return Experiment.from_dict(replace(self.experiment, changes).as_dict())

    def _is_inside(self, point: Point) -> bool:
        self.points += 1
        try:
            cell = self._cell(point)
        except ValueError:
            return False
        answer = True if self.inside is None else self.inside(cell)
        return answer.hold if isinstance(answer, Conditions) else bool(answer)

    def _try(self, batch: list[Point], folder: Folder, how: Mapping[str, Any]) -> list[Point]:
        """Run some cells in addition to those of the folder, and return the counterexamples among them."""
        paths = self.space.paths
        points = list(dict.fromkeys([*points_in(folder, paths), *self.tried, *batch]))
        result = run_points(self.experiment, paths, points, folder, **how)
        usable = ended(result).values
        for point in batch:
            index = points.index(point)
            runs = [result.isel({GROUP: index, "seed": seed}) for seed in result["seed"].values]
            self.tried[point] = tuple(
                seed for seed, run in enumerate(runs) if usable[index, seed] and not bool(self.predicate(run))
            )  # fmt: skip
            self.left_out += int((~usable[index]).sum())
        return [point for point in batch if self._fails(self.tried[point])]

    def _fails(self, seeds: tuple[int, ...]) -> bool:
        return len(seeds) > self.allowed * self.experiment.seeds


def _value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
