"""The audit: can robust losses and accuracies be trusted?

It compares the training attack with the evaluation attack, with certificates and with what is possible. An attack
gives a lower end of the robust loss and an upper end of robust accuracy, a certificate the other ends. A run is masked
if the evaluation attack raises its training loss: the network learned to mislead the attack that trained it, and what
was descended is not the robust loss. An accuracy below a certificate, or above what any classifier can reach, is a bug
or a weak attack.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from benign.attacks.attack import Attack, Target, repeated
from benign.attacks.balls import Ball
from benign.attacks.certificates import CERTIFICATES, certified_margins, is_exact
from benign.attacks.losses import slope
from benign.data.model import BLOCK, Sample
from benign.losses import correct, loss, margin
from benign.training.descent import MEASURED_POINTS, Batch
from benign.training.metrics.fresh_points import EvaluatedRuns, PerPoint, PointBlock
from benign.training.metrics.metric import PerRunValue, attacked, evaluation_metric, point_metric
from benign.training.setup import Setup

RISE, LEAST_RISE = 0.1, 1e-3
"""how much the evaluation attack must raise the training loss for a run to be masked: more than this share of it, and
more than this many nats"""
GAP = 0.02
"""difference of two accuracies that counts, and share of points without a gradient"""
ERRORS = 3
"""standard errors by which an accuracy must exceed what is possible before it counts"""

Values: TypeAlias = dict[str, Tensor]
"""values of runs [runs] by the names of metrics"""
Raised: TypeAlias = Bool[Tensor, " runs"]
BySet: TypeAlias = Float[Tensor, "runs sets samples"]
"""of every point and set of attacked points: an attack may give several"""


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
    signs_only=True,
)
def robust_accuracy_certified(block: PointBlock) -> PerPoint:
    """1 where a point is proven right in every ball of the attack."""
    assert block.attack is not None
    return correct(certified_margins(block.target, block.attack))


@point_metric(
    "share of fresh points with y f > 0 under the training attack",
    applies=attacked,
    attacked=True,
    only_at_end=True,
    signs_only=True,
)
def robust_accuracy_training_attack(block: PointBlock) -> PerPoint:
    return block.over_sets(correct(block.training_attack_margins))


@point_metric(
    "share of fresh points where what the training attack ascends has gradient 0",
    applies=attacked,
    attacked=True,
    only_at_end=True,
    signs_only=True,
)
def zero_gradient_share(block: PointBlock) -> PerPoint:
    target = block.target
    clean = target.run(target.x)
    ascended: Any = getattr(block.setup.attack, "loss", "margin")
    ascended = "margin" if ascended == "own" else ascended
    gradient = clean.inputs_gradient(slope(ascended, clean.outputs, target.y))
    return (gradient == 0).flatten(2).all(2).double()


# Training points at the end, with their own labels; with mini-batches the first of them, as many as curves measure.


@dataclass(frozen=True)
class AttackedTrainingPoints:
    """The training points of a batch under both attacks: means over points of every run."""

    accuracy: PerRunValue
    """under the evaluation attack"""
    trained_loss: PerRunValue
    """under the training attack; if it gives a point several times, the largest"""
    robust_loss: PerRunValue
    """the largest that is known of every point"""

    @staticmethod
    def of(batch: Batch) -> "AttackedTrainingPoints":
        """Attack the training points by both attacks, with the weights as they are."""
        trained_by, judged_by = batch.setup.attack, batch.setup.final_attack
        assert trained_by is not None
        assert judged_by is not None
        parts = []
        for begin, sample in _training_points(batch):
            place = f"/{begin}" if begin else ""
            target = batch.target(sample, f"attack/judged{place}")
            clean = _losses(target, target.x).amax(1)
            if is_exact(target.network, judged_by):
                margins = certified_margins(target, judged_by).double()
                right, losses = correct(margins), _by_point(largest_loss(margins, 2), sample)
            else:
                judged = batch.widened_for(judged_by, target)
                points = judged_by.perturb(judged)
                right = correct(margin(judged.run(points).outputs, repeated(judged.y, points)))
                losses = _losses(judged, points)
            robust = torch.maximum(clean, losses.amax(1))
            target = batch.target(sample, f"attack/trained{place}")
            trained = _losses(target, trained_by.perturb(target)).amax(1)
            inside = _reaches(judged_by, trained_by, batch.setup, trained[:, 0])[:, None]
            robust = torch.where(inside, torch.maximum(robust, trained), robust)
            parts.append((_by_point(right, sample).mean(1), trained, robust))
        return AttackedTrainingPoints(
            *(torch.cat(part, 1).mean(1) for part in zip(*parts, strict=True))
        )


def _training_points(batch: Batch) -> Iterator[tuple[int, Sample]]:
    """Yield the training points with the number of those before them: all at once, or in blocks with mini-batches."""
    sample = batch.sample
    size = sample.y.shape[1]
    if batch.batches_per_epoch == 1:
        yield 0, sample
        return
    most = min(MEASURED_POINTS, size)
    for begin in range(0, most, BLOCK):
        places = torch.arange(begin, min(begin + BLOCK, most), device=sample.y.device)
        yield begin, sample.points(places.expand(len(batch), -1), batch.setup.data.latent_vectors)


def _losses(target: Target, points: Tensor) -> BySet:
    """Return the losses of the points that an attack found for those of the target."""
    outputs = target.run(points).outputs.double()
    return _by_point(loss(outputs, repeated(target.y, points)), target.sample)


def _by_point(values: Tensor, sample: Sample) -> BySet:
    return values.unflatten(1, (-1, sample.y.shape[1]))


@evaluation_metric(
    "share of training points with y f > 0 under the evaluation attack",
    applies=attacked,
    attacked=True,
    only_at_end=True,
)
def train_robust_accuracy_judged(runs: EvaluatedRuns) -> PerRunValue:
    return runs.once(AttackedTrainingPoints.of).accuracy


@evaluation_metric(
    "robust training loss as far as it is known, a lower end: of every training point the largest loss of the clean "
    "point and of those that the evaluation attack and the training attack find in the ball of the evaluation attack",
    "nats",
    applies=attacked,
    attacked=True,
    only_at_end=True,
)
def train_robust_loss(runs: EvaluatedRuns) -> PerRunValue:
    """The loss that robust training is about; `train_loss` is that of the points which training found."""
    return runs.once(AttackedTrainingPoints.of).robust_loss


@evaluation_metric(
    "how much the evaluation attack raises the training loss: train_robust_loss minus the loss of the same points "
    "under the training attack, with the same weights",
    "nats",
    applies=attacked,
    attacked=True,
    only_at_end=True,
)
def train_loss_raised(runs: EvaluatedRuns) -> PerRunValue:
    """The training attack is made again, since `train_loss` may be of other draws, or of batch statistics."""
    found = runs.once(AttackedTrainingPoints.of)
    return found.robust_loss - found.trained_loss


def _attacked_and_certified(setup: Setup) -> bool:
    return attacked(setup) and has_certificate(setup)


def _certified_training_margins(batch: Batch) -> PerPoint:
    """Return lower bounds of the margins of the training points in the ball of the evaluation attack."""
    attack = batch.setup.final_attack
    assert attack is not None
    targets = (batch.target(sample, "certified") for _, sample in _training_points(batch))
    return torch.cat([certified_margins(each, attack) for each in targets], 1)


@evaluation_metric(
    "share of training points proven right in the whole ball: a lower end",
    applies=_attacked_and_certified,
    attacked=True,
    only_at_end=True,
)
def train_robust_accuracy_certified(runs: EvaluatedRuns) -> PerRunValue:
    return correct(runs.once(_certified_training_margins)).mean(1)


@evaluation_metric(
    "upper end of the robust training loss, from certified margins",
    "nats",
    applies=_attacked_and_certified,
    attacked=True,
    only_at_end=True,
)
def train_robust_loss_certified(runs: EvaluatedRuns) -> PerRunValue:
    margins = runs.once(_certified_training_margins).double()
    return largest_loss(margins, runs.setup.data.label_count() or 2).mean(1)


def largest_loss(margins: PerPoint, classes: int) -> PerPoint:
    """Return log(1 + (k - 1) exp(-m)), the largest loss at a margin m among k classes: all rivals are equal there."""
    return functional.softplus(math.log(classes - 1) - margins)


def _answered_exactly(setup: Setup) -> bool:
    return is_exact(setup.network, setup.final_attack)


@evaluation_metric(
    "1: robust accuracy and robust losses are exact, computed from the smallest margin in the whole ball by a "
    "certificate, and nothing was attacked",
    applies=_answered_exactly,
    attacked=True,
    only_at_end=True,
)
def robust_exactly(runs: EvaluatedRuns) -> PerRunValue:
    accuracy = runs.values["robust_accuracy"]
    return torch.ones_like(accuracy).where(~accuracy.isnan(), torch.nan)


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
def training_attack_weaker_on_test_points(values: Values, setup: Setup) -> Raised:
    gap = values["robust_accuracy_training_attack"] - values["robust_accuracy"]
    return _same_ball(setup, gap) & (gap > GAP)


@_flag(2, "train_loss_raised", "train_robust_loss")
def masked_on_training_points(values: Values, setup: Setup) -> Raised:
    """The evaluation attack raises the training loss, whatever the accuracy: that stays 1 where margins shrink."""
    rise = values["train_loss_raised"]
    under_training_attack = values["train_robust_loss"] - rise
    return _same_ball(setup, rise) & (rise > (RISE * under_training_attack).clamp_min(LEAST_RISE))


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


MASKING = 2 | 32
"""flags that make a run masked (`benign.sweep.dataset.masked`); flag 1 does not: accuracies of test points may differ
because the training attack is short, and may agree where the robust loss is several times the training loss"""


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
    return _reaches(setup.attack, setup.final_attack, setup, like)


def _reaches(one: Attack | None, other: Attack | None, setup: Setup, like: Tensor) -> Raised:
    """Runs in which the balls of one attack are those of the other, or larger; or neither has balls."""
    reaches = torch.ones_like(like, dtype=torch.bool)
    mine, others = _balls(one), _balls(other)
    if [_norm(ball) for ball in mine] != [_norm(ball) for ball in others]:
        return ~reaches
    for larger, smaller in zip(mine, others, strict=True):
        enough = larger.size(setup.data) >= smaller.size(setup.data) * (1 - 1e-6)
        reaches &= torch.as_tensor(enough).to(reaches.device)
    return reaches


def _balls(attack: Attack | None) -> list[Ball]:
    threat = attack.threat() if attack else None
    return [] if threat is None else list(threat.each())


def _norm(ball: Ball) -> tuple[Any, ...]:
    """What a ball is measured in, and its box; a linf ball is the same for a token and for all of a point."""
    return (ball.p, ball.relative_to, ball.p == "inf" or ball.per, ball.box)
