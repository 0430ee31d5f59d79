"""Projected gradient ascent inside a ball."""

from typing import Literal

import torch

from benign.attacks.attack import Attack, BestSoFar, Delta, Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.gram import space_for
from benign.attacks.losses import AttackLoss, check_loss
from benign.attacks.space import PerturbationSpace, start_stream
from benign.data.model import DataModel
from benign.networks.network import Pass
from benign.spec.base import Count, Positive
from benign.spec.registry import guarantees


@guarantees("rotation_invariant", "ball_starts", "separate_points")
class PGD(Attack):
    """Projected gradient ascent: delta' = P(delta + s d), d the steepest direction and P the projection on the ball.

    Madry et al. (2018); Zhang section 6 has 20 steps of s = 0.2 tau. The ascended function is -y f by default: at
    interpolation the gradient of the cross-entropy underflows to zero and fakes robustness.

    >>> import benign as bo
    >>> attack = bo.PGD(ball=bo.Ball(radius=0.05, relative_to="signal"), steps=20)
    >>> attack.passes(), attack.loss
    (40, 'margin')
    """

    ball: Ball
    """the ball that attacked points stay in"""
    steps: Count = 20
    """steps of an ascent"""
    step: Positive = 0.2
    """length of a step as a share of the radius; with p = 0 of the width of the box, or the length itself"""
    loss: AttackLoss = "margin"
    """the function that is ascended: -y f, log(1 + exp(-y f)), or with three classes the difference of logits ratio"""
    start: Literal["zero", "uniform"] = "zero"
    """the unperturbed point, or a uniform point of the ball"""
    restarts: Count = 1
    """number of ascents; all but the first start at a uniform point of the ball"""
    keep: Literal["last", "best"] = "last"
    """the iterate returned for each point: the last one, or the one of smallest margin of all restarts; with several
    restarts always the latter"""
    stop_when_wrong: bool = False
    """an attacked point that is classified wrongly stays where it is, in later restarts as well"""

    def perturb(self, target: Target) -> Points:
        space = space_for(target, self.ball, self.steps)
        return self._best(space) if self._keeps_best else space.points(self._last(space))

    def training_pass(self, target: Target) -> tuple[Points, Pass]:
        if self._keeps_best:
            return super().training_pass(target)
        space = space_for(target, self.ball, self.steps)
        return space.finish(self._last(space))

    def _last(self, space: PerturbationSpace) -> Delta:
        """Return the last iterate of the one ascent."""
        first, length = space.begin(start_stream(self.start, 0)), self._length(space)
        wrong = torch.zeros_like(space.y, dtype=torch.bool) if self.stop_when_wrong else None
        return space.ascend(first, self.loss, length, self.steps, wrong=wrong)

    def _best(self, space: PerturbationSpace) -> Points:
        """Return the worst point of all ascents, for every point."""
        best, length = BestSoFar(space.target.x), self._length(space)
        for restart in range(self.restarts):
            first = space.begin(start_stream(self.start, restart))
            worst = BestSoFar(torch.zeros_like(first))
            wrong = best.margins <= 0 if self.stop_when_wrong else None
            space.ascend(first, self.loss, length, self.steps, best=worst, wrong=wrong)
            best.update(space.points(worst.points), worst.margins)
        return best.points

    def _length(self, space: PerturbationSpace) -> Units:
        return self.step * self.ball.step_unit(space.radius)

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

    def stored_perturbations(self) -> int:
        return 3 + 3 * self._keeps_best + self.stop_when_wrong
