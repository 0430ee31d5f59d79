"""Trials of a user's own metrics on a few points before work: their shapes for several runs and for one.

Metrics are tried apart from components: they need a batch of whole setups.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benign.spec import axes, plugins
from benign.spec.base import SpecError
from benign.streams import RunId, Streams
from benign.training.descent import Batch, Step, attacked_step
from benign.training.metrics import (
    METRICS,
    Declared,
    EvaluationMetric,
    Metric,
    PointMetric,
    RunningMetric,
    metrics_for,
)
from benign.training.metrics.evaluation import means
from benign.training.metrics.fresh_points import EvaluatedRuns, PointBlock
from benign.training.setup import Setup, stack

POINTS = 64
"""most training points of a trial"""
FRESH_POINTS = 8
"""most fresh points of a trial: they are attacked, which takes long"""
RUNS = [RunId(0, index, "tryout") for index in range(3)]


def try_own_metrics(cells: Iterable[Setup]) -> None:
    """Raise SpecError if a metric that is not the package's fails or returns a wrong shape.

    Each is tried in the first and the last cell that has it.
    """
    own = [each for each in METRICS.values() if not each.function.__module__.startswith("benign.")]
    ends: dict[str, list[Setup]] = {}
    for cell in cells if own else []:
        for metric in own:
            if metric.variables(cell):
                ends[metric.name] = [*ends.get(metric.name, [])[:1], cell]
    for metric in own:
        for cell in ends.get(metric.name, []):
            _try(metric, cell)


def _try(metric: Declared, cell: Setup) -> None:
    if cell.data.absent():
        return  # refused elsewhere, where it is needed on this machine
    for runs in (len(RUNS), 1):
        setup = _small(cell)
        step = _first_step(setup, runs)
        try:
            _measure(metric, step, runs)
        except SpecError:
            raise
        except Exception as error:
            if _counts(metric, setup) != _counts(metric, cell):
                return  # it may need more points than it was given
            file = getattr(sys.modules.get(metric.function.__module__), "__file__", None)
            line = plugins.place(error, Path(file)) if file else ""
            _refuse(metric, f"fails: {type(error).__name__}: {error}{line}")


def _counts(metric: Declared, setup: Setup) -> tuple[int, int]:
    """Return the numbers of training points and of fresh points that the metric is computed from."""
    fresh = isinstance(metric, PointMetric | EvaluationMetric)
    return setup.data.samples, setup.evaluation.samples if fresh else 0


def _small(cell: Setup) -> Setup:
    """Return a cell in the coordinates of its space with few points; those of step 0 are clean."""
    setup = cell.reduced()
    few = {
        ("data", "samples"): min(POINTS, setup.data.samples),
        ("evaluation", "samples"): min(FRESH_POINTS, setup.evaluation.samples),
        ("training", "first_attacked_step"): 1,
    }
    return axes.replace(setup, few)


def _first_step(setup: Setup, runs: int) -> Step:
    """Return the first step of several runs."""
    with torch.no_grad():
        return attacked_step(Batch.start(stack([setup] * runs, "cpu"), Streams(RUNS[:runs])), 0)


@torch.no_grad()
def _measure(metric: Declared, step: Step, runs: int) -> None:
    batch = step.batch
    setup, attack = batch.setup, batch.setup.final_attack
    match metric:
        case Metric():
            _check(metric, metric.function(step), [runs])
        case RunningMetric():
            state = None
            for number in range(2):
                state = metric.function(state, replace(step, number=number))
                _check_state(metric, state, runs)
                _check(metric, metric.finish(state), [runs])
        case PointMetric():
            count = setup.evaluation.samples
            values = metric.values(PointBlock(batch, attack, "test/0", count))
            for value in values:
                _check(metric, value, [runs, count])
            _check(metric, metric.finish(*(value.mean(1) for value in values)), [runs])
        case EvaluationMetric():
            known = {each.name: each.function(step) for each in metrics_for(setup)}
            known |= means(batch, attack, at_end=True)
            shape = [runs, *map(len, metric.axes_for(setup).values())]
            for value in metric.values(EvaluatedRuns(batch, attack, True, known)).values():
                _check(metric, value, shape)


def _check(metric: Declared, value: Any, shape: list[int]) -> None:
    """Raise SpecError unless the value is a tensor of this shape."""
    if _shape(value) != shape:
        what = "a number for each" if len(shape) == 1 else "runs first"
        _refuse_shape(metric, value, shape[0], f"{shape}, {what}")


def _check_state(metric: Declared, state: Any, runs: int) -> None:
    """Raise SpecError unless the state of a running metric, which may be several numbers, has a leading runs axis."""
    given = _shape(state)
    if not isinstance(given, list) or given[:1] != [runs]:
        _refuse_shape(metric, state, runs, f"[{runs}, ...]")


def _shape(value: Any) -> list[int] | str:
    return list(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _refuse_shape(metric: Declared, value: Any, runs: int, expected: str) -> None:
    counted = "1 run" if runs == 1 else f"{runs} runs"
    _refuse(metric, f"gives {_shape(value)} for {counted}, expected is a tensor {expected}")


def _refuse(metric: Declared, problem: str) -> None:
    raise SpecError([("", f"the metric `{metric.name}` {problem}")])
