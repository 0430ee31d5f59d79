"""Figures 4 to 6 of Wang et al. as recipes: two digits, every picture scaled to one norm r (papers/wang.md 3.1)."""

import math
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from benign.attacks.pgd import PGD
from benign.claims.study import Reading, Scaled
from benign.data.constructions import Rescaled
from benign.data.images import Images
from benign.experiment import Experiment
from benign.networks.two_layer import TwoLayer
from benign.papers.images import describe_images, source_of, which_images
from benign.papers.recipes import Recipe, means_text
from benign.papers.wang.setting import (
    NETWORK,
    PAPER,
    PRINTED_EXPONENTS,
    RADIUS,
    UNPRINTED,
    WangSize,
    ball,
    by_radius,
    experiment,
    training_attack,
)
from benign.plot.lines import Curves, curves_figure
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.plot.variables import TRAINED_LOSS, extended_curve, training_losses
from benign.spec.axes import Axis, linspace, zipped
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.stats.intervals import mean_interval
from benign.sweep.dataset import ended
from benign.sweep.ends import masked_cells
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

# The pictures, and the experiment.


IMAGES = which_images("mnist")
MNIST_DIMS = (25, 49, 100, 196, 289, 400, 576, 784)
"""pixels of a picture; the paper says 25 to 784, resampled"""
DIGITS_DIMS = (9, 16, 25, 36, 49, 64)
FEW_TESTS = 50
"""of the 58 test images of 0 and 1 among the digits"""
SIZES = Scaled(
    smoke=WangSize(samples=20, width=20, steps=40, ascend=4, seeds=1, test=FEW_TESTS),
    quick=WangSize(samples=100, width=100, steps=500, ascend=5, seeds=3, test=500),
    paper=PAPER,
)


@dataclass(frozen=True)
class DigitFigure:
    """A figure at one scale, on one image set."""

    size: WangSize
    source: str
    dims: tuple[int, ...]
    """pixels of a picture, up to the set's own size"""

    def data(self, norm: Any, dim: Any) -> Images:
        return Images(
            source=self.source,
            samples=self.size.samples,
            dim=dim,
            classes=(0, 1),
            labels="signed",
            construction=Rescaled(norm=norm),
        )

    def tests(self, reading: Reading, radius: Any, at: Any = "end") -> Evaluation:
        """Judged by the paper's own attack."""
        judge = PGD(ball=ball(reading, radius), steps=20, step=0.2, keep="best")
        few = self.source == "digits"
        return Evaluation(samples=FEW_TESTS if few else self.size.test, attack=judge, at=at)

    def experiment(
        self, reading: Reading, *, norm: Any, dim: Any, radius: Any, at: Any = "end"
    ) -> Experiment:
        """As on synthetic data, without flipped labels; cells share images, initial weights and test points."""
        return experiment(
            self.size,
            reading,
            data=self.data(norm, dim),
            radius=radius,
            evaluation=self.tests(reading, radius, at),
            pairing="common",
        )


def figure(scale: str, reading: Reading) -> DigitFigure:
    source = source_of(scale, reading, "mnist")
    dims = DIGITS_DIMS if source == "digits" else MNIST_DIMS
    return DigitFigure(SIZES[scale], source, dims)


def named(result: xr.Dataset) -> xr.Dataset:
    """With the paper's words for its axes."""
    attributes = {
        "norm": {"long_name": "norm of every picture", "symbol": "r"},
        "dim": {"long_name": "pixels of a picture", "symbol": "d"},
    }
    return result.assign_coords(
        {
            name: result[name].assign_attrs(attrs)
            for name, attrs in attributes.items()
            if name in result.coords
        }
    )


def default_std(dim: int) -> float:
    """Standard deviation of PyTorch's default weights."""
    return 1 / math.sqrt(3 * dim)


# Figures 4 and 5: accuracy over norm, dimension and radius of the attack.


