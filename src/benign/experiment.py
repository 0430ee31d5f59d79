"""The front door: an experiment is a specification that can be planned, run, opened and replayed."""

import json
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr
from pydantic import model_validator

import benign.attacks
import benign.data
import benign.networks
from benign import __version__
from benign.spec.axes import cells, check_rows, dimensions
from benign.spec.base import Count, SpecError
from benign.spec.registry import load_components
from benign.spec.yaml import source_of, yaml_text
from benign.sweep.dataset import assemble, not_measured
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.plan import NUMERICS, Run, Unit, extend_history, keys_of, runs_of, units_of
from benign.sweep.progress import Together, Watcher
from benign.sweep.replay import Replay
from benign.sweep.results import (
    RETRIED,
    ResultWarning,
    RunAt,
    RunsFailed,
    changed_code,
    damage,
    other_versions,
    runs_in,
    unfinished,
)
from benign.sweep.runner import run_units
from benign.sweep.store import About, Store, StoreError
from benign.sweep.terminal import on_terminal
from benign.sweep.track.tracking import Tracking
from benign.sweep.validation import valid_records
from benign.testing.components import try_own_parts
from benign.testing.metrics import try_own_metrics
from benign.training.machine import check_data, check_device, check_machine
from benign.training.metrics import variables
from benign.training.setup import Setup

Folder = str | PathLike[str]

MOST_RUNS = 1_000_000
MOST_NAMES = 4
"""variables that a warning names"""
SPECIFICATION = 1
"""version of the format of specifications: the field `benign` of a file, which may leave it out"""

for package in (benign.data, benign.networks, benign.attacks):
    load_components(package)


