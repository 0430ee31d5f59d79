"""The set an adversary may move in."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from benign.axes import PerRun
from benign.data.model import DataModel
from benign.spec import NonNegative, Spec


class Ball(Spec):
    """Perturbations of l2 norm at most the radius, of every token (Zhang) or of the whole point."""

    p: Literal[2] = 2
    """norm of the ball"""
    radius: PerRun[NonNegative]
    """tau, or tau / |mu| when relative to the signal"""
    relative_to: Literal["signal"] | None = None
    """what the radius is measured by"""
    per: Literal["token", "sample"] = "token"
    """every token has its own ball, or all tokens of a point share one"""

    def size(self, data: DataModel) -> Any:
        """The radius in the units of the data, a number or a tensor [runs]."""
        return self.radius * data.signal_norm() if self.relative_to == "signal" else self.radius

    def norm(self, delta: Float[Tensor, "runs samples tokens dim"]) -> Tensor:
        """Norm of each unit (token or point), with sizes kept for broadcasting."""
        axes = -1 if self.per == "token" else (-2, -1)
        return torch.linalg.vector_norm(delta, dim=axes, keepdim=True)

    def steepest(self, gradient: Tensor) -> Tensor:
        """The direction of unit norm along which a linear function rises fastest; zero stays zero.

        Scaled first: the squares of a saturated loss's gradient underflow before the gradient does.
        """
        axes = (-1,) if self.per == "token" else (-2, -1)
        largest = gradient.abs().amax(axes, keepdim=True)
        scaled = gradient / largest.clamp_min(_tiny(gradient))
        return scaled.div_(self.norm(scaled).clamp_min_(_tiny(gradient)))

    def project(self, delta: Tensor, radius: Float[Tensor, " runs"]) -> Tensor:
        """The nearest point of the ball, in place."""
        size = self.norm(delta).clamp_min_(_tiny(delta))
        return delta.mul_((radius[:, None, None, None] / size).clamp_max_(1))


def _tiny(tensor: Tensor) -> float:
    return torch.finfo(tensor.dtype).tiny
