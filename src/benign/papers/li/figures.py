"""Figure 3 of Li and Li as a recipe, and its networks over the strength of the robust feature."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.claims.conditions import Conditions
from benign.claims.study import Question, Reading, Scaled
from benign.data.feature_patches import FeaturePatches
from benign.experiment import Experiment, experiment_of
from benign.networks.patch_cnn import PatchCNN
from benign.papers.li import theory
from benign.papers.li.tables import TABLES
from benign.papers.li.theory import parts, robust_accuracy_limit
from benign.papers.recipes import Recipe
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.plot.variables import extended_curve
from benign.spec.axes import cells, replace
from benign.streams import RunId, Streams
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup

# The synthetic setting: its numbers, what the text leaves open, and its experiment.


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
class LiSize:
    """What goes with the scale."""

    samples: int
    width: int
    seeds: int
    test: int
    steps: int
    judge: tuple[int, int] = (50, 3)
    """steps and restarts of the attack that judges"""


def experiment(size: LiSize, reading: Reading, alpha: Any = 2.0, at: str = "end") -> Experiment:
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


def _judge(size: LiSize, rules: dict[str, Any]) -> EnsembleAttack:
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


# Figure 3.


LONGER = 5
"""T = 5000 in place of 1000"""

STEPS = Question(
    "steps",
    "how many steps are the networks trained?",
    {"1000": "T = 1000, as in the figure", "5000": "T = 5000, to see what comes after"},
    "the figure ends there",
)

ATTACKS = {
    "robust_accuracy_one_step": "one step of the training attack",
    "robust_accuracy_own_ascent": "sign-PGD on -F_y",
    "robust_accuracy_loss_ascent": "sign-PGD on the cross-entropy",
    "robust_accuracy_margin_ascent": "sign-PGD on minus the margin",
    "robust_accuracy_feature_swap": "Delta(X, y)",
    "robust_accuracy_all_patch": "the all-patch attack",
    "robust_accuracy": "the judge",
}
"""robust accuracies at the end, and what they are under"""
DRAWN = {
    "robust_accuracy_one_step": "one step",
    "robust_accuracy_loss_ascent": "PGD on the loss",
    "robust_accuracy_own_ascent": "PGD on -F_y",
}
"""those drawn along training"""
DRAWN_NOTE = (
    "Along training the first 250 test points are attacked: by one step as in training, and by 20 sign steps of "
    "eps / 8 on the cross-entropy and on -F_y; a curve that is not seen lies under the next."
)

_FIG3_SIZES = Scaled(
    smoke=LiSize(20, 10, 1, 50, 40, (20, 1)),
    quick=LiSize(50, 30, 5, 100, 1000, (20, 2)),
    paper=LiSize(100, 100, 5, 500, 1000),
)


FIG3 = Recipe(
    name="li/fig3",
    title="Figure 3: features learned by standard and by adversarial training, synthetic data",
    shows="standard training learns the non-robust feature, adversarial training the robust one",
    questions=(GRADIENT, START, LOSS, STEPS),
    conditions=conditions,
)


@FIG3.builds
def _build_3(scale: str, reading: Reading) -> Experiment:
    size = _FIG3_SIZES[scale]
    if reading["steps"] == "5000":
        size = dataclasses.replace(size, steps=LONGER * size.steps)
    return experiment(size, reading, at="snapshots")


@FIG3.draws
def _draw_3(result: xr.Dataset, caption: str) -> Figure:
    features, accuracy = [], []
    for name, cell in kinds(result):
        learned = [
            ("robust feature u", extended_curve(cell, "robust_feature_learned")),
            ("non-robust feature v", extended_curve(cell, "non_robust_feature_learned")),
        ]
        features.append(Curves(learned, "largest correlation with a weight", title=name))
        curves = [("clean", extended_curve(cell, "test_accuracy"))]
        curves += [(word, _known(cell, each)) for each, word in DRAWN.items()]
        label = f"test accuracy, eps = {EPS}"
        accuracy.append(Curves(curves, label, title=name, legend="lower left"))
    return curves_figure(
        [features, accuracy],
        title="Features learned by a patch network",
        caption=f"{caption} {DRAWN_NOTE}",
    )


def _known(cell: xr.Dataset, name: str) -> xr.DataArray:
    """A curve at the steps that have values; runs from before it was measured have none."""
    if f"{name}_curve" not in cell:
        return xr.full_like(cell.test_accuracy_curve, float("nan"))
    curve = extended_curve(cell, name)
    return curve.dropna("step", how="all") if curve.notnull().any() else curve


@FIG3.summarises
def _summarise_3(result: xr.Dataset) -> str:
    lines = []
    for name, cell in kinds(result):
        mean = cell.mean("seed")
        means = {key: f"{float(mean[key]):.3g}" for key in map(str, mean) if not mean[key].dims}
        attacked = [f"{means[key]} under {word}" for key, word in ATTACKS.items() if key in means]
        lines += [
            f"{name}: max <w, u> = {means['robust_feature_learned']}, "
            f"max <w, v> = {means['non_robust_feature_learned']}, "
            f"loss of attacked training points {means['train_loss']}, clean accuracy {means['test_accuracy']}",
            f"  with u alone {means['robust_feature_accuracy']}, with v alone {means['non_robust_feature_accuracy']}",
            f"  robust accuracy, eps = {EPS}: {', '.join(attacked)}",
        ]
        if "label_leak_on_noise" in means:
            lines.append(
                f"  labels leak: the step's perturbation turns pure noise into the point's class in "
                f"{means['label_leak_on_noise']}, and made with the wrong label it turns the point into that in "
                f"{means['label_leak_wrong_label']}"
            )
    return "\n".join(lines)


# What strong robust features change: the networks of Figure 3 over alpha (papers/li.md 2.9, 5).


ALPHAS = (2.0, 5.0, 12.0, 25.0, 40.0)
POINTS = 200
"""on which the bound is computed: it looks at all pairs"""

_SIZES_ALPHA = Scaled(
    smoke=LiSize(20, 10, 1, 20, 20, (5, 1)),
    quick=LiSize(50, 20, 3, 100, 500, (20, 2)),
    paper=LiSize(100, 100, 5, 500, 1000),
)


ALPHA = Recipe(
    name="li/alpha",
    title="Figure 3's networks over the strength alpha of the robust feature",
    shows="whether adversarial training is robust once classes are separated (alpha > 2 eps)",
    questions=(GRADIENT, LOSS),
    conditions=conditions,
)


@ALPHA.builds
def _build_alpha(scale: str, reading: Reading) -> Experiment:
    alphas = Scaled(ALPHAS[:3], ALPHAS, ALPHAS)[scale]
    return experiment(_SIZES_ALPHA[scale], reading, list(alphas))


def _cell(result: xr.Dataset) -> Setup:
    """The first cell of the grid, for what all share."""
    _, cell = next(cells(experiment_of(result)))
    return cell


def limits(result: xr.Dataset, alphas: Sequence[float]) -> xr.DataArray:
    """What no classifier's robust accuracy on fresh points can exceed, at each alpha."""
    cell, streams = _cell(result), Streams([RunId(0, 0, "li/alpha")], "cpu")
    count = min(POINTS, cell.evaluation.samples)
    largest = []
    for alpha in alphas:
        data: FeaturePatches = replace(cell.data, {("alpha",): alpha})
        drawn = data.sample(streams, "test/0", count, torch.float64)
        x, y = drawn.x[0].flatten(1), drawn.y[0]
        largest.append(robust_accuracy_limit(x[y == 0].numpy(), x[y == 1].numpy(), EPS))
    return xr.DataArray([largest], {"alpha": list(alphas)}, ("seed", "alpha"))


