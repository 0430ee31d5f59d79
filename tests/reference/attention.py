"""Adversarial training of the attention network, written out from the papers token by token.

Zhang et al. eq. (1), appendix D (several heads), section 6 (attack) and Algorithm 1; Jiang et al.
eq. (1). Everything is kept in full (W_Q, W_K: d x d_h, W_V: d x d_v, w_O), every gradient is
autograd's, and nothing is taken from `benign`. One run at a time: points are
[samples, tokens, dim], labels [samples].
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor


@dataclass
class Weights:
    """One matrix per head; w_O is shared and fixed."""

    query: list[Tensor]
    key: list[Tensor]
    value: list[Tensor]
    output: Tensor

    def trained(self) -> list[Tensor]:
        return [*self.query, *self.key, *self.value]

    def traced(self) -> "Weights":
        """Copies of the matrices, of which autograd keeps track."""
        return self._with([each.detach().clone().requires_grad_() for each in self.trained()])

    def moved(self, gradients: list[Tensor], rate: float) -> "Weights":
        """W - rate * gradient for every matrix at once."""
        pairs = zip(self.trained(), gradients, strict=True)
        return self._with([matrix.detach() - rate * gradient for matrix, gradient in pairs])

    def _with(self, matrices: list[Tensor]) -> "Weights":
        heads = len(self.query)
        query, key, value = (matrices[part * heads : (part + 1) * heads] for part in range(3))
        return Weights(query, key, value, self.output)


@dataclass
class Attack:
    """PGD from a zero start in l2 balls; `step` is a share of the radius."""

    radius: float
    steps: int
    step: float
    per: str
    loss: str
    keep: str


@dataclass
class Trajectory:
    """Every step before its update, the last one included."""

    losses: list[float]
    attacked: list[Tensor]
    weights: list[Weights]


def attention_rows(weights: Weights, head: int, point: Tensor) -> list[Tensor]:
    """Row l: softmax over j of <x_l W_Q, x_j W_K>."""
    rows = []
    for token in point:
        query = token @ weights.query[head]
        scores = torch.stack([query @ (other @ weights.key[head]) for other in point])
        shifted = torch.exp(scores - scores.detach().max())
        rows.append(shifted / shifted.sum())
    return rows


def token_values(weights: Weights, head: int, point: Tensor) -> list[Tensor]:
    """x_j W_V w_O for every token j."""
    return [(token @ weights.value[head]) @ weights.output for token in point]


def output(weights: Weights, point: Tensor) -> Tensor:
    """f(X) = sum over heads of (1/M) sum_l sum_j A_lj v_j."""
    total = torch.zeros((), dtype=point.dtype)
    for head in range(len(weights.query)):
        values = token_values(weights, head, point)
        for row in attention_rows(weights, head, point):
            for share, value in zip(row, values, strict=True):
                total = total + share * value / len(point)
    return total


def outputs(weights: Weights, points: Tensor) -> Tensor:
    return torch.stack([output(weights, point) for point in points])


def logistic(margin: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(-margin))


def loss(weights: Weights, points: Tensor, labels: Tensor) -> Tensor:
    """Mean over the points of log(1 + exp(-y f))."""
    terms = [logistic(y * output(weights, x)) for x, y in zip(points, labels, strict=True)]
    return torch.stack(terms).mean()


def project(change: Tensor, attack: Attack) -> Tensor:
    """Shorten perturbations longer than the radius, of every token or of the whole point."""
    if attack.per == "sample":
        return change * min(1.0, attack.radius / max(float(change.norm()), 1e-300))
    return torch.stack(
        [row * min(1.0, attack.radius / max(float(row.norm()), 1e-300)) for row in change]
    )


def unit(gradient: Tensor, attack: Attack) -> Tensor:
    """The gradient with every token, or the whole point, of length one."""
    if attack.per == "sample":
        return gradient / gradient.norm()
    return torch.stack([row / row.norm() for row in gradient])


def attacked_point(weights: Weights, point: Tensor, label: Tensor, attack: Attack) -> Tensor:
    """The last iterate, or the one of smallest margin, the start included."""
    change = torch.zeros_like(point)
    best, smallest = point, inf
    for number in range(attack.steps + 1):
        here = (point + change).detach().requires_grad_()
        margin = label * output(weights, here)
        if margin.item() < smallest:
            best, smallest = here.detach(), margin.item()
        if number == attack.steps:
            return best if attack.keep == "best" else here.detach()
        ascended = -margin if attack.loss == "margin" else logistic(margin)
        (gradient,) = torch.autograd.grad(ascended, here)
        change = change + attack.step * attack.radius * unit(gradient, attack)
        change = project(change, attack)
    raise AssertionError


def attacked_points(weights: Weights, points: Tensor, labels: Tensor, attack: Attack) -> Tensor:
    pairs = zip(points, labels, strict=True)
    return torch.stack([attacked_point(weights, x, y, attack) for x, y in pairs])


def train(
    weights: Weights,
    points: Tensor,
    labels: Tensor,
    rate: float,
    stop_loss: float,
    max_steps: int,
    attack: Attack | None = None,
) -> Trajectory:
    """Algorithm 1: attack every point, then step on all matrices with those points held fixed."""
    trajectory = Trajectory([], [], [])
    while True:
        traced = weights.traced()
        inputs = points if attack is None else attacked_points(weights, points, labels, attack)
        now = loss(traced, inputs, labels)
        trajectory.losses.append(now.item())
        trajectory.attacked.append(inputs)
        trajectory.weights.append(weights)
        if now.item() <= stop_loss or len(trajectory.losses) > max_steps:
            return trajectory
        gradients = torch.autograd.grad(now, traced.trained())
        weights = weights.moved(list(gradients), rate)
