"""Logging while a sweep runs, and of what a folder holds: both write the same, each run once."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from benign.experiment import Experiment
from benign.sweep.plan import Unit
from benign.sweep.progress import Watcher
from benign.sweep.results import ResultWarning
from benign.sweep.track.mlflow import MLflow
from benign.sweep.track.tensorboard import TensorBoard
from benign.sweep.track.tracker import RunLog, Tracker, logs_of, logs_of_result

TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


def names_tracker(word: str) -> bool:
    """Whether this names a tracker and not a file."""
    return word.partition("=")[0] in TRACKERS


def check_trackers(words: Iterable[str]) -> None:
    """Refuse what is no tracker, or cannot be used here, before any work."""
    for word in words:
        name, _, place = word.partition("=")
        if name not in TRACKERS or not place:
            forms = " or ".join(tracker.form for tracker in TRACKERS.values())
            raise ValueError(f"`track` must be {forms}, got {word!r}")
        TRACKERS[name].check_packages(name)
        TRACKERS[name].check(place)


def tracker_of(word: str, folder: str | os.PathLike[str]) -> Tracker:
    """The tracker that a word names, for the experiment of a folder of results."""
    check_trackers([word])
    name, _, place = word.partition("=")
    return TRACKERS[name](place, _named(folder))


def log_result(tracker: Tracker, experiment: Experiment, result: xr.Dataset) -> int:
    """Log what a result holds and the tracker lacks; returns the number of runs."""
    return tracker.sync(logs_of_result(experiment, result))


def logged(words: Iterable[str], folder: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """How many runs of a folder each tracker holds, and the command that shows them; one that fails has told so."""
    for tracker in (tracker_of(word, folder) for word in words):
        with contextlib.suppress(Exception):
            if runs := len(tracker.known()):
                yield runs, tracker.look()


class Tracking(Watcher):
    """Logs every run as its unit ends, and at the end what others computed, or computed before.

    A tracker that fails is told of, and tried again at the end: no sweep is lost over it.
    """

    def __init__(
        self, words: Sequence[str], experiment: Experiment, folder: str | os.PathLike[str]
    ):
        self.experiment = experiment
        self.trackers = [tracker_of(word, folder) for word in words]
        self.failed: list[Tracker] = []

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None:
        self._tell(lambda: logs_of(self.experiment, unit.runs, arrays))

    def finish(self, result: xr.Dataset) -> None:
        """Log what the result holds and is not there yet."""
        self.failed.clear()
        self._tell(lambda: logs_of_result(self.experiment, result))

    def _tell(self, runs: Callable[[], Iterable[RunLog]]) -> None:
        for tracker in (each for each in self.trackers if each not in self.failed):
            try:
                tracker.sync(runs())
            except Exception as error:
                self.failed.append(tracker)
                told = (
                    f"{type(tracker).__name__} in {tracker.place}: {type(error).__name__}: {error}"
                )
                recompute = "the same command logs what is missing"
                warnings.warn(f"{told}; results are kept, {recompute}", ResultWarning, stacklevel=2)


def _named(folder: str | os.PathLike[str]) -> str:
    """A folder as the name of an experiment: its path from here, if it lies below."""
    path, here = Path(os.path.abspath(folder)), Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)
