"""Tries probes of a user's own on a few training points: a number for each run, for one run and for several."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benign.spec import axes
from benign.spec import plugins as outside
from benign.spec.base import SpecError
from benign.streams import RunId, Streams
from benign.training.descent import Batch, Step, attacked_step
from benign.training.metrics import METRICS, RUNNING_METRICS, Metric, RunningMetric
from benign.training.setup import Setup, stack

POINTS = 64
"""most training points of a trial"""
RUNS = [RunId(0, index, "tryout") for index in range(3)]


def try_own_probes(cells: Iterable[Setup]) -> None:
    """Try probes that are not the package's in the first and the last cell that they apply to; SpecError says what is
    wrong with them."""
    probes = [
        probe
        for probe in (*METRICS.values(), *RUNNING_METRICS.values())
        if not probe.function.__module__.startswith("benign.")
    ]
    ends: dict[str, list[Setup]] = {}
    for cell in cells if probes else []:
        for probe in probes:
            if probe.applies(cell):
                ends[probe.name] = [*ends.get(probe.name, [])[:1], cell]
    for probe in probes:
        for cell in ends.get(probe.name, []):
            _try(probe, cell)


def _try(probe: Metric | RunningMetric, cell: Setup) -> None:
    if cell.data.absent():
        return  # refused elsewhere, where it is needed on this machine
    for runs in (len(RUNS), 1):
        step = _step(cell, runs)
        try:
            _measure(probe, step, runs)
        except SpecError:
            raise
        except Exception as error:
            if step.batch.setup.data.samples < cell.data.samples:
                return  # it may need more points than it was given
            file = getattr(sys.modules.get(probe.function.__module__), "__file__", None)
            line = outside.place(error, Path(file)) if file else ""
            _refuse(probe, f"fails: {type(error).__name__}: {error}{line}")


def _step(cell: Setup, runs: int) -> Step:
    """The first step of several runs of a cell, in the coordinates of its space, on clean points: attacks take long."""
    setup = cell.reduced()
    few = {
        ("data", "samples"): min(POINTS, setup.data.samples),
        ("training", "first_attacked_step"): 1,
    }
    cells = [axes.replace(setup, few)] * runs
    with torch.no_grad():
        return attacked_step(Batch.start(stack(cells, "cpu"), Streams(RUNS[:runs])), 0)


@torch.no_grad()
def _measure(probe: Metric | RunningMetric, step: Step, runs: int) -> None:
    if isinstance(probe, Metric):
        _check(probe, probe.measure(step), runs)
        return
    state = None
    for number in range(2):
        state = probe.update(state, replace(step, number=number))
        _check(probe, state, runs, state=True)
        _check(probe, probe.finish(state), runs)


def _check(probe: Metric | RunningMetric, value: Any, runs: int, *, state: bool = False) -> None:
    """Refuse what is not a number for each run; the state of a tally may be several."""
    given = list(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
    if (given[:1] if state else given) != [runs]:
        counted = "1 run" if runs == 1 else f"{runs} runs"
        expected = f"[{runs}, ...]" if state else f"[{runs}], a number for each"
        _refuse(probe, f"gives {given} for {counted}, expected is a tensor {expected}")


def _refuse(probe: Metric | RunningMetric, problem: str) -> None:
    raise SpecError([("", f"the probe `{probe.name}` {problem}")])
