"""Figures 1c, 1d and 4 to 7 of Zhang et al. as recipes: accuracy on images over sample size and SNR."""

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from benign.claims.study import Question
from benign.experiment import specification
from benign.papers.image_questions import TRANSFORMER, describe_images, which_images
from benign.papers.image_samples import sample_pictures
from benign.papers.recipes import Draw, Maps, Recipe, Scaled, Summarise
from benign.papers.vision import Size
from benign.papers.zhang.images import BALL, CUT_OFF, WEAKER, ImageFigure, apgd, multi_norm, pgd
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.stats.boundary import Boundary, boundary
from benign.sweep.dataset import ended
from benign.training.descent import Status

ACCURACIES = {"clean": "test_accuracy", "robust": "robust_accuracy"}
Printed = Mapping[str, Mapping[str, float]]
"""c of N SNR^2 = c as a figure prints it, by image set and kind of accuracy, where it is legible"""
_TINY = {"clean": 30_000.0, "robust": 60_000.0}
TINY = {"tiny_imagenet": _TINY, "tinyimagenet20": _TINY}

SMOKE = Size(
    samples=(20, 60, 2),
    ratios=(0.4, 2.0, 2),
    hidden=8,
    epochs=1,
    batch=16,
    ascend=2,
    judge=1,
    test=12,
)
QUICK = Size(
    samples=(250, 1000, 3),
    ratios=(0.4, 2.0, 4),
    hidden=32,
    epochs=30,
    batch=16,
    ascend=3,
    judge=8,
    test=300,
)
MNIST = Scaled(
    smoke=SMOKE,
    quick=QUICK,
    paper=Size(samples=(1000, 6000, 6), ratios=(0.4, 2.0, 9), epochs=100, test=2000, seeds=3),
)
COLOURS = Scaled(
    smoke=SMOKE,
    quick=replace(QUICK, ratios=(0.4, 10.0, 3), epochs=10),
    paper=Size(samples=(1000, 10_000, 10), ratios=(0.4, 10.0, 9), epochs=100, test=2000),
)
FEW = Scaled(
    smoke=SMOKE,
    quick=replace(COLOURS.quick, samples=(100, 500, 3)),
    paper=Size(samples=(100, 1000, 10), ratios=(0.4, 10.0, 9), epochs=100, test=1000),
)


def source(result: xr.Dataset) -> str:
    return specification(result)["data"]["source"]


def edges(result: xr.Dataset) -> dict[str, Boundary]:
    """Where clean and robust accuracy cross the cut-off of the image set."""
    level = CUT_OFF[source(result)]
    return {
        kind: boundary(result[name].rename(f"{kind} accuracy"), level)
        for kind, name in ACCURACIES.items()
    }


def panelling(printed: Printed) -> Maps:
    """Maps of clean and robust accuracy, then both cut in two colours."""

    def panels(result: xr.Dataset) -> list[Panel]:
        known, found = printed.get(source(result), {}), edges(result)
        return [
            _panel(result, kind, found[kind], cut, known.get(kind))
            for cut in (None, CUT_OFF[source(result)])
            for kind in ACCURACIES
        ]

    return panels


def drawing(name: str, printed: Printed) -> Draw:
    """Return the drawing of the maps, and of sample pictures in a second figure."""

    def draw(result: xr.Dataset, caption: str) -> dict[str, Figure]:
        panels = panelling(printed)(result)
        told = f"{caption} {describe_images(result)}"
        title = "Benign overfitting of a vision transformer under adversarial training"
        figure = phase_figure(panels, title=title, caption=told, columns=2)
        return {name: figure, **sample_pictures(result, f"{name}_samples", told)}

    return draw


def _panel(
    result: xr.Dataset, kind: str, edge: Boundary, cut: float | None, constant: float | None
) -> Panel:
    """With the printed law, or the printed exponent and a constant fitted here where none is legible."""
    by = "paper"
    if constant is None and edge.critical.notnull().any():
        constant, by = edge.constant_for(2.0).value, "paper's exponent, fitted"
    return Panel(
        result[ACCURACIES[kind]],
        "samples",
        "snr",
        f"{kind} test accuracy",
        cut=cut,
        limits=(0.0, 1.0),
        boundary=edge,
        printed=None if constant is None else f"samples * snr**2 = {constant:.4g}",
        printed_by=by,
    )


