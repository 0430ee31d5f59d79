"""What training makes of Li's features, without a network (papers/li.md 2.3, 2.4, 2.5, 2.8).

On points without noise a filter is w_ir(t) = P_perp w_ir(0) + sum_y (<w_ir, u_y> u_y + <w_ir, v_y> v_y).
These coefficients follow a recursion of their own: exactly in standard training (Lemma 5.1 and D.4),
approximately in adversarial training (Lemma 5.2 and D.22).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.feature_patches import FeaturePatches
from benign.data.model import column
from benign.losses import loss, loss_slope
from benign.networks.patch_cnn import PatchCNN, smoothed_relu, smoothed_relu_derivative
from benign.training.optimisers import gradient_descent_at_one_rate
from benign.training.setup import Setup

Number: TypeAlias = float | Float[Tensor, " runs"]
"""a number, or one a run"""
ByClass: TypeAlias = Number | Float[Tensor, "_ classes"]
"""a number, one a run, or one for each class (of all runs or of each)"""
Pairs: TypeAlias = Float[Tensor, "runs classes width classes"]
Own: TypeAlias = Float[Tensor, "runs classes width"]
PerClass: TypeAlias = Float[Tensor, "runs classes"]


@dataclass(frozen=True)
class Problem:
    """Points with patches of constant strength, the activation and the rate; classes are equally frequent."""

    alpha: ByClass
    """strength of the robust patches"""
    beta: ByClass
    """strength of the non-robust patches"""
    robust_patches: int
    """|J_R|"""
    other_patches: int
    """|J_NR|"""
    q: int
    rho: Number
    rate: Number

    @staticmethod
    def of(setup: Setup) -> "Problem":
        """Patches and network of a setup. Noise and the spread of strengths are left out."""
        data, network = setup.data, setup.network
        if not isinstance(data, FeaturePatches) or not isinstance(network, PatchCNN):
            raise ValueError(
                "`data` and `network` must be feature patches and a patch CNN, "
                f"got {data.kind} and {network.kind}: the recursion knows no others"
            )
        if not gradient_descent_at_one_rate(setup.training):
            raise ValueError(
                f"`training` must be plain gradient descent at a constant rate, got {setup.training.kind}: the "
                "recursion knows no other; use `gradient_descent` with `drop_every: 0`"
            )
        strengths = ((data.alpha, data.alpha_by_class), (data.beta, data.beta_by_class))
        alpha, beta = (
            torch.tensor([by_class], dtype=torch.float64) if by_class else number
            for number, by_class in strengths
        )
        robust, others = data.robust_patches, data.tokens - data.robust_patches
        rho, rate = network.threshold, setup.training.rate
        return Problem(alpha, beta, robust, others, network.q, rho, rate)  # pyright: ignore[reportArgumentType]

    def parts(self, robust: Tensor, others: Tensor) -> tuple["PatchGroup", "PatchGroup"]:
        """The robust and the other patches, with their coefficients [runs, classes, ...]."""
        return (
            PatchGroup(self.robust_patches, _by_class(self.alpha, robust), robust),
            PatchGroup(self.other_patches, _by_class(self.beta, others), others),
        )

    def activate(self, z: Float[Tensor, "runs *shape"]) -> Float[Tensor, "runs *shape"]:
        return smoothed_relu(z, self.q, column(self.rho, z))

    def derivative(self, z: Float[Tensor, "runs *shape"]) -> Float[Tensor, "runs *shape"]:
        return smoothed_relu_derivative(z, self.q, column(self.rho, z))


class PatchGroup(NamedTuple):
    """Patches of one kind, robust or not: their number, strength in each class, and products with the filters."""

    patches: int
    strength: PerClass
    filters: Tensor


@dataclass(frozen=True)
class Features:
    """A step of standard training on points without noise (Lemma D.2): all coefficients of all filters."""

    problem: Problem
    robust: Pairs
    """<w_ir, u_y>: A_ir where y = i, C_iry elsewhere"""
    non_robust: Pairs
    """<w_ir, v_y>: B_ir where y = i, D_iry elsewhere"""
    number: int = 0

    @staticmethod
    def of(
        problem: Problem,
        weights: Float[Tensor, "runs classes width dim"],
        features: Float[Tensor, "runs features dim"],
    ) -> "Features":
        """The coefficients of a network's filters in u_0, ..., u_{k-1}, v_0, ..., v_{k-1}."""
        kinds = features.unflatten(1, (2, weights.shape[1]))
        robust, non_robust = torch.einsum("rimd,rfyd->frimy", weights, kinds)
        return Features(problem, robust, non_robust)

    @property
    def A(self) -> Own:
        """<w_ir, u_i>"""
        return self.robust.diagonal(dim1=1, dim2=3).transpose(1, 2)

    @property
    def B(self) -> Own:
        """<w_ir, v_i>"""
        return self.non_robust.diagonal(dim1=1, dim2=3).transpose(1, 2)

    @cached_property
    def outputs(self) -> Float[Tensor, "runs classes classes"]:
        """F_i of the point of class y, by y and i."""
        robust, others = (
            part.patches * self.problem.activate(part.strength[:, None, None] * part.filters).sum(2)
            for part in self._parts
        )
        return (robust + others).transpose(1, 2)

    @property
    def losses(self) -> PerClass:
        """Cross-entropy of the point of each class."""
        return loss(self.outputs, self._labels)

    def after(self) -> "Features":
        """The next step: Lemma D.4, of which Lemma 5.1 shows A and B."""
        slope = loss_slope(self.outputs, self._labels).transpose(1, 2)[:, :, None, :]
        size = column(self.problem.rate, slope) / slope.shape[1]
        robust, non_robust = (
            filters - size * slope * count * strength * self.problem.derivative(strength * filters)
            for count, strength, filters in (
                part._replace(strength=part.strength[:, None, None]) for part in self._parts
            )
        )
        return replace(self, robust=robust, non_robust=non_robust, number=self.number + 1)

    @property
    def _parts(self) -> tuple[PatchGroup, PatchGroup]:
        return self.problem.parts(self.robust, self.non_robust)

    @property
    def _labels(self) -> PerClass:
        runs, classes = self.robust.shape[:2]
        return torch.arange(classes).to(self.robust).expand(runs, classes)


