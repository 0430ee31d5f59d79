"""Figure 6 of Wang et al. as a recipe, and a test of what figure 4 shows: curves on two digits."""

from dataclasses import replace
from pathlib import Path

import xarray as xr

from benign.claims.study import Reading, at
from benign.experiment import Experiment
from benign.networks.two_layer import TwoLayer
from benign.papers.image_questions import describe_images
from benign.papers.recipes import Recipe
from benign.papers.wang.image_maps import RHO
from benign.papers.wang.images import IMAGES, default_std, figure
from benign.papers.wang.setting import NETWORK, RADIUS, training_attack
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import save
from benign.plot.variables import extended_curve
from benign.spec.axes import Axis, zipped
from benign.stats.intervals import mean_interval
from benign.training.optimisers import GradientDescent

_PANELS = (
    ("norm", "r", [(3.0, 784, 0.1), (5.0, 784, 0.1), (7.0, 784, 0.1), (10.0, 784, 0.1)]),
    ("dim", "d", [(5.0, 289, 0.1), (5.0, 400, 0.1), (5.0, 784, 0.1), (5.0, 1024, 0.1)]),
    (
        "attack.ball.radius",
        "rho",
        [(10.0, 784, 0.05), (10.0, 784, 0.1), (10.0, 784, 0.15), (10.0, 784, 0.2)],
    ),
)
"""what each row varies, and its settings (r, d, rho)"""
_SETTINGS = list(dict.fromkeys(setting for _, _, settings in _PANELS for setting in settings))
_DIGITS_DIM = {289: 25, 400: 36, 784: 64, 1024: 81}
"""pixels where pictures have 64"""


# Figure 6.


def _build_6(scale: str, reading: Reading) -> Experiment:
    shown = figure(scale, reading)
    # Tests at snapshots are most of the cost: 500 points, as in wang/fig2.
    size = replace(shown.size, seeds=at(scale, 1, 3, 5), test=min(shown.size.test, 500))
    shown = replace(shown, size=size)
    norms, dims, radii = zip(*_SETTINGS, strict=True)
    if shown.source == "digits":
        dims = [_DIGITS_DIM[dim] for dim in dims]
    return shown.experiment(
        reading,
        norm=zipped("setting", norms),
        dim=zipped("setting", dims),
        radius=zipped("setting", radii),
        at="snapshots",
    )


def _chosen(result: xr.Dataset, setting: tuple[float, int, float]) -> xr.Dataset:
    return result.isel(setting=_SETTINGS.index(setting))


