"""Li's training attack: one step along the gradient itself, clipped element by element."""

import pytest
import torch

from benign.attacks.balls import Ball
from benign.attacks.one_step import OneStep
from benign.data.feature_patches import FeaturePatches
from benign.losses import loss, margin
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import stack
from benign.spec.base import SpecError
from benign.streams import Streams
from tests.reference import attacked, close, run_ids
from tests.says import says

DATA = FeaturePatches(
    samples=6, tokens=4, dim=9, classes=3, alpha=2.0, beta=1.0, noise_std=0.1, directions="random"
)
NETWORK = PatchCNN(width=5, classes=3, q=3, threshold=1.0, init_std=0.5)


def drawn(runs: int = 2):
    streams = Streams(run_ids(runs))
    sample = DATA.sample(streams, "train", 6, torch.float64)
    return sample, NETWORK.initial_params(DATA, streams, torch.float64)


def ascended(kind: str, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The three losses of the attack, from their definitions."""
    if kind == "own":
        return -outputs.gather(2, y.long()[..., None])[..., 0]
    return -margin(outputs, y) if kind == "margin" else loss(outputs, y)


@pytest.mark.parametrize("kind", ["own", "margin", "cross_entropy"])
def test_the_step_is_the_clipped_gradient(kind):
    sample, params = drawn()
    attack = OneStep(rate=0.7, clip=0.05, loss=kind)
    moved = attacked(attack, NETWORK, params, DATA, sample.x, sample.y) - sample.x
    x = sample.x.clone().requires_grad_()
    total = ascended(kind, NETWORK.forward(params, x), sample.y).sum()
    (gradient,) = torch.autograd.grad(total, x)
    clipped = (0.7 * gradient).abs() > 0.05
    assert clipped.any()
    assert not clipped.all()
    close(moved, (0.7 * gradient).clamp(-0.05, 0.05), 1e-9)


def test_each_run_has_its_own_rate_and_clip():
    sample, params = drawn()
    each = [OneStep(rate=rate, clip=clip) for rate, clip in ((0.5, 0.1), (2.0, 0.0))]
    both = stack(each, torch.DoubleTensor)
    together = attacked(both, NETWORK, params, DATA, sample.x, sample.y)
    for run, attack in enumerate(each):
        alone = attacked(
            attack,
            NETWORK,
            {name: part[run : run + 1] for name, part in params.items()},
            DATA,
            sample.x[run : run + 1],
            sample.y[run : run + 1],
        )
        close(together[run : run + 1], alone)
    assert torch.equal(together[1], sample.x[1])


@pytest.mark.parametrize(("p", "per"), [(1, "sample"), (2, "token"), ("inf", "token")])
def test_in_a_ball_the_step_is_projected(p, per):
    """The linf ball is the clip; elsewhere the nearest point of the ball to the whole step."""
    sample, params = drawn()
    ball = Ball(p=p, radius=0.05, per=per)
    moved, free = (
        attacked(attack, NETWORK, params, DATA, sample.x, sample.y) - sample.x
        for attack in (OneStep(rate=0.7, ball=ball), OneStep(rate=0.7, clip=1e9))
    )
    radius = ball.radii(DATA, sample.x)
    assert (ball.norm(free) > radius).any()
    close(moved, ball.project(free.clone(), radius, sample.x), 1e-9)
    if p == "inf":
        close(moved, free.clamp(-0.05, 0.05), 1e-9)


def test_a_gpu_records_steps_in_a_cube_but_no_search_for_the_nearest_point():
    assert OneStep(rate=1.0, clip=0.3).recordable()
    assert OneStep(rate=1.0, ball=Ball(radius=0.3)).recordable()
    assert not OneStep(rate=1.0, ball=Ball(p=1, radius=0.3)).recordable()


def test_bad_fields_are_named():
    with pytest.raises(SpecError, match=says("`clip`", "`ball`", "one")):
        OneStep(rate=1.0, clip=1.0, ball=Ball(radius=1.0))
    with pytest.raises(SpecError, match=says("rate", "greater than 0", "0.0")):
        OneStep(rate=0.0, clip=1.0)
    with pytest.raises(SpecError, match=says("clip", "greater than or equal to 0", "-1")):
        OneStep(rate=1.0, clip=-1.0)
