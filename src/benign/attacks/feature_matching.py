"""Attacks by the hidden layer of a reference network: NRF-PGD, RF-PGD and the inverted data D^ of Li appendix A.

The reference network has been trained, so it is no part of a specification: it is a function
`represent` from points to features, made from one of our networks by `representation`, or of your own.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Points
from benign.attacks.balls import Ball
from benign.losses import Labels, Outputs, correct, margin
from benign.networks.network import Network, Params

Features: TypeAlias = Float[Tensor, "runs samples features"]
Represent: TypeAlias = Callable[[Tensor], Tensor]
"""points [runs, samples, tokens, dim] to features [runs, samples, features], differentiable by autograd"""
Distances: TypeAlias = Float[Tensor, "runs samples"]

LONGER, SHORTER = 1.2, 0.5
"""what a step length is multiplied by after a success and after a failure"""


def representation(network: Network, params: Params) -> Represent:
    """The layer before the last of a network, as G of Li appendix A: its `represent` with these weights."""
    return partial(network.represent, params)


def match_features(
    represent: Represent, x: Points, goal: Points, ball: Ball, steps: int = 100, step: float = 0.25
) -> Points:
    """NRF-PGD, or RF-PGD (Li A.2): the points of the balls around x whose features are nearest to those of `goal`.

    It minimises |G(x + delta) - G(goal)|_2 over the ball, G from a standard or an adversarially
    trained network, x of the source class and `goal` of the target class. `step` is the first step
    as a share of the radius.
    """
    if ball.relative_to is not None:
        raise ValueError(
            f"`ball.relative_to` must be left out here, got {ball.relative_to!r}: "
            "give `radius` in the units of the points"
        )
    radius = torch.as_tensor(ball.radius, dtype=x.dtype, device=x.device).reshape(-1, 1, 1, 1)
    radius = radius.expand(len(x), 1, 1, 1)
    lengths = step * ball.step_unit(radius)

    def move(points: Tensor, gradient: Tensor, share: Tensor) -> Tensor:
        delta = points - x - share * lengths * ball.steepest(gradient)
        return ball.points(x, ball.project(delta, radius, x))

    with torch.no_grad():
        wanted = represent(goal)
    return _approach(represent, wanted, x, move, steps)[0]


class Inversion(NamedTuple):
    """Points found from features."""

    points: Points
    distance: Distances
    """|G(points) - G|_2 / |G|_2"""


def invert_features(
    represent: Represent,
    goal: Features,
    start: Points,
    steps: int = 1000,
    step: float = 0.1,
    box: tuple[float, float] | None = None,
) -> Inversion:
    """A point X^ of D^ (Li A.1): argmin |G(X^) - G(X)|_2 for given features G(X), from a start that knows nothing of X.

    Steps go along the gradient of a whole point, normalised; the first has length `step`. A box
    bounds every coordinate (0 to 1 for images). There is no ball.
    """
    low, high = (-torch.inf, torch.inf) if box is None else box
    if not low < high:
        raise ValueError(f"`box` must be (lowest, highest) with lowest < highest, got {box}")
    direction = Ball(p=2, radius=1.0, per="sample").steepest

    def move(points: Tensor, gradient: Tensor, share: Tensor) -> Tensor:
        return (points - share * step * direction(gradient)).clamp_(low, high)

    points, distance = _approach(represent, goal, start.clamp(low, high), move, steps)
    size = torch.linalg.vector_norm(goal, dim=2).clamp_min(torch.finfo(goal.dtype).tiny)
    return Inversion(points, distance / size)


def targeted_success(outputs: Outputs, goal: Labels) -> Float[Tensor, " runs"]:
    """Share of points that are classified as their goal; a tie is a failure.

    Of the outputs on clean points it is the natural confusion, to be told beside that of an attack.
    """
    return correct(margin(outputs, goal)).mean(1)


def _approach(
    represent: Represent,
    goal: Features,
    start: Points,
    move: Callable[[Tensor, Tensor, Tensor], Tensor],
    steps: int,
) -> tuple[Points, Distances]:
    """The nearest points to features, and their distances, by descent with a step length for every point.

    `move(points, gradient, share)` steps down the gradient by a share of the first step and goes back
    to what is allowed. A point that came no nearer stays where it was and takes shorter steps: with
    one length for ever it would turn around the goal at that distance.
    """
    best = start.clone()
    distance, gradient = _distance(represent, goal, best)
    share = torch.ones_like(best[:, :, :1, :1])
    for _ in range(steps):
        points = move(best, gradient.clone(), share)
        reached, slope = _distance(represent, goal, points)
        nearer = reached < distance
        each = nearer[:, :, None, None]
        best, gradient = torch.where(each, points, best), torch.where(each, slope, gradient)
        distance = torch.where(nearer, reached, distance)
        share = torch.where(each, LONGER * share, SHORTER * share)
    return best, distance


def _distance(represent: Represent, goal: Features, points: Points) -> tuple[Distances, Points]:
    """|G(points) - goal|_2, and the gradient of half its square, which exists at 0 as well."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        apart = represent(points) - goal
        (gradient,) = torch.autograd.grad(apart.square().sum() / 2, points)
    return torch.linalg.vector_norm(apart.detach(), dim=2), gradient
