"""Projected gradient ascent inside a ball."""

from typing import Literal

import torch
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball
from benign.data.model import DataModel
from benign.losses import loss_slope, margin, margin_slope
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
    """length of a step as a share of the radius"""
    loss: Literal["margin", "cross_entropy"] = "margin"
    """what is ascended: -y f, or log(1 + exp(-y f))"""
    start: Literal["zero"] = "zero"
    """the unperturbed point"""
    keep: Literal["last", "best"] = "last"
    """the point returned: the last iterate, or for each point the one of smallest margin, the start included"""

    def perturb(self, target: Target) -> Points:
        x, y = target.x, target.y
        size = self.ball.size(target.data)
        radius = torch.as_tensor(size, dtype=x.dtype, device=x.device).expand(len(x))
        delta = torch.zeros_like(x)
        best = _Best(x) if self.keep == "best" else None
        for _ in range(self.steps):
            point = x + delta
            here = target.run(point)
            if best:
                best.offer(point, margin(here.outputs, y))
            rise = self.ball.steepest(here.inputs_gradient(self._slope(y, here.outputs)))
            delta += rise.mul_((self.step * radius)[:, None, None, None])
            self.ball.project(delta, radius)
        point = x + delta
        if best:
            best.offer(point, margin(target.run(point).outputs, y))
            return best.point
        return point

    def _slope(self, y: Tensor, outputs: Tensor) -> Tensor:
        """Derivative of the ascended loss in the output."""
        if self.loss == "margin":
            return -margin_slope(outputs, y)
        return loss_slope(outputs, y)

    def check_against(self, data: DataModel) -> None:
        if self.ball.relative_to == "signal" and data.signal_norm() is None:
            raise ValueError(
                f"`ball.relative_to` is 'signal', but `{data.kind}` has no signal norm: "
                "leave it out and give `radius` in the data's units"
            )

    def passes(self) -> int:
        return 2 * self.steps + (self.keep == "best")


class _Best:
    """For every point the attacked one of smallest margin so far."""

    def __init__(self, x: Tensor):
        self.point = x.clone()
        self.margin = torch.full(x.shape[:2], torch.inf, dtype=x.dtype, device=x.device)

    def offer(self, point: Tensor, margin: Tensor) -> None:
        better = margin < self.margin
        self.margin = torch.where(better, margin, self.margin)
        self.point = torch.where(better[:, :, None, None], point, self.point)
