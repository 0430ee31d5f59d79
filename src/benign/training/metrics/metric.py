"""What a probe is: a snapshot or a tally, registered under the name of its function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from benign.spec.registry import check_unique
from benign.training.descent import Step
from benign.training.metrics import audit, evaluation
from benign.training.metrics import image_features as features
from benign.training.setup import Setup

PerRunValue: TypeAlias = Float[Tensor, " runs"]
Applies: TypeAlias = Callable[[Setup], bool]


@dataclass(frozen=True)
class Metric:
    """A number of every run at one step."""

    name: str
    meaning: str
    units: str
    measure: Callable[[Step], Tensor]
    applies: Applies

    @property
    def function(self) -> Callable:
        return self.measure


@dataclass(frozen=True)
class RunningMetric:
    """A number of every run over all its steps.

    `update` takes the state so far (None at the first step) and gives the next, a tensor with a
    leading runs axis; `finish` turns the last state into the number.
    """

    name: str
    meaning: str
    units: str
    update: Callable[[Tensor | None, Step], Tensor]
    finish: Callable[[Tensor], Tensor]
    applies: Applies

    @property
    def function(self) -> Callable:
        return self.update


METRICS: dict[str, Metric] = {}
RUNNING_METRICS: dict[str, RunningMetric] = {}

RESERVED = {"run", "status", "steps", "seed", "step", "inversions"}
RESERVED |= {*evaluation.MEANINGS, *audit.MEANINGS, *features.MEANINGS}
"""names that records and results use themselves"""


def always(setup: Setup) -> bool:
    return True


def attacked(setup: Setup) -> bool:
    return setup.attack is not None


def metric(meaning: str, units: str = "1", applies: Applies = always):
    """Register a function of a step as a snapshot under its own name.

    >>> import benign as bo
    >>> @bo.metric("largest margin y f of a training point")
    ... def largest_margin(step):
    ...     return step.clean_margins.amax(1)
    >>> del METRICS["largest_margin"]  # this example is a test, which leaves no trace
    """

    def register(measure: Callable[[Step], Tensor]) -> Callable[[Step], Tensor]:
        name = _claimed(measure)
        METRICS[name] = Metric(name, meaning, units, measure, applies)
        return measure

    return register


def running_metric(
    meaning: str,
    units: str = "1",
    finish: Callable[[Tensor], Tensor] = torch.clone,
    applies: Applies = always,
):
    """Register a function of (state so far, step) as a tally under its own name.

    >>> import benign as bo
    >>> @bo.running_metric("largest training loss on the way", units="nats")
    ... def highest_loss(so_far, step):
    ...     return step.loss if so_far is None else torch.maximum(so_far, step.loss)
    >>> del RUNNING_METRICS["highest_loss"]  # this example is a test, which leaves no trace
    """

    def register(update: Callable[[Tensor | None, Step], Tensor]):
        name = _claimed(update)
        RUNNING_METRICS[name] = RunningMetric(name, meaning, units, update, finish, applies)
        return update

    return register


def _claimed(function: Callable) -> str:
    """The name of a function, free for a probe; the same function defined again takes its own place."""
    name = function.__name__
    if name in RESERVED or name.endswith("_curve"):
        raise ValueError(f"`{name}` is a name that results use: give the probe another name")
    for table in (METRICS, RUNNING_METRICS):
        if name in table:
            check_unique(name, function, table[name].function)
            del table[name]
    return name


def functions_for(setup: Setup) -> list[Callable]:
    """The functions of all probes that apply."""
    return [probe.function for probe in (*metrics_for(setup), *running_metrics_for(setup))]


def metrics_for(setup: Setup) -> list[Metric]:
    return [probe for probe in METRICS.values() if probe.applies(setup)]


def running_metrics_for(setup: Setup) -> list[RunningMetric]:
    return [probe for probe in RUNNING_METRICS.values() if probe.applies(setup)]


def first_time(so_far: Tensor | None, step: Step, now: Tensor) -> PerRunValue:
    """State of a tally of the first step at which `now` holds in a run; -1 before it."""
    if so_far is None:
        so_far = torch.full_like(step.loss, -1)
    return torch.where((so_far < 0) & now, float(step.number), so_far)
