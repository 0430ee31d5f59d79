"""The front door: an experiment is a specification that can be planned, run, opened and replayed."""

import math
from os import PathLike
from pathlib import Path
from typing import Any

import xarray as xr
from pydantic import model_validator

import benign.attacks
import benign.data
import benign.networks
from benign.axes import cells, dimensions
from benign.files import read_yaml
from benign.machine import check_device, check_machine
from benign.plan.growth import agreed, grown
from benign.plan.runs import Run, Unit, runs_of, units_of
from benign.replay import Replay
from benign.spec import Count, load_components
from benign.sweep import pack as packs
from benign.sweep.dataset import assemble
from benign.sweep.local import Watcher, run_units
from benign.sweep.pack import Merged
from benign.sweep.store import Store
from benign.training.setup import Setup
from benign.training.variables import variables

Folder = str | PathLike[str]

MOST_RUNS = 1_000_000

for package in (benign.data, benign.networks, benign.attacks):
    load_components(package)


class Experiment(Setup):
    """A grid of runs: any marked field of its parts may be a list, which becomes a dimension of the result.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=10, dim=50, signal=[1.0, 4.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=200),
    ...     seeds=3,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> dict(result.test_accuracy.sizes)
    {'signal': 2, 'seed': 3}
    """

    seeds: Count = 1
    """independent repetitions of every cell"""

    @model_validator(mode="after")
    def _check_grid(self) -> "Experiment":
        grid = dimensions(self)
        runs = self.seeds * math.prod(len(dim.values) for dim in grid)
        if runs > MOST_RUNS:
            raise ValueError(
                f"the experiment has {runs:,} runs, more than {MOST_RUNS:,}: "
                f"lower `seeds` ({self.seeds:,}) or shorten an axis"
            )
        _, cell = next(cells(self))
        for name in {"seed", "step", *variables(cell)} & {dim.name for dim in grid}:
            raise ValueError(f"the zipped group `{name}` needs another name: results use this one")
        return self

    @classmethod
    def from_file(cls, path: Folder) -> "Experiment":
        """Read an experiment from a YAML file; the fields are those of the Python classes."""
        return cls.from_dict(read_yaml(Path(path)))

    def units(self) -> list[Unit]:
        """The units of work of a fresh sweep."""
        return units_of([self])

    def run(
        self, folder: Folder, device: str = "cpu", workers: int = 1, watcher: Watcher | None = None
    ) -> xr.Dataset:
        """Compute what is not yet in the folder and return the whole result.

        A second call resumes, or returns at once. More seeds or longer axes add to what is there;
        any other change of the experiment is refused with the difference. On the CPU `workers`
        units are computed at a time, each by a process with one thread; a script that asks for
        more than one needs the usual `if __name__ == "__main__":`.
        """
        store, units = self.prepare(folder, device, workers)
        run_units(units, store, device, watcher or Watcher(), workers)
        return assemble(self, (record for _, record in store.records()))

    def check_machine(self, device: str = "cpu", workers: int = 1) -> None:
        """Refuse what this machine cannot compute: a device, a size, a number of processes."""
        check_machine((cell for _, cell in cells(self)), device, workers)

    def prepare(
        self, folder: Folder, device: str = "cpu", workers: int = 1
    ) -> tuple[Store, list[Unit]]:
        """Refuse what cannot be run, before any work; the store to run in and all its units."""
        self.check_machine(device, workers)
        store = Store.open(folder, create=True)
        history = grown(_history(store), self)
        if len(history) != len(store.history):
            store.set_history([each.as_dict() for each in history])
        return store, units_of(history)

    def replay(self, seed: int = 0, device: str = "cpu", **where: Any) -> Replay:
        """One run again, step by step: `sweep.replay(samples=22, snr=4, seed=3)`."""
        check_device(device)
        return Replay(self._find(where, seed), device)

    def _find(self, where: dict[str, Any], seed: int) -> Run:
        if not 0 <= seed < self.seeds:
            raise ValueError(f"`seed` must be between 0 and {self.seeds - 1}, got {seed}")
        runs = [run for run in runs_of(self) if run.seed == seed]
        dims = [name for name in runs[0].where if name != "seed"]
        if set(where) != set(dims):
            raise ValueError(f"replay needs one value for each of {dims}, got {sorted(where)}")
        for name, value in where.items():
            known = {run.where[name] for run in runs}
            runs = [run for run in runs if _same(run.where[name], value)]
            if not runs:
                values = ", ".join(str(each) for each in sorted(known, key=str))
                raise ValueError(f"`{name}` must be one of {values}, got {value}")
        return runs[0]


def open_result(folder: Folder) -> xr.Dataset:
    """The result in a folder, as far as it has been computed.

    >>> import tempfile
    >>> import benign as bo
    >>> small = bo.recipe("jiang/fig1").experiment("smoke")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = small.prepare(folder)
    ...     result = bo.open_result(folder)
    >>> result.attrs["runs_missing"] == result.attrs["runs"]  # nothing has been computed yet
    True
    """
    store = Store.open(folder, writing=False)
    return assemble(_history(store)[-1], (record for _, record in store.records()))


def open_experiment(folder: Folder) -> Experiment:
    """The experiment whose results a folder holds.

    >>> import tempfile
    >>> import benign as bo
    >>> small = bo.recipe("jiang/fig1").experiment("smoke")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = small.prepare(folder)  # what `run` does before it works
    ...     bo.open_experiment(folder) == small
    True
    """
    return _history(Store.open(folder, writing=False))[-1]


def pack(folder: Folder, file: Folder) -> int:
    """Write a folder of results into one file; returns the number of records.

    >>> import tempfile
    >>> import benign as bo
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = bo.recipe("jiang/fig1").experiment("smoke").prepare(f"{place}/fig1")
    ...     bo.pack(f"{place}/fig1", f"{place}/fig1.pack")  # no runs yet, so no records
    0
    """
    return packs.pack(folder, file)


def merge(source: Folder, folder: Folder) -> Merged:
    """Bring the records of a pack, or of another folder, into a folder.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=2.0),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = sweep.run(f"{place}/theirs")
    ...     merge(f"{place}/theirs", f"{place}/ours")
    Merged(added=1, present=0, damaged=0)
    """

    def agree(target: list[dict], other: list[dict]) -> list[dict]:
        merged = agreed(
            [Experiment.from_dict(d) for d in target], [Experiment.from_dict(d) for d in other]
        )
        return [each.as_dict() for each in merged]

    return packs.merge(source, folder, agree)


def _history(store: Store) -> list[Experiment]:
    return [Experiment.from_dict(each) for each in store.history]


def _same(known: Any, asked: Any) -> bool:
    if isinstance(known, float) and isinstance(asked, (int, float)):
        return abs(known - asked) <= 1e-6 * abs(known)
    return known == asked
