"""The figures of Zhang et al. as recipes."""

import math
from pathlib import Path

import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.axes import linspace, logspace
from benign.claims.study import Question, Reading
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.papers.attention_questions import (
    LABELS,
    OUTPUT,
    PROJECTION,
    FigureSize,
    network,
)
from benign.papers.recipes import Recipe
from benign.papers.zhang.augment import AUGMENT
from benign.papers.zhang.inside import INSIDE
from benign.papers.zhang.output import OUTPUT_NORM
from benign.papers.zhang.radius import RADIUS
from benign.papers.zhang.tokens import TOKENS
from benign.plot.phase import Panel, phase_figure
from benign.plot.style import save
from benign.theory.boundary import Boundary, boundary
from benign.training.setup import Evaluation, GradientDescent

LEVEL = 0.75
"""accuracy halfway between chance and certainty"""

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

_SIZES = {
    "smoke": FigureSize(64, 8, range(2, 11, 4), 4, 1, 50, 50),
    "quick": FigureSize(256, 32, range(2, 23, 4), 6, 1, 250, 300),
    "paper": FigureSize(1024, 128, range(2, 23, 2), 12, 5, 1000, 5000),
}


def _build(scale: str, reading: Reading) -> Experiment:
    size = _SIZES[scale]
    space = linspace if reading["snr_grid"] == "linear" else logspace
    ball = Ball(p=2, radius=0.05, relative_to="signal", per="token")
    return Experiment(
        data=SignalNoise(
            tokens=16,
            dim=size.dim,
            samples=list(size.samples),
            snr=space(0.16, 16.0, size.ratios),
            noise_std=0.4 if reading["noise"] == "std" else math.sqrt(0.4),
            projected=reading["projection"] == "projected",
            balanced=reading["labels"] == "balanced",
        ),
        network=network(size.hidden, reading["w_O"]),
        attack=PGD(ball=ball, steps=20, step=0.2),
        training=GradientDescent(
            rate=0.1,
            stop_loss=0.01,
            stop_on="clean" if reading["stop"] == "clean" else "attacked",
            max_steps=size.max_steps,
        ),
        evaluation=Evaluation(samples=size.test),
        seeds=size.seeds,
    )


def _paper_law(edge: Boundary) -> str | None:
    """The paper's law with the constant measured here: none is legible in the paper.

    None where rows that never cross would be left out of it.
    """
    if edge.critical.notnull().mean() < 0.8:
        return None
    return f"samples * snr**2 = {edge.constant_for(2.0).value:.3g}"


def _maps(result: xr.Dataset) -> list[xr.DataArray]:
    return [
        result.test_accuracy.rename("clean accuracy"),
        result.robust_accuracy.rename("robust accuracy"),
    ]


def _draw(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    panels = []
    for values in _maps(result):
        edge = boundary(values, LEVEL)
        panels.append(
            Panel(
                values,
                "samples",
                "snr",
                str(values.name),
                limits=(0.0, 1.0),
                printed=_paper_law(edge),
                printed_by="paper's exponent",
                boundary=edge,
            )
        )
    note = "The paper gives no constant for its law: the one drawn is fitted here."
    figure = phase_figure(
        panels, title="Benign overfitting under adversarial training", caption=f"{caption} {note}"
    )
    return save(figure, folder / "fig1")


def _summarise(result: xr.Dataset) -> str:
    lines = []
    for values in _maps(result):
        edge = boundary(values, LEVEL)
        lines.append(str(edge))
        if edge.critical.notnull().any():
            c = edge.constant_for(2.0)
            lines.append(f"  at exponent 2: N SNR^2 = {c.value:.4g} [{c.low:.4g}, {c.high:.4g}]")
    return "\n".join(lines)


RECIPES = [
    Recipe(
        name="zhang/fig1",
        title="Figure 1a, b: clean and robust accuracy after adversarial training, synthetic data",
        shows="a boundary of the form N SNR^2 = constant for clean and for robust accuracy",
        build=_build,
        draw=_draw,
        summarise=_summarise,
        questions=(NOISE, OUTPUT, LABELS, PROJECTION, STOP, SNR_GRID),
    ),
    INSIDE,
    AUGMENT,
    RADIUS,
    TOKENS,
    OUTPUT_NORM,
]
