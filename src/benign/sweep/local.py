"""Runs the units of an experiment on this machine and records each as it ends.

On the CPU a unit is computed by one thread: results are then bitwise the same whatever the number
of cores, and two threads on a busy two-core machine were seen to take 50 times as long as one.
Several cores are used by computing several units at a time.
"""

import platform
import time
import traceback
from collections.abc import Sequence

import numpy as np
import torch

from benign import __version__
from benign.plan.runs import NUMERICS, Unit
from benign.sweep.own_code import own_code
from benign.sweep.store import Store
from benign.training.descent import Status
from benign.training.engine import Progress, one_thread, train_runs


class Watcher:
    """Is told about a sweep as it goes. This one says nothing; `benign.progress` has others."""

    def begin(self, units: int, runs: int, done_runs: int) -> None: ...
    def unit_begins(self, unit: Unit) -> None: ...
    def step(self, number: int, training: int) -> None: ...
    def unit_ends(self, unit: Unit, arrays: dict[str, np.ndarray], seconds: float) -> None: ...
    def end(self) -> None: ...


def run_units(
    left: Sequence[Unit],
    done: int,
    store: Store,
    device: str,
    watcher: Watcher,
    workers: int = 1,
) -> None:
    """Compute and record the units that are `left`; one that fails is recorded as failed and the sweep goes on.

    `done` runs that were asked for need no work.
    """
    watcher.begin(len(left), done + sum(len(unit.runs) for unit in left), done)
    if workers > 1 and len(left) > 1:
        from benign.sweep.pool import run_in_pool

        run_in_pool(list(left), store, device, min(workers, len(left)), watcher)
    else:
        for unit in left:
            watcher.unit_begins(unit)
            arrays, seconds = compute_unit(unit, store, device, watcher.step)
            watcher.unit_ends(unit, arrays, seconds)
    watcher.end()


def compute_unit(
    unit: Unit, store: Store, device: str, progress: Progress | None
) -> tuple[dict[str, np.ndarray], float]:
    """Compute one unit and record it."""
    begin = time.perf_counter()
    error = None
    try:
        with one_thread():
            arrays = train_runs(
                [run.cell for run in unit.runs], [run.id for run in unit.runs], device, progress
            )
    except (
        Exception
    ):  # whatever a component raises is an outcome of its runs, not the end of the sweep
        arrays, error = without_result(unit, Status.FAILED), traceback.format_exc(limit=-3)
    seconds = time.perf_counter() - begin
    record_unit(unit, store, arrays, device, seconds, error)
    return arrays, seconds


def without_result(unit: Unit, status: Status) -> dict[str, np.ndarray]:
    """The arrays of a unit that has nothing but a status."""
    count = len(unit.runs)
    return {"status": np.full(count, status, np.int8), "steps": np.full(count, -1, np.int64)}


def record_unit(
    unit: Unit,
    store: Store,
    arrays: dict[str, np.ndarray],
    device: str,
    seconds: float,
    error: str | None,
) -> None:
    """Write the record of a unit."""
    keys = np.array([run.key for run in unit.runs])
    name = platform.machine() if device == "cpu" else torch.cuda.get_device_name(device)
    meta = {
        "benign": __version__,
        "numerics": NUMERICS,
        "code": own_code(run.cell for run in unit.runs),
        "device": f"{device} ({name})",
        "torch": torch.__version__,
        "seconds": round(seconds, 3),
        "error": error,
    }
    store.write(unit.key, {**arrays, "run": keys}, meta)
