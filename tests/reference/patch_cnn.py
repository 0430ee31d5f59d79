"""Training of Li & Li's network, written out filter by filter and patch by patch.

The activation by cases and the network of papers/li.md 1.5, cross-entropy and gradient descent of
1.6 and 1.7, PGD on the margin in an l2 ball, and the recursion of Lemma D.4. Every gradient is
autograd's, and nothing is taken from `benign`. One run at a time: weights are
[classes, width, dim], points [samples, patches, dim], labels 0 to classes - 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Activation:
    """The smoothed ReLU of degree q and threshold rho."""

    q: int
    rho: float

    def __call__(self, z: Tensor) -> Tensor:
        if z <= 0:
            return 0 * z
        if z <= self.rho:
            return z**self.q / (self.q * self.rho ** (self.q - 1))
        return z - (1 - 1 / self.q) * self.rho

    def slope(self, z: float) -> float:
        if z <= 0:
            return 0.0
        return (z / self.rho) ** (self.q - 1) if z <= self.rho else 1.0


@dataclass
class Attack:
    """PGD from the clean point in an l2 ball around the whole point; `step` is a length."""

    radius: float
    steps: int
    step: float


@dataclass
class Trajectory:
    """Every step before its update, the last one included."""

    losses: list[float]
    attacked: list[Tensor]
    weights: list[Tensor]


def outputs(weights: Tensor, point: Tensor, psi: Activation) -> Tensor:
    """F_0, ..., F_{k-1}."""
    totals = []
    for filters in weights:
        total = torch.zeros((), dtype=point.dtype)
        for row in filters:
            for patch in point:
                total = total + psi(row @ patch)
        totals.append(total)
    return torch.stack(totals)


def margin(weights: Tensor, point: Tensor, label: int, psi: Activation) -> Tensor:
    """F_y less the largest of the others."""
    own = outputs(weights, point, psi)
    rivals = torch.stack([each for j, each in enumerate(own) if j != label])
    return own[label] - rivals.max()


def loss(weights: Tensor, points: Tensor, labels: list[int], psi: Activation) -> Tensor:
    """Mean over the points of -log softmax_y."""
    terms = []
    for point, label in zip(points, labels, strict=True):
        exponentials = torch.exp(outputs(weights, point, psi))
        terms.append(-torch.log(exponentials[label] / exponentials.sum()))
    return torch.stack(terms).mean()


def attacked_point(
    weights: Tensor, point: Tensor, label: int, psi: Activation, attack: Attack
) -> Tensor:
    """delta <- Proj(delta - step * gradient of the margin / its length), the last iterate."""
    change = torch.zeros_like(point)
    for _ in range(attack.steps):
        here = (point + change).requires_grad_()
        (gradient,) = torch.autograd.grad(margin(weights, here, label, psi), here)
        change = change - attack.step * gradient / gradient.norm()
        if change.norm() > attack.radius:
            change = change * (attack.radius / change.norm())
    return point + change


def train(
    weights: Tensor,
    points: Tensor,
    labels: list[int],
    psi: Activation,
    rate: float,
    steps: int,
    attack: Attack | None = None,
) -> Trajectory:
    """Attack every point, then step with those points held fixed."""
    trajectory = Trajectory([], [], [])
    for _ in range(steps + 1):
        inputs = points
        if attack is not None:
            pairs = zip(points, labels, strict=True)
            inputs = torch.stack([attacked_point(weights, x, y, psi, attack) for x, y in pairs])
        traced = weights.clone().requires_grad_()
        now = loss(traced, inputs, labels, psi)
        trajectory.losses.append(now.item())
        trajectory.attacked.append(inputs)
        trajectory.weights.append(weights)
        (gradient,) = torch.autograd.grad(now, traced)
        weights = weights - rate * gradient
    return trajectory


@dataclass
class Correlations:
    """<w_ir, u_y> and <w_ir, v_y>, both [classes, width, classes].

    Those with y = i are Li's A_ir and B_ir, the others C_iry and D_iry.
    """

    robust: Tensor
    non_robust: Tensor


@dataclass
class Patches:
    """A noise-free point of class `label`: strengths of its robust and its non-robust patches."""

    label: int
    alphas: list[float]
    betas: list[float]


def next_correlations(
    now: Correlations, points: list[Patches], psi: Activation, rate: float
) -> Correlations:
    """Lemma D.4 (Lemma 5.1 for A and B): one step of gradient descent, without the network.

    The mean over these points is the lemma's 1/k times the mean over a class, when every class has
    as many of them.
    """
    classes, width, _ = now.robust.shape
    robust, non_robust = now.robust.clone(), now.non_robust.clone()
    for point in points:
        y = point.label
        own = torch.zeros(classes, dtype=robust.dtype)
        for i in range(classes):
            for r in range(width):
                own[i] += sum(psi(alpha * now.robust[i, r, y]) for alpha in point.alphas)
                own[i] += sum(psi(beta * now.non_robust[i, r, y]) for beta in point.betas)
        probability = torch.exp(own) / torch.exp(own).sum()
        for i in range(classes):
            pull = rate / len(points) * ((i == y) - float(probability[i]))
            for r in range(width):
                a, b = float(now.robust[i, r, y]), float(now.non_robust[i, r, y])
                robust[i, r, y] += pull * sum(psi.slope(s * a) * s for s in point.alphas)
                non_robust[i, r, y] += pull * sum(psi.slope(s * b) * s for s in point.betas)
    return Correlations(robust, non_robust)
