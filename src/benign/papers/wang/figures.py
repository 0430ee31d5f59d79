"""Figures 1 to 3 of Wang et al. as recipes: accuracy over signal, dimension and radius, and curves along training.

The paper counts errors against flipped labels, and so do the maps; the level that is cut is of accuracy against clean
labels, Phi(1), as in wang/exponents. The averaged linear predictor errs there at s - alpha = 1 (papers/wang.md 2.5).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.claims.study import Reading, Scaled
from benign.experiment import Experiment, specification
from benign.papers.recipes import Recipe, means_text
from benign.papers.wang.bounds import averaged_alignment, critical_dim
from benign.papers.wang.exponents import EXPONENTS, LEVEL
from benign.papers.wang.images import FIG4, FIG5, FIG6, UNDERTRAINING
from benign.papers.wang.setting import (
    FLIP,
    NETWORK,
    PAPER,
    PRINTED_EXPONENTS,
    RADIUS,
    RHO,
    SMALLEST,
    UNPRINTED,
    WangSize,
    ball,
    by_radius,
    clusters,
    experiment,
    training_attack,
)
from benign.papers.wang.theory import conditions
from benign.plot.lines import Curves, curves_figure
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.plot.variables import TRAINED_LOSS, extended_curve, training_losses
from benign.spec.axes import zipped
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.stats.intervals import Estimate, mean_interval
from benign.sweep.dataset import ended
from benign.sweep.ends import masked_cells
from benign.training.setup import Evaluation

Curve = Callable[[np.ndarray], np.ndarray]

SIGNAL = 5.0
"""r of figure 3"""
LAW = "dim * signal**p"
"""r* of every d: with signals 1, 2, ..., 10 all dimensions cross the level, but d* of only two or three signals is
among the paper's dimensions"""
BY_RADIUS = "dim * radius**p"
PREDICTOR = "averaged linear predictor"
LIMITS = (0.45, 0.9)
"""of accuracy against flipped labels: chance, and a little below, to the best that can be"""
_SIZES_WINDOW = Scaled(
    smoke=WangSize(samples=20, width=10, steps=20, ascend=5, seeds=1, test=50),
    quick=WangSize(samples=50, width=40, steps=150, ascend=8, seeds=5, test=500),
    paper=PAPER,
)


def _window(scale: str, reading: Reading, signal: Any, dim: Any, radius: Any) -> Experiment:
    """At quick scale half the samples and half the dimensions, which keeps n r^4 / d."""
    size = _SIZES_WINDOW[scale]
    judge = PGD(ball=ball(reading, radius), steps=20, step=0.2, keep="best")  # the paper's
    tests = Evaluation(samples=size.test, attack=judge)
    data = clusters(size, signal, dim)
    return experiment(
        size, reading, data=data, radius=radius, evaluation=tests, coordinates=SMALLEST
    )


FIG1 = Recipe(
    name="wang/fig1",
    title="Figure 1: clean and robust test accuracy over |mu| and d, synthetic data",
    shows="phase transitions at d ~ r^4 (clean) and d ~ r^2 (robust)",
    questions=(RADIUS, NETWORK),
    conditions=conditions,
)


@FIG1.builds
def _build_1(scale: str, reading: Reading) -> Experiment:
    quick = [2.5, 3.0, 3.5, 4.0, 5.0, 6.0], [500, 900, 1600, 2800, 5000, 9000]
    paper = [float(r) for r in range(1, 11)], [1000 * k for k in range(1, 19)]
    signal, dim = Scaled(smoke=([2.0, 4.0, 8.0], [64, 200]), quick=quick, paper=paper)[scale]
    return _window(scale, reading, signal, dim, RHO)


FIG3 = Recipe(
    name="wang/fig3",
    title="Figure 3: robust test accuracy over d and the radius of the attack, synthetic data",
    shows="the larger d, the smaller the radius for equal accuracy",
    questions=(RADIUS, NETWORK),
    conditions=conditions,
)


@FIG3.builds
def _build_3(scale: str, reading: Reading) -> Experiment:
    paper = [500 * k for k in range(1, 13)], [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45]
    quick = [300, 700, 1200, 2000, 3000], [0.05, 0.15, 0.25, 0.35, 0.45]
    dim, radius = Scaled(smoke=([64, 200], [0.05, 0.25, 0.45]), quick=quick, paper=paper)[scale]
    return _window(scale, reading, SIGNAL, dim, zipped("rho", radius))


# Figure 1.


def edges(result: xr.Dataset) -> dict[str, Boundary]:
    """Where clean and robust accuracy, against clean labels, cross the level."""
    return {kind: _edge(result, kind, LAW) for kind in PRINTED_EXPONENTS}


def _edge(result: xr.Dataset, kind: str, law: str) -> Boundary:
    return audited_boundary(result, lambda of: _accuracy(of, kind), LEVEL, law)


def growth(edge: Boundary) -> Estimate | None:
    """The power of r that d* grows with; None where none is determined."""
    fit = edge.fit
    if fit is None or not fit.bounded:
        return None
    low, high = fit.exponent_interval
    return Estimate(-fit.exponent, -high, -low)


