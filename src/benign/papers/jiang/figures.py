"""The figures of Jiang et al. as recipes."""

import xarray as xr

from benign.claims.study import Question, Reading
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.papers.attention_questions import (
    LABELS,
    OUTPUT,
    PROJECTION,
    network,
)
from benign.papers.jiang.dynamics import FIG3, FIG4
from benign.papers.jiang.fig2 import FIG2
from benign.papers.jiang.inside import INSIDE
from benign.papers.jiang.theory import conditions
from benign.papers.recipes import Recipe, Scaled
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.spec.axes import linspace, logspace
from benign.stats.boundary import boundary
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

CUT = 0.2
"""test loss that figure 1b cuts at"""
PRINTED = "samples * snr**2 = 1000"
"""the red curve of figure 1"""

SNR_GRID = Question(
    "snr_grid",
    "how are the signal-to-noise ratios of figure 1 spaced between 0.16 and 15.6?",
    {"linear": "evenly: |mu| from 1 to 100", "log": "evenly in the logarithm"},
    "0.16 to 15.6 is |mu| = 1 to 100 at sigma_p sqrt(d) = 6.4",
)


FIG1 = Recipe(
    name="jiang/fig1",
    title="Figure 1: test loss over sample size and signal-to-noise ratio, synthetic data",
    shows="a sharp transition of the test loss, drawn at N SNR^2 = 1000",
    questions=(OUTPUT, LABELS, PROJECTION, SNR_GRID),
    conditions=conditions,
)


@FIG1.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, ratios, seeds, test, max_steps = Scaled(
        smoke=(64, 16, range(4, 13, 4), 4, 1, 100, 200),
        quick=(512, 128, range(4, 25, 4), 10, 2, 250, 5000),
        paper=(1024, 512, range(2, 21, 2), 10, 5, 500, 20000),
    )[scale]
    space = linspace if reading["snr_grid"] == "linear" else logspace
    return Experiment(
        data=SignalNoise(
            tokens=16,
            dim=dim,
            samples=list(samples),
            snr=space(0.15625, 15.625, ratios),
            noise_std=0.2,
            strong_noise_std=4.0,
            projected=reading["projection"] == "projected",
            balanced=reading["labels"] == "balanced",
        ),
        network=network(hidden, reading["w_O"]),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=max_steps),
        evaluation=Evaluation(samples=test),
        coordinates="projected",  # the same runs for less: benchmarks/README.md
        seeds=seeds,
    )


def _maps(result: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Test loss, which the paper draws, and test error, which it does not."""
    return result.test_loss.rename("test loss"), (1 - result.test_accuracy).rename("test error")


@FIG1.maps
def _panels(result: xr.Dataset) -> list[Panel]:
    loss, error = _maps(result)
    edge = boundary(loss, CUT)
    return [
        Panel(
            loss,
            "samples",
            "snr",
            "test loss",
            limits=(0.0, 0.7),
            printed=PRINTED,
            boundary=edge,
            moved=result.get("test_loss_moved"),
        ),
        Panel(loss, "samples", "snr", "test loss", cut=CUT, printed=PRINTED, boundary=edge),
        Panel(
            error,
            "samples",
            "snr",
            "test error",
            limits=(0.0, 0.5),
            boundary=boundary(error, 0.05),
            moved=result.get("test_accuracy_moved"),
        ),
    ]


@FIG1.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    title = "Benign and harmful overfitting of a transformer"
    return phase_figure(_panels(result), title=title, caption=caption)


@FIG1.summarises
def _summarise(result: xr.Dataset) -> str:
    loss, error = _maps(result)
    edge = boundary(loss, CUT)
    lines = [str(edge)]
    if edge.critical.notnull().any():
        c = edge.constant_for(2.0)
        lines.append(
            f"  at exponent 2: N SNR^2 = {c.value:.4g} [{c.low:.4g}, {c.high:.4g}]; the paper prints 1000"
        )
    return "\n".join([*lines, str(boundary(error, 0.05))])


RECIPES = [
    FIG1,
    FIG2,
    FIG3,
    FIG4,
    INSIDE,
]
