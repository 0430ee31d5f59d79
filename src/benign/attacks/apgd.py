"""APGD, projected ascent that sets its own step (Croce and Hein 2020), and its form for l1 balls (2021)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benign.attacks.attack import Attack, BestSoFar, Delta, Points, Target, replace_points
from benign.attacks.balls import Ball
from benign.attacks.gram import space_for
from benign.attacks.losses import AttackLoss, check_loss, slope, value
from benign.attacks.space import PerturbationSpace, start_stream
from benign.data.model import DataModel
from benign.losses import margin
from benign.spec.base import Count
from benign.spec.registry import guarantees

MOMENTUM = 0.75
"""share of the new step; the rest is the last step"""
RISING = 0.75
"""least share of steps that must raise the loss between two checkpoints"""
FIRST_SHARE = 0.2
"""share of the coordinates that the first steps in an l1 ball move"""
SPARSER = 1.5
"""factor by which the number of moved coordinates and the step are reduced in an l1 ball"""
SMALLEST_STEP = 0.1
"""smallest step in an l1 ball, as a share of the radius"""

Values = Float[Tensor, "runs samples"]


@guarantees("rotation_invariant", "ball_starts", "separate_points")
class APGD(Attack):
    """Ascent with momentum: x' = P(x + 0.75 (P(x + s d) - x) + 0.25 (x - x_before)), P the projection.

    d is the steepest direction and the first step s is twice the radius. At each checkpoint, a point whose loss rose
    in fewer than 75 % of the steps halves s and returns to its best iterate (Croce and Hein 2020, Algorithm 1). In an
    l1 ball the steps are sparse instead, with a share of coordinates that follows the best iterate (Croce and Hein
    2021; they also shrink the ball from three times its radius, which was not stronger at 25, 50 or 100 steps on the
    images of our tests). One full steepest step from the start is tried as well: for a linear network it is the
    worst case. For every point the iterate of smallest margin is returned.

    >>> import benign as bo
    >>> bo.APGD(ball=bo.Ball(radius=0.1), restarts=3).passes()  # forward passes of one attack
    309
    """

    ball: Ball
    """the ball that attacked points stay in"""
    steps: Count = 50
    """steps of an ascent"""
    loss: AttackLoss = "margin"
    """the function that is ascended"""
    start: Literal["zero", "uniform"] = "zero"
    """start of the first ascent: the clean point, or uniform in the ball; further ascents start uniform in the ball"""
    restarts: Count = 1
    """number of ascents"""

    def check(self) -> None:
        if self.ball.p == 0:
            raise ValueError("`ball.p` must be 1, 2 or inf for `apgd`, got 0: use `pgd`")

    def check_against(self, data: DataModel) -> None:
        self.ball.check_against(data)
        check_loss(self.loss, data)

    def threat(self) -> Ball:
        return self.ball

    def passes(self) -> int:
        return self.restarts * (2 * self.steps + 3)

    def recordable(self) -> bool:
        return self.ball.recordable() and self.start == "zero" and self.restarts == 1

    def stored_perturbations(self) -> int:
        # Two iterates, memory for a third, the best, their directions, the full step, the worst of all, passes.
        return 11

    def perturb(self, target: Target) -> Points:
        space = space_for(target, self.ball, self.steps)
        best = BestSoFar(target.x)
        for restart in range(self.restarts):
            worst = self._ascend(space, start_stream(self.start, restart))
            best.update(space.points(worst.points), worst.margins)
        return best.points

    def _ascend(self, space: PerturbationSpace, draw: str | None) -> BestSoFar:
        objective = _Objective(self, space)
        here = objective(space.begin(draw))
        # From the clean point the first step ends there too, unless a box cuts it off or steps are sparse.
        leads_there = draw is None and self.ball.p != 1 and self.ball.box is None
        edge = None if leads_there else _edge(space, here.ascent_direction)
        best = (_sparse if self.ball.p == 1 else _with_momentum)(self, objective, here)
        # With this loss the iterate of largest loss is that of smallest margin: it is kept once.
        found = objective.found or BestSoFar(best.delta, -best.value)
        if edge is not None:
            found.update(edge, margin(space.run(edge).outputs, space.y))
        return found


def _edge(space: PerturbationSpace, ascent_direction: Delta) -> Delta:
    """Return one full step from the middle of the ball along this direction."""
    return space.project(space.steepest(ascent_direction.clone()).mul_(space.radius))


@dataclass
class _Iterate:
    """A perturbation of every point, with its value and the ascent direction there.

    With p = 1 the direction is the gradient, from which sparse steps are made.
    """

    delta: Delta
    value: Values
    ascent_direction: Delta

    def copy(self) -> "_Iterate":
        return _Iterate(self.delta.clone(), self.value.clone(), self.ascent_direction.clone())

    def replace(self, other: "_Iterate", chosen: Bool[Tensor, "runs samples"]) -> None:
        """Take the other iterate at the chosen points, in place."""
        replace_points(self.delta, other.delta, chosen)
        replace_points(self.ascent_direction, other.ascent_direction, chosen)
        torch.where(chosen, other.value, self.value, out=self.value)

    def keep_better(self, other: "_Iterate") -> None:
        self.replace(other, (other.value > self.value) | self.value.isnan())


class _Objective:
    """The attack's loss as a function of the perturbation.

    found: the perturbations of smallest margin; None if these are the ones of largest loss.
    """

    def __init__(self, attack: APGD, space: PerturbationSpace):
        self.attack, self.space = attack, space
        self.found: BestSoFar | None = None

    def __call__(self, delta: Delta) -> _Iterate:
        """Evaluate the perturbation; the next call may overwrite the ascent direction."""
        space, loss = self.space, self.attack.loss
        if self.attack.ball.p == 1:
            here = space.run(delta)
            outputs = here.outputs
            ascent_direction = here.inputs_gradient(slope(loss, outputs, space.y)).contiguous()
        else:
            outputs, ascent_direction = space.evaluate(delta, loss)
        if loss != "margin":
            self.found = self.found or BestSoFar(delta.clone())
            self.found.update(delta, margin(outputs, space.y))
        return _Iterate(delta, value(loss, outputs, space.y), ascent_direction)


def _with_momentum(attack: APGD, objective: _Objective, here: _Iterate) -> _Iterate:
    """Ascend in an l2 or linf ball and return the best iterate."""
    space, best = objective.space, here.copy()
    step = (2 * space.radius).expand(*space.y.shape, 1, 1)
    rises, last_step, last_best = torch.zeros_like(here.value), step, here.value.clone()
    checkpoints = dict(_checkpoints(attack.steps))
    before = spare = None  # the last perturbation, and memory for the next
    for number in range(1, attack.steps + 1):
        new = space.momentum_step(
            here.delta, before, here.ascent_direction, step, MOMENTUM, out=spare
        )
        before, spare, old = here.delta, before, here.value
        here = objective(new)
        rises += here.value > old
        best.keep_better(here)
        if number in checkpoints:
            unchanged = (step == last_step)[:, :, 0, 0] & (best.value <= last_best)
            stuck = (rises < RISING * checkpoints[number]) | unchanged
            last_step, last_best, rises = step, best.value.clone(), torch.zeros_like(rises)
            step = torch.where(stuck[:, :, None, None], step / 2, step)
            here.replace(best, stuck)
            replace_points(before, here.delta, stuck)
    return best


def _checkpoints(steps: int) -> Iterator[tuple[int, int]]:
    """Yield the steps at which progress is checked, each with the number of steps since the last check.

    The first comes after 22 % of the steps; every period is 3 % of the steps shorter than the one
    before, but never below 6 %.
    """
    before, here, period = 0, 0.22, 0.22
    while (number := math.ceil(round(here * steps, 6))) <= steps:
        if number > before:
            yield number, number - before
        before, period = number, max(period - 0.03, 0.06)
        here += period


def _sparse(attack: APGD, objective: _Objective, here: _Iterate) -> _Iterate:
    """Ascend in an l1 ball and return the best iterate."""
    ball, space, radius = attack.ball, objective.space, objective.space.radius
    size = here.delta[0, 0].numel()
    share = torch.full_like(here.value, FIRST_SHARE)
    step = radius.expand(*space.y.shape, 1, 1)
    best, moved_before = here.copy(), torch.ones_like(here.value)
    period = max(1, int(0.04 * attack.steps))
    for number in range(1, attack.steps + 1):
        ascent_direction = ball.sparse_direction(here.ascent_direction, share)
        here = objective(space.project(here.delta + step * ascent_direction))
        best.keep_better(here)
        if number % period == 0:
            moved = best.delta.count_nonzero((2, 3)) / size
            sparser = moved < 0.95 * moved_before
            share, moved_before = moved / SPARSER, moved
            step = torch.where(sparser[:, :, None, None], radius, step / SPARSER)
            step = torch.maximum(step, SMALLEST_STEP * radius)
            here.replace(best, sparser)
    return best