RHO, SIGNAL = 0.3, 5.0
"""rho of figure 4, r of figure 5"""
LEVEL = 0.75
"""accuracy halfway between chance and certainty"""
LAW = "dim * norm**p"
"""r* of every d, as in wang/fig1"""
RADIUS_LEVEL, BY_RADIUS = 0.8, "dim * radius**p"
"""robust accuracy whose radius is compared over dimensions, as in wang/fig3"""
ACCURACIES = {"clean": "test_accuracy", "robust": "robust_accuracy"}


FIG4 = Recipe(
    name="wang/fig4",
    title="Figure 4: clean and robust test accuracy over the norm of pictures and d, MNIST 0 and 1",
    shows="transitions claimed at d ~ r^4 (clean) and d ~ r^2 (robust)",
    questions=(RADIUS, NETWORK, IMAGES),
)


@FIG4.builds
def _build_4(scale: str, reading: Reading) -> Experiment:
    shown = figure(scale, reading)
    norms = Scaled(
        smoke=[0.1, 0.5, 2.0], quick=[0.1, 0.2, 0.3, 0.5, 1.0, 2.0], paper=linspace(0.1, 2.0, 20)
    )[scale]
    dims = Scaled(shown.dims[::3], shown.dims[::2], shown.dims)[scale]
    return shown.experiment(reading, norm=norms, dim=list(dims), radius=RHO)


FIG5 = Recipe(
    name="wang/fig5",
    title="Figure 5: robust test accuracy over d and the radius of the attack, MNIST 0 and 1",
    shows="the larger d, the smaller the radius for equal accuracy",
    questions=(RADIUS, NETWORK, IMAGES),
)


@FIG5.builds
def _build_5(scale: str, reading: Reading) -> Experiment:
    shown = figure(scale, reading)
    if scale == "paper":
        shown = replace(shown, size=replace(shown.size, seeds=5))
    radii = Scaled(
        smoke=[0.05, 0.45], quick=linspace(0.05, 0.45, 5), paper=linspace(0.05, 0.45, 9)
    )[scale]
    dims = Scaled(shown.dims[::3], shown.dims[::2], shown.dims)[scale]
    return shown.experiment(reading, norm=SIGNAL, dim=list(dims), radius=zipped("rho", radii))


# Figure 4.


def accuracy_map(result: xr.Dataset, kind: str) -> xr.DataArray:
    """Clean or robust accuracy over norm and dimension."""
    return named(result)[ACCURACIES[kind]].rename(f"{kind} accuracy")


def edges(result: xr.Dataset) -> dict[str, Boundary]:
    """The norm at which clean and robust accuracy cross the level, of every dimension."""
    return {kind: _edge(result, kind) for kind in ACCURACIES}


def _edge(result: xr.Dataset, kind: str) -> Boundary:
    return audited_boundary(result, lambda of: accuracy_map(of, kind), LEVEL, LAW)


@FIG4.maps
def _panels_4(result: xr.Dataset) -> list[Panel]:
    result = named(result)
    panels = [_map(result, kind, None) for kind in ACCURACIES]
    return panels + [_map(result, kind, edge) for kind, edge in edges(result).items()]


@FIG4.draws
def _draw_4(result: xr.Dataset, caption: str) -> Figure:
    return phase_figure(
        _panels_4(result),
        title="Adversarial training on two digits: test accuracy over norm and dimension",
        caption=f"{caption} {describe_images(result)} The paper prints no constant of its laws d ~ r^4 and d ~ r^2.",
        columns=2,
    )


def _map(result: xr.Dataset, kind: str, edge: Boundary | None) -> Panel:
    """Accuracy, or on which side of the level it is."""
    printed, power = None, PRINTED_EXPONENTS[kind]
    if edge is not None and edge.fit is not None:
        printed = f"dim * norm**-{power} = {edge.constant_for(-power).value:.4g}"
    return Panel(
        result[ACCURACIES[kind]],
        "norm",
        "dim",
        f"{kind} test accuracy",
        limits=(0.5, 1.0),
        cut=None if edge is None else LEVEL,
        boundary=edge,
        printed=printed,
        printed_by=UNPRINTED,
        masked=masked_cells(result, ACCURACIES[kind]),
    )


