"""Dispatches the units of a sweep to an executor and records each as it ends."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager

from benign.spec.base import digest
from benign.sweep.compute import Computed, not_computed, write_unit
from benign.sweep.executors.base import ExecutionConfig, Executor, ProcessEnded
from benign.sweep.executors.local import ProcessExecutor, SerialExecutor, check_importable
from benign.sweep.executors.slots import SlotExecutor
from benign.sweep.lease import Lease, Notes, acquire, release
from benign.sweep.own_code import own_code
from benign.sweep.plan import NUMERICS, Unit
from benign.sweep.progress import Watcher, Watchers
from benign.sweep.results import runs_in, unfinished
from benign.sweep.store import Store
from benign.sweep.validation import fault_of
from benign.training.checkpoint import CheckpointConfig
from benign.training.descent import Status

POLL_SECONDS = 0.5


def compute_units(
    left: Sequence[Unit],
    done: int,
    store: Store,
    watcher: Watcher,
    config: ExecutionConfig,
) -> list[Lease]:
    """Compute and record the units that are `left`. A unit that fails is recorded as failed, and the sweep goes on.

    `done` counts the runs that need no work. Return the leases of other hosts that block units of this sweep.
    """
    watcher = Watchers(watcher, Notes(store))
    watcher.begin(len(left), done + sum(len(unit.runs) for unit in left), done)
    with (
        _interrupts_once(watcher) as stopping,
        _executor(config, list(left), watcher, store) as executor,
    ):
        sweep = _Dispatcher(store, executor, watcher, config)
        try:
            sweep.run(deque(executor.ordered(left)), stopping)
        finally:
            sweep.release_all()
    watcher.end()
    if stopping.is_set():
        raise KeyboardInterrupt
    return sweep.blocking


class _Dispatcher:
    """The units of a sweep that this process has leased."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        watcher: Watcher,
        config: ExecutionConfig,
    ):
        self.store, self.executor, self.watcher, self.config = store, executor, watcher, config
        self.under_way: dict[Future[Computed], Unit] = {}
        self.mine: set[str] = set()
        self.lost: dict[str, str] = {}
        """how the process of a unit ended, by key"""
        self.blocking: list[Lease] = []
        """leases of other hosts that block units"""

    def run(self, queue: deque[Unit], stopping: threading.Event) -> None:
        waiting: deque[Unit] = deque()
        while True:
            while queue and len(self.under_way) < self.executor.size and not stopping.is_set():
                self.hand_out(queue.popleft(), waiting)
            if self.under_way:
                queue.extendleft(self.collect())
            elif stopping.is_set() or not (queue or waiting):
                return
            elif not queue:
                # Other processes of this host have leased the rest; we compute what they leave behind if they die.
                time.sleep(POLL_SECONDS)
                queue, waiting = waiting, deque()

    def hand_out(self, unit: Unit, waiting: deque[Unit]) -> None:
        """Submit a unit, unless another process has leased it or has recorded it meanwhile."""
        if unit.key not in self.mine:
            other = acquire(self.store, unit.key, steal=self.config.steal)
            if other is None:
                self.mine.add(unit.key)
            if self.recorded(unit):
                self.drop(unit)
                return
            if other is not None:
                self.put_aside(unit, other, waiting)
                return
            self.watcher.unit_begins(unit)
        self.under_way[self.executor.submit(unit)] = unit

    def put_aside(self, unit: Unit, other: Lease, waiting: deque[Unit]) -> None:
        if other.alive() is None:
            self.blocking.append(other)
        else:
            waiting.append(unit)

    def recorded(self, unit: Unit) -> bool:
        """Return whether another process has recorded the unit since the plan was made."""
        record = self.store.read(unit.key)
        if record is None or fault_of(unit.key, record):
            return False
        if unfinished([unit], runs_in([record]), self.config.recompute):
            return False
        self.watcher.unit_ends(unit, record.arrays, 0.0)
        return True

    def collect(self) -> list[Unit]:
        """Record the units that have ended. Return those to try once more, since their process was lost."""
        ended = self.executor.wait([*self.under_way], POLL_SECONDS)
        for key, (step, training) in self.executor.progress().items():
            self.watcher.step(key, step, training)
        self.executor.check_timeouts()
        once_more = []
        for future in ended:
            unit = self.under_way.pop(future)
            try:
                self.keep(unit, future.result())
            except ProcessEnded as end:
                if lost := self.explained(unit, end):
                    self.keep(unit, lost)
                else:
                    once_more.append(unit)
        return once_more

    def explained(self, unit: Unit, end: ProcessEnded) -> Computed | None:
        """Return the outcome to record for a unit whose process ended; None if the unit is to be tried again."""
        device = self.config.device
        if self.executor.overdue(unit):
            why = f"it had not ended after {self.config.unit_timeout:g} s (--unit-timeout)"
            return not_computed(unit, device, Status.FAILED, why)
        if not end.started:
            return None  # no fault of the unit
        if unit.key in self.lost:
            why = " and ".join(dict.fromkeys((self.lost[unit.key], end.how)))
            why = f"the process that computed it ended twice: {why}"
            return not_computed(unit, device, end.status, why)
        self.lost[unit.key] = end.how
        return None

    def keep(self, unit: Unit, done: Computed) -> None:
        write_unit(unit, self.store, done)
        shutil.rmtree(self.store.checkpoints(unit.key), ignore_errors=True)
        self.drop(unit)
        self.watcher.unit_ends(unit, done.arrays, done.seconds)

    def drop(self, unit: Unit) -> None:
        if unit.key in self.mine:
            self.mine.remove(unit.key)
            release(self.store, unit.key)

    def release_all(self) -> None:
        for key in list(self.mine):
            release(self.store, key)


def _executor(
    config: ExecutionConfig, units: list[Unit], watcher: Watcher, store: Store
) -> AbstractContextManager[Executor]:
    """Return the executor for these units. If its block ends early, units in progress are stopped."""

    def checkpoint_config(unit: Unit) -> CheckpointConfig:
        weights = store.folder / "weights" if config.keep_weights else None
        # A run that resumed with code of another rounding would have a misleading record.
        code = digest([own_code(run.cell for run in unit.runs), config.compile])
        return CheckpointConfig(store.checkpoints(unit.key), weights, NUMERICS, code)

    if config.on_cluster and units:
        from benign.sweep.executors.cluster import cluster  # it needs Dask, an extra

        return cluster(config)
    if len(units) > 1 < (config.workers or 1) or (units and config.unit_timeout):
        check_importable(units)
        return ProcessExecutor(config, min(config.workers or 1, len(units)), checkpoint_config)
    if config.slots or (config.slots is None and config.device != "cpu"):
        return SlotExecutor(config, units, watcher.step, checkpoint_config)
    return SerialExecutor(config, watcher.step, checkpoint_config)


@contextmanager
def _interrupts_once(watcher: Watcher) -> Iterator[threading.Event]:
    """Make the first ctrl-c set the event and the second one interrupt. Only the main thread receives them."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def interrupt(*_: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        watcher.stopping()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGINT, before)
