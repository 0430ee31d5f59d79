"""How patch networks stand ordinary attacks along training, and whether attacks give labels away (papers/li.md 5).

Li and Li draw robust accuracy under "standard PGD" without its loss, so the ascents of several are here, beside the
attacks that need no network and the step that trains. All are on fresh points in the ball of the evaluation attack, of
runs that are tested along training. An ascent takes 20 passes of them, so of the snapshots only those half an octave
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
"""of a step, as a share of the radius"""

Seen = Callable[[Target, Ball, OneStep], Float[Tensor, "runs samples"]]
"""what is averaged over fresh points, from the ball and the step that trains"""


def judged_in_a_cube(setup: Setup) -> bool:
    """Patches with features along axes, trained by one step, tested along training and judged in an l_inf ball."""
    data, judge = setup.data, setup.final_attack
    if not (patches_and_features(setup) and isinstance(setup.attack, OneStep) and judge):
        return False
    ball = judge.threat()
    assert isinstance(data, FeaturePatches)
    axes = data.only == "both" and data.directions == "axes"
    cube = isinstance(ball, Ball) and ball.p == "inf" and ball.relative_to is None
    return axes and cube and setup.evaluation.at == "snapshots"


def own_ascent(target: Target, ball: Ball) -> Points:
    """Sign steps on -F_y, the paper's margin loss, from the clean point."""
    x, radius = target.x, ball.radii(target.data, target.x)
    delta = torch.zeros_like(x)
    for _ in range(STEPS):
        rise = target.network.own_gradient(target.params, x + delta, x, target.y)
        delta = ball.project(delta - LENGTH * radius * rise.sign(), radius, x)
    return x + delta


def _measured(step: Step, seen: Seen) -> PerRunValue:
    """The mean over fresh points, at the steps that have values."""
    setup = step.batch.setup
    if not _looked_at(step.number, setup):
        return torch.full((len(step.batch),), torch.nan, dtype=torch.float64)
    attack, judge = setup.attack, setup.final_attack
    assert isinstance(attack, OneStep)
    assert judge is not None
    ball = judge.threat()
    assert isinstance(ball, Ball)
    with torch.no_grad():
        value = seen(step.test_target, ball, _in_ball(attack, ball)).double().mean(1)
    sound = (
        step.attacked_pass.outputs.isfinite().flatten(1).all(1)
    )  # NaN > 0 is false, but that is no measurement
    return torch.where(sound, value, torch.nan)


def _looked_at(number: int, setup: Setup) -> bool:
    """Whether a step has values: half an octave from the last that had, or the end of a run."""
    ends = number == setup.training.most_steps() or number not in setup.snapshot_steps()
    return ends or number == round(2 ** (round(2 * math.log2(max(number, 1))) / 2)) or not number


def _in_ball(step: OneStep, ball: Ball) -> OneStep:
    """The step that trains, as far as the judge may go: standard training clips it to nothing."""
    return replace(step, {("clip",): None, ("ball",): ball})


def _right(target: Target, points: Points) -> Float[Tensor, "runs samples"]:
    return correct(margin(target.run(points).outputs, target.y))


def _climbed(loss: AttackLoss) -> Seen:
    """Whether a point is right under sign steps on a loss."""
    attack = PGD(ball=Ball(p="inf", radius=1.0, per="sample"), steps=STEPS, step=LENGTH, loss=loss)
    return lambda target, ball, _: _right(
        target, replace(attack, {("ball",): ball}).perturb(target)
    )


def _moved(attack: FeatureAttack) -> Seen:
    """Whether a point is right under an attack on its features."""
    return lambda target, ball, _: _right(
        target, replace(attack, {("clip",): ball.radius}).perturb(target)
    )


@metric(
    "share of fresh points right under the training attack's step, in the judge's ball",
    applies=judged_in_a_cube,
)
def robust_accuracy_one_step(step: Step) -> PerRunValue:
    return _measured(step, lambda target, _, one: _right(target, one.perturb(target)))


@metric("the same under 20 sign steps on -F_y", applies=judged_in_a_cube)
def robust_accuracy_own_ascent(step: Step) -> PerRunValue:
    return _measured(step, lambda target, ball, _: _right(target, own_ascent(target, ball)))


@metric("the same under 20 sign steps on minus the margin", applies=judged_in_a_cube)
def robust_accuracy_margin_ascent(step: Step) -> PerRunValue:
    return _measured(step, _climbed("margin"))


@metric("the same under 20 sign steps on the cross-entropy", applies=judged_in_a_cube)
def robust_accuracy_loss_ascent(step: Step) -> PerRunValue:
    return _measured(step, _climbed("cross_entropy"))


@metric("the same under Delta(X, y) of Li Theorem 4.3", applies=judged_in_a_cube)
def robust_accuracy_feature_swap(step: Step) -> PerRunValue:
    return _measured(step, _moved(FeatureSwap(clip=0.0)))


@metric("the same with another class's u on every patch", applies=judged_in_a_cube)
def robust_accuracy_all_patch(step: Step) -> PerRunValue:
    return _measured(step, _moved(AllPatch(clip=0.0)))


@metric(
    "share of pure noise that a point's perturbation by that step turns into the point's label",
    applies=judged_in_a_cube,
)
def label_leak_on_noise(step: Step) -> PerRunValue:
    """The perturbation of a point, put on noise of the same size in place of the point."""

    def seen(target: Target, _: Ball, one: OneStep) -> Float[Tensor, "runs samples"]:
        data = target.data
        assert isinstance(data, FeaturePatches)
        noise = target.streams("noise").normal(*target.x.shape[1:], dtype=target.x.dtype)
        delta = one.perturb(target) - target.x
        return _right(target, column(data.noise_std, noise) * noise + delta)

    return _measured(step, seen)


@metric(
    "share of fresh points that this step, made with a wrong label, turns into that label",
    applies=judged_in_a_cube,
)
def label_leak_wrong_label(step: Step) -> PerRunValue:
    def seen(target: Target, _: Ball, one: OneStep) -> Float[Tensor, "runs samples"]:
        classes = target.data.label_count()
        assert classes is not None
        wrong = target.relabelled((target.y + 1) % classes)
        return _right(wrong, one.perturb(wrong))

    return _measured(step, seen)
