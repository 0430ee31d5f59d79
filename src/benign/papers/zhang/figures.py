"""The figures of Zhang et al. as recipes."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import xarray as xr

from benign.claims.study import Question, Reading
from benign.experiment import Experiment, specification
from benign.papers.attention_questions import (
    LABELS,
    OUTPUT,
    PROJECTION,
    network,
)
from benign.papers.recipes import Recipe, Scaled
from benign.papers.zhang.augment import AUGMENT
from benign.papers.zhang.fig2 import FIGURE_2
from benign.papers.zhang.fig3 import FIGURE_3
from benign.papers.zhang.fig8 import FIGURE_8
from benign.papers.zhang.heads import HEADS
from benign.papers.zhang.image_maps import FIGURE_1CD, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7
from benign.papers.zhang.inside import INSIDE
from benign.papers.zhang.linear_mode import critical_snr
from benign.papers.zhang.norms import NORMS
from benign.papers.zhang.output import OUTPUT_NORM
from benign.papers.zhang.radius import RADII
from benign.papers.zhang.setting import LEVEL, RADIUS, noisy_signals, pgd
from benign.papers.zhang.theory import conditions
from benign.papers.zhang.tokens import TOKENS
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.spec.axes import linspace, logspace
from benign.stats.boundary import Boundary, boundary
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

NOISE = Question(
    "noise",
    "noise is N(0, 0.4 I): is 0.4 a variance or a standard deviation?",
    {"variance": "the covariance, as written: sigma_p = 0.632", "std": "sigma_p = 0.4"},
    "the literal reading; by scaling the two differ only in step size and initial weights",
)
STOP = Question(
    "stop",
    "training stops at loss 0.01: of attacked or of clean points?",
    {"attacked": "the robust training loss", "clean": "the clean training loss"},
    "the robust loss is what is trained",
)
SNR_GRID = Question(
    "snr_grid",
    "how are the signal-to-noise ratios of figure 1 spaced between 0.16 and 16?",
    {"linear": "evenly", "log": "evenly in the logarithm, better for exponents"},
    "heat maps are usually drawn so",
)


FIGURE_1 = Recipe(
    name="zhang/fig1",
    title="Figure 1a, b: clean and robust accuracy after adversarial training, synthetic data",
    shows="a boundary of the form N SNR^2 = constant for clean and for robust accuracy",
    questions=(NOISE, OUTPUT, LABELS, PROJECTION, STOP, SNR_GRID),
    conditions=conditions,
)


@FIGURE_1.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, ratios, seeds, test, max_steps = Scaled(
        smoke=(32, 4, range(2, 7, 4), 3, 1, 20, 4),
        quick=(256, 32, range(2, 23, 4), 6, 1, 250, 300),
        paper=(1024, 128, range(2, 23, 2), 12, 5, 1000, 5000),
    )[scale]
    space = linspace if reading["snr_grid"] == "linear" else logspace
    return Experiment(
        data=noisy_signals(
            dim,
            samples=list(samples),
            snr=space(0.16, 16.0, ratios),
            noise_std=0.4 if reading["noise"] == "std" else math.sqrt(0.4),
            projected=reading["projection"] == "projected",
            balanced=reading["labels"] == "balanced",
        ),
        network=network(hidden, reading["w_O"]),
        attack=pgd(RADIUS),
        training=GradientDescent(
            rate=0.1,
            stop_loss=0.01,
            stop_on="clean" if reading["stop"] == "clean" else "attacked",
            max_steps=max_steps,
        ),
        evaluation=Evaluation(samples=test),
        seeds=seeds,
    )


def _paper_law(edge: Boundary) -> str | None:
    """The paper's law with the constant measured here: none is legible in the paper.

    None where rows that never cross would be left out of it.
    """
    if edge.critical.notnull().mean() < 0.8:
        return None
    return f"samples * snr**2 = {edge.constant_for(2.0).value:.3g}"


def linear_theory(result: xr.Dataset) -> Callable[[np.ndarray], np.ndarray]:
    """Where uniform attention is right with chance `LEVEL` on clean points, as a curve over N."""
    data = specification(result)["data"]
    return lambda samples: critical_snr(samples, data["tokens"], data["dim"], LEVEL)


def _maps(result: xr.Dataset) -> list[xr.DataArray]:
    return [
        result.test_accuracy.rename("clean accuracy"),
        result.robust_accuracy.rename("robust accuracy"),
    ]


@FIGURE_1.maps
def _panels(result: xr.Dataset) -> list[Panel]:
    """Clean and robust accuracy, then on which side of the level they are."""
    return [panel for cut in (None, LEVEL) for panel in _pair(result, cut)]


def _pair(result: xr.Dataset, cut: float | None) -> list[Panel]:
    predictions = (linear_theory(result), None)
    moved = (result.get("test_accuracy_moved"), result.get("robust_accuracy_moved"))
    panels = []
    for values, predicted, crosses in zip(_maps(result), predictions, moved, strict=True):
        edge = boundary(values, LEVEL)
        panels.append(
            Panel(
                values,
                "samples",
                "snr",
                str(values.name),
                cut=cut,
                limits=(0.0, 1.0),
                printed=_paper_law(edge),
                printed_by="paper's exponent",
                boundary=edge,
                predicted=predicted,
                predicted_by="linear theory: N · SNR⁴ = 4 (M - 1)² z² / d",
                moved=crosses,
            )
        )
    return panels


@FIGURE_1.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    note = (
        "The paper gives no constant for its law: the one drawn is fitted here. "
        f"Linear theory: uniform attention, z = {NormalDist().inv_cdf(LEVEL):.3g}."
    )
    return phase_figure(
        _panels(result),
        title="Benign overfitting under adversarial training",
        caption=f"{caption} {note}",
        columns=2,
    )


@FIGURE_1.summarises
def _summarise(result: xr.Dataset) -> str:
    lines = []
    for values in _maps(result):
        edge = boundary(values, LEVEL)
        lines.append(str(edge))
        if edge.critical.notnull().any():
            lines += [f"  at exponent {p}: N SNR^{p} = {_constant(edge, p)}" for p in (2, 4)]
    law = float(linear_theory(result)(np.ones(1))[0] ** 4)
    lines.append(f"linear theory of the clean boundary: N SNR^4 = {law:.4g}")
    return "\n".join(lines)


def _constant(edge: Boundary, exponent: float) -> str:
    c = edge.constant_for(exponent)
    return f"{c.value:.4g} [{c.low:.4g}, {c.high:.4g}]"


RECIPES = [
    FIGURE_1,
    FIGURE_2,
    FIGURE_3,
    HEADS,
    NORMS,
    INSIDE,
    AUGMENT,
    RADII,
    TOKENS,
    OUTPUT_NORM,
    FIGURE_1CD,
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
]
