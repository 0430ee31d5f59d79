"""The interface of executors, which compute the units of a sweep, and the configuration of a sweep."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benign.sweep.compute import Computed
from benign.sweep.plan import Unit
from benign.training.descent import Status

_EXECUTOR = re.compile(r"dask|slurm(:.*)?|(tcp|tls)://.*|.*\.json", re.DOTALL)
"""names, addresses and files of clusters"""
REMEDY = "pip install 'benign[cluster]'"
SLURM_FILE = "slurm.yaml"
"""the file with the options of SLURM jobs, in the current folder, unless another one is named"""


@dataclass(frozen=True)
class ExecutionConfig:
    """How a sweep is computed: the options of `Experiment.run` and of `benign run`."""

    device: str = "cpu"
    workers: int | None = 1
    """units computed at a time; None: the runner decides, from the cores and the work"""
    executor: str | None = None
    """None: processes of this machine; else a cluster: dask, slurm, an address or a scheduler file"""
    unit_timeout: float | None = None
    """seconds after which a unit in progress is stopped"""
    steal: bool = False
    """treat leases of other hosts as stale"""
    keep_weights: bool = False
    """keep the final weights of every computed run; not on a cluster, whose workers write nothing"""
    compile: bool = False
    """compile the steps of attacks first: for long sweeps on a GPU"""
    slots: int | None = None
    """runs that train at a time, each in a slot that the next run gets (benign.training.slots); None: as many as fill a
    GPU, and none on a CPU or in several processes; 0: every unit trains in a batch of its own"""
    recompute: bool = False
    """compute runs again that lack a variable, or whose code has changed"""
    track: tuple[str, ...] = ()
    """trackers that log every run, such as `tensorboard=FOLDER`"""
    made: Mapping[str, Any] | None = None
    """the request that led to the sweep; kept in the folder"""

    @property
    def on_cluster(self) -> bool:
        """Whether a cluster computes the units, rather than this machine."""
        return self.executor is not None

    @property
    def cluster_file(self) -> str | None:
        """The file that describes the cluster: options of SLURM jobs, or a scheduler file; None if there is none."""
        name, _, file = (self.executor or "").partition(":")
        if name == "slurm":
            return file or SLURM_FILE
        return self.executor if name.endswith(".json") else None

    def check(self) -> None:
        """Raise if a value is out of range, or if two of them exclude each other."""
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"`workers` must be at least 1, got {self.workers}")
        if self.unit_timeout is not None and not self.unit_timeout > 0:
            raise ValueError(f"`unit_timeout` must be above 0 seconds, got {self.unit_timeout}")
        if self.executor is not None and not _EXECUTOR.fullmatch(self.executor):
            may_be = "dask, slurm, slurm:FILE, tcp://HOST:PORT or a scheduler file (.json)"
            raise ValueError(f"`executor` must be {may_be}, got {self.executor!r}")
        if (file := self.cluster_file) and not os.path.isfile(file):
            raise ValueError(f"`executor` {self.executor!r}: {file}: No such file")
        if self.on_cluster and self.keep_weights:
            raise ValueError(
                f"`keep_weights` cannot be used with `executor` {self.executor!r}, since workers of a cluster write "
                "no files: leave out one of them (on the command line --keep-weights and --executor)"
            )
        if self.slots is not None and self.slots < 0:
            raise ValueError(f"`slots` must be 0 or more, got {self.slots}")
        others = {
            "workers": (self.workers or 1) > 1,
            "executor": self.on_cluster,
            "unit_timeout": self.unit_timeout is not None,
        }
        if self.slots and (other := next((name for name, given in others.items() if given), None)):
            raise ValueError(
                f"`slots` is {self.slots}, but with `{other}` units are computed by other processes: leave out one of "
                "them"
            )
        if self.on_cluster and find_spec("distributed") is None:
            raise ValueError("`executor` needs Dask: " + REMEDY)


class ProcessEnded(Exception):
    """The process of a unit ended before the unit did."""

    def __init__(self, how: str, status: Status = Status.FAILED, started: bool = True):
        super().__init__(how)
        self.how, self.status, self.started = how, status, started
        """how it ended, the status that its runs get, and whether the process was ready for work"""


class Executor(ABC):
    """Computes units for a sweep, which records the outcomes.

    Use it in a `with` block: `close` is called at its end, also if the block ends by an error or ctrl-c. All methods
    are called by one thread. An executor that computes in this process relies on it: `compute` must not run in two
    threads of one process.
    """

    size: int = 1
    """units to submit at a time"""

    @abstractmethod
    def submit(self, unit: Unit) -> "Future[Computed]":
        """Start computing a unit. The future raises `ProcessEnded` if its process ends first."""

    def ordered(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Return units in the order in which they should be submitted."""
        return units

    def wait(
        self, futures: "Sequence[Future[Computed]]", seconds: float
    ) -> "set[Future[Computed]]":
        """Wait until one of these has ended, for so long at most; return those that have."""
        return wait(futures, seconds, FIRST_COMPLETED).done

    @abstractmethod
    def progress(self) -> dict[str, tuple[int, int]]:
        """Return the step of every unit in progress, by key, and the number of its runs in training."""

    def overdue(self, unit: Unit) -> bool:
        """Return whether the process of a unit was ended for taking too long."""
        return False

    def check_timeouts(self) -> None:  # noqa: B027
        """Stop units that take too long, and count the processes that are left. Called twice a second."""

    def close(self) -> None:  # noqa: B027
        """Stop the units in progress and end the processes that the executor has started.

        Workers on a cluster end, or stay, with the block of `executors.cluster.cluster`.
        """

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