@FIG4.summarises
def _summarise_4(result: xr.Dataset) -> str:
    lines = []
    for kind, edge in edges(result).items():
        means = result[ACCURACIES[kind]].mean("seed")
        ends = f"from {float(means.min()):.3g} to {float(means.max()):.3g} over the map"
        lines.append(
            f"{kind} accuracy {ends}; printed: it changes at d ~ r^{PRINTED_EXPONENTS[kind]}"
        )
        lines.append(f"  {edge}".replace("\n", "\n  "))
    shown = zip(result.norm.values, result.train_loss.mean(["seed", "dim"]).values, strict=True)
    losses = ", ".join(f"{loss:.3g} at r = {norm:g}" for norm, loss in shown)
    return "\n".join([*lines, f"{TRAINED_LOSS} at the end: {losses}", _fitted(result)])


def _fitted(result: xr.Dataset) -> str:
    runs, right = ended(result), result.train_robust_accuracy == 1
    count = f"{int((runs & right).sum())} of {int(runs.sum())} runs"
    return f"{count} have a training accuracy of 100 % under the training attack"


# Figure 5.


def radius_map(result: xr.Dataset) -> xr.DataArray:
    """Robust accuracy over dimension and radius."""
    return by_radius(named(result)).robust_accuracy.rename("robust accuracy")


def radius_edge(result: xr.Dataset) -> Boundary:
    """The radius at which robust accuracy falls through the level, of every dimension."""
    return audited_boundary(result, radius_map, RADIUS_LEVEL, BY_RADIUS)


@FIG5.maps
def _panels_5(result: xr.Dataset) -> list[Panel]:
    shown = by_radius(named(result))
    robust, clean = shown.robust_accuracy, shown.test_accuracy
    marks = masked_cells(shown, "robust_accuracy")
    cut = {"cut": RADIUS_LEVEL, "boundary": radius_edge(result), "masked": marks}
    return [
        Panel(robust, "dim", "radius", "robust test accuracy", limits=(0.5, 1.0), masked=marks),
        Panel(robust, "dim", "radius", "robust test accuracy", **cut),
        Panel(clean, "dim", "radius", "clean test accuracy", limits=(0.5, 1.0)),
    ]


@FIG5.draws
def _draw_5(result: xr.Dataset, caption: str) -> Figure:
    title = f"Two digits: dimension against radius of the attack, r = {SIGNAL:g}"
    caption = f"{caption} {describe_images(result)}"
    return phase_figure(_panels_5(result), title=title, caption=caption)


@FIG5.summarises
def _summarise_5(result: xr.Dataset) -> str:
    shown = by_radius(result).robust_accuracy.mean("seed")
    rows = []
    for radius in shown.radius.values:
        row = shown.sel(radius=radius)
        known = zip(row.dim.values, row.values, strict=True)
        accuracies = ", ".join(f"{value:.3g} at d = {dim}" for dim, value in known)
        rows.append(f"rho = {radius:g}: robust accuracy {accuracies}")
    return "\n".join([*rows, str(radius_edge(result)), _fitted(result)])


# Figure 6: curves along training; and a test of what figure 4 shows.


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


FIG6 = Recipe(
    name="wang/fig6",
    title="Figure 6: robust training loss and robust test error along training, MNIST 0 and 1",
    shows="both go to zero",
    questions=(RADIUS, NETWORK, IMAGES),
)


@FIG6.builds
def _build_6(scale: str, reading: Reading) -> Experiment:
    shown = figure(scale, reading)
    # Tests at snapshots are most of the cost: 500 points, as in wang/fig2.
    size = replace(shown.size, seeds=Scaled(1, 3, 5)[scale], test=min(shown.size.test, 500))
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


