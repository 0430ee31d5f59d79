"""Attacks in balls of several norms: the worst of them, all of them, or the steepest norm of every step."""

from typing import Literal

import torch
from torch import Tensor

from benign.attacks.attack import Attack, BestSoFar, Delta, Points, Target
from benign.attacks.balls import Ball, Balls
from benign.attacks.losses import AttackLoss, check_loss, slope, value
from benign.attacks.pgd import PGD
from benign.attacks.space import PerturbationSpace
from benign.data.model import DataModel
from benign.losses import margin
from benign.spec.base import Count, Positive


class MultiNorm(Attack):
    """Projected ascent in several balls. `combine` says which points are returned:

    - `worst`: for every point the attacked point of smallest margin (the max strategy of Tramer and Boneh).
    - `average`: all attacked points, ball after ball; the training loss is then their mean, and so is
      robust accuracy.
    - `steepest`: one ascent, in which every step uses, for every point, the ball whose step and
      projection raise the loss most (MSD of Maini et al.); the iterate of smallest margin is returned.

    >>> import benign as bo
    >>> bo.MultiNorm(balls=bo.Balls(radius=0.1), combine="worst").passes()
    123
    """

    balls: Balls
    """the balls"""
    combine: Literal["worst", "average", "steepest"] = "worst"
    """which of the balls' points are returned"""
    steps: Count = 20
    """steps of an ascent"""
    step: Positive = 0.2
    """length of a step as a share of the radius"""
    loss: AttackLoss = "margin"
    """the function that is ascended"""

    def check_against(self, data: DataModel) -> None:
        for ball in self.balls.each():
            ball.check_against(data)
        check_loss(self.loss, data)

    def threat(self) -> Balls:
        return self.balls

    def passes(self) -> int:
        in_one_ball = (3 if self.combine == "steepest" else 2) * self.steps + 1
        return in_one_ball * len(self.balls.each())

    def stored_perturbations(self) -> int:
        return 3 + 2 * len(self.balls.each())

    def perturb(self, target: Target) -> Points:
        if self.combine == "steepest":
            return self._steepest(target)
        sets = [self._pgd(ball).perturb(target) for ball in self.balls.each()]
        if self.combine == "average":
            return torch.cat(sets, dim=1)
        best = BestSoFar(target.x)
        for points in sets:
            best.update(points, margin(target.run(points).outputs, target.y))
        return best.points

    def _pgd(self, ball: Ball) -> PGD:
        keep = "best" if self.combine == "worst" else "last"
        return PGD(ball=ball, steps=self.steps, step=self.step, loss=self.loss, keep=keep)

    def _steepest(self, target: Target) -> Points:
        spaces = [PerturbationSpace(target, ball) for ball in self.balls.each()]
        first = spaces[0]  # points and outputs are the same in all
        best, delta = BestSoFar(target.x), torch.zeros_like(target.x)
        here = target.run(target.x)
        best.update(target.x, margin(here.outputs, target.y))
        for _ in range(self.steps):
            gradient = here.inputs_gradient(slope(self.loss, here.outputs, target.y))
            delta = _highest([self._step(space, delta, gradient) for space in spaces])
            points = first.points(delta)
            here = target.run(points)
            best.update(points, margin(here.outputs, target.y))
        return best.points

    def _step(
        self, space: PerturbationSpace, delta: Delta, gradient: Delta
    ) -> tuple[Delta, Tensor]:
        """Return the perturbation after a step in one ball, and its value."""
        ascent_direction = space.steepest(gradient.clone())
        new = space.project(delta + self.step * space.radius * ascent_direction)
        return new, value(self.loss, space.target.run(space.points(new)).outputs, space.y)


def _highest(tries: list[tuple[Delta, Tensor]]) -> Delta:
    """Return the perturbation of highest value, for every point."""
    best, height = tries[0]
    for delta, reached in tries[1:]:
        higher = reached > height
        best = torch.where(higher[:, :, None, None], delta, best)
        height = torch.where(higher, reached, height)
    return best
