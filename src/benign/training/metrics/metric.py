"""The registry of metrics: everything that is measured is declared once, under the name of its function.

    metric              a number of every run at one step: a curve, and the value at the end
    running_metric      a number of every run over all its steps
    point_metric        a mean over fresh test points
    evaluation_metric   a number, or an array, of every run from a whole evaluation

A declaration has a definition, a unit and a condition, and its kind gives the shape. The variables of a result, the
names that are not free and the trials of a user's own metrics (`benign.testing`) follow from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Attack
from benign.spec.registry import check_unique
from benign.training.descent import Status, Step
from benign.training.metrics.fresh_points import EvaluatedRuns, PointBlock
from benign.training.setup import Setup

PerRunValue: TypeAlias = Float[Tensor, " runs"]
Applies: TypeAlias = Callable[[Setup], bool]
OnStep = TypeVar("OnStep", bound=Callable[[Step], Tensor])
OnUpdate = TypeVar("OnUpdate", bound=Callable[[Tensor | None, Step], Tensor])
OnBlock = TypeVar("OnBlock", bound=Callable[[PointBlock], Tensor | tuple[Tensor, ...]])
OnRuns = TypeVar("OnRuns", bound=Callable[..., Tensor])


@dataclass(frozen=True)
class Variable:
    """A number of a run, a curve along its snapshot steps, or an array with axes of its own."""

    definition: str
    units: str
    along_steps: bool = False
    axes: Mapping[str, Sequence] = field(default_factory=dict)
    """of an array, by name, with their coordinates"""

    def tail(self, steps: Sequence[int]) -> dict[str, Sequence]:
        """Return the dimensions after that of the runs, with their coordinates."""
        return {"step": steps} if self.along_steps else dict(self.axes)

    def blank(self, runs: int, steps: Sequence[int]) -> np.ndarray:
        """Return an array of NaN for so many runs; arrays of a run are float32."""
        shape = [runs, *map(len, self.tail(steps).values())]
        return np.full(shape, np.nan, np.float32 if self.axes else np.float64)


@dataclass(frozen=True)
class Declared(ABC):
    """What every kind of metric declares."""

    name: str
    definition: str
    units: str
    function: Callable[..., Any]
    """computes the values"""
    applies: Applies
    """whether runs of a setup have it"""

    @abstractmethod
    def variables(self, setup: Setup) -> dict[str, Variable]:
        """Return the variables that a run of this setup gets by this metric."""


@dataclass(frozen=True)
class Metric(Declared):
    """A number of every run at one step: `function(step)`."""

    def variables(self, setup: Setup) -> dict[str, Variable]:
        if not self.applies(setup):
            return {}
        return {
            self.name: Variable(f"{self.definition}, at the end", self.units),
            f"{self.name}_curve": Variable(self.definition, self.units, along_steps=True),
        }


@dataclass(frozen=True)
class RunningMetric(Declared):
    """A number of every run over all its steps.

    `function` takes the state so far (None at the first step) and the step and returns the next state, a tensor with a
    leading runs axis; `finish` turns the last state into the number.
    """

    finish: Callable[[Tensor], Tensor]
    padded: bool = False
    """whether the number stays the same if points appear several times, weighted in `step.loss`, so that runs of
    different numbers of points share a batch (benign.training.slots)"""

    def variables(self, setup: Setup) -> dict[str, Variable]:
        return {self.name: Variable(self.definition, self.units)} if self.applies(setup) else {}


@dataclass(frozen=True)
class FreshMetric(Declared):
    """A metric on fresh points. Runs are evaluated at the end and, if the setup says so, at snapshots."""

    __test__: ClassVar = False

    attacked: bool
    """whether it needs an attack: the evaluation attack at the end, the training attack at snapshots"""
    only_at_end: bool

    def applies_to(self, setup: Setup, attack: Attack | None, at_end: bool) -> bool:
        """Return whether an evaluation with this attack measures it."""
        possible = (attack is not None or not self.attacked) and (at_end or not self.only_at_end)
        return possible and self.applies(setup)

    def names(self, setup: Setup) -> dict[str, str]:
        """Return the definitions of its variables, by name."""
        return {self.name: self.definition}

    def axes_for(self, setup: Setup) -> Mapping[str, Sequence]:
        """Return the axes of an array of each run, with their coordinates; a number has none."""
        return {}

    def variables(self, setup: Setup) -> dict[str, Variable]:
        by_name: dict[str, Variable] = {}
        names, axes = self.names(setup), self.axes_for(setup)
        if self.applies_to(setup, setup.final_attack, at_end=True):
            for name, definition in names.items():
                by_name[name] = Variable(definition, self.units, axes=axes)
        along = setup.evaluation.at == "snapshots"
        if along and self.applies_to(setup, setup.attack, at_end=False):
            for name, definition in names.items():
                text = definition.replace("evaluation attack", "training attack")
                by_name[f"{name}_curve"] = Variable(text, self.units, along_steps=True)
        return by_name


@dataclass(frozen=True)
class PointMetric(FreshMetric):
    """A mean over fresh points.

    `function(block)` returns a value of every point [runs, samples], or several; `finish` turns their means over all
    points into the number.
    """

    finish: Callable[..., Tensor]
    signs_only: bool
    """whether it reads no more of attacked points than the signs of their margins, as accuracies do: then it is a mean
    over all points; else, where attacks are cut short, over the first block of them"""

    def values(self, block: PointBlock) -> tuple[Tensor, ...]:
        """Return the values of the points of a block."""
        values = self.function(block)
        return values if isinstance(values, tuple) else (values,)


@dataclass(frozen=True)
class EvaluationMetric(FreshMetric):
    """A number, or an array, of every run from a whole evaluation: `function(runs)`.

    With `variants`, a variable for each of them: its name and definition end in, or contain, the variant's values, and
    `function` gets these values after the runs.
    """

    axes: Callable[[Setup], Mapping[str, Sequence]] | None
    variants: Callable[[Setup], Sequence[tuple[Any, ...]]] | None

    def axes_for(self, setup: Setup) -> Mapping[str, Sequence]:
        return self.axes(setup) if self.axes and self.applies(setup) else {}

    def names(self, setup: Setup) -> dict[str, str]:
        if not self.applies(setup):
            return {}
        return {
            "_".join([self.name, *map(str, variant)]): self.definition.format(*variant)
            for variant in self._variants(setup)
        }

    def values(self, runs: EvaluatedRuns) -> dict[str, Tensor]:
        """Return its values by the names of its variables."""
        names, variants = self.names(runs.setup), self._variants(runs.setup)
        return {
            name: self.function(runs, *each) for name, each in zip(names, variants, strict=True)
        }

    def _variants(self, setup: Setup) -> Sequence[tuple[Any, ...]]:
        return self.variants(setup) if self.variants else [()]


METRICS: dict[str, Declared] = {}
"""every metric of the package and of the user's own, by name"""

