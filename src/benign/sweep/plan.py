"""From a specification to runs, and from runs to units of work.

A *run* is one cell of the grid with one seed. A *unit* is a list of runs of one shape, computed
together and recorded together. The specification, and the smaller ones that it extends, alone
determine the units: memory, device and finished runs do not. So a resumed sweep batches its runs
as an uninterrupted one does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from benign.experiment import Experiment
from benign.spec.axes import Axis, Path, cells, replace, settings, walk
from benign.spec.base import digest, text_digest
from benign.streams import RunId
from benign.training.setup import Setup

NUMERICS = 7
"""raised whenever results may move: records of other numbers are not reused"""

RUNS_A_UNIT = 64
"""runs of a unit: enough to fill a device, few enough to lose little on a crash"""


@dataclass(frozen=True)
class Run:
    """One cell of the grid with one seed."""

    cell: Setup
    seed: int
    where: dict[str, Any]
    """coordinates by dimension name, `seed` among them"""

    @cached_property
    def key(self) -> str:
        """The digest of the resolved specification, the seed and the numerics."""
        return _keys(self.cell, [self.seed])[0]

    @property
    def id(self) -> RunId:
        """The identity of its random draws: with independent pairing, everything that may be an axis
        and is not its default, numbers and whole components.

        Nothing less would do: `attack: [PGD(radius=1), PGD(radius=2)]` and `attack.ball.radius: [1, 2]` are the
        same cells, so they cannot share draws in one grid and not in the other.
        """
        if self.cell.pairing == "common":
            return RunId(self.cell.root_seed, self.seed, "")
        values = {".".join(path): value for path, value in settings(self.cell)}
        return RunId(self.cell.root_seed, self.seed, digest(values))

    @cached_property
    def shape(self) -> str:
        """Equal for runs that can be stacked: everything but the numbers that differ by run."""
        blank = {
            path: None if value is None else 0.0
            for path, role, value in walk(self.cell)
            if role == "run"
        }
        spec = replace(self.cell, blank).as_dict()
        spec.pop("seeds", None)
        return digest(spec)


@dataclass(frozen=True)
class Unit:
    """Runs of one shape that are computed together and recorded under one key."""

    runs: tuple[Run, ...]

    @cached_property
    def key(self) -> str:
        return digest([run.key for run in self.runs])


def runs_of(experiment: Experiment) -> Iterator[Run]:
    """Yield every run of an experiment: all cells of the grid, each with seeds 0 to `seeds` - 1."""
    for where, cell in cells(experiment):
        for seed in range(experiment.seeds):
            yield Run(cell, seed, {**where, "seed": seed})


def keys_of(experiment: Experiment) -> list[str]:
    """Return the keys of all runs of an experiment, in the order of `runs_of`."""
    seeds = range(experiment.seeds)
    return [key for _, cell in cells(experiment) for key in _keys(cell, seeds)]


def _keys(cell: Setup, seeds: Iterable[int]) -> list[str]:
    """Return digests of {"numerics": ..., "seed": ..., "spec": ...}, whose last and long part seeds share.

    100,000 keys of 1,000 cells take 0.2 s; each digested by itself they took 5.5 s.
    """
    head, tail = f'{{"numerics":{NUMERICS},"seed":', f',"spec":{cell.fingerprint}}}'
    return [text_digest(f"{head}{seed}{tail}") for seed in seeds]


def find_run(experiment: Experiment, where: dict[str, Any], seed: int) -> Run:
    """Return the run with these coordinates and this seed."""
    if not 0 <= seed < experiment.seeds:
        raise ValueError(f"`seed` must be between 0 and {experiment.seeds - 1}, got {seed}")
    runs = [run for run in runs_of(experiment) if run.seed == seed]
    dims = [name for name in runs[0].where if name != "seed"]
    if set(where) != set(dims):
        raise ValueError(f"a run needs one value for each of {dims}, got {sorted(where)}")
    for name, value in where.items():
        known = {run.where[name] for run in runs}
        runs = [run for run in runs if _same(run.where[name], value)]
        if not runs:
            values = ", ".join(str(each) for each in sorted(known, key=str))
            raise ValueError(f"`{name}` must be one of {values}, got {value}")
    return runs[0]


def _same(coordinate: Any, wanted: Any) -> bool:
    if isinstance(coordinate, float) and isinstance(wanted, (int, float)):
        return abs(coordinate - wanted) <= 1e-6 * abs(coordinate)
    return coordinate == wanted


def units_of(history: Sequence[Experiment]) -> list[Unit]:
    """Return the units of a history: those of the first experiment, then those that each extension added."""
    known: set[str] = set()
    units: list[Unit] = []
    for experiment in history:
        new = [run for run in runs_of(experiment) if run.key not in known]
        known |= {run.key for run in new}
        units += _pack(new, _shaping(experiment))
    return units


def _shaping(experiment: Experiment) -> list[Path]:
    """Return the axes along which shapes may differ."""
    return [
        path for path, role, value in walk(experiment) if isinstance(value, Axis) and role != "run"
    ]


def _pack(runs: list[Run], shaping: list[Path]) -> list[Unit]:
    """Group runs by shape, in their order, into units of at most `RUNS_A_UNIT`.

    A shape is digested once for each combination of values of the `shaping` axes: digesting every run took 23 s for
    100,000 runs of 1,000 cells.
    """
    shapes: dict[tuple[int, ...], str] = {}
    groups: dict[str, list[Run]] = {}
    for run in runs:
        values = tuple(id(reduce(getattr, path, run.cell)) for path in shaping)
        if values not in shapes:
            shapes[values] = run.shape
        groups.setdefault(shapes[values], []).append(run)
    return [
        Unit(tuple(group[begin : begin + RUNS_A_UNIT]))
        for group in groups.values()
        for begin in range(0, len(group), RUNS_A_UNIT)
    ]


class OtherExperiment(ValueError):
    """A folder holds another experiment; the message says in what it differs."""


def is_superset(new: Experiment, old: Experiment) -> bool:
    """Return whether every run of the old experiment is a run of the new one."""
    return set(keys_of(old)) <= set(keys_of(new))


def extend_history(
    history: Sequence[Experiment], new: Experiment, folder: str = "the folder"
) -> list[Experiment]:
    """Return the history after running `new`, which extends the last experiment or is a part of it.

    Raise OtherExperiment, with the difference, if it is neither.
    """
    if not history:
        return [new]
    old = history[-1]
    if new.as_dict() == old.as_dict():
        return list(history)
    if is_superset(new, old):
        return [*history, new]
    if is_superset(old, new):
        return list(history)
    there, here = ({**each.as_dict(), "seeds": None} for each in (old, new))  # seeds may differ
    raise OtherExperiment(
        f"{folder} holds another experiment: choose another folder (on the command line: --out FOLDER), or undo the "
        "difference; more seeds and longer axes would be added, but this differs:\n"
        + "\n".join(f"  {line}" for line in differences(there, here))
    )


def merge_history(target: Sequence[Experiment], source: Sequence[Experiment]) -> list[Experiment]:
    """Return the history of two stores together: one of the experiments must extend the other, or both be the same."""
    if is_superset(target[-1], source[-1]):
        return list(target)
    return extend_history(target, source[-1])


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Return a line for every leaf that differs: `field: old value in the folder, new value here`."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = list(old) + [name for name in new if name not in old]
        return [
            line
            for name in names
            for line in differences(
                old.get(name), new.get(name), f"{path}.{name}" if path else name
            )
        ]
    return [] if old == new else [f"{path}: {old} in the folder, {new} here"]