def summarising(printed: Printed) -> Summarise:
    """The ends of the maps, their boundaries beside what is printed, and how far training came."""

    def summarise(result: xr.Dataset) -> str:
        lines = []
        for kind, edge in edges(result).items():
            means = result[ACCURACIES[kind]].mean("seed").sortby(["samples", "snr"])
            low, high = (float(means.isel(samples=k, snr=k)) for k in (0, -1))
            told = (
                f"{kind} accuracy: {low:.3g} at the smallest N and SNR, {high:.3g} at the largest"
            )
            constant = printed.get(source(result), {}).get(kind)
            told += f"; the paper prints N SNR^2 = {constant:g}" if constant else ""
            lines += [told, f"  {edge}".replace("\n", "\n  ")]
            if edge.critical.notnull().any():
                c = edge.constant_for(2.0)
                lines.append(
                    f"  at exponent 2: N SNR^2 = {c.value:.4g} [{c.low:.4g}, {c.high:.4g}]"
                )
        return "\n".join([*lines, fitted(result)])

    return summarise


def fitted(result: xr.Dataset) -> str:
    """How many runs reached the loss, and how far the others are from it."""
    runs, there = ended(result), result.status == Status.CONVERGED
    loss = result.train_loss.where(runs & ~there)
    rest = f"; the others end at {float(loss.min()):.3g} to {float(loss.max()):.3g}"
    far = rest if loss.notnull().any() else ""
    return f"{int(there.sum())} of {int(runs.sum())} runs reach the robust training loss{far}"


def _recipe(
    name: str,
    title: str,
    shows: str,
    figure: ImageFigure,
    *others: str,
    printed: Printed | None = None,
    asked: tuple[Question, ...] = (),
) -> Recipe:
    known = printed or {}
    return Recipe(
        name=f"zhang/{name}",
        title=title,
        shows=shows,
        build=figure.build,
        figure=drawing(name, known),
        summarise=summarising(known),
        panels=panelling(known),
        questions=(BALL, *asked, which_images(figure.paper, *others), *TRANSFORMER),
    )


_TITLE = "clean and robust accuracy over sample size and SNR"
FIGURE_1CD = _recipe(
    "fig1cd",
    f"Figure 1c, d: {_TITLE}, MNIST, PGD",
    "a boundary of the form N SNR^2 = constant on real images",
    ImageFigure(paper="mnist", attack=pgd, sizes=MNIST),
)
FIGURE_4 = _recipe(
    "fig4",
    f"Figure 4: {_TITLE}, MNIST, APGD",
    "the same under a stronger attack, cut at 0.93",
    ImageFigure(paper="mnist", attack=apgd, sizes=MNIST),
)
FIGURE_5 = _recipe(
    "fig5",
    f"Figure 5: {_TITLE}, CIFAR-10, APGD",
    "the same on CIFAR-10, cut at 0.65",
    ImageFigure(paper="cifar10", attack=apgd, sizes=COLOURS),
)
FIGURE_6 = _recipe(
    "fig6",
    f"Figure 6: {_TITLE}, Tiny-ImageNet, APGD",
    "the same on Tiny-ImageNet, cut at 0.70, drawn at N SNR^2 = 30000 and 60000",
    ImageFigure(paper="tiny_imagenet", attack=apgd, sizes=FEW),
    printed=TINY,
    asked=(WEAKER,),
)
FIGURE_7 = _recipe(
    "fig7",
    f"Figure 7: {_TITLE}, MNIST, PGD in l1, l2 and linf balls",
    "against several norms at once robust accuracy is lower, and the transition persists",
    ImageFigure(
        paper="mnist",
        attack=multi_norm,
        sizes=MNIST,
    ),
    "cifar10",
    "cifar10_12k",
)