STATUS = Variable(
    "how the run ended: " + ", ".join(f"{s.value} {s.name.lower()}" for s in Status), "code"
)
STEPS = Variable("gradient descent steps taken when the run ended", "steps")
OWN_NAMES = {"run", "status", "steps", "seed", "step"}
"""names of records and results that are no metrics"""


def variables(setup: Setup) -> dict[str, Variable]:
    """Return the variables of a run of this setup by name: what the arrays of a record and of a result are called."""
    by_name = {"status": STATUS, "steps": STEPS}
    for metric in METRICS.values():
        by_name |= metric.variables(setup)
    return by_name


def metrics_for(setup: Setup) -> list[Metric]:
    """Return the metrics of a step that apply."""
    return [each for each in METRICS.values() if isinstance(each, Metric) and each.applies(setup)]


def running_metrics_for(setup: Setup) -> list[RunningMetric]:
    """Return the metrics over all steps that apply."""
    return [
        each for each in METRICS.values() if isinstance(each, RunningMetric) and each.applies(setup)
    ]


def functions_for(setup: Setup) -> list[Callable]:
    """Return the functions of all metrics that runs of this setup have."""
    return [each.function for each in METRICS.values() if each.variables(setup)]


def always(setup: Setup) -> bool:
    return True


def attacked(setup: Setup) -> bool:
    """Return whether the training points are attacked."""
    return setup.attack is not None