@dataclass(frozen=True)
class AttackedFeatures:
    """A step of training on points attacked by one clipped ascent step: own coefficients only (Lemma D.22).

    The attack takes min{eps, eta~ sum_r psi'(s A_r) A_r} off a strength s, but not more than all of it.
    While all coefficients are small this is the lemma's factor 1 - min{eps/s, eta~ s^(q-2) sum_r A_r^q /
    rho^(q-1)}; with psi' and the class probability written out, the recursion goes on after that.
    The features must be axes (Definition 2.1), for the clip acts on every coordinate by itself.
    It leaves out the coefficients of other classes, what the attack puts on the other feature of a
    class, and what it puts off the features.
    """

    problem: Problem
    attack_rate: Number
    """eta~"""
    clip: Number
    """eps"""
    A: Own
    B: Own
    number: int = 0

    @cached_property
    def outputs(self) -> PerClass:
        """F_y of the attacked point of class y; its other outputs are taken to be 0."""
        robust, others = (
            part.patches * self.problem.activate(part.strength[:, :, None] * part.filters).sum(2)
            for part in self._parts
        )
        return robust + others

    @property
    def losses(self) -> PerClass:
        """Cross-entropy of the attacked point of each class."""
        return torch.nn.functional.softplus(self._rivals - self.outputs)

    def after(self) -> "AttackedFeatures":
        """The next step."""
        wrong = torch.sigmoid(self._rivals - self.outputs)  # 1 - logit_y
        size = column(self.problem.rate, wrong) / wrong.shape[1] * wrong
        A, B = (
            filters
            + (size * count * strength)[:, :, None]
            * self.problem.derivative(strength[:, :, None] * filters)
            for count, strength, filters in self._parts
        )
        return replace(self, A=A, B=B, number=self.number + 1)

    @cached_property
    def _parts(self) -> tuple[PatchGroup, PatchGroup]:
        """With the strengths that the attack leaves."""
        robust, others = self.problem.parts(self.A, self.B)
        return self._attacked(robust), self._attacked(others)

    def _attacked(self, part: PatchGroup) -> PatchGroup:
        slopes = self.problem.derivative(part.strength[:, :, None] * part.filters)
        pushed = (slopes * part.filters).sum(2)
        taken = torch.minimum(column(self.attack_rate, pushed) * pushed, column(self.clip, pushed))
        return part._replace(strength=(part.strength - taken).clamp_min(0))

    @property
    def _rivals(self) -> float:
        """log of the k - 1 exponentials of 0."""
        return math.log(self.A.shape[1] - 1)


def feature_recursion(start: Features, steps: int) -> Iterator[Features]:
    """Standard training, exactly: this state and those after each of so many steps (Lemma 5.1, D.4)."""
    yield start
    for _ in range(steps):
        start = start.after()
        yield start


