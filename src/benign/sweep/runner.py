"""The one way to run an experiment in a folder, for Python, the command line and the verifier.

A `Runner` refuses what cannot run, reads the folder once and plans once; then it estimates, runs, returns the result.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import xarray as xr

from benign import __version__
from benign.experiment import Experiment, Folder
from benign.spec.axes import cells
from benign.sweep.dispatch import compute_units
from benign.sweep.estimate import Cost, estimate
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.folders import check_code, result_of
from benign.sweep.plan import NUMERICS, OtherExperiment, Unit, extend_history, keys_of, units_of
from benign.sweep.progress import Watcher, Watchers
from benign.sweep.results import (
    ResultWarning,
    RunAt,
    damage,
    other_versions,
    runs_in,
    unfinished,
)
from benign.sweep.store import About, Store
from benign.sweep.terminal import display_on_terminal
from benign.sweep.track.tracking import Tracking
from benign.sweep.validation import RecordCache
from benign.testing.components import try_own_parts
from benign.testing.metrics import try_own_metrics
from benign.training.machine import check_data, check_machine, cores
from benign.training.setup import Setup

LONG_WORK = 30.0
"""seconds of work above which several processes are worth their start of up to 3 s"""


@dataclass(frozen=True)
class Plan:
    """The units of an experiment in a folder, and those that are left to compute."""

    history: list[Experiment]
    """the experiments of the folder: the first, and each that extended it, this one included"""
    units: list[Unit]
    left: list[Unit]
    """units with a run that is still to be computed"""
    done: int
    """runs of the experiment outside these units"""
    note: str = ""
    """about damaged records and runs of other versions in the folder; empty if there are none"""
    refusal: str = ""
    """why the folder would refuse the experiment, in a dry run; the plan is then that of a new folder"""

    @property
    def runs(self) -> int:
        """The number of runs, done or left."""
        return self.done + sum(len(unit.runs) for unit in self.left)


class Runner:
    """Runs an experiment in a folder.

    Making one refuses what cannot run, before any work, and plans. A dry run only plans, and writes nothing.

    >>> import tempfile
    >>> import benign as bo
    >>> small = bo.recipe("jiang/fig1").experiment("smoke")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runner = Runner(small, folder)
    >>> len(runner.plan.left) == len(runner.plan.units)  # nothing has been computed yet
    True
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Folder,
        config: ExecutionConfig = ExecutionConfig(),  # noqa: B008
        *,
        dry_run: bool = False,
    ) -> None:
        config.check()
        self.experiment, self.folder, self.config = experiment, Path(folder), config
        self._cost: Cost | None = None
        self._tracking = Tracking(config.track, experiment, folder)
        if not config.on_cluster:  # else this machine need not be able to
            check_machine(self._cells(), config.device, 1)
        if not dry_run:
            self._check_parts()
        self._store = self._open(dry_run)
        self._about = self._store.about if self._store else About()
        self._records = RecordCache(self._store) if self._store else ()
        self.plan = self._plan(config.recompute, dry_run)
        if not dry_run:
            if self.plan.left and not config.on_cluster:
                check_data(self._cells())
            self._write_about()
        self.config = replace(config, workers=self._workers())

    def cost(self) -> Cost:
        """Estimate memory and time of the units that are left."""
        if self._cost is None:
            self._cost = estimate(self.plan.left, self.config.device)
        return self._cost

    def run(self, watcher: Watcher | None = None) -> xr.Dataset:
        """Compute the units that are left and return the result.

        Progress is reported to the watcher, by default to the terminal if there is one.
        """
        if self.plan.note:
            warnings.warn(f"{self.folder}: {self.plan.note}", ResultWarning, stacklevel=3)
        with nullcontext(watcher) if watcher else display_on_terminal(sys.stderr) as display:
            blocking = compute_units(
                self.plan.left,
                self.plan.done,
                self.store,
                Watchers(display, self._tracking),
                self.config,
            )
        if blocking:
            names = "; ".join(sorted({str(lease) for lease in blocking}))
            note = f"units are in progress elsewhere ({names}): run again when they are done, or with --steal if dead"
            warnings.warn(f"{self.folder}: {note}", ResultWarning, stacklevel=3)
        result = self.result()
        self._tracking.finish(result)
        return result

    def result(self, experiment: Experiment | None = None) -> xr.Dataset:
        """Return the result as far as it is computed, of this experiment or of another one in the folder."""
        recipe = self._about.recipe
        return result_of(experiment or self.experiment, self._records, self.folder, recipe)

    def recorded(self) -> dict[str, RunAt]:
        """Return every run that the folder holds now, by key."""
        return runs_in(self._records)

    @property
    def units_at_once(self) -> int:
        """The number of units that are computed at a time."""
        return max(1, min(self.config.workers or 1, len(self.plan.left)))

    @property
    def is_new(self) -> bool:
        """Whether a dry run found no folder, or an empty one."""
        return self._store is None

    @property
    def store(self) -> Store:
        """The store in the folder."""
        assert self._store is not None, "a dry run in a new folder has no store"
        return self._store

    def _cells(self) -> Iterator[Setup]:
        return (cell for _, cell in cells(self.experiment))

    def _check_parts(self) -> None:
        try_own_parts(self._cells())
        try_own_metrics(self._cells())
        if not (self.config.on_cluster or self.folder.exists()):
            check_data(self._cells())  # before a folder is made

    def _open(self, dry_run: bool) -> Store | None:
        """Return the store in the folder; None if a dry run finds no folder, or an empty one."""
        if not dry_run:
            return Store.open(self.folder, create=True)
        is_new = not self.folder.exists() or (self.folder.is_dir() and not os.listdir(self.folder))
        return None if is_new else Store.open(self.folder, writing=False)

    def _plan(self, recompute: bool, dry_run: bool) -> Plan:
        """Plan the experiment. Raise if the folder holds another one, or results of other code."""
        try:
            past = self._about.experiments(self.folder)
            history = extend_history(past, self.experiment, str(self.folder))
        except OtherExperiment as error:
            if not dry_run:
                raise
            units = units_of([self.experiment])
            return Plan([self.experiment], units, units, 0, refusal=str(error))
        units, recorded = units_of(history), self.recorded()
        keys = {run.key for unit in units for run in unit.runs}
        damaged = self._store.damaged if self._store else {}
        note = "; ".join(filter(None, (damage(damaged), other_versions(recorded, keys))))
        if not self._is_last_of(history):
            keys = set(keys_of(self.experiment))
            units = [unit for unit in units if any(run.key in keys for run in unit.runs)]
        if not recompute:
            check_code(self.folder, [recorded.get(run.key) for unit in units for run in unit.runs])
        left = unfinished(units, recorded, recompute)
        done = len(keys - {run.key for unit in left for run in unit.runs})
        return Plan(history, units, left, done, note)

    def _is_last_of(self, history: Sequence[Experiment]) -> bool:
        """Return whether the experiment is all that the folder is to hold, rather than a part."""
        return history[-1].as_dict() == self.experiment.as_dict()

    def _write_about(self) -> None:
        """Write the history to the folder, with the request that led to it."""
        if not self._is_last_of(self.plan.history):
            return
        made = {"benign": __version__, **(self.config.made or {})}
        if self._about.history and not self.config.made:
            made = self._about.made
        about = About([each.as_dict() for each in self.plan.history], made, NUMERICS)
        if about != self._about:
            self.store.set_about(about)
            self._about = about

    def _workers(self) -> int:
        """Return the number of workers: as configured; else one a core, but one alone for short work or on a GPU."""
        config = self.config
        if config.workers is not None:
            return config.workers
        if config.on_cluster:
            return cores()
        if config.device != "cpu" or cores() == 1 or not self.plan.left:
            return 1
        return cores() if self.cost().most_seconds > LONG_WORK else 1
