"""One clipped ascent step, the training attack of Li et al."""

from typing import Literal

from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball
from benign.axes import PerRun, replace
from benign.data.model import DataModel, column
from benign.losses import loss_slope, margin_slope, own_slope
from benign.spec import NonNegative, Positive


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
    clip: PerRun[NonNegative | None] = None
    """eps: no coordinate moves by more"""
    ball: Ball | None = None
    """where the step must end, instead of `clip`"""
    loss: Literal["own", "margin", "cross_entropy"] = "own"
    """what is ascended: -F_y (Li), minus the margin, or the loss"""

    def check(self) -> None:
        if (self.clip is None) == (self.ball is None):
            both = "neither" if self.clip is None else "both"
            raise ValueError(f"`clip` and `ball`: give exactly one of them, got {both}")

    def check_against(self, data: DataModel) -> None:
        self.threat().check_against(data)

    def perturb(self, target: Target) -> Points:
        x, ball = target.x, self.threat()
        here = target.run(x)
        rise = here.inputs_gradient(self._slope(here.outputs, target.y)) * column(self.rate, x)
        return ball.points(x, ball.project(rise, ball.radii(target.data, x), x))

    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Derivative of the ascended loss in the outputs."""
        if self.loss == "own":
            return -own_slope(outputs, y)
        return -margin_slope(outputs, y) if self.loss == "margin" else loss_slope(outputs, y)

    def threat(self) -> Ball:
        if self.ball is not None:
            return self.ball
        # The clip may be a tensor [runs] here, which a new specification would refuse.
        return replace(Ball(p="inf", radius=0.0, per="sample"), {("radius",): self.clip})

    def passes(self) -> int:
        return 2
