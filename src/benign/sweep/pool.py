"""Several units at a time, each in a process of its own."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benign import outside
from benign.plan.runs import Unit
from benign.spec import Component
from benign.sweep.local import Watcher, compute_unit, record_unit, without_result
from benign.sweep.store import Store
from benign.training.descent import Status
from benign.training.probes import functions_for

POLL_SECONDS = 0.5

_slot: Any = None  # in a worker: the two shared numbers it tells its step and its training runs by


def run_in_pool(
    units: list[Unit], store: Store, device: str, workers: int, watcher: Watcher
) -> None:
    """Compute and record units in `workers` processes.

    A process that is killed (most likely for memory) breaks the pool: what was under way is tried
    again, each unit alone, and a unit that kills its process a second time is recorded as out of
    memory.
    """
    _check_importable(units)
    lost = _pool(units, store, device, workers, watcher)
    for unit in lost:
        if _pool([unit], store, device, 1, watcher):
            arrays = without_result(unit, Status.OUT_OF_MEMORY)
            record_unit(
                unit, store, arrays, device, 0.0, "the process that computed it was killed twice"
            )
            watcher.unit_ends(unit, arrays, 0.0)


def _check_importable(units: list[Unit]) -> None:
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


def _pool(
    units: list[Unit], store: Store, device: str, workers: int, watcher: Watcher
) -> list[Unit]:
    """Compute units; returns those that were lost with a killed process."""
    context = multiprocessing.get_context("spawn")  # a forked torch can hang in its thread pool
    slots, taken = context.Array("q", 2 * workers), context.Value("i", 0)
    lost: list[Unit] = []
    with ProcessPoolExecutor(workers, context, _begin, (slots, taken, outside.loaded())) as pool:
        under_way: dict[Future, Unit] = {}
        try:
            with _children_ignore_interrupts():
                for unit in units:
                    watcher.unit_begins(unit)
                    under_way[pool.submit(_work, unit, store.folder, device)] = unit
            while under_way:
                done, _ = wait(under_way, POLL_SECONDS, FIRST_COMPLETED)
                watcher.step(max(slots[0::2]), sum(slots[1::2]))
                for future in done:
                    unit = under_way.pop(future)
                    try:
                        watcher.unit_ends(unit, *future.result())
                    except BrokenProcessPool:
                        lost.append(unit)
        except BaseException:
            processes = list((pool._processes or {}).values())  # shutdown forgets them
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            raise
    if lost and not taken.value:
        raise RuntimeError("no process could be started: what it printed above says why")
    return lost


@contextmanager
def _children_ignore_interrupts() -> Iterator[None]:
    """Ctrl-c reaches all processes of a terminal: the parent decides, its workers keep still."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(slots: Any, taken: Any, sources: list[Path]) -> None:
    global _slot
    outside.load_all(sources)
    threading.Thread(target=_follow_parent, daemon=True).start()
    with taken.get_lock():
        place = taken.value
        taken.value += 1
    _slot = (slots, 2 * place)


def _follow_parent() -> None:
    """End with the parent, however it ended: a worker of a killed one would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _work(unit: Unit, folder: Path, device: str) -> tuple[dict[str, np.ndarray], float]:
    try:
        return compute_unit(unit, Store(folder), device, _tell)
    finally:
        _tell(0, 0)


def _tell(step: int, training: int) -> None:
    slots, place = _slot
    slots[place : place + 2] = [step, training]
