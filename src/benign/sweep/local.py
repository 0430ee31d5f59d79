"""Runs the units of an experiment on this machine, one after the other, and records each as it ends."""

import platform
import time
import traceback
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from benign.plan.runs import Unit
from benign.sweep.store import Store
from benign.training.descent import Status
from benign.training.engine import train_runs

RETRIED = (Status.FAILED, Status.OUT_OF_MEMORY)
"""runs that ended so are computed again when the sweep is run again"""


class Watcher(Protocol):
    """What is told about a sweep as it goes: see `benign.progress`."""

    def begin(self, units: int, runs: int, done_runs: int) -> None: ...
    def unit_begins(self, unit: Unit) -> None: ...
    def step(self, number: int, training: int) -> None: ...
    def unit_ends(self, unit: Unit, arrays: dict[str, np.ndarray], seconds: float) -> None: ...
    def end(self) -> None: ...


def finished_runs(store: Store) -> set[str]:
    """Keys of the runs that have a record and need not be computed again."""
    done: set[str] = set()
    for _, record in store.records():
        status = record.arrays["status"]
        done |= set(record.arrays["run"][~np.isin(status, RETRIED)].tolist())
    return done


def run_units(
    units: Sequence[Unit], store: Store, device: str, watcher: Watcher | None = None
) -> None:
    """Compute and record every unit that is not finished. A unit that fails is recorded as failed and the sweep goes on."""
    done = finished_runs(store)
    left = [unit for unit in units if any(run.key not in done for run in unit.runs)]
    total = sum(len(unit.runs) for unit in units)
    if watcher:
        watcher.begin(len(left), total, total - sum(len(unit.runs) for unit in left))
    for unit in left:
        if watcher:
            watcher.unit_begins(unit)
        begin = time.perf_counter()
        arrays, error = _compute(unit, device, watcher)
        seconds = time.perf_counter() - begin
        arrays["run"] = np.array([run.key for run in unit.runs])
        store.write(unit.key, arrays, _meta(device, seconds, error))
        if watcher:
            watcher.unit_ends(unit, arrays, seconds)
    if watcher:
        watcher.end()


def _compute(
    unit: Unit, device: str, watcher: Watcher | None
) -> tuple[dict[str, np.ndarray], str | None]:
    cells, ids = [run.cell for run in unit.runs], [run.id for run in unit.runs]
    try:
        return train_runs(cells, ids, device, watcher.step if watcher else None), None
    except (
        Exception
    ):  # whatever a component raises is an outcome of its runs, not the end of the sweep
        count = len(unit.runs)
        failed = {
            "status": np.full(count, Status.FAILED, np.int8),
            "steps": np.full(count, -1, np.int64),
        }
        return failed, traceback.format_exc(limit=-3)


def _meta(device: str, seconds: float, error: str | None) -> dict:
    name = platform.machine() if device == "cpu" else torch.cuda.get_device_name(device)
    return {
        "device": f"{device} ({name})",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 3),
        "error": error,
    }
