"""Accuracy of patch networks under ordinary attacks along training, and leaks of labels by attacks (papers/li.md 5).

Li and Li plot robust accuracy under "standard PGD" without naming its loss, so there are ascents of several losses, the
attacks that need no network, and the step of the training attack. All are on fresh points in the ball of the evaluation
attack, in runs that are tested along training. An ascent takes 20 forward passes, so only snapshots half an octave
apart have values.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Points, Target
from benign.attacks.balls import Ball
from benign.attacks.losses import AttackLoss
from benign.attacks.model_free import AllPatch, FeatureAttack, FeatureSwap
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.model import column
from benign.losses import correct, margin
from benign.spec.axes import replace
from benign.training.descent import Step
from benign.training.metrics.features import patches_and_features
from benign.training.metrics.metric import PerRunValue, metric
from benign.training.setup import Setup

STEPS = 20
LENGTH = 2.5 / STEPS
"""length of a step, as a share of the radius"""

PointValue = Callable[[Target, Ball, OneStep], Float[Tensor, "runs samples"]]
"""a value of every fresh point, from the ball and the training attack"""


def evaluated_in_a_cube(setup: Setup) -> bool:
    """Return whether patches with features along axes are trained by one step, and evaluated at snapshots in a cube."""
    data, attack = setup.data, setup.final_attack
    if not (patches_and_features(setup) and isinstance(setup.attack, OneStep) and attack):
        return False
    ball = attack.threat()
    assert isinstance(data, FeaturePatches)
    axes = data.only == "both" and data.directions == "axes"
    cube = isinstance(ball, Ball) and ball.p == "inf" and ball.relative_to is None
    return axes and cube and setup.evaluation.at == "snapshots"


def own_ascent(target: Target, ball: Ball) -> Points:
    """Ascend -F_y, the paper's margin loss, by sign steps from the clean point."""
    x, radius = target.x, ball.radii(target.data, target.x)
    delta = torch.zeros_like(x)
    for _ in range(STEPS):
        slope = target.network.own_gradient(target.params, x + delta, x, target.y)
        delta = ball.project(delta - LENGTH * radius * slope.sign(), radius, x)
    return x + delta


def _mean(step: Step, value: PointValue) -> PerRunValue:
    """Return the mean over fresh points, or NaN at a step without values and in diverged runs."""
    setup = step.batch.setup
    if not _has_values(step.number, setup):
        return torch.full((len(step.batch),), torch.nan, dtype=torch.float64)
    assert isinstance(setup.attack, OneStep)
    assert setup.final_attack is not None
    ball = setup.final_attack.threat()
    assert isinstance(ball, Ball)
    with torch.no_grad():
        mean = value(step.test_target, ball, _in_ball(setup.attack, ball)).double().mean(1)
    finite = step.attacked_pass.outputs.isfinite().flatten(1).all(1)  # NaN > 0 would be an error
    return torch.where(finite, mean, torch.nan)


def _has_values(number: int, setup: Setup) -> bool:
    """Return whether a step has values: half an octave after the last that had, or the end of a run."""
    ends = number == setup.training.most_steps() or number not in setup.snapshot_steps()
    return ends or number == round(2 ** (round(2 * math.log2(max(number, 1))) / 2)) or not number


def _in_ball(step: OneStep, ball: Ball) -> OneStep:
    """Return the step of the training attack in the ball of the evaluation attack; standard training clips it to 0."""
    return replace(step, {("clip",): None, ("ball",): ball})


def _right(target: Target, points: Points) -> Float[Tensor, "runs samples"]:
    return correct(margin(target.run(points).outputs, target.y))


def _right_under_ascent(loss: AttackLoss) -> PointValue:
    """Return a value that is 1 if a point is classified rightly under sign steps on a loss."""
    attack = PGD(ball=Ball(p="inf", radius=1.0, per="sample"), steps=STEPS, step=LENGTH, loss=loss)
    return lambda target, ball, _: _right(
        target, replace(attack, {("ball",): ball}).perturb(target)
    )


def _right_under(attack: FeatureAttack) -> PointValue:
    """Return a value that is 1 if a point is classified rightly under an attack on its features."""
    return lambda target, ball, _: _right(
        target, replace(attack, {("clip",): ball.radius}).perturb(target)
    )


@metric(
    "share of fresh points right under the training attack's step, in the ball of the evaluation attack",
    applies=evaluated_in_a_cube,
)
def robust_accuracy_one_step(step: Step) -> PerRunValue:
    return _mean(step, lambda target, _, one: _right(target, one.perturb(target)))


@metric("the same under 20 sign steps on -F_y", applies=evaluated_in_a_cube)
def robust_accuracy_own_ascent(step: Step) -> PerRunValue:
    return _mean(step, lambda target, ball, _: _right(target, own_ascent(target, ball)))


@metric("the same under 20 sign steps on minus the margin", applies=evaluated_in_a_cube)
def robust_accuracy_margin_ascent(step: Step) -> PerRunValue:
    return _mean(step, _right_under_ascent("margin"))


@metric("the same under 20 sign steps on the cross-entropy", applies=evaluated_in_a_cube)
def robust_accuracy_loss_ascent(step: Step) -> PerRunValue:
    return _mean(step, _right_under_ascent("cross_entropy"))


@metric("the same under Delta(X, y) of Li Theorem 4.3", applies=evaluated_in_a_cube)
def robust_accuracy_feature_swap(step: Step) -> PerRunValue:
    return _mean(step, _right_under(FeatureSwap(clip=0.0)))


@metric("the same with another class's u on every patch", applies=evaluated_in_a_cube)
def robust_accuracy_all_patch(step: Step) -> PerRunValue:
    return _mean(step, _right_under(AllPatch(clip=0.0)))


@metric(
    "share of pure noise that a point's perturbation by that step turns into the point's label",
    applies=evaluated_in_a_cube,
)
def label_leak_on_noise(step: Step) -> PerRunValue:
    """The perturbation of a point, put on noise of the same size in place of the point."""

    def right(target: Target, _: Ball, one: OneStep) -> Float[Tensor, "runs samples"]:
        data = target.data
        assert isinstance(data, FeaturePatches)
        noise = target.streams("noise").normal(*target.x.shape[1:], dtype=target.x.dtype)
        delta = one.perturb(target) - target.x
        return _right(target, column(data.noise_std, noise) * noise + delta)

    return _mean(step, right)


@metric(
    "share of fresh points that this step, made with a wrong label, turns into that label",
    applies=evaluated_in_a_cube,
)
def label_leak_wrong_label(step: Step) -> PerRunValue:
    def right(target: Target, _: Ball, one: OneStep) -> Float[Tensor, "runs samples"]:
        classes = target.data.label_count()
        assert classes is not None
        wrong = target.relabelled((target.y + 1) % classes)
        return _right(wrong, one.perturb(wrong))

    return _mean(step, right)
