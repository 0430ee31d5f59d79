"""Algorithm 1 of Wang et al., written out neuron by neuron and point by point.

The activations of papers/wang.md 1.3 by cases, the network of 1.2 (with biases, as PyTorch's
default has them), PGD and Algorithm 1 of 1.5. Every gradient is autograd's, and nothing is taken
from `benign`. One run at a time: a point is a matrix [tokens, dim] whose rows are laid end to end.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Activation = Callable[[Tensor], Tensor]


def relu(z: Tensor) -> Tensor:
    return z if z > 0 else 0 * z


def leaky_relu(gamma: float) -> Activation:
    return lambda z: z if z > 0 else gamma * z


def smoothed_leaky_relu(gamma: float, smoothness: float) -> Activation:
    def phi(z: Tensor) -> Tensor:
        if z >= 1 / smoothness:
            return z - (1 - gamma) / (4 * smoothness)
        if z <= -1 / smoothness:
            return gamma * z - (1 - gamma) / (4 * smoothness)
        return (1 - gamma) / 4 * smoothness * z**2 + (1 + gamma) / 2 * z

    return phi


@dataclass
class Weights:
    """Rows w_s and numbers a_s; biases of zero where the network has none."""

    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor


@dataclass
class Attack:
    """PGD from the clean point in an l2 ball around the whole point; `step` is a length."""

    radius: float
    steps: int
    step: float
    first: int
    """the first step of training at which points are attacked: 1 in Wang's Algorithm 1"""


@dataclass
class Trajectory:
    """Every step before its update, the last one included."""

    losses: list[float]
    attacked: list[Tensor]
    weights: list[Weights]


def output(weights: Weights, point: Tensor, phi: Activation) -> Tensor:
    x = torch.cat(list(point))
    total = weights.outer_bias
    for row, bias, a in zip(weights.inner, weights.inner_bias, weights.outer, strict=True):
        total = total + a * phi(row @ x + bias)
    return total


def loss(weights: Weights, points: Tensor, labels: Tensor, phi: Activation) -> Tensor:
    """Mean over the points of log(1 + exp(-y f))."""
    terms = [
        torch.log(1 + torch.exp(-y * output(weights, x, phi)))
        for x, y in zip(points, labels, strict=True)
    ]
    return torch.stack(terms).mean()


def attacked_point(
    weights: Weights, point: Tensor, label: Tensor, phi: Activation, attack: Attack
) -> Tensor:
    """delta <- Proj(delta - step * y * gradient / |gradient|), the last iterate.

    A zero gradient (every neuron of a ReLU off) gives no move.
    """
    change = torch.zeros_like(point)
    for _ in range(attack.steps):
        here = (point + change).requires_grad_()
        (gradient,) = torch.autograd.grad(output(weights, here, phi), here)
        if gradient.norm() > 0:
            change = change - attack.step * label * gradient / gradient.norm()
        if change.norm() > attack.radius:
            change = change * (attack.radius / change.norm())
    return point + change


def train(
    weights: Weights,
    trained: set[str],
    points: Tensor,
    labels: Tensor,
    phi: Activation,
    rate: float,
    steps: int,
    attack: Attack | None = None,
) -> Trajectory:
    """Algorithm 1: attack every point, then step with those points held fixed."""
    trajectory = Trajectory([], [], [])
    for number in range(steps + 1):
        inputs = points
        if attack is not None and number >= attack.first:
            pairs = zip(points, labels, strict=True)
            inputs = torch.stack([attacked_point(weights, x, y, phi, attack) for x, y in pairs])
        parts = {name: part.clone().requires_grad_() for name, part in vars(weights).items()}
        now = loss(Weights(**parts), inputs, labels, phi)
        trajectory.losses.append(now.item())
        trajectory.attacked.append(inputs)
        trajectory.weights.append(weights)
        moving = sorted(trained)
        gradients = torch.autograd.grad(now, [parts[name] for name in moving])
        for name, gradient in zip(moving, gradients, strict=True):
            parts[name] = parts[name] - rate * gradient
        weights = Weights(**{name: part.detach() for name, part in parts.items()})
    return trajectory
