"""Figures 4 and 5 of Wang et al. as recipes: accuracy on two digits over norm, dimension and radius of the attack."""

from dataclasses import replace

import xarray as xr

from benign.claims.study import Reading, at
from benign.experiment import Experiment
from benign.papers.image_questions import describe_images
from benign.papers.recipes import Recipe
from benign.papers.wang.images import IMAGES, figure, named
from benign.papers.wang.setting import NETWORK, RADIUS
from benign.papers.wang.windows import EXPONENTS, UNPRINTED, by_radius
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.spec.axes import linspace, zipped
from benign.stats.boundary import Boundary, boundary
from benign.sweep.dataset import ended

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
    norms = at(scale, [0.1, 0.5, 2.0], [0.1, 0.2, 0.3, 0.5, 1.0, 2.0], linspace(0.1, 2.0, 20))
    dims = at(scale, shown.dims[::3], shown.dims[::2], shown.dims)
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
    radii = at(scale, [0.05, 0.45], linspace(0.05, 0.45, 5), linspace(0.05, 0.45, 9))
    dims = at(scale, shown.dims[::3], shown.dims[::2], shown.dims)
    return shown.experiment(reading, norm=SIGNAL, dim=list(dims), radius=zipped("rho", radii))


# Figure 4.


def edges(result: xr.Dataset) -> dict[str, Boundary]:
    """The norm at which clean and robust accuracy cross the level, of every dimension."""
    result = named(result)
    return {
        kind: boundary(result[name].rename(f"{kind} accuracy"), LEVEL, LAW)
        for kind, name in ACCURACIES.items()
    }


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
    printed, power = None, EXPONENTS[kind]
    if edge is not None and edge.critical.notnull().any():
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
    )


@FIG4.summarises
def _summarise_4(result: xr.Dataset) -> str:
    lines = []
    for kind, edge in edges(result).items():
        means = result[ACCURACIES[kind]].mean("seed")
        ends = f"from {float(means.min()):.3g} to {float(means.max()):.3g} over the map"
        lines.append(f"{kind} accuracy {ends}; printed: it changes at d ~ r^{EXPONENTS[kind]}")
        lines.append(f"  {edge}".replace("\n", "\n  "))
    shown = zip(result.norm.values, result.train_loss.mean(["seed", "dim"]).values, strict=True)
    losses = ", ".join(f"{loss:.3g} at r = {norm:g}" for norm, loss in shown)
    return "\n".join([*lines, f"robust training loss at the end: {losses}", _fitted(result)])


def _fitted(result: xr.Dataset) -> str:
    runs, right = ended(result), result.train_robust_accuracy == 1
    return f"{int((runs & right).sum())} of {int(runs.sum())} runs have a robust training accuracy of 100 %"


# Figure 5.


def radius_edge(result: xr.Dataset) -> Boundary:
    """The radius at which robust accuracy falls through the level, of every dimension."""
    accuracy = by_radius(named(result)).robust_accuracy
    return boundary(accuracy.rename("robust accuracy"), RADIUS_LEVEL, BY_RADIUS)


@FIG5.maps
def _panels_5(result: xr.Dataset) -> list[Panel]:
    shown = by_radius(named(result))
    robust, clean = shown.robust_accuracy, shown.test_accuracy
    cut = {"cut": RADIUS_LEVEL, "boundary": radius_edge(result)}
    return [
        Panel(robust, "dim", "radius", "robust test accuracy", limits=(0.5, 1.0)),
        Panel(robust, "dim", "radius", "robust test accuracy", **cut),
        Panel(clean, "dim", "radius", "clean test accuracy", limits=(0.5, 1.0)),
    ]


@FIG5.draws
def _draw_5(result: xr.Dataset, caption: str) -> Figure:
    title = f"Two digits: dimension against radius of the attack, r = {SIGNAL:g}"
    told = f"{caption} {describe_images(result)}"
    return phase_figure(_panels_5(result), title=title, caption=told)


@FIG5.summarises
def _summarise_5(result: xr.Dataset) -> str:
    shown = by_radius(result).robust_accuracy.mean("seed")
    rows = []
    for radius in shown.radius.values:
        row = shown.sel(radius=radius)
        known = zip(row.dim.values, row.values, strict=True)
        told = ", ".join(f"{value:.3g} at d = {dim}" for dim, value in known)
        rows.append(f"rho = {radius:g}: robust accuracy {told}")
    return "\n".join([*rows, str(radius_edge(result)), _fitted(result)])
