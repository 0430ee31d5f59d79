"""The front door: an experiment is a specification that can be planned, run, opened and replayed."""

import math
import os
from collections.abc import Iterator
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from pydantic import model_validator

import benign.attacks
import benign.data
import benign.networks
from benign.axes import cells, dimensions
from benign.data.model import Sample
from benign.files import read_yaml
from benign.plan.growth import agreed, grown
from benign.plan.runs import Run, Unit, runs_of, units_of
from benign.spec import Count, load_components
from benign.streams import Streams
from benign.sweep import pack as packs
from benign.sweep.dataset import assemble
from benign.sweep.local import Watcher, run_units
from benign.sweep.pack import Merged
from benign.sweep.store import Store
from benign.training.descent import Batch, Step, descend
from benign.training.engine import run_bytes
from benign.training.probes import snapshots_for
from benign.training.setup import Setup, stack
from benign.training.variables import variables

Folder = str | PathLike[str]

MAX_RUNS = 1_000_000

for package in (benign.data, benign.networks, benign.attacks):
    load_components(package)


class Experiment(Setup):
    """A grid of runs: any marked field of its parts may be a list, which becomes a dimension of the result."""

    seeds: Count = 1
    """independent repetitions of every cell"""

    @model_validator(mode="after")
    def _check_grid(self) -> "Experiment":
        grid = dimensions(self)
        runs = self.seeds * math.prod(len(dim.values) for dim in grid)
        if runs > MAX_RUNS:
            raise ValueError(
                f"the experiment has {runs:,} runs, more than {MAX_RUNS:,}: "
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

    def prepare(
        self, folder: Folder, device: str = "cpu", workers: int = 1
    ) -> tuple[Store, list[Unit]]:
        """Refuse what cannot be run, before any work; the store to run in and all its units."""
        check_machine(self, device, workers)
        store = Store.open(folder, create=True)
        history = grown(_history(store), self)
        if len(history) != len(store.history):
            store.set_history([each.as_dict() for each in history])
        return store, units_of(history)

    def replay(self, seed: int = 0, device: str = "cpu", **where: Any) -> "Replay":
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


class Replay:
    """One run, trained again with everything in sight."""

    def __init__(self, run: Run, device: str):
        self.run = run
        self.streams = Streams([run.id], device)
        self.setup: Setup = stack([run.cell], device)

    @cached_property
    def train(self) -> Sample:
        """The training points, with a runs axis of length one."""
        return Batch.start(self.setup, self.streams).sample

    def test(self, count: int = 250) -> Sample:
        """The first fresh test points that the evaluation saw."""
        return self.setup.data.sample(self.streams, "test/0", count, self.setup.dtype)

    def steps(self) -> Iterator[Step]:
        """Every step before its update. The weights change in place: copy what you keep."""
        for step, _ in descend(Batch.start(self.setup, self.streams)):
            yield step

    @cached_property
    def last(self) -> Step:
        """The step at which the run ended."""
        *_, last = self.steps()
        return last

    def trace(self) -> xr.Dataset:
        """Every snapshot at every step."""
        probes = snapshots_for(self.setup)
        rows = [[float(probe.measure(step)[0]) for probe in probes] for step in self.steps()]
        columns = np.array(rows).T
        data = {
            probe.name: ("step", column, {"long_name": probe.meaning, "units": probe.units})
            for probe, column in zip(probes, columns, strict=True)
        }
        return xr.Dataset(data, {"step": np.arange(len(rows))})


def open_result(folder: Folder) -> xr.Dataset:
    """The result in a folder, as far as it has been computed."""
    store = Store.open(folder, writing=False)
    return assemble(_history(store)[-1], (record for _, record in store.records()))


def open_experiment(folder: Folder) -> Experiment:
    """The experiment whose results a folder holds."""
    return _history(Store.open(folder, writing=False))[-1]


def pack(folder: Folder, file: Folder) -> int:
    """Write a folder of results into one file; returns the number of records."""
    return packs.pack(folder, file)


def merge(source: Folder, folder: Folder) -> Merged:
    """Bring the records of a pack, or of another folder, into a folder."""

    def agree(target: list[dict], other: list[dict]) -> list[dict]:
        merged = agreed(
            [Experiment.from_dict(d) for d in target], [Experiment.from_dict(d) for d in other]
        )
        return [each.as_dict() for each in merged]

    return packs.merge(source, folder, agree)


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    available = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if device not in available and not (device == "cuda" and len(available) > 1):
        raise ValueError(f"`device` must be one of {', '.join(available)}, got {device!r}")


def check_machine(experiment: Experiment, device: str, workers: int) -> None:
    """Refuse what this machine cannot compute."""
    check_device(device)
    check_memory(experiment, device)
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}")


def check_memory(experiment: Experiment, device: str) -> None:
    """Refuse a run that alone is larger than the memory of the machine or of the GPU."""
    cell = max((cell for _, cell in cells(experiment)), key=run_bytes)
    needed, there = run_bytes(cell), memory_of(device)
    if there and needed > there:
        data = cell.data
        raise ValueError(
            f"one run with `dim` {data.dim}, `samples` {data.samples} and `tokens` {data.tokens} "
            f"needs about {needed // 2**30:,} GiB of memory, {device} has {there / 2**30:,.1f} GiB: "
            "lower one of them"
        )


def memory_of(device: str) -> int | None:
    """Bytes of memory a device has in all; None where the system does not tell."""
    if device != "cpu":
        return torch.cuda.get_device_properties(device).total_memory
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _history(store: Store) -> list[Experiment]:
    return [Experiment.from_dict(each) for each in store.history]


def _same(known: Any, asked: Any) -> bool:
    if isinstance(known, float) and isinstance(asked, (int, float)):
        return abs(known - asked) <= 1e-6 * abs(known)
    return known == asked