class Work(NamedTuple):
    """What is to be done for an experiment in the folder of a store."""

    history: list["Experiment"]
    whole: bool
    """whether it is the whole of what the folder is to hold, and not a part"""
    units: list[Unit]
    left: list[Unit]
    """those that are not yet computed"""
    done: int
    """runs asked for that are not among these"""
    note: str
    """on runs of other versions that are there; empty where none are"""


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
        check_rows(grid)
        runs = self.seeds * math.prod(len(dim.values) for dim in grid)
        if runs > MOST_RUNS:
            raise ValueError(
                f"the experiment has {runs:,} runs, more than {MOST_RUNS:,}: "
                f"lower `seeds` ({self.seeds:,}) or shorten an axis"
            )
        _, cell = next(cells(self))
        found = variables(cell)
        own = {name for variable in found.values() for name in variable.axes}
        for name in {"seed", "step", *found, *own} & {dim.name for dim in grid}:
            raise ValueError(f"the zipped group `{name}` needs another name: results use this one")
        return self

    @classmethod
    def from_yaml(cls, source: Folder) -> "Experiment":
        """Read an experiment from a YAML file, or from its text; the fields are those of the Python classes.

        What is wrong is told with the field, the value and the line.
        """
        told = source_of(source)
        with told.naming_lines():
            return cls.from_dict(told.fields())

    def to_yaml(self, path: Folder | None = None) -> str:
        """The experiment as YAML, which `from_yaml` and `benign run` take; with a path also written there."""
        text = yaml_text({"benign": SPECIFICATION, **self.as_dict()})
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Experiment":
        """An experiment from plain fields; `benign` among them is the version of their format."""
        fields = dict(fields)
        version = fields.pop("benign", SPECIFICATION)
        if type(version) is not int or version < 1:
            problem = f"must be the version of the format, {SPECIFICATION}, got {version!r}"
            raise SpecError([("benign", problem)])
        if version > SPECIFICATION:
            problem = f"the format has version {version}, this benign reads up to {SPECIFICATION}: use a newer benign"
            raise SpecError([("benign", problem)])
        return super().from_dict(fields)

    def units(self) -> list[Unit]:
        """The units of work of a fresh sweep."""
        return units_of([self])

    def run(
        self,
        folder: Folder,
        device: str = "cpu",
        workers: int = 1,
        watcher: Watcher | None = None,
        recompute: bool = False,
        made: Mapping[str, Any] | None = None,
        executor: str | None = None,
        unit_timeout: float | None = None,
        steal: bool = False,
        keep_weights: bool = False,
        compile: bool = False,
        track: str | Sequence[str] = (),
    ) -> xr.Dataset:
        """Compute what is not yet in the folder and return the whole result.

        A second call resumes, or returns at once. More seeds or longer axes add to what is there, and a part of
        what is there is returned; any other change of the experiment is refused with the difference. With `recompute`
        runs are computed again that lack a variable or were made by code of your own that has changed since. `made`
        is kept in the folder: what was asked for to make it. On the CPU `workers` units are computed at a time, each
        by a process with one thread; a script that asks for more than one needs the usual
        `if __name__ == "__main__":`, so one is the default here, other than on the command line. Progress is shown
        where stderr is a terminal, or by a `watcher`; `benign.sweep.progress.Watcher()` is one that says nothing.

        `executor` has a cluster compute: `dask`, `slurm`, an address or a scheduler file (docs/clusters.md). A unit
        that has not ended after `unit_timeout` seconds is ended and its runs have failed. Several processes may run
        the same folder; with `steal` units are taken from other hosts, where nobody here can see who is dead.
        Ctrl-c once ends the sweep with the units under way, twice at once. With `keep_weights` the final weights of
        what is computed here are kept in the folder. `compile` compiles the steps of attacks first, for long sweeps
        on a GPU (docs/gpu.md); records say so, since compiled code rounds otherwise. `track` logs every run to a
        tracker, once: "tensorboard=FOLDER", "mlflow=sqlite:///FILE" (docs/around.md).
        """
        config = ExecutionConfig(
            device, workers, executor, unit_timeout, steal, keep_weights, compile
        )
        config.check()
        tracking = Tracking([track] if isinstance(track, str) else track, self, folder)
        store, work = self.prepare(folder, device, workers, recompute, made, here=executor is None)
        if work.note:
            warnings.warn(f"{folder}: {work.note}", ResultWarning, stacklevel=2)
        with nullcontext(watcher) if watcher else on_terminal(sys.stderr) as shown:
            watchers = Together(shown, tracking)
            others = run_units(work.left, work.done, store, watchers, config, recompute)
        if others:
            names = "; ".join(sorted({str(other) for other in others}))
            note = f"units are under way elsewhere ({names}): run again when they are done, or with --steal if dead"
            warnings.warn(f"{folder}: {note}", ResultWarning, stacklevel=2)
        result = result_of(self, store)
        tracking.finish(result)
        return result

    def check_machine(self, device: str = "cpu", workers: int = 1) -> None:
        """Refuse what this machine cannot compute: a device, a size, a number of processes."""
        check_machine((cell for _, cell in cells(self)), device, workers)

    def prepare(
        self,
        folder: Folder,
        device: str = "cpu",
        workers: int = 1,
        recompute: bool = False,
        made: Mapping[str, Any] | None = None,
        here: bool = True,
    ) -> tuple[Store, Work]:
        """Refuse what cannot be run, before any work; the store to run in and what is to be done there.

        A machine that is not to compute it, `here`, need not be able to.
        """
        if here:
            self.check_machine(device, workers)
        try_own_parts(cell for _, cell in cells(self))
        try_own_metrics(cell for _, cell in cells(self))
        if here and not Path(folder).exists():
            check_data(cell for _, cell in cells(self))  # before a folder is made
        store = Store.open(folder, create=True)
        work, there = self.work_in(store, recompute), store.about
        if here and work.left:
            check_data(cell for _, cell in cells(self))
        if work.whole:
            told = {"benign": __version__, **(made or {})}
            if there.history and not made:
                told = there.made
            about = About([each.as_dict() for each in work.history], told, NUMERICS)
            if about != there:
                store.set_about(about)
        return store, work

    def work_in(self, store: Store, recompute: bool = False) -> Work:
        """What is to be done in a store; ValueError if it holds another experiment, or results of other code."""
        history = extend_history(history_of(store), self, str(store.folder))
        units, held = units_of(history), held_runs(store)
        asked = {run.key for unit in units for run in unit.runs}
        note = "; ".join(filter(None, (damage(store.damaged), other_versions(held, asked))))
        whole = history[-1].as_dict() == self.as_dict()
        if not whole:
            asked = set(keys_of(self))
            units = [unit for unit in units if any(run.key in asked for run in unit.runs)]
        if not recompute:
            check_code(store, [held.get(run.key) for unit in units for run in unit.runs])
        left = unfinished(units, held, recompute)
        done = len(asked - {run.key for unit in left for run in unit.runs})
        return Work(history, whole, units, left, done, note)

    def result_in(self, folder: Folder) -> xr.Dataset:
        """The result as far as it has been computed in a folder, which may hold more."""
        return result_of(self, Store.open(folder, writing=False))

    def replay(self, seed: int = 0, device: str = "cpu", **where: Any) -> Replay:
        """One run again, step by step: `sweep.replay(samples=22, snr=4, seed=3)`."""
        check_device(device)
        return Replay(self.find(where, seed), device)

    def find(self, where: dict[str, Any], seed: int) -> Run:
        """The run of these coordinates and this seed."""
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