def attacked_recursion(
    start: Features, attack_rate: Number, clip: Number, steps: int
) -> Iterator[AttackedFeatures]:
    """Adversarial training from the same start, approximately (Lemma 5.2, D.22)."""
    state = AttackedFeatures(start.problem, attack_rate, clip, start.A, start.B)
    yield state
    for _ in range(steps):
        state = state.after()
        yield state


def saturation(problem: Problem, B: Own, attack_rate: Number) -> PerClass:
    """eta~ beta^(q-2) sum_r (B_r)_+^q / rho^(q-1): near 1 non-robust features stop growing (papers/li.md 2.5)."""
    q, beta = problem.q, _by_class(problem.beta, B)
    size = column(attack_rate, beta) * beta ** (q - 2) / column(problem.rho, beta) ** (q - 1)
    return size * B.clamp_min(0).pow(q).sum(2)


class Power(NamedTuple):
    """When x reaches its target, and where y is then (Lemma B.2)."""

    time: Tensor
    y: Tensor


def tensor_power(x0, y0, ratio, q: int, target, rate) -> Power:
    """Lemma B.2 in continuous time: x' = rate x^(q-1) up to `target`, and y' = ratio rate y^(q-1).

    y is infinite where it diverges before. Numbers, or tensors of shapes that go together.
    """
    _check_degree(q)
    numbers = (torch.as_tensor(each, dtype=torch.float64) for each in (x0, y0, ratio, target, rate))
    x0, y0, ratio, target, rate = torch.broadcast_tensors(*numbers)
    left = 1 - ratio * (y0 / x0) ** (q - 2) * (1 - (x0 / target) ** (q - 2))
    return Power(_time(x0, target, q, rate), y0 * left.clamp_min(0) ** (-1 / (q - 2)))


class PhaseTimes(NamedTuple):
    """Steps until a class's first filter has learned a feature (it reaches rho / strength), or is held back."""

    robust: PerClass
    non_robust: PerClass


def phase_times(start: Features, attack_rate: Number = 0.0, clip: Number = 0.0) -> PhaseTimes:
    """When the phases end, if one filter leads and the loss has not fallen before (papers/li.md 2.8).

    A feature of strength s in n patches grows by rate (k-1) / (k^2 rho^(q-1)) n s^q x^(q-1) a step; once
    eta~ s^(q-1) x^q / rho^(q-1) reaches eps with s - eps for s, or not at all where eps > s.
    """
    _check_degree(start.problem.q)
    robust, others = start.problem.parts(start.A, start.B)
    numbers = start.problem, attack_rate, clip
    return PhaseTimes(_phase_time(robust, *numbers), _phase_time(others, *numbers))


def _phase_time(group: PatchGroup, problem: Problem, attack_rate: Number, clip: Number) -> PerClass:
    count, strength, filters = group
    q, classes = problem.q, filters.shape[1]
    numbers = (problem.rho, problem.rate, attack_rate, clip)
    rho, rate, attack_rate, eps = (column(number, strength) for number in numbers)
    first = filters.amax(2).clamp_min(0)
    growth = rate * (classes - 1) / (classes**2 * rho ** (q - 1)) * count
    learned = rho / strength
    # Without an attack 0 / 0: never clipped.
    turn = (
        torch.minimum(eps, strength) * rho ** (q - 1) / (attack_rate * strength ** (q - 1))
    ) ** (1 / q)
    turn = torch.fmin(turn, learned)
    before = _time(first, turn, q, growth * strength**q)
    after = _time(
        torch.maximum(first, turn), learned, q, growth * (strength - eps).clamp_min(0) ** q
    )
    return before + torch.where(strength > eps, after, 0.0)


def _time(start: Tensor, end: Tensor, q: int, rate: Tensor) -> Tensor:
    """Of x' = rate x^(q-1) from start to end; 0 where it is there already."""
    return ((start ** (2 - q) - end ** (2 - q)) / ((q - 2) * rate)).clamp_min(0)


def _check_degree(q: int) -> None:
    if q < 3:
        raise ValueError(f"`q` must be at least 3 for a power method, got {q}: the paper uses 3")


def _by_class(number: ByClass, like: Tensor) -> PerClass:
    """A number for each class of every run."""
    number = torch.as_tensor(number, dtype=like.dtype, device=like.device)
    return (number if number.ndim == 2 else number.reshape(-1, 1)).expand(like.shape[:2])