def metric(definition: str, units: str = "1", applies: Applies = always):
    """Register a function of a step, which returns a number of every run [runs], under its own name.

    >>> import benign as bo
    >>> @bo.metric("largest margin y f of a training point")
    ... def largest_margin(step):
    ...     return step.clean_margins.amax(1)
    >>> del METRICS["largest_margin"]  # this example is a test, which leaves no trace
    """

    def register(function: OnStep) -> OnStep:
        return _declare(Metric(_free_name(function), definition, units, function, applies))

    return register


def running_metric(
    definition: str,
    units: str = "1",
    finish: Callable[[Tensor], Tensor] = torch.clone,
    applies: Applies = always,
    *,
    padded: bool = False,
):
    """Register a function of (state so far, step), which returns the next state [runs, ...], under its own name.

    >>> import benign as bo
    >>> @bo.running_metric("largest training loss on the way", units="nats")
    ... def highest_loss(so_far, step):
    ...     return step.loss if so_far is None else torch.maximum(so_far, step.loss)
    >>> del METRICS["highest_loss"]  # this example is a test, which leaves no trace
    """

    def register(function: OnUpdate) -> OnUpdate:
        name = _free_name(function)
        return _declare(RunningMetric(name, definition, units, function, applies, finish, padded))

    return register


def _the_mean(mean: Tensor) -> Tensor:
    return mean


def point_metric(
    definition: str,
    units: str = "1",
    finish: Callable[..., Tensor] = _the_mean,
    applies: Applies = always,
    *,
    attacked: bool = False,
    only_at_end: bool = False,
    signs_only: bool = False,
):
    """Register a function of a block of fresh points, which returns values [runs, samples], under its own name.

    signs_only: of attacked points it reads `attacked_margins`, `raised_margins` or `training_attack_margins`, and no
    more of them than whether they are above 0.
    """

    def register(function: OnBlock) -> OnBlock:
        name = _free_name(function)
        return _declare(
            PointMetric(
                name,
                definition,
                units,
                function,
                applies,
                attacked,
                only_at_end,
                finish,
                signs_only or not attacked,
            )
        )

    return register


def evaluation_metric(
    definition: str,
    units: str = "1",
    applies: Applies = always,
    *,
    attacked: bool = False,
    only_at_end: bool = False,
    axes: Callable[[Setup], Mapping[str, Sequence]] | None = None,
    variants: Callable[[Setup], Sequence[tuple[Any, ...]]] | None = None,
):
    """Register a function of evaluated runs, which returns numbers [runs], or arrays, under its own name.

    `axes` are those of an array, with `only_at_end`. `variants` make it one variable for each of them.
    """
    assert axes is None or only_at_end, "curves hold numbers"

    def register(function: OnRuns) -> OnRuns:
        name = _free_name(function)
        return _declare(
            EvaluationMetric(
                name, definition, units, function, applies, attacked, only_at_end, axes, variants
            )
        )

    return register


def _declare(metric: Declared) -> Any:
    METRICS[metric.name] = metric
    return metric.function


def _free_name(function: Callable) -> str:
    """Return the name of a function if it is free; the same function defined again replaces the first."""
    name = function.__name__
    families = (each for each in METRICS.values() if isinstance(each, EvaluationMetric))
    variant = any(each.variants and name.startswith(f"{each.name}_") for each in families)
    if name in OWN_NAMES or name.endswith("_curve") or (variant and name not in METRICS):
        raise ValueError(f"`{name}` is a name that results use: give the metric another name")
    if known := METRICS.get(name):
        check_unique(name, function, known.function)
        del METRICS[name]
    return name


def first_time(so_far: Tensor | None, step: Step, now: Tensor) -> PerRunValue:
    """State of a running metric: the first step at which `now` holds in a run, -1 before it."""
    if so_far is None:
        so_far = torch.full_like(step.loss, -1)
    number = step.number
    number = number.to(so_far) if isinstance(number, Tensor) else float(number)
    return torch.where((so_far < 0) & now, number, so_far)
