"""Projected ascent that sets its own step: APGD of Croce and Hein (2020), and its form for l1 balls (2021)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.losses import AttackLoss, check_loss, slope, value
from benign.attacks.worst import Worst
from benign.data.model import DataModel
from benign.losses import margin
from benign.spec import Count

MOMENTUM = 0.75
"""share of the new step; the rest is the step before"""
RISING = 0.75
"""least share of steps that must raise the loss between two checkpoints"""
FIRST_SHARE = 0.2
"""share of the coordinates that the first steps in an l1 ball move"""
SPARSER = 1.5
"""by which the moved coordinates and the step fall in an l1 ball"""
SMALLEST_STEP = 0.1
"""in an l1 ball, as a share of the radius"""

PerPoint = Float[Tensor, "runs samples"]


class APGD(Attack):
    """Ascent with momentum; a point whose loss rises too rarely halves its step and returns to its best place.

    The first step is twice the radius. In an l1 ball the steps are sparse, with a share of
    coordinates that follows the best place found. (The authors also shrink that ball from three
    times its radius; on the images of our tests this was not stronger at 25, 50 or 100 steps.)
    One full steepest step from the start is tried as well: where the network is linear it is the
    worst case. For every point the place of smallest margin is returned, the clean one included.
    """

    ball: Ball
    steps: Count = 50
    loss: AttackLoss = "margin"
    """what is ascended"""
    start: Literal["zero", "uniform"] = "zero"
    """where the first ascent starts: at the clean point, or anywhere in the ball; the others start anywhere"""
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

    def perturb(self, target: Target) -> Points:
        worst = Worst(target.x)
        radius = self.ball.radii(target.data, target.x)
        for restart in range(self.restarts):
            delta = torch.zeros_like(target.x)
            if restart or self.start == "uniform":
                delta = target.uniform(self.ball, radius, f"start/{restart}")
            self._ascend(target, delta, radius, worst)
        return worst.points

    def _ascend(self, target: Target, delta: Points, radius: Units, worst: Worst) -> None:
        look = _Look(self, target, worst)
        here = look(delta)
        edge = radius * self.ball.steepest(here.gradient.clone())
        look(self.ball.project(edge, radius, target.x))
        climb = _sparse if self.ball.p == 1 else _with_momentum
        climb(self, look, here, radius)


@dataclass(frozen=True)
class _Place:
    """A perturbation of every point, with what is ascended there and its gradient."""

    delta: Points
    value: PerPoint
    gradient: Points

    def better_of(self, other: "_Place") -> "_Place":
        return self.where(self.value >= other.value, other)

    def where(self, keep: Bool[Tensor, "runs samples"], other: "_Place") -> "_Place":
        """This place where `keep` says so, the other elsewhere."""
        wide = keep[:, :, None, None]
        return _Place(
            torch.where(wide, self.delta, other.delta),
            torch.where(keep, self.value, other.value),
            torch.where(wide, self.gradient, other.gradient),
        )


class _Look:
    """Sees what a perturbation does, and remembers the worst."""

    def __init__(self, attack: APGD, target: Target, worst: Worst):
        self.attack, self.target, self.worst = attack, target, worst

    def __call__(self, delta: Points) -> _Place:
        points = self.attack.ball.points(self.target.x, delta)
        seen, y, loss = self.target.run(points), self.target.y, self.attack.loss
        self.worst.offer(points, margin(seen.outputs, y))
        gradient = seen.inputs_gradient(slope(loss, seen.outputs, y))
        return _Place(delta, value(loss, seen.outputs, y), gradient)


def _with_momentum(attack: APGD, look: _Look, here: _Place, radius: Units) -> None:
    """The ascent in l2 and linf balls."""
    ball, x = attack.ball, look.target.x
    step = (2 * radius).expand(*x.shape[:2], 1, 1)
    best, before = here, here.delta
    rises, last_step, last_best = torch.zeros_like(here.value), step, here.value
    marks = dict(_checkpoints(attack.steps))
    for number in range(1, attack.steps + 1):
        new = ball.project(here.delta + step * ball.steepest(here.gradient.clone()), radius, x)
        if number > 1:
            new = (
                here.delta + MOMENTUM * (new - here.delta) + (1 - MOMENTUM) * (here.delta - before)
            )
            new = ball.project(new, radius, x)
        before, old = here.delta, here.value
        here = look(new)
        rises += here.value > old
        best = best.better_of(here)
        if number in marks:
            unchanged = (step == last_step)[:, :, 0, 0] & (best.value <= last_best)
            stuck = (rises < RISING * marks[number]) | unchanged
            last_step, last_best, rises = step, best.value, torch.zeros_like(rises)
            step = torch.where(stuck[:, :, None, None], step / 2, step)
            here = best.where(stuck, here)
            before = torch.where(stuck[:, :, None, None], here.delta, before)


def _checkpoints(steps: int) -> Iterator[tuple[int, int]]:
    """The steps at which progress is judged, each with the number of steps since the one before.

    The first comes after 22 % of the steps; every period is 3 % of the steps shorter than the one
    before, but never below 6 %.
    """
    before, here, period = 0, 0.22, 0.22
    while (number := math.ceil(round(here * steps, 6))) <= steps:
        if number > before:
            yield number, number - before
        before, period = number, max(period - 0.03, 0.06)
        here += period


def _sparse(attack: APGD, look: _Look, here: _Place, radius: Units) -> None:
    """The ascent in an l1 ball."""
    ball, x = attack.ball, look.target.x
    size = x[0, 0].numel()
    share = torch.full_like(here.value, FIRST_SHARE)
    step = radius.expand(*x.shape[:2], 1, 1)
    best, moved_before = here, torch.ones_like(here.value)
    period = max(1, int(0.04 * attack.steps))
    for number in range(1, attack.steps + 1):
        rise = ball.sparse_direction(here.gradient, share)
        here = look(ball.project(here.delta + step * rise, radius, x))
        best = best.better_of(here)
        if number % period == 0:
            moved = best.delta.count_nonzero((2, 3)) / size
            sparser = moved < 0.95 * moved_before
            share, moved_before = moved / SPARSER, moved
            step = torch.where(sparser[:, :, None, None], radius, step / SPARSER)
            step = torch.maximum(step, SMALLEST_STEP * radius)
            here = best.where(sparser, here)
