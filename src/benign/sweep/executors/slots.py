"""The executor of a sweep on one GPU: units whose runs share slots, so that its batches stay full."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from benign.networks.compiled import compiling
from benign.sweep.compute import Computed, compute, computed
from benign.sweep.executors.base import ExecutionConfig, Executor
from benign.sweep.executors.local import CheckpointOf, Report
from benign.sweep.plan import Unit
from benign.training.engine import TESTING, batch_size, one_thread, products
from benign.training.jobs import Job, group_of, padded_samples, slot_count, why_job_not
from benign.training.slots import Slots

TURN = 0.2
"""seconds of steps between two looks at the units that wait"""


@dataclass
class _Waiting:
    """A unit, and what it can share slots with."""

    unit: Unit
    future: Future[Computed]
    shares: tuple[str, int] = ("", 0)
    """its group and its padded number of points"""
    why_not: str = ""
    """why it trains alone"""
    job: Job | None = None
    seconds: float = 0.0
    compiled: bool = False


class SlotExecutor(Executor):
    """This process, several units at a time, whose runs train in slots (benign.training.slots).

    It computes while the dispatcher waits (`wait`), in the same thread. A unit that cannot share slots is computed by
    itself. If a step fails, by a component that raises or for lack of memory, the units in the slots are computed one
    by one as well, from their beginning: this finds the one that fails.
    """

    def __init__(
        self,
        config: ExecutionConfig,
        units: Sequence[Unit],
        report: Report,
        checkpoint: CheckpointOf,
    ):
        self._config, self._report, self._checkpoint = config, report, checkpoint
        self._alone: deque[_Waiting] = deque()
        self._next: deque[_Waiting] = deque()
        """units that wait for their group's turn"""
        self._in_slots: list[_Waiting] = []
        self._slots: Slots | None = None
        self._shares: tuple[str, int] | None = None
        """what the units in the slots share"""
        self._known = self._plan(units)
        self._said: set[str] = set()

    def ordered(self, units: Sequence[Unit]) -> list[Unit]:
        """Return units that share slots one after another, those with most points first.

        Runs with more points take more steps as a rule, and at the end, when slots are empty, runs should be short.
        """
        places: dict[tuple[str, int], int] = {}
        for unit in units:
            places.setdefault(self._known[unit.key][0], len(places))
        return sorted(
            units,
            key=lambda unit: (places[self._known[unit.key][0]], -_samples(unit)),
        )

    def _plan(self, units: Sequence[Unit]) -> dict[str, tuple[tuple[str, int], str]]:
        """Return for every unit what it shares, and why it trains alone."""
        reasons, groups = {}, {}
        for unit in units:
            try:
                cells = [run.cell for run in unit.runs]
                reason = why_job_not(cells, self._config.device) or ""
                group = "" if reason else group_of(cells[0])
            except Exception as error:  # of somebody's component: computed alone, its runs fail
                reason, group = f"it fails: {error}", ""
            reasons[unit.key], groups[unit.key] = reason, group
        largest: dict[str, int] = {}
        for unit in units:
            group = groups[unit.key]
            largest[group] = max(largest.get(group, 0), _samples(unit))
        shares = {
            unit.key: (groups[unit.key], padded_samples(_samples(unit), largest[groups[unit.key]]))
            for unit in units
        }
        return {key: (shares[key], reason) for key, reason in reasons.items()}

    @property
    def size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Units to have at a time: one more while runs could fill slots that would be empty soon."""
        at_work = len(self._in_slots) + len(self._next) + len(self._alone)
        if self._alone or self._next:
            return at_work
        if self._slots is None or not self._in_slots:
            return at_work + 1
        runs = sum(len(each.unit.runs) for each in self._in_slots)
        fits = batch_size(self._in_slots[0].unit.runs[0].cell, self._config.device)
        return at_work + (self._slots.waiting < len(self._slots) and runs < fits)

    def submit(self, unit: Unit) -> Future[Computed]:
        shares, reason = self._known[unit.key]
        waiting = _Waiting(unit, Future(), shares, reason)
        if not reason:
            self._next.append(waiting)
            self._admit()
            return waiting.future
        if self._config.slots:
            self._say(
                f"`slots` is {self._config.slots}, but some runs train without them: {reason}"
            )
        self._alone.append(waiting)
        return waiting.future

    def wait(self, futures: Sequence[Future[Computed]], seconds: float) -> set[Future[Computed]]:
        """Compute until a unit has ended, or for a turn."""
        end = time.monotonic() + min(seconds, TURN)
        while not any(future.done() for future in futures):
            if self._in_slots:
                self._step()
            elif self._alone:
                self._compute_alone(self._alone.popleft())
            if time.monotonic() > end:
                break
        return {future for future in futures if future.done()}

    def progress(self) -> dict[str, tuple[int, int]]:
        return {
            waiting.unit.key: (waiting.job.step, waiting.job.left)
            for waiting in self._in_slots
            if waiting.job and waiting.job.left
        }

    def _admit(self) -> None:
        """Start the units that can share the slots, or the next ones if the slots are empty."""
        while self._next:
            if not self._in_slots:
                self._slots, self._shares = None, self._next[0].shares
            if self._next[0].shares != self._shares:
                return
            self._start(self._next.popleft())

    def _start(self, waiting: _Waiting) -> None:
        unit, begin = waiting.unit, time.perf_counter()
        cells, ids = [run.cell for run in unit.runs], [run.id for run in unit.runs]
        self._report(unit.key, 0, len(cells))
        try:
            with self._computing(waiting):
                job = Job(cells, ids, self._config.device, self._checkpoint(unit))
                if self._slots is None:
                    self._slots = Slots(job, self._count(waiting), waiting.shares[1])
                self._slots.add(job)
        except Exception as error:
            self._leave_alone(waiting, error)
            return
        waiting.job, waiting.seconds = job, time.perf_counter() - begin
        self._in_slots.append(waiting)

    def _count(self, waiting: _Waiting) -> int:
        """Return the number of slots: as configured, or what fills the device."""
        if self._config.slots:
            return self._config.slots
        cell = waiting.unit.runs[0].cell
        return slot_count(cell, waiting.shares[1], self._config.device)

    @contextmanager
    def _computing(self, waiting: _Waiting) -> Iterator[None]:
        cell, config = waiting.unit.runs[0].cell, self._config
        # Graphs are recorded on the current device.
        here = nullcontext() if config.device == "cpu" else torch.cuda.device(config.device)
        with here, one_thread(), compiling(config.compile) as has_compiled:
            with products(cell.precision, config.device):
                yield
            for each in {id(each): each for each in (waiting, *self._in_slots)}.values():
                each.compiled |= has_compiled()

    def _step(self) -> None:
        """Make a step in all slots, and test the units whose last run has ended."""
        assert self._slots is not None
        begin, done = time.perf_counter(), []
        try:
            with self._computing(self._in_slots[0]):
                done = self._slots.step()
                self._slots.write_checkpoints()
        except Exception as error:
            self._give_up(error)
            return
        runs = {id(each): each.job.left if each.job else 0 for each in self._in_slots}
        passed, total = time.perf_counter() - begin, max(sum(runs.values()), 1)
        for each in self._in_slots:
            each.seconds += passed * runs[id(each)] / total
        for each in [each for each in self._in_slots if each.job in done]:
            self._end(each)
        self._admit()

    def _end(self, waiting: _Waiting) -> None:
        """Test the runs of a unit, and let it go."""
        assert waiting.job is not None
        assert self._slots is not None
        begin, unit = time.perf_counter(), waiting.unit
        self._report(unit.key, TESTING, len(unit.runs))
        try:
            with self._computing(waiting):
                arrays = waiting.job.end()
        except Exception as error:
            self._in_slots.remove(waiting)
            self._leave_alone(waiting, error)
            return
        self._in_slots.remove(waiting)
        waiting.seconds += time.perf_counter() - begin
        device = self._config.device
        result = computed(arrays, waiting.seconds, device, waiting.compiled)
        waiting.future.set_result(result._replace(slots=len(self._slots)))

    def _give_up(self, error: Exception) -> None:
        """Compute the units in the slots one by one."""
        failed, self._in_slots, self._slots = self._in_slots, [], None
        for waiting in failed:
            self._leave_alone(waiting, error)
        self._admit()

    def _leave_alone(self, waiting: _Waiting, error: Exception) -> None:
        """Compute a unit by itself, without what it had."""
        why = traceback.format_exception_only(error)[-1].strip()
        note = f"units in slots are computed one by one, from their beginning, because of an error: {why}"
        self._say(note)
        waiting.job, waiting.why_not = None, f"an error in slots: {why}"
        self._alone.append(waiting)

    def _say(self, note: str) -> None:
        """Warn, once for each note."""
        if note not in self._said:
            self._said.add(note)
            warnings.warn(note, RuntimeWarning, stacklevel=3)

    def _compute_alone(self, waiting: _Waiting) -> None:
        self._slots = None  # their memory is needed
        if self._config.device != "cpu":
            torch.cuda.empty_cache()
        unit, config = waiting.unit, self._config
        report = partial(self._report, unit.key)
        result = compute(unit, config.device, report, self._checkpoint(unit), config.compile)
        waiting.future.set_result(result._replace(why_no_slots=waiting.why_not))


def _samples(unit: Unit) -> int:
    return unit.runs[0].cell.data.samples