def predicted_signal(result: xr.Dataset, kind: str) -> Curve:
    """The r at which the averaged linear predictor crosses the level, of every d."""
    given = specification(result)
    r = torch.logspace(math.log10(1.2), 3, 4000, dtype=torch.float64)
    alpha = 0.0 if kind == "clean" else _radius(given, r, RHO)
    dims = critical_dim(r, given["data"]["samples"], alpha, FLIP)
    return lambda dim: np.interp(dim, dims.numpy(), r.numpy())


def _radius(given: dict[str, Any], signal: Any, rho: Any) -> Any:
    """alpha under the reading of an experiment."""
    relative = given["attack"]["ball"].get("relative_to") == "signal"
    return rho * signal if relative else rho + 0 * signal


@FIG1.maps
def _panels_1(result: xr.Dataset) -> list[Panel]:
    return [panel for kind, edge in edges(result).items() for panel in _pair(result, kind, edge)]


@FIG1.draws
def _draw_1(result: xr.Dataset, caption: str) -> Figure:
    return phase_figure(
        _panels_1(result),
        title="Adversarial training of a two-layer network: clean and robust test accuracy",
        caption=f"{caption} {_NOTE} The paper prints no constant of its laws.",
        columns=2,
    )


_NOTE = (
    "Maps: against labels flipped as in training, at most 0.9, as the paper counts. Two colours: against clean labels, "
    f"cut at Phi(1) = {LEVEL}."
)


def _pair(result: xr.Dataset, kind: str, edge: Boundary) -> list[Panel]:
    """Accuracy as the paper counts it, and on which side of the level each cell is."""
    tested = "test" if kind == "clean" else "robust"
    noisy, clean = 1 - result[f"{tested}_noisy_error"], result[f"{tested}_accuracy"]
    power, printed = PRINTED_EXPONENTS[kind], None
    if edge.fit is not None:
        printed = f"dim * signal**-{power} = {edge.constant_for(-power).value:.4g}"
    both: dict[str, Any] = {"printed": printed, "printed_by": UNPRINTED}
    both["masked"] = masked_cells(result, f"{tested}_accuracy")
    moved = result.get(f"{tested}_accuracy_moved")
    return [
        Panel(
            noisy, "signal", "dim", f"{kind} test accuracy, flipped labels", limits=LIMITS, moved=moved, **both
        ),
        Panel(
            clean, "signal", "dim", f"{kind} test accuracy, clean labels", cut=LEVEL, boundary=edge,
            predicted=predicted_signal(result, kind), predicted_by=PREDICTOR, **both,
        ),
    ]  # fmt: skip


@FIG1.summarises
def _summarise_1(result: xr.Dataset) -> str:
    lines = []
    for kind, edge in edges(result).items():
        power, dims = growth(edge), edge.critical.dropna("dim").dim.values.astype(float)
        law = f"as r to the {power}" if power else "by no law that these runs determine"
        lines.append(
            f"{kind}: d* grows {law} (printed: {PRINTED_EXPONENTS[kind]}{_beside(result, kind, dims)})"
        )
        lines.append(f"  {edge}".replace("\n", "\n  "))
        each = _edge(result, kind, "signal * dim**p")
        lines.append(f"  {each}".replace("\n", "\n  "))
    return "\n".join([*lines, _fitted(result)])


def _accuracy(result: xr.Dataset, kind: str) -> xr.DataArray:
    accuracy = result.test_accuracy if kind == "clean" else result.robust_accuracy
    return accuracy.rename(f"{kind} accuracy")


def _beside(result: xr.Dataset, kind: str, dims: np.ndarray) -> str:
    """The exponent of the predictor over the same dimensions."""
    if dims.size < 2:
        return ""
    logs = np.log(dims), np.log(predicted_signal(result, kind)(dims))
    return f"; {PREDICTOR} over the same dimensions: {1 / np.polyfit(*logs, 1)[0]:.3g}"


def _fitted(result: xr.Dataset) -> str:
    runs, right = ended(result), result.train_robust_accuracy == 1
    count = f"{int((runs & right).sum())} of {int(runs.sum())} runs"
    return f"{count} have a training accuracy of 100 % under the training attack"


# Figure 3.


def predicted_radius(result: xr.Dataset) -> Curve:
    """The rho at which the averaged linear predictor crosses the level, of every d: s = 1 + alpha."""
    given = specification(result)
    samples, unit = given["data"]["samples"], _radius(given, SIGNAL, 1.0)

    def curve(dim: np.ndarray) -> np.ndarray:
        s = averaged_alignment(SIGNAL, torch.tensor(dim), samples, FLIP)
        return (s.numpy() - 1) / unit

    return curve


def edge_3(result: xr.Dataset) -> Boundary:
    """The radius up to which robust accuracy, against clean labels, is above the level."""
    return _edge(result, "robust", BY_RADIUS)


