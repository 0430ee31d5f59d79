"""Who computes units for a sweep, and in which config."""

from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass

from benign.sweep.compute import Computed
from benign.sweep.plan import Unit
from benign.training.descent import Status


@dataclass(frozen=True)
class ExecutionConfig:
    """How a sweep is to be computed."""

    device: str = "cpu"
    workers: int = 1
    """units at a time on this machine"""
    executor: str | None = None
    """None: this machine's processes; else a cluster: dask, slurm, an address or a file that names one"""
    unit_timeout: float | None = None
    """seconds after which a unit that has not ended is ended"""
    steal: bool = False
    """count processes on other hosts as dead"""
    keep_weights: bool = False
    """keep the final weights of every run that is computed, where this machine's processes compute"""
    compile: bool = False
    """compile the steps of attacks first: for long sweeps on a GPU"""

    def check(self) -> None:
        if self.workers < 1:
            raise ValueError(f"`workers` must be at least 1, got {self.workers}")
        if self.unit_timeout is not None and not self.unit_timeout > 0:
            raise ValueError(f"`unit_timeout` must be above 0 seconds, got {self.unit_timeout}")


class ProcessEnded(Exception):
    """The process that had a unit ended before the unit did."""

    def __init__(self, how: str, status: Status = Status.FAILED, started: bool = True):
        super().__init__(how)
        self.how, self.status, self.started = how, status, started
        """what is known of its end, the status that this gives to runs, and whether the process was ready for work"""


class Executor(ABC):
    """Computes units for a sweep that records what comes back."""

    size: int = 1
    """units to hand out at a time"""

    @abstractmethod
    def submit(self, unit: Unit) -> "Future[Computed]":
        """Have a unit computed; the future raises `ProcessEnded` if its process ended first."""

    @abstractmethod
    def progress(self) -> dict[str, tuple[int, int]]:
        """The step of every unit under way, by key, and how many of its runs are training."""

    def overdue(self, unit: Unit) -> bool:
        """Whether a unit whose process has ended was ended for taking too long."""
        return False

    def check_timeouts(self) -> None:  # noqa: B027
        """Called twice a second: end units that take too long, count the processes that are left."""
