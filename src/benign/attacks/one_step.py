"""One clipped ascent step, the training attack of Li et al."""

from typing import Literal

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball
from benign.data.model import DataModel, column
from benign.losses import loss_slope, margin_slope
from benign.spec.axes import PerRun, default, replace
from benign.spec.base import NonNegative, Positive


class OneStep(Attack):
    """X + clip(rate * gradient, -clip, clip), element by element, from the clean point (papers/li.md 1.7).

    The gradient is that of a point's own loss and is not normalised, so its scale matters. The
    gradient of the mean loss over N points is the same with rate / N. With a `ball` instead of a
    `clip`, the step is projected on it; clipping is the projection on the linf ball.

    >>> import benign as bo
    >>> bo.OneStep(rate=10.0, clip=0.5).threat().label()
    'ball(p=inf, radius=0.5, per=sample)'
    """

    rate: PerRun[Positive]
    """eta~, the length of the step before it is clipped"""
    clip: PerRun[NonNegative | None] = default(None)
    """eps: no coordinate moves by more"""
    ball: Ball | None = None
    """ball on which the step is projected, instead of `clip`"""
    loss: Literal["own", "margin", "cross_entropy"] = "own"
    """the function that is ascended: -F_y (Li), minus the margin, or the loss"""

    def check(self) -> None:
        if (self.clip is None) == (self.ball is None):
            both = "neither" if self.clip is None else "both"
            raise ValueError(f"`clip` and `ball`: give exactly one of them, got {both}")

    def check_against(self, data: DataModel) -> None:
        self.threat().check_against(data)

    def perturb(self, target: Target) -> Points:
        x, ball = target.x, self.threat()
        ascent_direction = self._gradient(target).contiguous().mul_(-column(self.rate, x))
        delta = ball.project(ascent_direction, ball.radii(target.data, x), x)
        return ball.points(x, delta, out=delta)

    def _gradient(self, target: Target) -> Points:
        """Return minus the gradient of the ascended function."""
        network, params, x, y = target.network, target.params, target.x, target.y
        if self.loss == "own":
            return network.own_gradient(params, x, x, y)
        here = target.run(x)
        if self.loss == "margin":
            return here.inputs_gradient(margin_slope(here.outputs, y))
        return here.inputs_gradient(-loss_slope(here.outputs, y))

    def threat(self) -> Ball:
        if self.ball is not None:
            return self.ball
        # The clip may be a tensor [runs] here, which a new specification would refuse.
        return replace(Ball(p="inf", radius=0.0, per="sample"), {("radius",): self.clip})

    def passes(self) -> int:
        return 2

    def recordable(self) -> bool:
        return self.threat().recordable()
