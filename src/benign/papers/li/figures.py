"""The figures of Li and Li as recipes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.one_step import OneStep
from benign.attacks.strong import Strong
from benign.claims.study import Question, Reading
from benign.data.feature_patches import FeaturePatches
from benign.experiment import Experiment
from benign.networks.patch_cnn import PatchCNN
from benign.papers.recipes import Recipe
from benign.plot.curves import Curves, curves_figure
from benign.plot.style import save
from benign.training.setup import Evaluation, GradientDescent

CLIPS = (0.0, 1.2)
"""eps of standard and of adversarial training; a clip of 0 is no attack"""

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
class _Size:
    samples: int
    width: int
    seeds: int
    test: int
    steps: int


_SIZES = {
    "smoke": _Size(20, 10, 1, 50, 40),
    "quick": _Size(50, 30, 5, 200, 1000),
    "paper": _Size(100, 100, 5, 500, 1000),
}


def _build(scale: str, reading: Reading) -> Experiment:
    size = _SIZES[scale]
    points = size.samples if reading["gradient"] == "mean" else 1
    rules = {"rate": 1000.0 / points, "loss": reading["loss"]}
    return Experiment(
        data=FeaturePatches(
            samples=size.samples,
            classes=2,
            tokens=16,
            dim=100,
            robust_patches=1,
            alpha=2.0,
            beta=1.0,
            noise_std=0.1,
        ),
        network=PatchCNN(
            width=size.width,
            q=3,
            threshold=1.0,
            init_std=0.01 if reading["sigma_0"] == "std" else 0.1,
        ),
        attack=OneStep(clip=list(CLIPS), **rules),
        training=GradientDescent(rate=0.1, stop_loss=0.0, max_steps=size.steps),
        evaluation=Evaluation(samples=size.test, attack=_judge(rules), at="snapshots"),
        seeds=size.seeds,
    )


def _judge(rules: dict[str, Any]) -> Strong:
    """For both kinds of training, with the paper's own attack among those tried."""
    ball = Ball(p="inf", radius=CLIPS[1], per="sample")
    return Strong(ball=ball, also=OneStep(clip=CLIPS[1], **rules))


def _kinds(result: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    standard, adversarial = (result.sel(clip=clip) for clip in CLIPS)
    return [("standard training", standard), ("adversarial training", adversarial)]


def _draw(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    features, accuracy = [], []
    for name, cell in _kinds(result):
        learned = [
            ("robust feature u", cell.robust_feature_learned_curve),
            ("non-robust feature v", cell.non_robust_feature_learned_curve),
        ]
        features.append(Curves(learned, f"correlation, {name}"))
        curves = [("clean", cell.test_accuracy_curve)]
        if name.startswith("adversarial"):
            curves.append(("under the training attack", cell.robust_accuracy_curve))
        accuracy.append(Curves(curves, f"test accuracy, {name}"))
    figure = curves_figure(
        [features, accuracy], title="Features learned by a patch network", caption=caption
    )
    return save(figure, folder / "fig3")


def _summarise(result: xr.Dataset) -> str:
    lines = []
    for name, cell in _kinds(result):
        mean = cell.mean("seed")
        lines.append(
            f"{name}: max <w, u> = {float(mean.robust_feature_learned):.3g}, "
            f"max <w, v> = {float(mean.non_robust_feature_learned):.3g}, "
            f"clean accuracy {float(mean.test_accuracy):.3g}, under its own training attack "
            f"{float(mean.robust_accuracy_training_attack):.3g}, under the evaluation attack with eps = {CLIPS[1]} "
            f"{float(mean.robust_accuracy):.3g}"
        )
    return "\n".join(lines)


RECIPES = [
    Recipe(
        name="li/fig3",
        title="Figure 3: features learned by standard and by adversarial training, synthetic data",
        shows="standard training learns the non-robust feature, adversarial training the robust one",
        build=_build,
        draw=_draw,
        summarise=_summarise,
        questions=(GRADIENT, START, LOSS),
    )
]
