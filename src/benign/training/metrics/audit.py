"""Whether robust accuracy can be trusted: the training attack beside the judging one, certificates, what is possible.

Robust accuracy under an attack is an upper end. A training attack that a stronger one beats by more
than `GAP` was masked: the network learned to mislead it. An accuracy below a certificate, or above
what any classifier can reach, is a bug or a weak attack.
"""

from typing import Any

import torch
from torch import Tensor

from benign.attacks.attack import Attack, Target, repeated
from benign.attacks.balls import Ball
from benign.attacks.certificates import CERTIFICATES, certified_margin
from benign.attacks.losses import slope
from benign.data.model import BLOCK
from benign.losses import correct, margin
from benign.training.descent import WATCHED, Batch
from benign.training.setup import Setup

GAP = 0.02
"""accuracy that the judging attack may take from the training attack before it counts as masked, and share of points
without a gradient before they count"""
ERRORS = 3
"""standard errors by which an accuracy must exceed what is possible before it counts"""

FLAGS = {
    1: "masked_on_test_points",
    2: "masked_on_training_points",
    4: "zero_gradients",
    8: "below_certificate",
    16: "above_possible",
    32: "evaluation_attack_weaker_than_training_attack",
    64: "judged_by_the_kind_of_attack_that_trained",
}

MEANINGS: dict[str, tuple[str, str]] = {
    "robust_accuracy_certified": ("share of fresh points proven right in the whole ball: a lower end", "1"),
    "robust_accuracy_training_attack": ("share of fresh points with y f > 0 under the training attack", "1"),
    "train_robust_accuracy_judged": ("share of training points with y f > 0 under the evaluation attack", "1"),
    "zero_gradient_share": ("share of fresh points where what the training attack ascends has gradient 0", "1"),
    "audit": ("what makes robust accuracy doubtful, added up: "
              + ", ".join(f"{code} {name}" for code, name in FLAGS.items()), "code"),
}  # fmt: skip


def measured(setup: Setup) -> list[str]:
    """The names that are measured for this setup, with its evaluation attack."""
    judge = setup.final_attack
    if judge is None:
        return []
    trained = setup.attack is not None
    wanted = {
        "robust_accuracy_certified": _has_certificate(setup, judge),
        "robust_accuracy_training_attack": trained,
        "train_robust_accuracy_judged": trained,
        "zero_gradient_share": trained,
    }
    return [name for name in MEANINGS if wanted.get(name, True)]


def of_points(setup: Setup, target: Target, judge: Attack) -> dict[str, Tensor]:
    """What every fresh point adds."""
    values = _certified(setup, target, judge)
    return values | (_beside(target, setup.attack) if setup.attack else {})


