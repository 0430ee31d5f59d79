"""Where the time of a sweep goes: timers around parts of benign, for this benchmark alone.

Loaded as a plugin (`benign.load`), so that the workers of a sweep load it too. Every process that computes units writes
its times to `<BENIGN_SPLIT>/<pid>.json` after each unit; the product itself is not changed and has no timers.

Parts of a unit: drawing (streams, points, their small coordinates), training, evaluation (metrics at snapshots, fresh
points), audit (what judges the training attack). A part inside another counts for the inner one alone.
"""

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import benign.sweep.dispatch as dispatch
import benign.sweep.executors.local as local
import benign.sweep.executors.slots as slots
import benign.sweep.runner as runner
import benign.training.engine as engine
import benign.training.slots as train_slots
from benign.streams import Stream
from benign.training.descent import Batch
from benign.training.metrics import audit
from benign.training.metrics.fresh_points import PointBlock

FOLDER = Path(os.environ["BENIGN_SPLIT"])
WAITS = bool(os.environ.get("BENIGN_SPLIT_WAITS"))
"""wait for the GPU at the borders of parts, else its work counts where something next waits for it"""

seconds: dict[str, float] = {}
"""by part, of this process"""
units: list[tuple[float, float]] = []
"""begin and end of every unit, in seconds since the epoch"""
_open: list[list] = []
"""[part, begin of what has not been counted yet], outermost first"""


def _now() -> float:
    if WAITS and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _enter(part: str) -> None:
    now = _now()
    if _open:
        _count(now)
    _open.append([part, now])


def _leave() -> None:
    now = _now()
    _count(now)
    _open.pop()
    if _open:
        _open[-1][1] = now


def _count(now: float) -> None:
    part, begin = _open[-1]
    seconds[part] = seconds.get(part, 0.0) + now - begin


def timed(part: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def inner(*given: Any, **named: Any) -> Any:
        if _open and _open[-1][0] == part:
            return function(*given, **named)
        _enter(part)
        try:
            return function(*given, **named)
        finally:
            _leave()

    return inner


def within(part: str, holder: Any, *names: str) -> None:
    """Time functions of a module or methods of a class, replacing them where they are."""
    for name in names:
        kept = vars(holder)[name]
        if isinstance(kept, staticmethod):
            setattr(holder, name, staticmethod(timed(part, kept.__func__)))
        elif isinstance(kept, functools.cached_property):
            replaced = functools.cached_property(timed(part, kept.func))
            replaced.__set_name__(holder, name)
            setattr(holder, name, replaced)
        else:
            setattr(holder, name, timed(part, kept))


def _unit(compute: Callable) -> Callable:
    @functools.wraps(compute)
    def inner(*given: Any, **named: Any) -> Any:
        begin = time.time()
        try:
            return timed("training", compute)(*given, **named)
        finally:
            units.append((begin, time.time()))
            write()

    return inner


def write() -> None:
    found = {"seconds": seconds, "units": units}
    (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(found), encoding="utf-8")


within("drawing", Stream, "normal", "uniform", "integers", "signs")
within("drawing", Batch, "start", "test_points")
within("evaluation", engine.Results, "record", "test")
within("evaluation", train_slots._Meter, "read")
within("audit", audit.AttackedTrainingPoints, "of")
within("audit", audit, "certified_margins")
within("audit", PointBlock, "training_attack_margins")
local.compute = _unit(local.compute)
# Units in slots are computed when they are submitted, and while the dispatcher waits.
for name in ("submit", "wait"):
    setattr(slots.SlotExecutor, name, _unit(getattr(slots.SlotExecutor, name)))
# In the process that dispatches.
within("records", dispatch, "write_unit")
within("result", runner.Runner, "result")
