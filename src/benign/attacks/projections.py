"""Nearest points of l1 and l2 balls, alone or cut by a box: each is one scalar equation, solved exactly.

Every function works along the last axis. The boxes contain the origin, so the nearest point has the
signs of the given one, and only sizes remain: `size` is |v|, `limit` >= 0 the distance to the box in
the direction of each coordinate, `radius` that of the ball.
"""

from collections.abc import Callable

import torch
from torch import Tensor

MOST_STEPS = 100
"""largest number of steps of Newton's method; about 40 are enough for any input, and 3 to 10 are usual"""


def l1_sizes(size: Tensor, radius: Tensor) -> Tensor:
    """Return the nearest point of the l1 ball: (size - t)_+ with the t >= 0 at which they sum to the radius.

    t is at least the largest size minus the radius. Counted from a little below that, sizes are of the order of the
    radius, so that a point far outside loses no digits.
    """
    below = (size.amax(-1, keepdim=True) - 2 * radius).clamp_min_(0)
    sizes = (size - below).clamp_min_(0)
    left = torch.empty_like(sizes)

    def excess(t: Tensor) -> tuple[Tensor, Tensor]:
        torch.sub(sizes, t, out=left).clamp_min_(0)
        above = left.sum(-1, keepdim=True) - radius
        return above, left.sign_().sum(-1, keepdim=True)  # counting takes seven times as long

    t = _root(excess, torch.zeros_like(sizes[..., :1]), radius)
    return sizes.sub_(t).clamp_min_(0)


def l1_box_sizes(size: Tensor, limit: Tensor, radius: Tensor) -> Tensor:
    """Return the nearest point of l1 ball and box: min((size - t)_+, limit) with the t that makes the sum the radius.

    As t falls from the largest size to 0, a coordinate starts to grow at t = size and stops at t = size - limit. The
    sum is linear between these kinks, so they are sorted and the sum is followed until it reaches the radius.
    """
    inside = torch.minimum(size, limit)
    if (inside.sum(-1, keepdim=True) <= radius).all():
        return inside
    kinks = torch.cat([size.double(), size.double() - limit], -1)
    kinks, order = kinks.sort(-1, descending=True)
    growing = torch.where(order < size.shape[-1], 1, -1).cumsum(-1)
    gained = (growing[..., :-1] * -kinks.diff(dim=-1)).cumsum(-1)
    gained = torch.nn.functional.pad(gained, (1, 0))
    last = ((gained < radius).sum(-1, keepdim=True) - 1).clamp_min_(0)
    missing = (radius - gained.gather(-1, last)) / growing.gather(-1, last).clamp_min_(1)
    t = (kinks.gather(-1, last) - missing).clamp_min_(0)
    sizes = torch.minimum((size - t).clamp_min_(0), limit).to(size.dtype)
    # A point far outside loses digits in size - t; shrinking puts it inside and moves it by no more than that error.
    return shrink(sizes, sizes.sum(-1, keepdim=True), radius)


def l2_box_sizes(size: Tensor, limit: Tensor, radius: Tensor) -> Tensor:
    """Return the nearest point of l2 ball and box: min(s size, limit) with the s <= 1 that makes the length the radius.

    The squared length is piecewise linear and concave in s^2.
    """
    squares, limits, target = size.square(), limit.square(), radius.square()

    def excess(scale: Tensor) -> tuple[Tensor, Tensor]:
        reached = squares * scale
        free = (squares * (reached < limits)).sum(-1, keepdim=True)
        return target - torch.minimum(reached, limits).sum(-1, keepdim=True), free

    longest = squares.sum(-1, keepdim=True).clamp_min_(tiny_of(size))
    scale = _root(excess, (target / longest).clamp_max_(1), target, end=1)
    return torch.minimum(size * scale.sqrt_(), limit)


def largest(score: Tensor, count: Tensor) -> Tensor:
    """Return True at the `count` largest scores, and at no more than that if scores are equal."""
    most = min(int(count.max()), score.shape[-1])
    order = score.topk(most, -1).indices
    chosen = (torch.arange(most, device=score.device) < count).expand(order.shape)
    return torch.zeros_like(score, dtype=torch.bool).scatter_(-1, order, chosen)


def shrink(delta: Tensor, norm: Tensor, radius: Tensor) -> Tensor:
    """Scale perturbations of a norm above the radius down to it, in place."""
    return delta.mul_(shrinking(norm, radius))


def shrinking(norm: Tensor, radius: Tensor) -> Tensor:
    """Return the factors that bring these norms down to the radius, 1 for norms below it. May overwrite the norms."""
    return (radius / norm.clamp_min_(tiny_of(norm))).clamp_max_(1)


def _root(
    excess: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    scale: Tensor,
    end: float = torch.inf,
) -> Tensor:
    """Return the root of a falling, convex, piecewise linear function, or `end` if that is smaller.

    `excess` gives the function and how steeply it falls. Newton's method from a point before the root never passes
    it, and divides the product of function and slope by 4 or more in every step.
    """
    rounding = 4 * torch.finfo(start.dtype).eps * scale
    level = start
    for _ in range(MOST_STEPS):
        above, fall = excess(level)
        step = torch.where(above > rounding, above / fall.clamp_min(tiny_of(start)), 0)
        ahead = (level + step).clamp_max_(end)
        if not (ahead > level).any():
            break
        level = ahead
    return level


def tiny_of(tensor: Tensor) -> float:
    return torch.finfo(tensor.dtype).tiny
