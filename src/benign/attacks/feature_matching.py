"""Attacks through the hidden layer of a reference network: NRF-PGD, RF-PGD and the inverted data D^ of Li appendix A.

The reference network has been trained, so it is not part of a specification. It is given as a function `represent`
from points to features; `representation` makes one from a network of this package.
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
"""factors of a step length after a success and after a failure"""


def representation(network: Network, params: Params) -> Represent:
    """Return G of Li appendix A, the layer before the last: the network's `represent` with these weights."""
    return partial(network.represent, params)


def match_features(
    represent: Represent, x: Points, goal: Points, ball: Ball, steps: int = 100, step: float = 0.25
) -> Points:
    """Return the points of the balls around x whose features are nearest to those of `goal` (Li A.2).

    They minimise |G(x + delta) - G(goal)|_2 over the ball: NRF-PGD with G of a standard network, RF-PGD with G of an
    adversarially trained one. x is of the source class and `goal` of the target class.

    step: the first step, as a share of the radius.
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
        features = represent(goal)
    return _approach(represent, features, x, move, steps)[0]


class Inversion(NamedTuple):
    """Points whose features are near given ones."""

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
    """Return points X^ of D^ (Li A.1): argmin |G(X^) - G(X)|_2 for given features G(X), without a ball.

    Steps go along the normalised gradient of a whole point.

    goal: the features G(X).
    start: points that do not depend on X.
    step: length of the first step.
    box: bounds of every coordinate (0 to 1 for images).
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
    """Return the share of points that are classified as their goal; a tie is a failure.

    For outputs on clean points this is the natural confusion, the baseline of an attack.
    """
    return correct(margin(outputs, goal)).mean(1)


def _approach(
    represent: Represent,
    goal: Features,
    start: Points,
    move: Callable[[Tensor, Tensor, Tensor], Tensor],
    steps: int,
) -> tuple[Points, Distances]:
    """Return the points whose features are nearest to `goal`, and their distances, by descent.

    Every point has its own step length: a point that came no nearer stays where it was and takes a shorter step. With
    a constant length it would circle the goal at that distance.

    move: `move(points, gradient, share)` steps down the gradient by a share of the first step, and projects.
    """
    best = start.clone()
    distance, gradient = _distance(represent, goal, best)
    share = torch.ones_like(best[:, :, :1, :1])
    for _ in range(steps):
        points = move(best, gradient.clone(), share)
        reached, slope = _distance(represent, goal, points)
        nearer = reached < distance
        wide = nearer[:, :, None, None]
        best, gradient = torch.where(wide, points, best), torch.where(wide, slope, gradient)
        distance = torch.where(nearer, reached, distance)
        share = torch.where(wide, LONGER * share, SHORTER * share)
    return best, distance


def _distance(represent: Represent, goal: Features, points: Points) -> tuple[Distances, Points]:
    """Return |G(points) - goal|_2, and the gradient of half its square, which exists at 0 as well."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        difference = represent(points) - goal
        (gradient,) = torch.autograd.grad(difference.square().sum() / 2, points)
    return torch.linalg.vector_norm(difference.detach(), dim=2), gradient
