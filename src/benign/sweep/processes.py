"""Units computed on this machine: in this process, or several at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benign import outside
from benign.plan.runs import Unit
from benign.spec import Component
from benign.sweep.crew import Crew, Manner
from benign.sweep.work import Computed, compute
from benign.training.engine import Progress
from benign.training.probes import functions_for


class Here(Crew):
    """This process, one unit after another."""

    def __init__(self, device: str, tell: Progress):
        self._device, self._tell = device, tell
        self._told = (0, 0)

    def submit(self, unit: Unit) -> Future[Computed]:
        future: Future[Computed] = Future()
        future.set_result(compute(unit, self._device, self._step))
        return future

    def _step(self, number: int, training: int) -> None:
        self._told = number, training
        self._tell(number, training)

    def told(self) -> tuple[int, int]:
        return self._told


class Processes(Crew):
    """Several processes, each for one unit at a time: one that is killed takes no other unit with it."""

    def __init__(self, manner: Manner, size: int):
        self.size, self._manner = size, manner
        context = multiprocessing.get_context("spawn")  # a forked torch can hang in its thread pool
        self._slots = context.Array("q", 3 * size)
        self._pools: list[ProcessPoolExecutor | None] = [None] * size
        self._begun: dict[int, float] = {}
        """since when each place is at work"""
        self._started = True

    def submit(self, unit: Unit) -> Future[Computed]:
        place = next(place for place in range(self.size) if place not in self._begun)
        with interrupts_wait():  # so that a new process never sees one
            future = self._pool(place).submit(_work, unit, self._manner.device)
        self._begun[place] = time.monotonic()
        future.add_done_callback(lambda future: self._free(place, future))
        return future

    def _pool(self, place: int) -> ProcessPoolExecutor:
        pool = self._pools[place]
        if pool is None:
            given = (self._slots, 3 * place, outside.loaded())
            context = multiprocessing.get_context("spawn")
            pool = self._pools[place] = ProcessPoolExecutor(1, context, _begin, given)
        return pool

    def _free(self, place: int, future: Future[Computed]) -> None:
        if not future.cancelled() and isinstance(future.exception(), self.lost):
            self._pools[place] = None
            self._started &= self._slots[3 * place + 2] > 0
            self._slots[3 * place : 3 * place + 3] = [0, 0, 0]
        self._begun.pop(place, None)

    def told(self) -> tuple[int, int]:
        return max(self._slots[0::3]), sum(self._slots[1::3])

    def look_after(self) -> None:
        if not self._started:
            raise RuntimeError("no process could be started: what it printed above says why")
        limit = self._manner.unit_timeout
        for place, begun in list(self._begun.items()):
            # A process that still starts has no number yet, and has not begun its unit.
            if (
                limit is not None
                and time.monotonic() - begun > limit
                and self._slots[3 * place + 2]
            ):
                self._kill(place)

    def _kill(self, place: int) -> None:
        if pid := self._slots[3 * place + 2]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if os.name != "nt" else signal.SIGTERM)

    def close(self) -> None:
        """End all processes, also those that are at work."""
        for place in list(self._begun):
            self._kill(place)
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(wait=not self._begun, cancel_futures=True)


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


def _begin(slots: Any, place: int, sources: list[Path]) -> None:
    global _tell

    def tell(step: int, training: int) -> None:
        slots[place : place + 2] = [step, training]

    _tell = tell
    outside.load_all(sources)
    threading.Thread(target=_follow_parent, daemon=True).start()
    slots[place + 2] = os.getpid()


def _follow_parent() -> None:
    """End with the parent, however it ended: a worker of a killed one would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _work(unit: Unit, device: str) -> Computed:
    try:
        return compute(unit, device, _tell)
    finally:
        _tell(0, 0)
