"""The figures of Wang et al. as recipes."""

from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.axes import zipped
from benign.claims.study import Question, Reading
from benign.data.mixture import Mixture
from benign.experiment import Experiment
from benign.networks.two_layer import TwoLayer
from benign.papers.recipes import Recipe
from benign.papers.wang.exponents import EXPONENTS
from benign.plot.curves import Curves, curves_figure
from benign.plot.style import save
from benign.sweep.dataset import ended
from benign.theory.intervals import mean_interval
from benign.training.setup import Evaluation, GradientDescent

RADIUS = Question(
    "radius",
    "the attack strength is printed as alpha / |mu|: is rho = 0.1 relative to the signal?",
    {
        "relative": "yes: radius rho |mu|, step a fifth of it",
        "absolute": "no: radius rho in the units of the data, as printed",
    },
    "only a relative radius gives the printed transition at d ~ r^2",
)
NETWORK = Question(
    "network",
    "the theory has a fixed outer layer and a symmetric start, the experiments PyTorch's default",
    {
        "torch_default": "biases, both layers trained, attacked from the first step on",
        "hybrid": "fixed outer layer, symmetric start of PyTorch's size, first step clean",
    },
    "the section on experiments says so",
)


@dataclass(frozen=True)
class _Size:
    dim: int
    width: int
    samples: int
    seeds: int
    test: int
    steps: int


_SIZES = {
    "smoke": _Size(40, 20, 20, 1, 50, 40),
    "quick": _Size(250, 100, 50, 3, 250, 300),
    "paper": _Size(1000, 1000, 100, 10, 2000, 1000),
}
_PANELS = (
    ("signal", "r", [(4.0, 1.0, 0.1), (6.0, 1.0, 0.1), (8.0, 1.0, 0.1), (10.0, 1.0, 0.1)]),
    ("dim", "d", [(5.0, 0.5, 0.1), (5.0, 1.0, 0.1), (5.0, 1.5, 0.1)]),
    ("radius", "rho", [(5.0, 1.0, 0.05), (5.0, 1.0, 0.1), (5.0, 1.0, 0.15)]),
)
"""what each row of the figure varies, and its settings (r, d as a multiple of the scale's, rho)"""
_SETTINGS = list(dict.fromkeys(setting for _, _, settings in _PANELS for setting in settings))


def _build(scale: str, reading: Reading) -> Experiment:
    size = _SIZES[scale]
    signals, dims, radii = zip(*_SETTINGS, strict=True)
    ball = Ball(
        radius=zipped("setting", radii),
        relative_to="signal" if reading["radius"] == "relative" else None,
        per="sample",
    )
    theory = reading["network"] == "hybrid"
    return Experiment(
        data=Mixture(
            samples=size.samples,
            dim=zipped("setting", [round(each * size.dim) for each in dims]),
            signal=zipped("setting", signals),
            flip=0.1,
        ),
        network=TwoLayer(width=size.width, preset="hybrid" if theory else "torch_default"),
        attack=PGD(ball=ball, steps=20, step=0.2),
        training=GradientDescent(
            rate=0.1,
            drop_every=size.steps // 2,
            stop_loss=0.0,
            max_steps=size.steps,
            first_attacked_step=1 if theory else 0,
        ),
        evaluation=Evaluation(samples=size.test, at="snapshots"),
        seeds=size.seeds,
    )


def _chosen(result: xr.Dataset, setting: tuple[float, float, float]) -> xr.Dataset:
    return result.isel(setting=_SETTINGS.index(setting))


def _error(result: xr.Dataset) -> xr.DataArray:
    return result.robust_noisy_error_curve


def _draw(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    rows = []
    for field, symbol, settings in _PANELS:
        chosen = [_chosen(result, setting) for setting in settings]
        named = [(f"{symbol} = {float(each[field]):g}", each) for each in chosen]
        rows.append(
            [
                Curves(
                    [(n, e.train_loss_curve) for n, e in named], "robust training loss", log=True
                ),
                Curves([(n, _error(e)) for n, e in named], "robust test error"),
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
    Recipe(
        name="wang/fig2",
        title="Figure 2: robust training loss and robust test error along training, synthetic data",
        shows="loss to zero and error to the label noise; worse for small r, large d, large rho",
        build=_build,
        draw=_draw,
        summarise=_summarise,
        questions=(RADIUS, NETWORK),
    ),
    EXPONENTS,
]
