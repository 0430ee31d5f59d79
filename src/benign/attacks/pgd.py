"""Projected gradient ascent inside a ball."""

from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.ground import Delta, PerturbationSpace, first_draw
from benign.attacks.losses import AttackLoss, check_loss
from benign.attacks.products import ground_of
from benign.attacks.worst import BestSoFar
from benign.data.model import DataModel
from benign.losses import margin
from benign.networks.network import Pass
from benign.spec.base import Count, Positive

Wrong = Bool[Tensor, "runs samples"]


class PGD(Attack):
    """Steps along the steepest direction, each followed by a projection (Zhang section 6: 20 steps
    of 0.2 tau).

    It ascends -y f by default: at interpolation the gradient of the cross-entropy underflows to
    zero and fakes robustness.

    >>> import benign as bo
    >>> attack = bo.PGD(ball=bo.Ball(radius=0.05, relative_to="signal"), steps=20)
    >>> attack.passes(), attack.loss
    (40, 'margin')
    """

    ball: Ball
    """where attacked points stay"""
    steps: Count = 20
    """steps of a climb"""
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
        ground = ground_of(target, self.ball, self.steps)
        return self._best(ground) if self._keeps_best else ground.points(self._last(ground))

    def training_pass(self, target: Target) -> tuple[Points, Pass]:
        if self._keeps_best:
            return super().training_pass(target)
        ground = ground_of(target, self.ball, self.steps)
        return ground.finish(self._last(ground))

    def _last(self, ground: PerturbationSpace) -> Delta:
        """The perturbation at which the one climb ends."""
        first, length = ground.begin(first_draw(self.start, 0)), self._length(ground)
        if not self.stop_when_wrong:
            return ground.ascend(first, self.loss, length, self.steps)
        nowhere = torch.zeros_like(ground.y, dtype=torch.bool)
        return self._climb(ground, first, length, nowhere)

    def _best(self, ground: PerturbationSpace) -> Points:
        """For every point the worst of all climbs."""
        worst, length = BestSoFar(ground.target.x), self._length(ground)
        for restart in range(self.restarts):
            first = ground.begin(first_draw(self.start, restart))
            tries = BestSoFar(torch.zeros_like(first))
            self._climb(ground, first, length, worst.margins <= 0, tries)
            worst.update(ground.points(tries.points), tries.margins)
        return worst.points

    def _length(self, ground: PerturbationSpace) -> Units:
        return self.step * self.ball.step_unit(ground.radius)

    def _climb(
        self,
        ground: PerturbationSpace,
        delta: Delta,
        length: Units,
        wrong: Wrong,
        worst: BestSoFar | None = None,
    ) -> Delta:
        """The last perturbation; `worst` is offered every one."""
        for _ in range(self.steps):
            outputs, ascent_direction = ground.look(delta, self.loss)
            margins = margin(outputs, ground.y)
            if worst:
                worst.update(delta, margins)
            wrong = wrong | (margins <= 0)
            if self.stop_when_wrong and wrong.all():
                return delta
            before = delta.clone() if self.stop_when_wrong else delta
            delta = ground.move(delta, ascent_direction, length, out=delta)
            if self.stop_when_wrong:
                delta = torch.where(wrong[:, :, None, None], before, delta)
        if worst:
            worst.update(delta, margin(ground.run(delta).outputs, ground.y))
        return delta

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

    def recordable(self) -> bool:
        draws = self.start == "uniform" or self.restarts > 1
        return self.ball.recordable() and not (draws or self.stop_when_wrong)

    def held(self) -> int:
        return 3 + 3 * self._keeps_best + self.stop_when_wrong
