"""Optimisers: full batches or mini-batches, plain gradient descent, momentum or AdamW, and when a run stops."""

# `torch._foreach_...` are what torch.optim consists of:
# pyright: reportPrivateImportUsage=false

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from benign.data.model import column
from benign.networks.network import Params
from benign.spec.axes import PerRun, default
from benign.spec.base import Count, NonNegative, Positive, Whole
from benign.spec.registry import Component, guarantees, has_guarantee

Schedule: TypeAlias = Literal["constant", "cosine", "drops"]
MOMENTS = ("mean", "square")
"""what AdamW keeps of every parameter"""


class Training(Component):
    """A way to train. One step goes through all training points: one update, or one for every mini-batch.

    A method of your own defines `most_steps`, `rate_at` and `update`; also `moments` if an update needs more than the
    gradient, and `batches_per_epoch` if a step has several updates. Two declarations say what else holds:

    - `@guarantees("plain_update")` (benign.spec.registry): every step is one update w <- w - rate_at(step) g, with the
      gradient g of the loss on all training points. Three things need it: clean training that moves products in place
      of weights, without a call of `update` (`GramState`); runs in the span of their tokens (`Setup.space`); and the
      coefficients and recursions of the papers (`metrics.scores.coefficients`). A subclass repeats the decorator if
      its own updates are plain. The theorems also need `constant_rate` (`gradient_descent_at_one_rate`).
    - `in_steps`: the fields that are numbers of steps. `benign audit` multiplies them when it divides the rate.
    """

    default_kind: ClassVar[str | None] = "gradient_descent"
    in_steps: ClassVar[tuple[str, ...]] = ()
    """fields that are numbers of steps, and so change in proportion to `most_steps`"""

    rate: PerRun[Positive]
    """step size eta"""
    first_attacked_step: Whole = 0
    """training points are clean before this step (1 in Wang's theory, footnote 1)"""
    stop_loss: PerRun[NonNegative] = default(0.01)
    """a run has converged when its training loss is at most this"""
    stop_on: Literal["attacked", "clean"] = "attacked"
    """the training loss that stops a run; with mini-batches its mean over the last step"""

    @abstractmethod
    def most_steps(self) -> int:
        """Return the number of steps after which a run that has not converged ends with status `step_cap`."""

    @abstractmethod
    def rate_at(self, step: Any) -> Any:
        """Return the step size at a step, or a fraction of the way through it: a number or a tensor [runs]."""

    @abstractmethod
    def update(
        self, params: Params, gradient: Params, moments: Params, step: float, count: int
    ) -> None:
        """Move parameters in place, after `count` updates."""

    def constant_rate(self) -> bool:
        """Return whether `rate_at` is the same at every step; False where a class does not say so."""
        return False

    def moments(self, params: Params) -> Params:
        """Return the state of the optimiser for these parameters at the start of a run."""
        return {}

    def batches_per_epoch(self, samples: int) -> int:
        """Return how many updates a step has."""
        return 1


@guarantees("plain_update")
class GradientDescent(Training):
    """Full-batch gradient descent on the mean loss of the attacked points (Zhang Algorithm 1).

    >>> import benign as bo
    >>> descent = bo.GradientDescent(rate=0.1, drop_every=500)
    >>> descent.rate_at(499), descent.rate_at(500)
    (0.1, 0.01)
    """

    in_steps: ClassVar[tuple[str, ...]] = ("max_steps", "drop_every")

    drop_every: Whole = 0
    """divide the rate after every so many steps (500 in Wang's experiments); 0 is a constant rate"""
    drop_by: Positive = 10.0
    """divisor of the rate"""
    max_steps: Whole = 5000
    """a run that has not converged by then ends with status `step_cap`"""

    def most_steps(self) -> int:
        return self.max_steps

    def constant_rate(self) -> bool:
        return self.drop_every == 0

    def rate_at(self, step: Any) -> Any:
        drops = step // self.drop_every if self.drop_every else 0
        try:
            return self.rate / self.drop_by**drops
        except OverflowError:  # a number beyond 1e308; a tensor is infinite then
            return 0.0 * self.rate

    def update(
        self, params: Params, gradient: Params, moments: Params, step: float, count: int
    ) -> None:
        length = _columns(-self.rate_at(int(step)), gradient)
        for name, part in gradient.items():
            params[name].addcmul_(part, length[part.ndim])


