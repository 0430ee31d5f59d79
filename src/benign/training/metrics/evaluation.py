"""Metrics of every run: how well training points are fitted, and fresh points classified, clean and under attack."""

from collections.abc import Iterator

import torch
from torch import Tensor

from benign.attacks.attack import Attack, repeated
from benign.data.model import BLOCK
from benign.losses import correct, loss
from benign.training.descent import Batch, Step
from benign.training.metrics.fresh_points import (
    EvaluatedRuns,
    PerPoint,
    PerSet,
    PointBlock,
    cuts_short,
)
from benign.training.metrics.metric import (
    METRICS,
    EvaluationMetric,
    PerRunValue,
    PointMetric,
    attacked,
    first_time,
    metric,
    point_metric,
    running_metric,
)
from benign.training.setup import Setup

TOGETHER = 4
"""blocks of test points whose attack is cut short together: their points are in memory at once"""


@torch.no_grad()
def measure(
    batch: Batch,
    attack: Attack | None,
    at_end: bool = False,
    known: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Evaluate every run of the batch on fresh points: values [runs, ...] by name.

    `known` are values that metrics may read, such as those of the training points.
    """
    known = known or {}
    runs = EvaluatedRuns(batch, attack, at_end, known | means(batch, attack, at_end))
    for each in METRICS.values():
        applies = isinstance(each, EvaluationMetric)
        if applies and each.applies_to(batch.setup, attack, at_end):
            runs.values |= each.values(runs)
    return {name: value for name, value in runs.values.items() if name not in known}


def means(batch: Batch, attack: Attack | None, at_end: bool) -> dict[str, Tensor]:
    """Return the metrics that are means over fresh points."""
    metrics = [
        each
        for each in METRICS.values()
        if isinstance(each, PointMetric) and each.applies_to(batch.setup, attack, at_end)
    ]
    sums: dict[str, list[Tensor]] = {}
    counts: dict[str, int] = {}
    for block, whole in _blocks(batch, attack):
        for each in metrics:
            if not (whole or each.signs_only):
                continue
            values = each.values(block)
            so_far = sums.get(each.name, [0] * len(values))
            sums[each.name] = [s + value.sum(1) for s, value in zip(so_far, values, strict=True)]
            counts[each.name] = counts.get(each.name, 0) + block.count
    return {
        each.name: each.finish(*(part / counts[each.name] for part in sums[each.name]))
        for each in metrics
    }


def _blocks(batch: Batch, attack: Attack | None) -> Iterator[tuple[PointBlock, bool]]:
    """Yield the blocks of test points, each with whether its attack is whole: all are, or the first one alone."""
    total = batch.setup.evaluation.samples
    sizes = {
        f"test/{number}": min(BLOCK, total - begin)
        for number, begin in enumerate(range(0, total, BLOCK))
    }
    splits, whole = list(sizes), not cuts_short(batch.setup, attack)
    yield PointBlock(batch, attack, splits[0], sizes[splits[0]]), True
    for begin in range(1, len(splits), TOGETHER):
        together = {split: sizes[split] for split in splits[begin : begin + TOGETHER]}
        for block in PointBlock.several(batch, attack, together):
            yield block, whole


# Training points


@metric("training loss that is descended (of attacked points under an attack)", "nats")
def train_loss(step: Step) -> PerRunValue:
    return step.loss


@metric("training loss of the clean points", "nats", attacked)
def train_clean_loss(step: Step) -> PerRunValue:
    return step.clean_loss


@metric("share of clean training points with y f > 0")
def train_accuracy(step: Step) -> PerRunValue:
    return correct(step.clean_margins).mean(1)


@metric("share of training points with y f > 0 under the training attack", applies=attacked)
def train_robust_accuracy(step: Step) -> PerRunValue:
    return correct(step.margins).mean(1)


@metric(
    "share of flipped training points fitted with their wrong label", applies=Setup.flips_labels
)
def flipped_fitted(step: Step) -> PerRunValue:
    flipped = step.batch.sample.y != step.batch.sample.clean_y
    return (flipped * correct(step.clean_margins)).sum(1) / flipped.sum(1)


@running_metric("largest training loss over all steps", "nats", padded=True)
def peak_loss(so_far: Tensor | None, step: Step) -> PerRunValue:
    return step.loss.clone() if so_far is None else torch.maximum(so_far, step.loss)


@running_metric(
    "first step at which every point trained on has y f > 0; -1 if never", "steps", padded=True
)
def first_fit(so_far: Tensor | None, step: Step) -> PerRunValue:
    return first_time(so_far, step, (step.margins > 0).all(1))


# Fresh clean points


def two_classes(setup: Setup) -> bool:
    """Return whether labels are -1 and +1."""
    return setup.data.label_count() is None


@point_metric("loss of fresh clean points", "nats")
def test_loss(block: PointBlock) -> PerPoint:
    return loss(block.outputs, block.y)


@point_metric("share of fresh clean points with y f > 0, against clean labels")
def test_accuracy(block: PointBlock) -> PerPoint:
    return correct(block.margins)


@point_metric(
    "share of fresh clean points with y f <= 0, against labels flipped as in training",
    applies=Setup.flips_labels,
)
def test_noisy_error(block: PointBlock) -> PerPoint:
    return _noisy_error(block, block.margins, block.margins)


@point_metric("mean margin (y f) over fresh clean points")
def test_margin_mean(block: PointBlock) -> PerPoint:
    return block.margins


@point_metric(
    "standard deviation of the margin over fresh clean points",
    finish=lambda square, mean: (square - mean.square()).clamp_min(0).sqrt(),
)
def test_margin_std(block: PointBlock) -> tuple[PerPoint, PerPoint]:
    return block.margins.square(), block.margins


@point_metric(
    "mean margin over fresh clean points of class +1 (Wang's M_+)",
    finish=lambda total, positive: total / positive,
    applies=two_classes,
)
def test_margin_positive(block: PointBlock) -> tuple[PerPoint, PerPoint]:
    positive = (block.y > 0).double()
    return block.margins * positive, positive


@point_metric(
    "mean margin over fresh clean points of class -1 (Wang's M_-)",
    finish=lambda total, positive: total / (1 - positive),
    applies=two_classes,
)
def test_margin_negative(block: PointBlock) -> tuple[PerPoint, PerPoint]:
    positive = (block.y > 0).double()
    return block.margins * (1 - positive), positive


# Fresh points under the attack of the evaluation


@point_metric(
    f"loss of fresh points under the evaluation attack, of the first {BLOCK} of them if the attack is of kind strong",
    "nats",
    attacked=True,
)
def robust_loss(block: PointBlock) -> PerPoint:
    return block.over_sets(loss(block.attacked_outputs, block.attacked_y))


@point_metric(
    "share of fresh points with y f > 0 under the evaluation attack: an upper end",
    attacked=True,
    signs_only=True,
)
def robust_accuracy(block: PointBlock) -> PerPoint:
    return block.over_sets(correct(block.attacked_margins))


@point_metric(
    "share of fresh points with y f <= 0 under the evaluation attack, against labels flipped as in training: a lower "
    "end",
    applies=Setup.flips_labels,
    attacked=True,
    signs_only=True,
)
def robust_noisy_error(block: PointBlock) -> PerPoint:
    return block.over_sets(_noisy_error(block, block.attacked_margins, block.raised_margins))


def _noisy_error(block: PointBlock, lowest: PerSet, highest: PerSet) -> PerSet:
    """Chance of an error where the label may be flipped: an adversary then raises y f above 0 instead.

    NaN in runs without flips, where it would be the plain error.
    """
    setup = block.setup
    chance = repeated(setup.data.flip_chance(block.sample).double(), lowest)
    error = (1 - chance) * (1 - correct(lowest)) + chance * (1 - correct(-highest))
    return error.where(setup.flipping().reshape(-1, 1).to(error.device), torch.nan)
