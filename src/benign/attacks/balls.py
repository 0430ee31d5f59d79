"""Balls, the sets an adversary may move in: norm, steepest direction, projection, random points."""

from math import inf
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from pydantic import BeforeValidator, StrictFloat
from torch import Tensor

from benign.attacks.projections import l1_box_sizes, l1_sizes, l2_box_sizes, largest, shrink
from benign.data.model import DataModel, column
from benign.spec.axes import PerRun, Shape, default, replace
from benign.spec.base import Count, NonNegative, Positive, Spec
from benign.streams import Streams

Points = Float[Tensor, "runs samples tokens dim"]
Units = Float[Tensor, "runs #samples #tokens 1"]
"""a number of each unit (token or point), or of all units of a point or a run"""


def _infinity(value: Any) -> Any:
    """Return `inf` for YAML's .inf and Python's infinity, and a word for a truth value, which is not the number 1."""
    if isinstance(value, bool):
        return str(value)
    return "inf" if value in (inf, ".inf") else value


class Ball(Spec):
    """Perturbations of l_p norm at most the radius, of every token (Zhang) or of the whole point.

    A box bounds the attacked points as well. A coordinate that is outside the box from the start may stay there or
    move back.

    >>> import benign as bo
    >>> bo.Ball(radius=0.1).per
    'token'
    >>> bo.Ball(p="inf", radius=8 / 255, per="sample", box=(0.0, 1.0)).box
    (0.0, 1.0)
    """

    p: Shape[Annotated[Literal[0, 1, 2, "inf"], BeforeValidator(_infinity)]] = default(2)
    """norm of the ball; 0 counts the coordinates that move"""
    radius: PerRun[NonNegative]
    """tau, or a share of the length that `relative_to` names; with p = 0 a number of coordinates"""
    relative_to: Literal["signal", "point"] | None = None
    """unit of the radius: |mu|, or the l_p norm of each point (all its tokens)"""
    per: Literal["token", "sample"] = "token"
    """every token has its own ball, or all tokens of a point share one"""
    box: tuple[StrictFloat, StrictFloat] | None = None
    """lowest and highest value of a coordinate of an attacked point"""
    coordinates: Count = 1
    """coordinates that a step with p = 1 moves: 1 is the steepest step, more are often stronger on networks"""

    def check(self) -> None:
        if self.box is not None and not self.box[0] < self.box[1]:
            raise ValueError(
                f"`box` must be [lowest, highest] with lowest < highest, got {[*self.box]}"
            )
        if self.coordinates > 1 and self.p != 1:
            raise ValueError(
                f"`coordinates` is for `p: 1` only, got {self.coordinates} with p = {self.p}: leave it out"
            )
        if self.p != 0:
            return
        if self.radius != int(self.radius):
            raise ValueError(
                f"`radius` counts coordinates when p = 0 and must be whole, got {self.radius}"
            )
        if self.relative_to is not None:
            raise ValueError(
                f"`relative_to` is {self.relative_to!r}, but with p = 0 the radius is no length: leave it out"
            )

    def check_against(self, data: DataModel) -> None:
        """Raise ValueError if the radius cannot be measured on this data."""
        if self.relative_to == "signal" and data.signal_norm() is None:
            raise ValueError(
                f"`ball.relative_to` is 'signal', but `{data.kind}` has no signal norm: "
                "leave it out and give `radius` in the data's units"
            )

    @property
    def is_round(self) -> bool:
        """Whether this is a whole l2 ball: p = 2, and no box cuts anything out. It is then alike in every basis."""
        return self.p == 2 and self.box is None

    def recordable(self) -> bool:
        """Return whether projections are the same operations for all values, so that a GPU can record them."""
        return self.p == "inf" or self.is_round

    def each(self) -> "list[Ball]":
        """Return the one ball; `Balls` has several."""
        return [self]

    def size(self, data: DataModel) -> Any:
        """Return the radius in the units of the data, a number or a tensor [runs]; a share if relative to the point."""
        return self.radius * data.signal_norm() if self.relative_to == "signal" else self.radius

    def radii(self, data: DataModel, x: Points) -> Units:
        """Return the radius around every point."""
        size = column(self.size(data), x).expand(len(x), 1, 1, 1)
        if self.relative_to == "point":
            return size * torch.linalg.vector_norm(x, self._order, dim=(-2, -1), keepdim=True)
        return size

    def step_unit(self, radius: Units) -> Units:
        """Return the unit of step lengths: the radius, or with p = 0 the width of the box, or 1 without a box."""
        if self.p != 0:
            return radius
        return torch.full_like(radius, 1.0 if self.box is None else self.box[1] - self.box[0])

    def norm(self, delta: Points) -> Units:
        """Return the norm of each unit (token or point)."""
        return torch.linalg.vector_norm(delta, self._order, dim=self.unit_axes, keepdim=True)

    def dual_norm(self, gradient: Points) -> Units:
        """Return how much a linear function rises along its steepest direction."""
        if self.p == 0:
            return (self.steepest(gradient.clone()) * gradient).sum(self.unit_axes, keepdim=True)
        dual = {1: inf, 2: 2, "inf": 1}[self.p]
        return torch.linalg.vector_norm(gradient, dual, dim=self.unit_axes, keepdim=True)

    def steepest(self, gradient: Points) -> Points:
        """Return the direction of unit norm along which a linear function rises fastest. May be in place.

        Zero stays zero. With p = 1 the coordinates of the `coordinates` largest slopes move by equal shares; with p = 0
        the radius says how many coordinates move, each by 1.
        """
        if self.p == 2:
            return self._steepest_l2(gradient.contiguous())
        if self.p == "inf":
            return gradient.contiguous().sign_()
        count = self.coordinates if self.p == 1 else self.radius
        count = torch.as_tensor(count, device=gradient.device).reshape(-1, 1, 1, 1)
        return self._along_largest(gradient, count)

    def sparse_direction(self, gradient: Points, share: Float[Tensor, "runs samples"]) -> Points:
        """Return the steepest direction with p = 1 that moves this share of the coordinates of each unit."""
        count = (share * self._units(gradient).shape[-1]).round().clamp_min(1)
        return self._along_largest(gradient, count[:, :, None, None])

    def _along_largest(self, gradient: Tensor, count: Tensor) -> Tensor:
        """Return equal moves along the `count` largest slopes of each unit: 1 each, or with p = 1 norm 1 in all."""
        units = self._units(gradient)
        moves = (units.sign() * largest(units.abs(), count)).reshape(gradient.shape)
        return moves.div_(self.norm(moves).clamp_min_(1)) if self.p == 1 else moves

    def _steepest_l2(self, gradient: Tensor) -> Tensor:
        # Scaled first: the squares of a saturated loss's gradient underflow before the gradient does.
        scaled = gradient.div_(self.largest_size(gradient))
        return scaled.div_(self.norm(scaled).clamp_min_(torch.finfo(gradient.dtype).tiny))

    def largest_size(self, gradient: Points) -> Units:
        """Return the size of the largest coordinate of each unit, never 0, so that it may divide.

        Two reductions take half the time of one over a copy that holds the absolute values.
        """
        highest = gradient.amax(self.unit_axes, keepdim=True)
        lowest = gradient.amin(self.unit_axes, keepdim=True)
        return torch.maximum(highest, lowest.neg_()).clamp_min_(torch.finfo(gradient.dtype).tiny)

    def project(self, delta: Points, radius: Units, x: Points) -> Points:
        """Return the nearest perturbation of x inside the ball and the box. May be in place."""
        if self.is_round:
            return shrink(delta, self.norm(delta), radius)
        if self.p == "inf" and self.box is None:
            return delta.clamp_max_(radius).clamp_min_(-radius)
        low, high = self._limits(x)
        if self.p == "inf":
            return delta.clamp_(torch.maximum(low, -radius), torch.minimum(high, radius))
        units = self._units(delta)
        if self.p == 0:
            nearest = self._sparse(units, radius, self._units(low), self._units(high))
        else:
            limit = None if self.box is None else self._units(torch.where(delta > 0, high, -low))
            nearest = torch.copysign(self._sizes(units.abs(), radius, limit), units)
        return nearest.reshape(delta.shape)

    def _sizes(self, size: Tensor, radius: Tensor, limit: Tensor | None) -> Tensor:
        """Return the sizes of the coordinates of the nearest point, for p = 1 and for p = 2 with a box."""
        if limit is None:
            return l1_sizes(size, radius)
        return (l1_box_sizes if self.p == 1 else l2_box_sizes)(size, limit, radius)

    def _sparse(self, delta: Tensor, radius: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the nearest point of an l0 ball; a coordinate c instead of 0 saves v^2 - (v - c)^2 = c (2v - c)."""
        moved = torch.minimum(torch.maximum(delta, low), high)
        return moved * largest(moved * (2 * delta - moved), radius)

    def uniform(self, streams: Streams, radius: Units, x: Points) -> Points:
        """Return perturbations uniform in the ball, drawn from these streams; with a box, projected on it.

        With p = 0 the coordinates are random, and their attacked values uniform in the box.
        """
        shape, dtype = x.shape[1:], x.dtype
        if self.p == "inf":
            delta = streams("place").uniform(*shape, dtype=dtype).mul_(2).sub_(1).mul_(radius)
        elif self.p == 0:
            delta = self._random_coordinates(streams, radius, x)
        else:
            direction = self._direction(streams, shape, dtype)
            delta = self.filled(streams, radius, direction, x.shape[-1])
        return delta if self.box is None else self.project(delta, radius, x)

    def filled(self, streams: Streams, radius: Units, direction: Points, dim: int) -> Points:
        """Give random directions of tokens in R^dim the lengths of points uniform in the ball, in place."""
        length = self.norm(direction)
        size = dim if self.per == "token" else dim * direction.shape[2]
        share = streams("length").uniform(*length.shape[1:], dtype=direction.dtype)
        return direction.mul_(share.pow_(1 / size).mul_(radius) / length)

    def _direction(self, streams: Streams, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return vectors whose direction is uniform on the sphere: normal for l2, exponential with signs for l1."""
        if self.p == 2:
            return streams("direction").normal(*shape, dtype=dtype)
        sizes = streams("direction").uniform(*shape, dtype=dtype).log_()
        return sizes.mul_(streams("signs").signs(*shape, dtype=dtype))

    def _random_coordinates(self, streams: Streams, radius: Tensor, x: Tensor) -> Tensor:
        assert self.box is not None, "a uniform start with p = 0 needs a box, as PGD checks"
        order = self._units(streams("coordinates").uniform(*x.shape[1:], dtype=x.dtype))
        low, high = self.box
        goal = streams("place").uniform(*x.shape[1:], dtype=x.dtype).mul_(high - low).add_(low)
        return (goal - x) * largest(order, radius).reshape(x.shape)

    def points(self, x: Points, delta: Points, out: Tensor | None = None) -> Points:
        """Return the attacked points x + delta, clamped where rounding would take them out of the box."""
        points = torch.add(x, delta, out=out)
        if self.box is None:
            return points
        low, high = self.box
        return points.clamp_(x.clamp_max(low), x.clamp_min(high))

    @property
    def unit_axes(self) -> tuple[int, ...]:
        """The axes of points that make up a unit."""
        return (-1,) if self.per == "token" else (-2, -1)

    @property
    def _order(self) -> float:
        return inf if self.p == "inf" else self.p

    def _units(self, points: Tensor) -> Tensor:
        """Return points as [runs, samples, tokens or 1, coordinates]: the coordinates of a unit along the last axis."""
        return points if self.per == "token" else points.flatten(2)[:, :, None]

    def _limits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return how far each coordinate may move down (0 or less) and up (0 or more) in the box."""
        if self.box is None:
            return torch.full_like(x, -inf), torch.full_like(x, inf)
        low, high = self.box
        return (low - x).clamp_max_(0), (high - x).clamp_min_(0)


NORMS = {"l1": 1, "l2": 2, "linf": "inf"}


class Balls(Spec):
    """Radii in several norms, each a multiple of one radius (Zhang C.3: 20, 1 and 1/30 times eps |mu|).

    >>> import benign as bo
    >>> [(ball.p, ball.radius) for ball in bo.Balls(radius=0.3, linf=0.5).each()]
    [(1, 6.0), (2, 0.3), ('inf', 0.15)]
    """

    radius: PerRun[NonNegative]
    """the radius that is multiplied: tau, or tau / |mu| if relative to the signal"""
    relative_to: Literal["signal", "point"] | None = None
    """unit of the radius, as in `Ball`"""
    per: Literal["token", "sample"] = "token"
    """every token has its own balls, or all tokens of a point share them"""
    box: tuple[float, float] | None = None
    """lowest and highest value of a coordinate of an attacked point"""
    l1: Positive | None = 20.0
    """multiple for the l1 ball; none leaves the norm out"""
    l2: Positive | None = 1.0
    """multiple for the l2 ball"""
    linf: Positive | None = 1 / 30
    """multiple for the linf ball"""
    coordinates: Count = 1
    """coordinates that a step in the l1 ball moves"""

    def check(self) -> None:
        if len(self.each()) < 2:
            raise ValueError(
                f"`l1`, `l2` and `linf`: give at least two of them, got {len(self.each())}: "
                "for one norm use `pgd`"
            )

    def each(self) -> list[Ball]:
        """Return the ball of every norm."""
        return [
            self._ball(norm, getattr(self, name))
            for name, norm in NORMS.items()
            if getattr(self, name) is not None
        ]

    def _ball(self, norm: Any, multiple: float) -> Ball:
        moved = {"coordinates": self.coordinates} if norm == 1 else {}
        ball = Ball(
            p=norm, radius=0.0, relative_to=self.relative_to, per=self.per, box=self.box, **moved
        )
        # The radius may be a tensor [runs] here, which a new specification would refuse.
        return replace(ball, {("radius",): multiple * self.radius})
