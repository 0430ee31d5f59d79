"""Computes a unit of work, in whatever process, and writes its record.

On the CPU a unit is computed by one thread: results are then bitwise the same whatever the number
of cores, and two threads on a busy two-core machine took 50 times as long as one.
Several cores compute several units at a time, each in a process of its own: `compute` must not run in two threads of
one process. They would share torch's number of threads and its precision of matrix products, the switch of
`compiling`, and the template of a module network, and each would change them under the other.
"""

import platform
import time
import traceback
from typing import NamedTuple

import numpy as np
import torch

from benign import __version__
from benign.networks.compiled import compiling
from benign.sweep.own_code import own_code
from benign.sweep.plan import NUMERICS, Unit
from benign.sweep.store import Store
from benign.training.checkpoint import CheckpointConfig
from benign.training.descent import Status
from benign.training.engine import Progress, one_thread, train_runs


class Computed(NamedTuple):
    """The outcome of a unit."""

    arrays: dict[str, np.ndarray]
    seconds: float
    error: str | None
    """why its runs failed"""
    device: str
    """the device that computed it"""
    torch: str
    """the version of torch there"""
    compiled: bool = False
    """whether compiled code took part, which rounds differently"""
    slots: int = 0
    """the slots in which its runs trained (benign.training.slots); 0: in a batch of their own"""
    why_no_slots: str = ""
    """why they could not train in slots, where others may"""


def compute(
    unit: Unit,
    device: str,
    progress: Progress | None = None,
    checkpoint: CheckpointConfig = CheckpointConfig(),  # noqa: B008
    compile: bool = False,
) -> Computed:
    """Compute a unit in this process. If a component raises, its runs have failed and the sweep goes on."""
    begin, error, used = time.perf_counter(), None, False
    try:
        with one_thread(), compiling(compile) as has_compiled:
            cells, ids = [run.cell for run in unit.runs], [run.id for run in unit.runs]
            arrays = train_runs(cells, ids, device, progress, checkpoint)
            used = has_compiled()
    except Exception:
        arrays, error = _without_result(unit, Status.FAILED), traceback.format_exc(limit=-3)
    return computed(arrays, time.perf_counter() - begin, device, used, error)


def computed(
    arrays: dict[str, np.ndarray],
    seconds: float,
    device: str,
    compiled: bool,
    error: str | None = None,
) -> Computed:
    """Return the outcome of a unit that this process has computed."""
    name = platform.machine() if device == "cpu" else torch.cuda.get_device_name(device)
    return Computed(arrays, seconds, error, f"{device} ({name})", str(torch.__version__), compiled)


def not_computed(unit: Unit, device: str, status: Status, why: str) -> Computed:
    """Return the outcome of a unit that has only a status."""
    return Computed(_without_result(unit, status), 0.0, why, device, str(torch.__version__))


def _without_result(unit: Unit, status: Status) -> dict[str, np.ndarray]:
    count = len(unit.runs)
    return {"status": np.full(count, status, np.int8), "steps": np.full(count, -1, np.int64)}


def write_unit(unit: Unit, store: Store, done: Computed) -> None:
    """Write the record of a unit."""
    meta = {
        "benign": __version__,
        "numerics": NUMERICS,
        "code": own_code(run.cell for run in unit.runs),
        "device": done.device,
        "torch": done.torch,
        "compiled": done.compiled,
        "slots": done.slots,
        **({"why_no_slots": done.why_no_slots} if done.why_no_slots else {}),
        "seconds": round(done.seconds, 3),
        "error": done.error,
    }
    keys = np.array([run.key for run in unit.runs])
    store.write(unit.key, {**done.arrays, "run": keys}, meta)
