"""The synthetic setting of Li and Li (Figure 3): its numbers, what its text leaves open, and its experiment."""

from dataclasses import dataclass
from typing import Any

import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.claims.conditions import Conditions
from benign.claims.study import Question, Reading
from benign.data.feature_patches import FeaturePatches
from benign.experiment import Experiment
from benign.networks.patch_cnn import PatchCNN
from benign.papers.li import theory
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup

EPS = 1.2
"""radius of the attack"""
CLIPS = (0.0, EPS)
"""eps of standard and of adversarial training; a clip of 0 is no attack"""
KINDS = ("standard training", "adversarial training")

GRADIENT = Question(
    "gradient",
    "the attack step eta~ = 1000 multiplies a gradient: of the mean loss or of each point's own?",
    {"mean": "of the mean over the N points", "sample": "of each point, as the formula is printed"},
    "the reading that reproduces the printed feature curves (papers/li.md 3.2)",
)
START = Question(
    "sigma_0",
    "sigma_0 = 0.01: a standard deviation or a variance?",
    {"std": "standard deviation 0.01", "variance": "standard deviation 0.1"},
    "the theory's sigma_0^2 = 1/d would be a standard deviation of 0.1 at d = 100",
)
LOSS = Question(
    "loss",
    "which loss does the training attack ascend?",
    {"own": "-F_y, as defined", "margin": "-(F_y - max F_j)", "cross_entropy": "the training loss"},
    "the paper's definition",
)


@dataclass(frozen=True)
class Size:
    """What goes with the scale."""

    samples: int
    width: int
    seeds: int
    test: int
    steps: int
    judge: tuple[int, int] = (50, 3)
    """steps and restarts of the attack that judges"""


def experiment(size: Size, reading: Reading, alpha: Any = 2.0, at: str = "end") -> Experiment:
    """Standard and adversarial training with the numbers of Figure 3, but for `alpha`."""
    points = size.samples if reading["gradient"] == "mean" else 1
    rules: dict[str, Any] = {"rate": 1000.0 / points, "loss": reading["loss"]}
    return Experiment(
        data=FeaturePatches(
            samples=size.samples,
            classes=2,
            tokens=16,
            dim=100,
            robust_patches=1,
            alpha=alpha,
            beta=1.0,
            noise_std=0.1,
        ),
        network=PatchCNN(
            width=size.width,
            q=3,
            threshold=1.0,
            init_std=0.1 if reading.get("sigma_0") == "variance" else 0.01,
        ),
        attack=OneStep(clip=list(CLIPS), **rules),
        training=GradientDescent(rate=0.1, stop_loss=0.0, max_steps=size.steps),
        evaluation=Evaluation.from_dict(
            {"samples": size.test, "attack": _judge(size, rules).as_dict(), "at": at}
        ),
        seeds=size.seeds,
    )


def _judge(size: Size, rules: dict[str, Any]) -> EnsembleAttack:
    """For both kinds of training, with the paper's own attack among those tried."""
    steps, restarts = size.judge
    ball = Ball(p="inf", radius=EPS, per="sample")
    return EnsembleAttack(
        ball=ball, steps=steps, restarts=restarts, also=OneStep(clip=EPS, **rules)
    )


def kinds(result: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """Standard and adversarial training, by name."""
    return [(name, result.sel(clip=clip)) for name, clip in zip(KINDS, CLIPS, strict=True)]


def conditions(setup: Setup) -> Conditions:
    """Of Theorem 4.3 at cells without an attack, of Theorem 4.4 elsewhere."""
    standard = getattr(setup.attack, "clip", None) == 0
    return theory.conditions(setup, "4.3" if standard else "4.4")