def of_runs(batch: Batch, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same accuracy on training points, and the flags, of runs with these values."""
    judge = batch.setup.final_attack
    if judge is None:
        return {}
    found = dict(values)
    if batch.setup.attack is not None:
        found["train_robust_accuracy_judged"] = _judged_training(batch, judge)
    found["audit"] = _flags(found, batch.setup)
    return {name: found[name] for name in measured(batch.setup)}


def _certified(setup: Setup, target: Target, judge: Attack) -> dict[str, Tensor]:
    """1 where a point is proven right in every ball of the attack."""
    threat = judge.threat()
    if threat is None or not _has_certificate(setup, judge):
        return {}
    bounds = []
    for ball in threat.each():
        radius = ball.radii(target.data, target.x)[:, :, 0, 0]
        bound = certified_margin(
            target.network, target.params, target.x, target.y, ball.p, radius, ball.per
        )
        assert bound is not None
        bounds.append(bound)
    return {"robust_accuracy_certified": correct(torch.stack(bounds).amin(0))}


def _beside(target: Target, attack: Attack) -> dict[str, Tensor]:
    """What the training attack does to the same points, and where it is blind."""
    points = attack.perturb(target)
    right = correct(margin(target.run(points).outputs, repeated(target.y, points)))
    seen = target.run(target.x)
    ascended: Any = getattr(attack, "loss", "margin")
    ascended = "margin" if ascended == "own" else ascended
    gradient = seen.inputs_gradient(slope(ascended, seen.outputs, target.y))
    return {
        "robust_accuracy_training_attack": right.unflatten(1, (-1, target.x.shape[1])).mean(1),
        "zero_gradient_share": (gradient == 0).flatten(2).all(2).double(),
    }


@torch.no_grad()
def _judged_training(batch: Batch, judge: Attack) -> Tensor:
    """Accuracy on the training points under the evaluation attack; with mini-batches of the first of them."""
    sample, found = batch.sample, []
    size = sample.y.shape[1]
    step, most = (size, size) if batch.batches_per_epoch == 1 else (BLOCK, min(WATCHED, size))
    for begin in range(0, most, step):
        places = torch.arange(begin, min(begin + step, most), device=sample.y.device)
        block = sample.points(places.expand(len(batch), -1), batch.setup.data.latent_vectors)
        name = f"attack/judged/{begin}" if begin else "attack/judged"
        target = batch.widened_for(judge, batch.target(block if most > step else sample, name))
        points = judge.perturb(target)
        right = correct(margin(target.run(points).outputs, repeated(target.y, points)))
        found.append(right.unflatten(1, (-1, target.y.shape[1])).mean(1))
    return torch.cat(found, 1).mean(1)


def _flags(values: dict[str, Tensor], setup: Setup) -> Tensor:
    """The flags of every run, added up."""
    found = values["robust_accuracy"]
    raised = {4: values.get("zero_gradient_share", torch.zeros_like(found)) > GAP}
    if "robust_accuracy_training_attack" in values:
        same = _same_ball(setup, found)
        raised[1] = same & (values["robust_accuracy_training_attack"] - found > GAP)
        raised[32] = same & (found - values["robust_accuracy_training_attack"] > GAP)
        trained = values["train_robust_accuracy"] - values["train_robust_accuracy_judged"]
        raised[2] = same & (trained > GAP)
        raised[64] = torch.full_like(same, type(setup.final_attack) is type(setup.attack))
    if "robust_accuracy_certified" in values:
        raised[8] = found < values["robust_accuracy_certified"] - 1e-9
    raised[16] = _above_possible(found, setup)
    return torch.stack([code * raised[code].double() for code in raised]).sum(0)


def _same_ball(setup: Setup, like: Tensor) -> Tensor:
    """Runs whose training attack may move as far as the judge: a smaller one, or none, is beaten and not masked."""
    same = torch.ones_like(like, dtype=torch.bool)
    threats = [attack.threat() if attack else None for attack in (setup.attack, setup.final_attack)]
    trained, judged = ([] if threat is None else threat.each() for threat in threats)
    if not trained:  # an attack without a ball judges itself
        return same
    if [_norm(ball) for ball in trained] != [_norm(ball) for ball in judged]:
        return ~same
    for mine, other in zip(trained, judged, strict=True):
        same &= torch.as_tensor(mine.size(setup.data) >= other.size(setup.data) * (1 - 1e-6)).to(
            same.device
        )
    return same


def _norm(ball: Ball) -> tuple[Any, ...]:
    """What a ball is measured in; a linf ball is the same for a token and for all of a point."""
    return (ball.p, ball.relative_to, ball.p == "inf" or ball.per)


def _above_possible(accuracy: Tensor, setup: Setup) -> Tensor:
    least = torch.zeros_like(accuracy)
    judge = setup.final_attack
    threat = judge.threat() if judge else None
    for ball in threat.each() if threat else []:
        if (
            ball.relative_to == "point"
        ):  # a share of every point's own norm, which no bound of the data is stated in
            continue
        bound = setup.data.least_robust_error(ball.p, ball.size(setup.data), ball.per)
        least = torch.maximum(least, torch.as_tensor(bound, dtype=least.dtype, device=least.device))
    error = (least * (1 - least) / setup.evaluation.samples).sqrt()
    return accuracy > 1 - least + ERRORS * error


def _has_certificate(setup: Setup, judge: Attack) -> bool:
    threat = judge.threat()
    known = type(setup.network) in CERTIFICATES
    return known and threat is not None and all(ball.p != 0 for ball in threat.each())