@FIG3.maps
def _panels_3(result: xr.Dataset) -> list[Panel]:
    result = by_radius(result)
    robust, clean = 1 - result.robust_noisy_error, 1 - result.test_noisy_error
    marks = masked_cells(result, "robust_accuracy")
    return [
        Panel(
            robust, "dim", "radius", "robust test accuracy, flipped labels", limits=LIMITS,
            moved=result.get("robust_accuracy_moved"), masked=marks,
        ),
        Panel(
            result.robust_accuracy, "dim", "radius", "robust test accuracy, clean labels", cut=LEVEL,
            boundary=edge_3(result), predicted=predicted_radius(result), predicted_by=PREDICTOR, masked=marks,
        ),
        Panel(
            clean, "dim", "radius", "clean test accuracy, flipped labels", limits=LIMITS,
            moved=result.get("test_accuracy_moved"),
        ),
    ]  # fmt: skip


@FIG3.draws
def _draw_3(result: xr.Dataset, caption: str) -> Figure:
    return phase_figure(
        _panels_3(result),
        title=f"Dimension against radius of the attack, |mu| = {SIGNAL:g}",
        caption=f"{caption} {_NOTE}",
    )


@FIG3.summarises
def _summarise_3(result: xr.Dataset) -> str:
    shown = by_radius(result)
    edge = edge_3(shown)
    lines = [str(edge)]
    if edge.fit is not None:
        lines.append(
            f"  rho* grows as d to the {edge.fit.growth}; "
            "item 3 of Theorem 3.1 asks rho <= r sqrt(n / d) / C, a power of -0.5"
        )
    known = edge.critical.dropna("dim")
    for dim, expected in zip(
        known.dim.values, predicted_radius(result)(known.dim.values.astype(float)), strict=True
    ):
        radius = float(known.sel(dim=dim))
        lines.append(f"  d = {dim:g}: rho* = {radius:.3g}, {PREDICTOR} {expected:.3g}")
    ends = [shown.robust_noisy_error.isel(dim=k, radius=k).mean().item() for k in (0, -1)]
    lines.append(f"robust error, smallest d and rho: {ends[0]:.3g}; largest: {ends[1]:.3g}")
    return "\n".join([*lines, _fitted(result)])


# Figure 2: robust training loss and robust test error along training.


_FIG2_SIZES = Scaled(
    smoke=WangSize(samples=20, width=20, steps=16, ascend=4, seeds=1, test=20),
    quick=WangSize(samples=50, width=100, steps=300, ascend=10, seeds=3, test=200),
    # With the paper's 2000 points, tests at snapshots were two thirds of the cost. Here both labels of a point count
    # with their chance: at an error of 3 % beyond the noise, 500 such points are as good as 2000 with flipped labels.
    paper=replace(PAPER, test=500),
)
_DIMS = Scaled(smoke=40, quick=250, paper=1000)
_PANELS = (
    ("signal", "r", [(4.0, 1.0, 0.1), (6.0, 1.0, 0.1), (8.0, 1.0, 0.1), (10.0, 1.0, 0.1)]),
    ("dim", "d", [(5.0, 0.5, 0.1), (5.0, 1.0, 0.1), (5.0, 1.5, 0.1)]),
    ("attack.ball.radius", "rho", [(5.0, 1.0, 0.05), (5.0, 1.0, 0.1), (5.0, 1.0, 0.15)]),
)
"""what each row of the figure varies, and its settings (r, d as a multiple of the scale's, rho)"""
_SETTINGS = list(dict.fromkeys(setting for _, _, settings in _PANELS for setting in settings))


FIG2 = Recipe(
    name="wang/fig2",
    title="Figure 2: robust training loss and robust test error along training, synthetic data",
    shows="loss to zero and error to the label noise; worse for small r, large d, large rho",
    questions=(RADIUS, NETWORK),
    conditions=conditions,
)


@FIG2.builds
def _build(scale: str, reading: Reading) -> Experiment:
    size = _FIG2_SIZES[scale]
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


@FIG2.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    rows = []
    for field, symbol, settings in _PANELS:
        chosen = [_chosen(result, setting) for setting in settings]
        named = [(f"{symbol} = {float(each[field]):g}", each) for each in chosen]
        rows.append(
            [
                Curves(
                    [(n, extended_curve(e, "train_loss")) for n, e in named],
                    TRAINED_LOSS,
                    log=True,
                ),
                Curves(
                    [(n, extended_curve(e, "robust_noisy_error")) for n, e in named],
                    "robust test error",
                ),
            ]
        )
    note = "Test labels are flipped as training labels are: no classifier is below 10 %."
    return curves_figure(
        rows, title="Adversarial training of a two-layer network", caption=f"{caption} {note}"
    )


@FIG2.summarises
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
                f"{symbol} = {float(cell[field]):g}: robust test error {tested}, "
                f"{means_text(training_losses(cell))}, "
                f"{fitted} of {runs} runs fit every attacked training point"
            )
    return "\n".join(lines)


RECIPES = [
    FIG1,
    FIG2,
    FIG3,
    FIG4,
    FIG5,
    FIG6,
    UNDERTRAINING,
    EXPONENTS,
]
