"""The figures of Wang et al. as recipes."""

from dataclasses import replace
from pathlib import Path

import xarray as xr

from benign.attacks.ensemble import EnsembleAttack
from benign.claims.study import Reading
from benign.experiment import Experiment
from benign.papers.recipes import Recipe
from benign.papers.wang.exponents import EXPONENTS
from benign.papers.wang.image_curves import FIG6, UNDERTRAINING
from benign.papers.wang.image_maps import FIG4, FIG5
from benign.papers.wang.setting import (
    NETWORK,
    PAPER,
    RADIUS,
    SMALLEST,
    Size,
    ball,
    clusters,
    experiment,
    training_attack,
)
from benign.papers.wang.theory import conditions
from benign.papers.wang.windows import FIG1, FIG3
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import save
from benign.plot.variables import extended_curve
from benign.spec.axes import zipped
from benign.stats.intervals import mean_interval
from benign.sweep.dataset import ended
from benign.training.setup import Evaluation

_SIZES = {
    "smoke": Size(samples=20, width=20, steps=16, ascend=4, seeds=1, test=20),
    "quick": Size(samples=50, width=100, steps=300, ascend=10, seeds=3, test=200),
    # With the paper's 2000 points, tests at snapshots were two thirds of the cost. Here both labels of a point count
    # with their chance: at an error of 3 % beyond the noise, 500 such points tell as much as 2000 with flipped labels.
    "paper": replace(PAPER, test=500),
}
_DIMS = {"smoke": 40, "quick": 250, "paper": 1000}
_PANELS = (
    ("signal", "r", [(4.0, 1.0, 0.1), (6.0, 1.0, 0.1), (8.0, 1.0, 0.1), (10.0, 1.0, 0.1)]),
    ("dim", "d", [(5.0, 0.5, 0.1), (5.0, 1.0, 0.1), (5.0, 1.5, 0.1)]),
    ("attack.ball.radius", "rho", [(5.0, 1.0, 0.05), (5.0, 1.0, 0.1), (5.0, 1.0, 0.15)]),
)
"""what each row of the figure varies, and its settings (r, d as a multiple of the scale's, rho)"""
_SETTINGS = list(dict.fromkeys(setting for _, _, settings in _PANELS for setting in settings))


def _build(scale: str, reading: Reading) -> Experiment:
    size = _SIZES[scale]
    signals, dims, radii = zip(*_SETTINGS, strict=True)
    sizes = [round(each * _DIMS[scale]) for each in dims]
    radius = zipped("setting", radii)
    # Two ascents in place of the four of the default judge, and shorter ones: a third of its passes.
    judge = EnsembleAttack(
        ball=ball(reading, radius),
        steps=size.ascend,
        restarts=1,
        also=training_attack(size, reading, radius),
    )
    return experiment(
        size,
        reading,
        data=clusters(size, zipped("setting", signals), zipped("setting", sizes)),
        radius=radius,
        evaluation=Evaluation(samples=size.test, attack=judge, at="snapshots"),
        coordinates=SMALLEST,
    )


def _chosen(result: xr.Dataset, setting: tuple[float, float, float]) -> xr.Dataset:
    return result.isel(setting=_SETTINGS.index(setting))


def _draw(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    rows = []
    for field, symbol, settings in _PANELS:
        chosen = [_chosen(result, setting) for setting in settings]
        named = [(f"{symbol} = {float(each[field]):g}", each) for each in chosen]
        rows.append(
            [
                Curves(
                    [(n, extended_curve(e, "train_loss")) for n, e in named],
                    "robust training loss",
                    log=True,
                ),
                Curves(
                    [(n, extended_curve(e, "robust_noisy_error")) for n, e in named],
                    "robust test error",
                ),
            ]
        )
    note = "Test labels are flipped as training labels are: no classifier is below 10 %."
    figure = curves_figure(
        rows, title="Adversarial training of a two-layer network", caption=f"{caption} {note}"
    )
    return save(figure, folder / "fig2")


def _summarise(result: xr.Dataset) -> str:
    lines = []
    for field, symbol, settings in _PANELS:
        for setting in settings:
            cell = _chosen(result, setting)
            runs = int(ended(cell).sum())
            error = cell.robust_noisy_error.dropna("seed").values
            fitted = (cell.train_robust_accuracy == 1).sum().item()
            tested = str(mean_interval(error)) if error.size else "of no run"
            if 0 < error.size < cell.sizes["seed"]:  # others diverged, failed or are missing
                tested += f" of {error.size} runs"
            lines.append(
                f"{symbol} = {float(cell[field]):g}: robust test error {tested}, robust "
                f"training loss {float(cell.train_loss.mean()):.3g}, "
                f"{fitted} of {runs} runs fit every attacked training point"
            )
    return "\n".join(lines)


RECIPES = [
    FIG1,
    Recipe(
        name="wang/fig2",
        title="Figure 2: robust training loss and robust test error along training, synthetic data",
        shows="loss to zero and error to the label noise; worse for small r, large d, large rho",
        build=_build,
        draw=_draw,
        summarise=_summarise,
        questions=(RADIUS, NETWORK),
        conditions=conditions,
    ),
    FIG3,
    FIG4,
    FIG5,
    FIG6,
    UNDERTRAINING,
    EXPONENTS,
]