@FIG6.draws
def _draw_6(result: xr.Dataset, caption: str) -> Figure:
    rows = []
    for field, symbol, settings in _PANELS:
        chosen = [_chosen(result, setting) for setting in settings]
        named = [(f"{symbol} = {float(each[field]):g}", each) for each in chosen]
        losses = [(name, extended_curve(each, "train_loss")) for name, each in named]
        errors = [(name, 1 - extended_curve(each, "robust_accuracy")) for name, each in named]
        rows.append([Curves(losses, TRAINED_LOSS, log=True), Curves(errors, "robust test error")])
    caption = f"{caption} {describe_images(result)}"
    return curves_figure(rows, title="Adversarial training on two digits", caption=caption)


@FIG6.summarises
def _summarise_6(result: xr.Dataset) -> str:
    lines = []
    for norm, dim, rho in _SETTINGS:
        cell = _chosen(result, (norm, dim, rho))
        errors = (1 - cell.robust_accuracy).dropna("seed").values
        error = mean_interval(errors) if errors.size else "of no run"
        lines.append(
            f"r = {norm:g}, d = {int(cell.dim)}, rho = {rho:g}: robust test error {error}, "
            f"{means_text(training_losses(cell))}"
        )
    return "\n".join(lines)


# Is figure 4 undertraining? (papers/wang.md 2.5 and 3.3)


CASES = ("r = 2", "r = 0.1", "r = 0.1, rescaled")
"""rescaled: the step size times (2 / 0.1)^2 and the initial weights times 2 / 0.1"""
_NORMS = (2.0, 0.1, 0.1)
_FACTORS = (1.0, 1.0, 20.0)


UNDERTRAINING = Recipe(
    name="wang/undertraining",
    title="Figure 4 at r = 2 and r = 0.1, and at r = 0.1 with step size and start rescaled, MNIST 0 and 1",
    shows="the small norm, trained as long as the large one, has its accuracy",
    questions=(IMAGES,),
)


@UNDERTRAINING.builds
def _build_undertraining(scale: str, reading: Reading) -> Experiment:
    """A fixed outer layer without biases, for which the rescaled run is the run at r = 2 (wang.md 2.5)."""
    answers = {**reading, "radius": "relative"}
    shown = figure(scale, answers)
    dims = Scaled(shown.dims[::3], shown.dims[::2], shown.dims)[scale]
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


@UNDERTRAINING.draws
def _draw_undertraining(result: xr.Dataset, caption: str) -> Figure:
    panels = []
    for name, label in (
        ("train_loss", TRAINED_LOSS),
        ("test_accuracy", "clean test accuracy"),
        ("robust_accuracy", "robust test accuracy"),
    ):
        table = by_case(result, name)
        curves = [(case, table.sel(case=case).transpose("seed", "dim")) for case in CASES]
        panels.append(Curves(curves, label, along="dim", along_label="pixels d"))
    note = "Rescaled: step size times 400, initial weights times 20, the same run as r = 2."
    return curves_figure(
        [panels],
        title="Two digits at two norms, and the small norm with step size and start rescaled",
        caption=f"{caption} {describe_images(result)} {note}",
    )


def change(result: xr.Dataset, name: str, case: str) -> xr.DataArray:
    """A variable in a case less the same at r = 2, over dimensions and seeds; runs of a seed are paired."""
    table = by_case(result, name)
    return table.sel(case=case, drop=True) - table.sel(case=CASES[0], drop=True)


@UNDERTRAINING.summarises
def _summarise_undertraining(result: xr.Dataset) -> str:
    lines = []
    for name in ("test_accuracy", "robust_accuracy", "train_loss"):
        table = by_case(result, name).mean(["dim", "seed"])
        means = ", ".join(f"{float(table.sel(case=case)):.4g} at {case}" for case in CASES)
        lines.append(f"{name.replace('_', ' ')}: {means}")
    for name in ("test_accuracy", "robust_accuracy"):
        most = float(abs(change(result, name, CASES[2])).max())
        lines.append(
            f"largest change of {name.replace('_', ' ')}, rescaled against r = 2: {most:.3g}"
        )
    return "\n".join(lines)
