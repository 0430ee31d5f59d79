"""The figures of Li and Li as recipes."""

from dataclasses import replace
from pathlib import Path

import xarray as xr

from benign.claims.study import Question, Reading
from benign.experiment import Experiment
from benign.papers.li.alpha import ALPHA
from benign.papers.li.setting import (
    EPS,
    GRADIENT,
    LOSS,
    START,
    Size,
    conditions,
    experiment,
    kinds,
)
from benign.papers.li.tables import TABLES
from benign.papers.recipes import Recipe
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import save
from benign.plot.variables import extended_curve

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
DRAWN_TOLD = (
    "Along training the first 250 test points are attacked: by one step as in training, and by 20 sign steps of "
    "eps / 8 on the cross-entropy and on -F_y; a curve that is not seen lies under the next."
)

_SIZES = {
    "smoke": Size(20, 10, 1, 50, 40, (20, 1)),
    "quick": Size(50, 30, 5, 100, 1000, (20, 2)),
    "paper": Size(100, 100, 5, 500, 1000),
}


def _build(scale: str, reading: Reading) -> Experiment:
    size = _SIZES[scale]
    if reading["steps"] == "5000":
        size = replace(size, steps=LONGER * size.steps)
    return experiment(size, reading, at="snapshots")


def _draw(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
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
    figure = curves_figure(
        [features, accuracy],
        title="Features learned by a patch network",
        caption=f"{caption} {DRAWN_TOLD}",
    )
    return save(figure, folder / "fig3")


def _known(cell: xr.Dataset, name: str) -> xr.DataArray:
    """A curve at the steps that have values; runs from before it was measured have none."""
    if f"{name}_curve" not in cell:
        return xr.full_like(cell.test_accuracy_curve, float("nan"))
    curve = extended_curve(cell, name)
    return curve.dropna("step", how="all") if curve.notnull().any() else curve


def _summarise(result: xr.Dataset) -> str:
    lines = []
    for name, cell in kinds(result):
        mean = cell.mean("seed")
        told = {key: f"{float(mean[key]):.3g}" for key in map(str, mean) if not mean[key].dims}
        attacked = [f"{told[key]} under {word}" for key, word in ATTACKS.items() if key in told]
        lines += [
            f"{name}: max <w, u> = {told['robust_feature_learned']}, "
            f"max <w, v> = {told['non_robust_feature_learned']}, "
            f"loss of attacked training points {told['train_loss']}, clean accuracy {told['test_accuracy']}",
            f"  with u alone {told['robust_feature_accuracy']}, with v alone {told['non_robust_feature_accuracy']}",
            f"  robust accuracy, eps = {EPS}: {', '.join(attacked)}",
        ]
        if "label_leak_on_noise" in told:
            lines.append(
                f"  labels leak: the step's perturbation turns pure noise into the point's class in "
                f"{told['label_leak_on_noise']}, and made with the wrong label it turns the point into that in "
                f"{told['label_leak_wrong_label']}"
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
        questions=(GRADIENT, START, LOSS, STEPS),
        conditions=conditions,
    ),
    ALPHA,
    *TABLES,
]