def _draw_6(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    rows = []
    for field, symbol, settings in _PANELS:
        chosen = [_chosen(result, setting) for setting in settings]
        named = [(f"{symbol} = {float(each[field]):g}", each) for each in chosen]
        losses = [(name, extended_curve(each, "train_loss")) for name, each in named]
        errors = [(name, 1 - extended_curve(each, "robust_accuracy")) for name, each in named]
        rows.append(
            [Curves(losses, "robust training loss", log=True), Curves(errors, "robust test error")]
        )
    told = f"{caption} {describe_images(result)}"
    drawn = curves_figure(rows, title="Adversarial training on two digits", caption=told)
    return save(drawn, folder / "fig6")


def _summarise_6(result: xr.Dataset) -> str:
    lines = []
    for norm, dim, rho in _SETTINGS:
        cell = _chosen(result, (norm, dim, rho))
        errors = (1 - cell.robust_accuracy).dropna("seed").values
        error = mean_interval(errors) if errors.size else "of no run"
        lines.append(
            f"r = {norm:g}, d = {int(cell.dim)}, rho = {rho:g}: robust test error {error}, "
            f"robust training loss {float(cell.train_loss.mean()):.3g}"
        )
    return "\n".join(lines)


# Is figure 4 undertraining? (papers/wang.md 2.5 and 3.3)


CASES = ("r = 2", "r = 0.1", "r = 0.1, rescaled")
"""rescaled: the step size times (2 / 0.1)^2 and the initial weights times 2 / 0.1"""
_NORMS = (2.0, 0.1, 0.1)
_FACTORS = (1.0, 1.0, 20.0)


def _build_undertraining(scale: str, reading: Reading) -> Experiment:
    """A fixed outer layer without biases, for which the rescaled run is the run at r = 2 (wang.md 2.5)."""
    answers = {**reading, "radius": "relative"}
    shown = figure(scale, answers)
    dims = at(scale, shown.dims[::3], shown.dims[::2], shown.dims)
    cells = [(case, dim) for case in range(len(CASES)) for dim in dims]

    def along(values: list) -> Axis:
        return zipped("cell", values)

    size = shown.size
    return Experiment(
        data=shown.data(
            norm=along([_NORMS[case] for case, _ in cells]), dim=along([dim for _, dim in cells])
        ),
        network=TwoLayer(
            width=size.width,
            init_std=along([_FACTORS[case] * default_std(dim) for case, dim in cells]),
        ),
        attack=training_attack(size, answers, RHO),
        training=GradientDescent(
            rate=along([0.1 * _FACTORS[case] ** 2 for case, _ in cells]),
            drop_every=size.steps // 2,
            stop_loss=0.0,
            max_steps=size.steps,
            first_attacked_step=1,
        ),
        evaluation=shown.tests(answers, RHO),
        pairing="common",
        seeds=size.seeds,
    )


def by_case(result: xr.Dataset, name: str) -> xr.DataArray:
    """A variable over case, dim and seed."""
    dims = result.sizes["cell"] // len(CASES)
    rows = result[name].drop_vars([c for c in result[name].coords if c not in ("seed", "cell")])
    table = rows.transpose("cell", "seed").values.reshape(len(CASES), dims, -1)
    coords = {"case": list(CASES), "dim": result.dim.values[:dims], "seed": result.seed.values}
    return xr.DataArray(table, coords, ("case", "dim", "seed"))


def _draw_undertraining(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    panels = []
    for name, label in (
        ("train_loss", "robust training loss"),
        ("test_accuracy", "clean test accuracy"),
        ("robust_accuracy", "robust test accuracy"),
    ):
        table = by_case(result, name)
        curves = [(case, table.sel(case=case).transpose("seed", "dim")) for case in CASES]
        panels.append(Curves(curves, label, along="dim", along_label="pixels d"))
    note = "Rescaled: step size times 400, initial weights times 20, the same run as r = 2."
    drawn = curves_figure(
        [panels],
        title="Two digits at two norms, and the small norm with step size and start rescaled",
        caption=f"{caption} {describe_images(result)} {note}",
    )
    return save(drawn, folder / "undertraining")


def change(result: xr.Dataset, name: str, case: str) -> xr.DataArray:
    """A variable in a case less the same at r = 2, over dimensions and seeds; runs of a seed are paired."""
    table = by_case(result, name)
    return table.sel(case=case, drop=True) - table.sel(case=CASES[0], drop=True)


def _summarise_undertraining(result: xr.Dataset) -> str:
    lines = []
    for name in ("test_accuracy", "robust_accuracy", "train_loss"):
        table = by_case(result, name).mean(["dim", "seed"])
        told = ", ".join(f"{float(table.sel(case=case)):.4g} at {case}" for case in CASES)
        lines.append(f"{name.replace('_', ' ')}: {told}")
    for name in ("test_accuracy", "robust_accuracy"):
        most = float(abs(change(result, name, CASES[2])).max())
        lines.append(
            f"largest change of {name.replace('_', ' ')}, rescaled against r = 2: {most:.3g}"
        )
    return "\n".join(lines)


FIG6 = Recipe(
    name="wang/fig6",
    title="Figure 6: robust training loss and robust test error along training, MNIST 0 and 1",
    shows="both go to zero",
    build=_build_6,
    draw=_draw_6,
    summarise=_summarise_6,
    questions=(RADIUS, NETWORK, IMAGES),
)
UNDERTRAINING = Recipe(
    name="wang/undertraining",
    title="Figure 4 at r = 2 and r = 0.1, and at r = 0.1 with step size and start rescaled, MNIST 0 and 1",
    shows="the small norm, trained as long as the large one, has its accuracy",
    build=_build_undertraining,
    draw=_draw_undertraining,
    summarise=_summarise_undertraining,
    questions=(IMAGES,),
)
