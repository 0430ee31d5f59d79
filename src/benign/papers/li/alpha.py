"""What strong robust features change: Figure 3 of Li and Li over alpha (papers/li.md 2.9, 5)."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
import xarray as xr

from benign.claims.study import Reading, at
from benign.data.feature_patches import FeaturePatches
from benign.experiment import Experiment, experiment_of
from benign.networks.patch_cnn import PatchCNN
from benign.papers.li.setting import EPS, GRADIENT, LOSS, Size, conditions, experiment, kinds
from benign.papers.li.theory import parts, robust_accuracy_limit
from benign.papers.recipes import Recipe, Scaled
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.spec.axes import cells, replace
from benign.streams import RunId, Streams
from benign.training.setup import Setup

ALPHAS = (2.0, 5.0, 12.0, 25.0, 40.0)
POINTS = 200
"""on which the bound is computed: it looks at all pairs"""

_SIZES = Scaled(
    smoke=Size(20, 10, 1, 20, 20, (5, 1)),
    quick=Size(50, 20, 3, 100, 500, (20, 2)),
    paper=Size(100, 100, 5, 500, 1000),
)


ALPHA = Recipe(
    name="li/alpha",
    title="Figure 3's networks over the strength alpha of the robust feature",
    shows="whether adversarial training is robust once classes are separated (alpha > 2 eps)",
    questions=(GRADIENT, LOSS),
    conditions=conditions,
)


@ALPHA.builds
def _build(scale: str, reading: Reading) -> Experiment:
    alphas = at(scale, ALPHAS[:3], ALPHAS, ALPHAS)
    return experiment(_SIZES[scale], reading, list(alphas))


def _cell(result: xr.Dataset) -> Setup:
    """The first cell of the grid, for what all share."""
    _, cell = next(cells(experiment_of(result)))
    return cell


def limits(result: xr.Dataset, alphas: Sequence[float]) -> xr.DataArray:
    """What no classifier's robust accuracy on fresh points can exceed, at each alpha."""
    cell, streams = _cell(result), Streams([RunId(0, 0, "li/alpha")], "cpu")
    count = min(POINTS, cell.evaluation.samples)
    found = []
    for alpha in alphas:
        data: FeaturePatches = replace(cell.data, {("alpha",): alpha})
        drawn = data.sample(streams, "test/0", count, torch.float64)
        x, y = drawn.x[0].flatten(1), drawn.y[0]
        found.append(robust_accuracy_limit(x[y == 0].numpy(), x[y == 1].numpy(), EPS))
    return xr.DataArray([found], {"alpha": list(alphas)}, ("seed", "alpha"))


def least_alpha(data: FeaturePatches, network: PatchCNN) -> float:
    """The alpha up to which no network of robust features is robust in two classes (papers/li.md 2.9 (2))."""
    return EPS * (1 + (data.tokens / data.robust_patches) ** (1 / network.q))


@ALPHA.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    possible = least_alpha(*parts(_cell(result)))
    marks = [(2 * EPS, "not separated"), (possible, "none robust")]
    told = (
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
        curves = [("clean", cell.test_accuracy), ("under the judge", cell.robust_accuracy)]
        if name.startswith("adversarial"):
            curves.append(("under the training attack", cell.robust_accuracy_training_attack))
        curves.append(("no classifier can exceed", bound))
        label = f"test accuracy, eps = {EPS}"
        accuracy.append(over(curves, label, title=name))
    return curves_figure(
        [features, accuracy], title="Stronger robust features", caption=f"{caption} {told}"
    )


@ALPHA.summarises
def _summarise(result: xr.Dataset) -> str:
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
                f"{float(one.test_accuracy):.3g}{attack}, under the judge {float(one.robust_accuracy):.3g} "
                f"(no classifier exceeds {float(bound.sel(alpha=alpha)):.3g})"
            )
    return "\n".join(lines)
