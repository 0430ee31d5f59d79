"""Attacks on patch networks along training, point by point and coordinate by coordinate."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.data.feature_patches import FeaturePatches
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import replace
from benign.streams import Streams
from benign.training.descent import Batch, Step, descend
from benign.training.engine import train_runs
from benign.training.metrics import METRICS, metrics_for
from benign.training.metrics.attacked_patches import own_ascent
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup, stack
from tests.reference.__init__ import run_ids

EPS, RATE = 0.7, 3.0


def setup_of(clip: float = EPS, steps: int = 40, **evaluation: Any) -> Setup:
    """Few points and filters; a radius at which some attacks succeed and some do not."""
    judge = EnsembleAttack(ball=Ball(p="inf", radius=EPS, per="sample"), steps=2, restarts=1)
    asked = {"samples": 30, "attack": judge, "at": "snapshots"}
    return Setup(
        data=FeaturePatches(samples=8, tokens=4, dim=10, alpha=2.0, beta=1.0, noise_std=0.1),
        network=PatchCNN(width=3, q=3, threshold=1.0, init_std=0.2),
        attack=OneStep(rate=RATE, clip=clip),
        training=GradientDescent(rate=0.3, stop_loss=0.0, max_steps=steps),
        evaluation=Evaluation(**(asked | evaluation)),
        precision="float64",
    )


def outputs(step: Step, points: Tensor) -> Tensor:
    """F_i = sum_r sum_p phi(<w_ir, x_p>) of every point [samples, tokens, dim]."""
    z = torch.einsum("imd,npd->nimp", step.batch.params["weights"][0], points)
    powers = z.clamp(0, 1) ** 3 / 3
    return torch.where(z > 1, z - 2 / 3, powers).sum((2, 3))


def gradient(step: Step, points: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    points = points.detach().clone().requires_grad_()
    with torch.enable_grad():
        value = of(outputs(step, points)).sum()
    return torch.autograd.grad(value, points)[0]


def ascended(step: Step, of: Callable[[Tensor], Tensor]) -> Tensor:
    """20 sign steps of eps / 8 in the cube."""
    x = step.test_target.x[0]
    points = x.clone()
    for _ in range(20):
        points = points + EPS / 8 * gradient(step, points, of).sign()
        points = torch.minimum(torch.maximum(points, x - EPS), x + EPS)
    return points


def stepped(step: Step, labels: Tensor) -> Tensor:
    """One step on -F_y, clipped."""
    x = step.test_target.x[0]
    rise = gradient(step, x, lambda f: -f.gather(1, labels[:, None]))
    return x + (RATE * rise).clamp(-EPS, EPS)


def right(step: Step, points: Tensor, labels: Tensor | None = None) -> float:
    labels = labels_of(step) if labels is None else labels
    return float((outputs(step, points).argmax(1) == labels).double().mean())


def labels_of(step: Step) -> Tensor:
    return step.test_target.y[0].long()


def own(step: Step) -> Callable[[Tensor], Tensor]:
    return lambda f: -f.gather(1, labels_of(step)[:, None])


def moved(step: Step, robust: bool) -> Tensor:
    """Delta(X, y), or the other class's u on every patch and less of the own where it is."""
    target = step.test_target
    shows = target.sample.latent["robust"][0]
    features = target.sample.latent["features"][0]
    points = target.x[0].clone()
    for n, label in enumerate(labels_of(step).tolist()):
        for p in range(points.shape[1]):
            if robust:
                points[n, p] += EPS * features[1 - label]
                points[n, p] -= EPS * features[label] * bool(shows[n, p])
            elif not shows[n, p]:
                strength = float(target.sample.latent["strength"][0, n, p])
                points[n, p] += (
                    EPS * features[2 + 1 - label] - min(strength, EPS) * features[2 + label]
                )
    return points


def on_noise(step: Step) -> Tensor:
    target = step.test_target
    noise = target.streams("noise").normal(*target.x.shape[1:], dtype=target.x.dtype)[0]
    return 0.1 * noise + stepped(step, labels_of(step)) - target.x[0]


ATTACKED: dict[str, Callable[[Step], float]] = {
    "robust_accuracy_one_step": lambda s: right(s, stepped(s, labels_of(s))),
    "robust_accuracy_own_ascent": lambda s: right(s, ascended(s, own(s))),
    "robust_accuracy_margin_ascent": lambda s: right(
        s, ascended(s, lambda f: own(s)(f) + f.gather(1, 1 - labels_of(s)[:, None]))
    ),
    "robust_accuracy_loss_ascent": lambda s: right(
        s, ascended(s, lambda f: -f.log_softmax(1).gather(1, labels_of(s)[:, None]))
    ),
    "robust_accuracy_feature_swap": lambda s: right(s, moved(s, robust=False)),
    "robust_accuracy_all_patch": lambda s: right(s, moved(s, robust=True)),
    "label_leak_on_noise": lambda s: right(s, on_noise(s)),
    "label_leak_wrong_label": lambda s: right(s, stepped(s, 1 - labels_of(s)), 1 - labels_of(s)),
}


@pytest.mark.parametrize("clip", [0.0, EPS], ids=["standard", "adversarial"])
def test_metrics_are_what_their_definitions_say(clip: float):
    setup = setup_of(clip)
    assert ATTACKED.keys() <= {metric.name for metric in metrics_for(setup)}
    batch = Batch.start(stack([setup], "cpu"), Streams(run_ids(1), "cpu"))
    values = set()
    for step, _ in descend(batch):
        if step.number in (0, 16, 40):
            for name, direct in ATTACKED.items():
                found = float(METRICS[name].function(step)[0])
                assert found == pytest.approx(direct(step)), f"{name} at step {step.number}"
                values.add(found)
    assert len(values) > 4, "attacks should differ"


def test_own_ascent_stays_in_the_cube_and_lowers_the_output_of_the_class():
    batch = Batch.start(stack([setup_of()], "cpu"), Streams(run_ids(1), "cpu"))
    step, _ = next(descend(batch))
    target = step.test_target
    points = own_ascent(target, Ball(p="inf", radius=EPS, per="sample"))
    assert float((points - target.x).abs().max()) <= EPS * (1 + 1e-12)
    own_class = target.y.long()[..., None]
    clean, attacked = (target.run(each).outputs.gather(2, own_class) for each in (target.x, points))
    assert bool((attacked <= clean).all())


def test_values_are_half_an_octave_apart_and_at_the_end():
    setup = setup_of(steps=37)
    found = train_runs([setup], run_ids(1))["robust_accuracy_own_ascent_curve"][0]
    steps = [
        step for step, value in zip(setup.snapshot_steps(), found, strict=True) if value == value
    ]
    assert steps == [0, *sorted({round(math.sqrt(2) ** k) for k in range(11)}), 37]


def test_only_runs_that_are_tested_along_training_pay_for_them():
    flat = EnsembleAttack(ball=Ball(p=2, radius=EPS))
    others = [
        setup_of(at="end"),
        setup_of(attack=flat),
        replace(setup_of(), {("attack",): None}),
        replace(setup_of(), {("data", "directions"): "random"}),
    ]
    for other in others:
        assert not ATTACKED.keys() & {metric.name for metric in metrics_for(other)}
