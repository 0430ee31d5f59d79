"""Projected gradient ascent inside a ball."""

from typing import Literal

import torch

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.losses import AttackLoss, check_loss, slope
from benign.attacks.worst import Worst
from benign.data.model import DataModel
from benign.losses import margin
from benign.spec import Count, Positive


class PGD(Attack):
    """Steps along the steepest direction, each followed by a projection (Zhang section 6: 20 steps
    of 0.2 tau).

    It ascends -y f by default: at interpolation the gradient of the cross-entropy underflows to
    zero and fakes robustness.
    """

    ball: Ball
    steps: Count = 20
    step: Positive = 0.2
    """length of a step as a share of the radius; with p = 0 of the width of the box, or the length itself"""
    loss: AttackLoss = "margin"
    """what is ascended: -y f, log(1 + exp(-y f)), or with three classes or more the difference of logits ratio"""
    start: Literal["zero", "uniform"] = "zero"
    """the unperturbed point, or a uniform point of the ball"""
    restarts: Count = 1
    """how often to climb; all climbs but the first start at a uniform point of the ball"""
    keep: Literal["last", "best"] = "last"
    """the point returned: the last iterate, or for each point the one of smallest margin, all starts included;
    several restarts always keep the best"""
    stop_when_wrong: bool = False
    """a point that is classified wrongly stays where it is, in later restarts as well"""

    def perturb(self, target: Target) -> Points:
        radius = self.ball.radii(target.data, target.x)
        worst = Worst(target.x) if self._keeps_best else None
        points = target.x
        for restart in range(self.restarts):
            points = self._climb(target, radius, self._first(target, radius, restart), worst)
        return worst.points if worst else points

    def _first(self, target: Target, radius: Units, restart: int) -> Points:
        """The perturbation a climb starts with."""
        if restart == 0 and self.start == "zero":
            return torch.zeros_like(target.x)
        return target.uniform(self.ball, radius, f"start/{restart}")

    def _climb(self, target: Target, radius: Units, delta: Points, worst: Worst | None) -> Points:
        """The last iterate; `worst` is offered every one."""
        x, y = target.x, target.y
        length = self.step * self.ball.step_unit(radius)
        wrong = worst.margins <= 0 if worst else torch.zeros_like(y, dtype=torch.bool)
        points = torch.empty_like(x)  # one for all steps: fresh memory costs more than the sum
        for _ in range(self.steps):
            here = target.run(self.ball.points(x, delta, out=points))
            margins = margin(here.outputs, y)
            if worst:
                worst.offer(points, margins)
            wrong = wrong | (margins <= 0)
            if self.stop_when_wrong and wrong.all():
                return points
            rise = self.ball.steepest(here.inputs_gradient(slope(self.loss, here.outputs, y)))
            before = delta.clone() if self.stop_when_wrong else delta
            delta += rise.mul_(length)
            delta = self.ball.project(delta, radius, x)
            if self.stop_when_wrong:
                delta = torch.where(wrong[:, :, None, None], before, delta)
        self.ball.points(x, delta, out=points)
        if worst:
            worst.offer(points, margin(target.run(points).outputs, y))
        return points

    @property
    def _keeps_best(self) -> bool:
        return self.keep == "best" or self.restarts > 1

    def check(self) -> None:
        if (
            self.ball.p == 0
            and self.ball.box is None
            and (self.start, self.restarts) != ("zero", 1)
        ):
            raise ValueError(
                f"`start` is {self.start!r} and `restarts` {self.restarts}, but without a box there is no uniform "
                "point with p = 0: give `ball.box`, or start at zero once"
            )

    def check_against(self, data: DataModel) -> None:
        self.ball.check_against(data)
        check_loss(self.loss, data)

    def threat(self) -> Ball:
        return self.ball

    def passes(self) -> int:
        return self.restarts * (2 * self.steps + self._keeps_best)