def specification(result: xr.Dataset) -> dict[str, Any]:
    """The experiment that a result is of, as plain data."""
    return json.loads(result.attrs["experiment"])


def experiment_of(result: xr.Dataset) -> Experiment:
    """The experiment that a result is of."""
    return Experiment.from_dict(specification(result))


def history_of(store: Store) -> list[Experiment]:
    """The experiments of a store: the first, and each that it grew into."""
    about = store.about
    try:
        return [Experiment.from_dict(each) for each in about.history]
    except SpecError as error:
        raise StoreError(
            f"{store.folder} holds a specification that cannot be read here: load the code that defines its "
            f"components, or use the version it was made by (benign {about.made.get('benign', 'unknown')}, this is "
            f"{__version__})\n{error}"
        ) from error


def held_runs(store: Store) -> dict[str, RunAt]:
    """Which runs a store holds, by key."""
    return runs_in(valid_records(store))


def check_code(store: Store, found: list[RunAt | None]) -> None:
    """Refuse finished runs that were made by other code of the user's own than there is now."""
    if names := changed_code(at for at in found if at):
        told = ", ".join(f"`{name}` (in {count} runs)" for name, count in sorted(names.items()))
        raise StoreError(
            f"{store.folder} holds results of code or data that has changed since: {told}; choose another folder, "
            "compute them again (recompute=True, on the command line --recompute), or undo the change"
        )


def result_of(experiment: Experiment, store: Store) -> xr.Dataset:
    """The result of an experiment, with a warning where runs failed or lack variables."""
    result = assemble(experiment, valid_records(store))
    if recipe := store.about.recipe:
        result.attrs["recipe"] = recipe
    failed = sum(result.attrs[f"runs_{status.name.lower()}"] for status in RETRIED)
    if failed:
        warnings.warn(
            f"{failed} of {result.attrs['runs']} runs failed: {result.attrs['first_error']}; "
            f"`benign show {store.folder}` tells more",
            RunsFailed,
            stacklevel=3,
        )
    if lacking := not_measured(result):
        told = [f"`{name}` in {count} runs" for name, count in lacking.items()]
        if len(told) > MOST_NAMES:
            told[MOST_NAMES:] = [f"{len(told) - MOST_NAMES} more"]
        warnings.warn(
            f"{store.folder}: not measured, since newer than the runs: {', '.join(told)}; running with recompute=True "
            "(on the command line --recompute) computes these runs again",
            ResultWarning,
            stacklevel=3,
        )
    return result


def _same(known: Any, asked: Any) -> bool:
    if isinstance(known, float) and isinstance(asked, (int, float)):
        return abs(known - asked) <= 1e-6 * abs(known)
    return known == asked