class MiniBatches(Training):
    """Training in epochs: a step goes through all training points once, in mini-batches and in a new order."""

    in_steps: ClassVar[tuple[str, ...]] = ("epochs", "warm_up")

    batch: Count = 128
    """most points of an update; the mini-batches of an epoch are of equal size, up to one point"""
    epochs: Count
    """a run that has not converged by then ends with status `step_cap`"""
    schedule: Schedule = "cosine"
    """of the rate: constant; half a cosine down to 0; divided by ten after half and three quarters of it"""
    warm_up: NonNegative = 0.0
    """epochs in which the rate rises from 0"""

    def most_steps(self) -> int:
        return self.epochs

    def constant_rate(self) -> bool:
        return self.schedule == "constant" and not self.warm_up

    def batches_per_epoch(self, samples: int) -> int:
        return math.ceil(samples / self.batch)

    def rate_at(self, step: Any) -> Any:
        way = step / self.epochs
        share = {
            "constant": 1.0,
            "cosine": 0.5 * (1 + math.cos(math.pi * min(way, 1.0))),
            "drops": 10.0 ** -((way >= 0.5) + (way >= 0.75)),
        }[self.schedule]
        rising = min(1.0, step / self.warm_up) if self.warm_up else 1.0
        return self.rate * share * rising


class SGD(MiniBatches):
    """Stochastic gradient descent with momentum: m <- momentum m + g + weight_decay w, w <- w - rate m.

    >>> import benign as bo
    >>> bo.SGD(rate=0.1, epochs=30, batch=100).batches_per_epoch(samples=1000)
    10
    """

    momentum: NonNegative = 0.9
    """share of the last move that stays"""
    weight_decay: NonNegative = 0.0
    """multiple of the weights that is added to their gradient (Li: 5e-4)"""

    def moments(self, params: Params) -> Params:
        return {name: torch.zeros_like(part) for name, part in params.items()}

    def update(
        self, params: Params, gradient: Params, moments: Params, step: float, count: int
    ) -> None:
        length = _columns(-self.rate_at(step), gradient)
        weights, moved = ([parts[name] for name in gradient] for parts in (params, moments))
        # A few kernels for all parameters: one for each took 1.1 of 9.5 ms of an update of ResNet-18 (H200, tf32).
        torch._foreach_mul_(moved, self.momentum)
        torch._foreach_add_(moved, [*gradient.values()])
        torch._foreach_add_(moved, weights, alpha=self.weight_decay)
        torch._foreach_addcmul_(weights, moved, [length[part.ndim] for part in moved])


class AdamW(MiniBatches):
    """Adam of Kingma and Ba with decoupled weight decay (Loshchilov and Hutter 2019).

    >>> import benign as bo
    >>> bo.AdamW(rate=1e-3, epochs=10).rate_at(5)
    0.0005
    """

    weight_decay: NonNegative = 0.0
    """multiple of the weights that a step of rate 1 takes off them"""
    mean_decay: NonNegative = 0.9
    """beta_1, of the mean of gradients"""
    square_decay: NonNegative = 0.999
    """beta_2, of the mean of their squares"""

    def moments(self, params: Params) -> Params:
        return {
            f"{name}/{kind}": torch.zeros_like(part)
            for name, part in params.items()
            for kind in MOMENTS
        }

    def update(
        self, params: Params, gradient: Params, moments: Params, step: float, count: int
    ) -> None:
        first, second = (1 - decay ** (count + 1) for decay in (self.mean_decay, self.square_decay))
        length = _columns(-self.rate_at(step), gradient)
        kept = {axes: 1 + each * self.weight_decay for axes, each in length.items()}
        moved_by = {axes: each / first for axes, each in length.items()}
        weights, parts = [params[name] for name in gradient], [*gradient.values()]
        mean, square = ([moments[f"{name}/{kind}"] for name in gradient] for kind in MOMENTS)
        torch._foreach_lerp_(mean, parts, 1 - self.mean_decay)
        torch._foreach_mul_(square, self.square_decay)
        torch._foreach_addcmul_(square, parts, parts, 1 - self.square_decay)
        size = torch._foreach_div(square, second)
        torch._foreach_sqrt_(size)
        torch._foreach_add_(size, 1e-8)
        torch._foreach_mul_(weights, [kept[part.ndim] for part in parts])
        moved = torch._foreach_div(mean, size)
        torch._foreach_addcmul_(weights, moved, [moved_by[part.ndim] for part in parts])


def _columns(value: Any, gradient: Params) -> dict[int, Tensor]:
    """Return a number of each run as tensors that multiply the parts of a gradient, by their number of axes."""
    parts = {part.ndim: part for part in gradient.values()}
    return {axes: column(value, part) for axes, part in parts.items()}


def gradient_descent_at_one_rate(training: Training) -> bool:
    """Return whether it is plain gradient descent at a constant rate, the subject of the theorems."""
    return has_guarantee(training, "plain_update") and training.constant_rate()
