"""How well the training points are fitted: probes of every run."""

import torch
from torch import Tensor

from benign.losses import correct
from benign.training.descent import Step
from benign.training.metrics.metric import PerRunValue, attacked, first_time, metric, running_metric
from benign.training.setup import Setup


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


@running_metric("largest training loss over all steps", "nats")
def peak_loss(so_far: Tensor | None, step: Step) -> PerRunValue:
    return step.loss.clone() if so_far is None else torch.maximum(so_far, step.loss)


@running_metric("first step at which every point trained on has y f > 0; -1 if never", "steps")
def first_fit(so_far: Tensor | None, step: Step) -> PerRunValue:
    return first_time(so_far, step, (step.margins > 0).all(1))
