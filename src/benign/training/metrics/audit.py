"""The audit: can robust accuracy be trusted?

It compares the training attack with the evaluation attack, with certificates and with what is possible. Robust
accuracy under an attack is an upper end. A training attack that a stronger one beats by more than `GAP` was masked: the
network learned to mislead it. An accuracy below a certificate, or above what any classifier can reach, is a bug or a
weak attack.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool
from torch import Tensor

from benign.attacks.attack import Attack, repeated
from benign.attacks.balls import Ball
from benign.attacks.certificates import CERTIFICATES, certified_margin
from benign.attacks.losses import slope
from benign.data.model import BLOCK
from benign.losses import correct, margin
from benign.training.descent import MEASURED_POINTS
from benign.training.metrics.fresh_points import EvaluatedRuns, PerPoint, PointBlock
from benign.training.metrics.metric import PerRunValue, attacked, evaluation_metric, point_metric
from benign.training.setup import Setup

GAP = 0.02
"""accuracy that the evaluation attack may take from the training attack before it counts as masked, and share of points
without a gradient before they count"""
ERRORS = 3
"""standard errors by which an accuracy must exceed what is possible before it counts"""

Values: TypeAlias = dict[str, Tensor]
"""values of runs [runs] by the names of metrics"""
Raised: TypeAlias = Bool[Tensor, " runs"]


def has_certificate(setup: Setup) -> bool:
    """Return whether margins can be certified in the ball of the evaluation attack."""
    threat = setup.final_attack.threat() if setup.final_attack else None
    known = type(setup.network) in CERTIFICATES
    return known and threat is not None and all(ball.p != 0 for ball in threat.each())


@point_metric(
    "share of fresh points proven right in the whole ball: a lower end",
    applies=has_certificate,
    attacked=True,
    only_at_end=True,
)
def robust_accuracy_certified(block: PointBlock) -> PerPoint:
    """1 where a point is proven right in every ball of the attack."""
    target, threat = block.target, block.attack.threat() if block.attack else None
    assert threat is not None
    bounds = []
    for ball in threat.each():
        radius = ball.radii(target.data, target.x)[:, :, 0, 0]
        bound = certified_margin(
            target.network, target.params, target.x, target.y, ball.p, radius, ball.per
        )
        assert bound is not None
        bounds.append(bound)
    return correct(torch.stack(bounds).amin(0))


@point_metric(
    "share of fresh points with y f > 0 under the training attack",
    applies=attacked,
    attacked=True,
    only_at_end=True,
)
def robust_accuracy_training_attack(block: PointBlock) -> PerPoint:
    return block.over_sets(correct(block.training_attack_margins))


@point_metric(
    "share of fresh points where what the training attack ascends has gradient 0",
    applies=attacked,
    attacked=True,
    only_at_end=True,
)
def zero_gradient_share(block: PointBlock) -> PerPoint:
    target = block.target
    clean = target.run(target.x)
    ascended: Any = getattr(block.setup.attack, "loss", "margin")
    ascended = "margin" if ascended == "own" else ascended
    gradient = clean.inputs_gradient(slope(ascended, clean.outputs, target.y))
    return (gradient == 0).flatten(2).all(2).double()


@evaluation_metric(
    "share of training points with y f > 0 under the evaluation attack",
    applies=attacked,
    attacked=True,
    only_at_end=True,
)
def train_robust_accuracy_judged(runs: EvaluatedRuns) -> PerRunValue:
    """With mini-batches, on the first training points only."""
    batch, attack = runs.batch, runs.attack
    assert attack is not None
    sample = batch.sample
    size = sample.y.shape[1]
    whole = batch.batches_per_epoch == 1
    step, most = (size, size) if whole else (BLOCK, min(MEASURED_POINTS, size))
    right = []
    for begin in range(0, most, step):
        places = torch.arange(begin, min(begin + step, most), device=sample.y.device)
        block = sample.points(places.expand(len(batch), -1), batch.setup.data.latent_vectors)
        name = f"attack/judged/{begin}" if begin else "attack/judged"
        target = batch.widened_for(attack, batch.target(block if most > step else sample, name))
        points = attack.perturb(target)
        each = correct(margin(target.run(points).outputs, repeated(target.y, points)))
        right.append(each.unflatten(1, (-1, target.y.shape[1])).mean(1))
    return torch.cat(right, 1).mean(1)


FLAGS: dict[int, str] = {}
"""what makes robust accuracy doubtful, by code; codes add up"""
_RULES: dict[int, tuple[tuple[str, ...], Callable[[Values, Setup], Raised]]] = {}


def _flag(code: int, *needs: str):
    """Declare a flag: whether it is raised in each run, from values by these names and the setup."""

    def register(rule: Callable[[Values, Setup], Raised]) -> Callable[[Values, Setup], Raised]:
        FLAGS[code] = rule.__name__
        _RULES[code] = (needs, rule)
        return rule

    return register


@_flag(1, "robust_accuracy_training_attack")
def masked_on_test_points(values: Values, setup: Setup) -> Raised:
    gap = values["robust_accuracy_training_attack"] - values["robust_accuracy"]
    return _same_ball(setup, gap) & (gap > GAP)


@_flag(2, "train_robust_accuracy", "train_robust_accuracy_judged")
def masked_on_training_points(values: Values, setup: Setup) -> Raised:
    gap = values["train_robust_accuracy"] - values["train_robust_accuracy_judged"]
    return _same_ball(setup, gap) & (gap > GAP)


@_flag(4, "zero_gradient_share")
def zero_gradients(values: Values, setup: Setup) -> Raised:
    return values["zero_gradient_share"] > GAP


@_flag(8, "robust_accuracy_certified")
def below_certificate(values: Values, setup: Setup) -> Raised:
    return values["robust_accuracy"] < values["robust_accuracy_certified"] - 1e-9


@_flag(16)
def above_possible(values: Values, setup: Setup) -> Raised:
    """More than any classifier can reach: where the data model has such a bound for the ball."""
    accuracy = values["robust_accuracy"]
    least = torch.zeros_like(accuracy)
    threat = setup.final_attack.threat() if setup.final_attack else None
    for ball in threat.each() if threat else []:
        if ball.relative_to == "point":  # a share of every point's own norm; bounds are for lengths
            continue
        bound = setup.data.least_robust_error(ball.p, ball.size(setup.data), ball.per)
        least = torch.maximum(least, torch.as_tensor(bound, dtype=least.dtype, device=least.device))
    error = (least * (1 - least) / setup.evaluation.samples).sqrt()
    return accuracy > 1 - least + ERRORS * error


@_flag(32, "robust_accuracy_training_attack")
def evaluation_attack_weaker_than_training_attack(values: Values, setup: Setup) -> Raised:
    gap = values["robust_accuracy"] - values["robust_accuracy_training_attack"]
    return _same_ball(setup, gap) & (gap > GAP)


@_flag(64, "robust_accuracy_training_attack")
def judged_by_the_kind_of_attack_that_trained(values: Values, setup: Setup) -> Raised:
    same = type(setup.final_attack) is type(setup.attack)
    return torch.full_like(values["robust_accuracy"], same, dtype=torch.bool)


@evaluation_metric(
    "what makes robust accuracy doubtful, added up: "
    + ", ".join(f"{code} {name}" for code, name in FLAGS.items()),
    "code",
    attacked=True,
    only_at_end=True,
)
def audit(runs: EvaluatedRuns) -> PerRunValue:
    return flags(runs.values, runs.setup)


def flags(values: Values, setup: Setup) -> PerRunValue:
    """Return the codes of the flags that are raised, added up, for every run with these values."""
    raised = [
        code * rule(values, setup).double()
        for code, (needs, rule) in _RULES.items()
        if values.keys() >= {*needs}
    ]
    return torch.stack(raised).sum(0)


def _same_ball(setup: Setup, like: Tensor) -> Raised:
    """Runs whose training attack may move as far as the evaluation attack: a smaller one, or none, is not masked."""
    same = torch.ones_like(like, dtype=torch.bool)
    training, evaluation = (_balls(attack) for attack in (setup.attack, setup.final_attack))
    if not training:  # an attack without a ball evaluates itself
        return same
    if [_norm(ball) for ball in training] != [_norm(ball) for ball in evaluation]:
        return ~same
    for mine, other in zip(training, evaluation, strict=True):
        reaches = mine.size(setup.data) >= other.size(setup.data) * (1 - 1e-6)
        same &= torch.as_tensor(reaches).to(same.device)
    return same


def _balls(attack: Attack | None) -> list[Ball]:
    threat = attack.threat() if attack else None
    return [] if threat is None else list(threat.each())


def _norm(ball: Ball) -> tuple[Any, ...]:
    """What a ball is measured in; a linf ball is the same for a token and for all of a point."""
    return (ball.p, ball.relative_to, ball.p == "inf" or ball.per)