def least_alpha(data: FeaturePatches, network: PatchCNN) -> float:
    """The alpha up to which no network of robust features is robust in two classes (papers/li.md 2.9 (2))."""
    return EPS * (1 + (data.tokens / data.robust_patches) ** (1 / network.q))


@ALPHA.draws
def _draw_alpha(result: xr.Dataset, caption: str) -> Figure:
    possible = least_alpha(*parts(_cell(result)))
    marks = [(2 * EPS, "not separated"), (possible, "none robust")]
    note = (
        f"Dashed: alpha = 2 eps, up to where classes are not separated, and alpha = {possible:.3g}, up to where no "
        "network of robust features is robust in both classes (papers/li.md 2.9)."
    )
    features, accuracy = [], []
    bound = limits(result, np.geomspace(result.alpha.min(), result.alpha.max(), 25).tolist())
    over = partial(
        Curves, along="alpha", along_label="strength alpha of the robust feature", marks=marks
    )
    for name, cell in kinds(result):
        learned = [
            ("robust feature u", cell.robust_feature_learned),
            ("non-robust feature v", cell.non_robust_feature_learned),
        ]
        label = "largest correlation with a weight"
        features.append(over(learned, label, title=name))
        curves = [
            ("clean", cell.test_accuracy),
            ("under the evaluation attack", cell.robust_accuracy),
        ]
        if name.startswith("adversarial"):
            curves.append(("under the training attack", cell.robust_accuracy_training_attack))
        curves.append(("no classifier can exceed", bound))
        label = f"test accuracy, eps = {EPS}"
        accuracy.append(over(curves, label, title=name))
    return curves_figure(
        [features, accuracy], title="Stronger robust features", caption=f"{caption} {note}"
    )


@ALPHA.summarises
def _summarise_alpha(result: xr.Dataset) -> str:
    bound, lines = limits(result, result.alpha.values.tolist()).isel(seed=0), []
    for name, cell in kinds(result):
        lines.append(f"{name}, eps = {EPS}:")
        for alpha in result.alpha.values:
            one = cell.sel(alpha=alpha).mean("seed")
            own = float(one.robust_accuracy_training_attack)
            attack = f", under its training attack {own:.3g}" if name.startswith("adv") else ""
            lines.append(
                f"  alpha = {alpha:g}: max <w, u> = {float(one.robust_feature_learned):.3g}, "
                f"max <w, v> = {float(one.non_robust_feature_learned):.3g}, clean accuracy "
                f"{float(one.test_accuracy):.3g}{attack}, under the evaluation attack {float(one.robust_accuracy):.3g} "
                f"(no classifier exceeds {float(bound.sel(alpha=alpha)):.3g})"
            )
    return "\n".join(lines)


RECIPES = [
    FIG3,
    ALPHA,
    *TABLES,
]
