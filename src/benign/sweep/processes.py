"""Units computed on this machine: in this process, or several at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from benign import outside
from benign.plan.runs import Unit
from benign.spec import Component
from benign.sweep.crew import Crew, Manner
from benign.sweep.work import Computed, compute
from benign.training.engine import Keeping, batch_size
from benign.training.probes import functions_for

Keep = Callable[[Unit], Keeping]
"""where a unit keeps what is not a result"""
Tell = Callable[[str, int, int], None]
"""called with the key of a unit, its step and its training runs"""


class Here(Crew):
    """This process, one unit after another."""

    def __init__(self, manner: Manner, tell: Tell, keeping: Keep):
        self._manner, self._tell, self._keeping = manner, tell, keeping

    def submit(self, unit: Unit) -> Future[Computed]:
        future: Future[Computed] = Future()
        tell = partial(self._tell, unit.key)
        how = self._keeping(unit), self._manner.compile
        future.set_result(compute(unit, self._manner.device, tell, *how))
        return future

    def told(self) -> dict[str, tuple[int, int]]:
        return {}  # each unit told its steps until it ended


class Processes(Crew):
    """Several processes, each for one unit at a time: one that is killed takes no other unit with it."""

    def __init__(self, manner: Manner, size: int, keeping: Keep):
        self.size, self._manner, self._keeping = size, manner, keeping
        # a forked torch can hang in its thread pool
        self._context = multiprocessing.get_context("spawn")
        self._places = [_Place(self._context) for _ in range(size)]
        self._overdue: set[str] = set()

    def submit(self, unit: Unit) -> Future[Computed]:
        place = next(place for place in self._places if place.is_free())
        with interrupts_wait():  # so that a new process never sees one
            return place.submit(unit, self._manner, self._keeping(unit))

    def told(self) -> dict[str, tuple[int, int]]:
        at_work = (place for place in self._places if place.at_work())
        return {place.unit_key: (place.numbers[0], place.numbers[1]) for place in at_work}

    def look_after(self) -> None:
        limit = self._manner.unit_timeout
        for place in self._places:
            if limit is not None and place.seconds() > limit:
                self._overdue.add(place.unit_key)
                place.kill()

    def overdue(self, unit: Unit) -> bool:
        return unit.key in self._overdue

    def close(self) -> None:
        """End all processes, also those that are at work."""
        for place in self._places:
            place.close()


class _Place:
    """Room for one process, and another one if that is killed."""

    def __init__(self, context: SpawnContext):
        self._context = context
        self._pool: ProcessPoolExecutor | None = None
        self._future: Future[Computed] | None = None
        self.unit_key = ""
        self._begun: float | None = None
        self.numbers = context.Array("q", 3)
        """its step, its training runs and whether it has started; it writes them itself"""

    def submit(self, unit: Unit, manner: Manner, keeping: Keeping) -> Future[Computed]:
        if self._pool is None:
            given = (self.numbers, outside.loaded())
            self._pool = ProcessPoolExecutor(1, self._context, _begin, given)
        self.unit_key, self._begun = unit.key, None
        self._future = self._pool.submit(_work, unit, manner.device, keeping, manner.compile)
        return self._future

    def is_free(self) -> bool:
        """Whether it may be given a unit; what is left of a process that was killed is cleared away."""
        if self._future is None:
            return True
        if not self._future.done():
            return False
        if isinstance(self._future.exception(), BrokenProcessPool):
            if not self.numbers[2]:
                raise RuntimeError("no process could be started: what it printed above says why")
            self._pool, self.numbers[:] = None, [0, 0, 0]
        self._future = None
        return True

    def seconds(self) -> float:
        """For how long it has been seen to train: a process takes seconds to start."""
        if self.is_free() or not self.numbers[1]:
            return 0.0
        self._begun = self._begun or time.monotonic()
        return time.monotonic() - self._begun

    def kill(self) -> None:
        assert self._pool is not None
        for process in list((self._pool._processes or {}).values()):  # also one that still starts
            process.kill()

    def at_work(self) -> bool:
        return self._future is not None and not self._future.done()

    def close(self) -> None:
        at_work = self.at_work()
        if at_work:
            self.kill()
        if self._pool is not None:
            self._pool.shutdown(wait=not at_work, cancel_futures=True)


def check_importable(units: list[Unit]) -> None:
    """Other processes import what a person defined: a prompt, a notebook or a script on stdin cannot be imported."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file and Path(file).exists():
        return
    cells = [unit.runs[0].cell for unit in units]
    parts = [type(part) for cell in cells for _, part in cell if isinstance(part, Component)]
    probes = [probe for cell in cells for probe in functions_for(cell)]
    for own in (*parts, *probes):
        if own.__module__ == "__main__":
            raise ValueError(
                f"`workers` must be 1 here: `{own.__name__}` is defined at a prompt or in a notebook, "
                "which other processes cannot import; put it into a file"
            )
    if file:  # "<stdin>": a new process looks for a file of that name before anything else
        raise ValueError(
            f"`workers` must be 1 here: the script is no file ({file}), save it as one"
        )


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-c reaches all processes of a terminal: the parent decides, its workers keep still. A process started in
    here never gets one; the parent gets it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_tell: Callable[[int, int], None] = lambda step, training: None  # noqa: E731
"""in a worker: how it tells its step and its training runs"""


def _begin(numbers: Any, sources: list[Path]) -> None:
    global _tell

    def tell(step: int, training: int) -> None:
        numbers[0:2] = [step, training]

    _tell = tell
    # One line of a warning, as the command line has it; the place in the code tells a user nothing.
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
    outside.load_all(sources)
    threading.Thread(target=_follow_parent, daemon=True).start()
    numbers[2] = True


def _follow_parent() -> None:
    """End with the parent, however it ended: a worker of a killed one would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _first_batch(unit: Unit, device: str) -> int:
    """How many of its runs are trained first."""
    with suppress(Exception):  # of somebody's component: a failure of the runs, as `compute` has it
        return min(len(unit.runs), batch_size(unit.runs[0].cell, device))
    return len(unit.runs)


def _work(unit: Unit, device: str, keeping: Keeping, compile: bool) -> Computed:
    _tell(0, _first_batch(unit, device))
    try:
        return compute(unit, device, _tell, keeping, compile)
    finally:
        _tell(0, 0)
