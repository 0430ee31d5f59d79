"""Logs runs to trackers, while a sweep runs or from a folder; each run is logged once."""

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
    """Return whether this names a tracker rather than a file."""
    return word.partition("=")[0] in TRACKERS


def check_trackers(words: Iterable[str]) -> None:
    """Raise if one of these is not a tracker or cannot be used here, before any work."""
    for word in words:
        name, _, place = word.partition("=")
        if name not in TRACKERS or not place:
            forms = " or ".join(tracker.form for tracker in TRACKERS.values())
            raise ValueError(f"`track` must be {forms}, got {word!r}")
        TRACKERS[name].check_packages(name)
        TRACKERS[name].check(place)


def tracker_of(word: str, folder: str | os.PathLike[str]) -> Tracker:
    """Return the tracker that a word names, for the experiment of a folder of results."""
    check_trackers([word])
    name, _, place = word.partition("=")
    return TRACKERS[name](place, _named(folder))


def log_result(tracker: Tracker, experiment: Experiment, result: xr.Dataset) -> int:
    """Log the runs of a result that the tracker lacks. Return their number."""
    return tracker.sync(logs_of_result(experiment, result))


def logged(words: Iterable[str], folder: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield, for each tracker, how many runs of a folder it holds and the command that shows them.

    A tracker that fails is left out: it has been reported.
    """
    for tracker in (tracker_of(word, folder) for word in words):
        with contextlib.suppress(Exception):
            if runs := len(tracker.known()):
                yield runs, tracker.view_command()


class Tracking(Watcher):
    """Logs every run as its unit ends, and at the end what others computed, or computed before.

    A tracker that fails is reported and tried again at the end: the sweep goes on.
    """

    def __init__(
        self, words: Sequence[str], experiment: Experiment, folder: str | os.PathLike[str]
    ):
        self.experiment = experiment
        self.trackers = [tracker_of(word, folder) for word in words]
        self.failed: list[Tracker] = []

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None:
        self._log(lambda: logs_of(self.experiment, unit.runs, arrays))

    def finish(self, result: xr.Dataset) -> None:
        """Log the runs of the result that are not logged yet."""
        self.failed.clear()
        self._log(lambda: logs_of_result(self.experiment, result))

    def _log(self, runs: Callable[[], Iterable[RunLog]]) -> None:
        for tracker in (each for each in self.trackers if each not in self.failed):
            try:
                tracker.sync(runs())
            except Exception as error:
                self.failed.append(tracker)
                problem = (
                    f"{type(tracker).__name__} in {tracker.place}: {type(error).__name__}: {error}"
                )
                remedy = "the same command logs the missing runs"
                warnings.warn(f"{problem}; results are kept, {remedy}", ResultWarning, stacklevel=2)


def _named(folder: str | os.PathLike[str]) -> str:
    """Return the name of an experiment from its folder: the path from here, if it lies below."""
    path, here = Path(os.path.abspath(folder)), Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)
