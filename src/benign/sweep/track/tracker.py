"""The interface of trackers, and the runs as they log them."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from benign.experiment import Experiment
from benign.spec.axes import axes_of, coordinates
from benign.spec.base import digest
from benign.sweep.plan import Run, runs_of
from benign.sweep.results import ENDED
from benign.training.descent import Status
from benign.training.metrics import variables
from benign.training.setup import Setup

Series = dict[int, float]
"""numbers by step"""


@dataclass(frozen=True)
class RunLog:
    """One finished run, ready to be written."""

    key: str
    """the key of the run"""
    parameters: dict[str, Any]
    """the values of the experiment's axes at this run, and its seed"""
    status: str
    """how it ended, in a word"""
    series: dict[str, Series]
    """of every variable: its curve, where it has one, and its last value at the step where the run ended"""

    @property
    def label(self) -> str:
        """`samples=4,snr=0.5,seed=0`, with four digits of a number: two runs may share it."""
        return ",".join(f"{name}={_short(value)}" for name, value in self.parameters.items())

    @cached_property
    def content(self) -> str:
        """Changes with every number: a run that was computed again is logged again."""
        series = {name: sorted(points.items()) for name, points in self.series.items()}
        return digest([self.parameters, self.status, series])


def logs_of(
    experiment: Experiment, runs: Sequence[Run], arrays: Mapping[str, np.ndarray]
) -> Iterator[RunLog]:
    """Yield the runs that ended, from arrays with a leading axis of runs. Failed runs are left for the next try."""
    paths = list(axes_of(experiment))
    last = [path[-1] for path in paths]
    names = [path[-1] if last.count(path[-1]) == 1 else ".".join(path) for path in paths]
    for place, run in enumerate(runs):
        status = Status(int(arrays["status"][place]))
        if status not in ENDED:
            continue
        values = coordinates(tuple(reduce(getattr, path, run.cell) for path in paths))
        parameters = {**dict(zip(names, values, strict=True)), "seed": run.seed}
        values_of = {name: array[place] for name, array in arrays.items()}
        yield RunLog(run.key, parameters, status.name.lower(), _series(run.cell, values_of))


def logs_of_result(experiment: Experiment, result: xr.Dataset) -> Iterator[RunLog]:
    """Yield the runs that ended, from the whole result of an experiment."""
    runs, first = list(runs_of(experiment)), result["status"].ndim
    arrays = {
        str(name): part.values.reshape(len(runs), *part.shape[first:])
        for name, part in result.items()
    }
    return logs_of(experiment, runs, arrays)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _series(cell: Setup, values: Mapping[str, Any]) -> dict[str, Series]:
    """Return the finite numbers of each variable by step; images and other arrays have none."""
    series: dict[str, Series] = {}
    end = int(values["steps"])
    for name, variable in variables(cell).items():
        if name == "status" or variable.axes or name not in values:
            continue
        steps = cell.snapshot_steps() if variable.along_steps else [end]
        numbers = np.atleast_1d(values[name]).astype(float).tolist()
        points = {s: x for s, x in zip(steps, numbers, strict=True) if math.isfinite(x)}
        if points:
            series.setdefault(name.removesuffix("_curve"), {}).update(points)
    return series


class Tracker(ABC):
    """A place where runs are logged, for one experiment."""

    needs: ClassVar[tuple[str, ...]]
    """packages that it imports"""
    form: ClassVar[str]
    """how its place is written"""

    def __init__(self, place: str, experiment: str) -> None:
        """`experiment` is the name under which people find the runs."""
        self.place, self.experiment = place, experiment

    @classmethod
    @abstractmethod
    def check(cls, place: str) -> None:
        """Raise if the place cannot be used, before any work."""

    @abstractmethod
    def view_command(self) -> str:
        """Return the command that shows the runs."""

    @abstractmethod
    def known(self) -> dict[str, str]:
        """Return the content of every complete run, by its key."""

    @abstractmethod
    def write(self, run: RunLog) -> None:
        """Log a run, replacing any earlier log of it."""

    def sync(self, runs: Iterable[RunLog]) -> int:
        """Log the runs that are missing or have changed. Return their number."""
        there = self.known()
        new = [run for run in runs if there.get(run.key) != run.content]
        for run in new:
            self.write(run)
        return len(new)

    @classmethod
    def check_packages(cls, name: str) -> None:
        """Raise if a package is missing."""
        if lacking := [package for package in cls.needs if find_spec(package) is None]:
            raise ValueError(
                f"tracking by {name} needs {' and '.join(lacking)}: pip install 'benign[track]'"
            )


def check_folder(folder: str) -> None:
    """Raise if the path exists and is not a folder."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"{folder} is a file: name a folder")
