"""How the critical dimension grows with the signal, far beyond the paper's own figure, in exact coordinates."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading, Scaled
from benign.data.mixture import Mixture
from benign.experiment import Experiment, specification
from benign.networks.two_layer import TwoLayer
from benign.papers.recipes import Recipe
from benign.papers.wang.bounds import critical_dim
from benign.papers.wang.setting import FLIP, RHO
from benign.papers.wang.theory import conditions
from benign.plot.laws import Critical, exponents_figure
from benign.plot.style import Figure
from benign.spec.axes import zipped
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

LEVEL = 0.8413
"""accuracy against clean labels at one standard deviation: Phi(1)"""
AROUND = {"robust": (0.1, 3.0), "clean": (0.25, 4.0)}
"""dimensions that are tried, as multiples of the predicted ones"""

ACTIVATION = Question(
    "activation",
    "the theory has a smooth and a non-smooth case; the figure has ReLU",
    {"relu": "ReLU, as in the figure", "smooth": "smoothed leaky ReLU, gamma = 0.5, H = 1"},
    "the figure's network",
)


def predicted(samples: int, rho: float) -> Callable[[np.ndarray], np.ndarray]:
    """Where the averaged linear predictor errs with chance 1 - Phi(1), in a ball of radius rho r."""

    def curve(signal: np.ndarray) -> np.ndarray:
        r = torch.tensor(signal)
        return critical_dim(r, samples, rho * r, FLIP).numpy()

    return curve


def _cells(samples: int, signals: Sequence[float], dims: int) -> list[tuple[float, int]]:
    """Signals, each with dimensions around both of its predicted boundaries."""
    cells = set()
    for signal in signals:
        for rho, (low, high) in zip((RHO, 0.0), AROUND.values(), strict=True):
            expected = float(predicted(samples, rho)(np.array(signal)))
            tried = np.geomspace(low * expected, high * expected, dims)
            cells |= {(signal, max(round(dim), 2 * samples)) for dim in tried}
    return sorted(cells)


EXPONENTS = Recipe(
    name="wang/exponents",
    title="Critical dimension of clean and robust accuracy, r from 4 to 160, d up to 1e11",
    shows="where the laws d ~ r^4 (clean) and d ~ r^2 (robust) set in",
    questions=(ACTIVATION,),
    conditions=conditions,
)


@EXPONENTS.builds
def _build(scale: str, reading: Reading) -> Experiment:
    samples, width, signals, dims, seeds, test, steps = Scaled(
        smoke=(20, 10, (4.0, 10.0, 30.0), 2, 1, 200, 20),
        quick=(50, 40, (4.0, 10.0, 30.0, 100.0), 5, 2, 1000, 100),
        paper=(100, 200, (4.0, 7.0, 12.0, 20.0, 40.0, 80.0, 160.0), 8, 10, 2000, 400),
    )[scale]
    cells = _cells(samples, signals, dims)
    # The largest curvature of the loss is about (d + n r^2) / n; Wang's own rate 1/(C d^2) is out of reach.
    rates = [samples / (dim + samples * signal**2) for signal, dim in cells]
    stds = [
        1e-3 * rate / math.sqrt(width * dim) for (_, dim), rate in zip(cells, rates, strict=True)
    ]
    bend = {"activation": "smoothed_leaky_relu", "slope": 0.5, "smoothness": 1.0}
    ball = Ball(radius=RHO, relative_to="signal", per="sample")
    return Experiment(
        data=Mixture(
            samples=samples,
            signal=zipped("cell", [signal for signal, _ in cells]),
            dim=zipped("cell", [dim for _, dim in cells]),
            flip=FLIP,
        ),
        network=TwoLayer(
            width=width,
            init_std=zipped("cell", stds),
            **(bend if reading["activation"] == "smooth" else {}),
        ),
        attack=PGD(ball=ball, steps=10, step=0.3),
        training=GradientDescent(
            rate=zipped("cell", rates), stop_loss=0.05, max_steps=steps, first_attacked_step=1
        ),
        evaluation=Evaluation(samples=test, attack=PGD(ball=ball, steps=20, step=0.2, keep="best")),
        precision="float64",
        coordinates="sampled",
        pairing="common",
        seeds=seeds,
    )


EDGE = "signal * dim**p"


def accuracy_map(result: xr.Dataset, name: str) -> xr.DataArray:
    """An accuracy over signal and dimension, NaN where the grid has no cell."""
    return result[[name]].set_index(cell=["signal", "dim"]).unstack("cell")[name]


def boundaries(result: xr.Dataset) -> tuple[Boundary, Boundary]:
    """Critical dimensions of clean and of robust accuracy, for every signal."""
    return _edge(result, "test_accuracy"), _edge(result, "robust_accuracy")


def _edge(result: xr.Dataset, name: str) -> Boundary:
    return audited_boundary(result, lambda of: accuracy_map(of, name), LEVEL, EDGE)


@EXPONENTS.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    clean, robust = boundaries(result)
    samples = _samples(result)
    return exponents_figure(
        [
            Critical("clean", clean, predicted(samples, 0.0)),
            Critical("robust", robust, predicted(samples, RHO)),
        ],
        x="signal r",
        y="critical dimension d*",
        title="Dimension at which accuracy falls to 84 %",
        caption=f"{caption} Dashed: the averaged linear predictor.",
    )


@EXPONENTS.summarises
def _summarise(result: xr.Dataset) -> str:
    lines = []
    for name, edge, printed in zip(("clean", "robust"), boundaries(result), (4, 2), strict=True):
        fit = edge.fit
        power = edge.reason if fit is None else f"{fit.slope:.3g} {_interval(fit.slope_interval)}"
        rows = edge.critical.dropna("signal")
        ends = [f"r = {r:g}: {d:.3g}" for r, d in zip(rows.signal.values, rows.values, strict=True)]
        lines.append(
            f"{name}: d* grows as r to the {power} (printed: {printed}); {', '.join(ends)}"
        )
        if rows.size > 2:
            local = np.diff(np.log(rows.values)) / np.diff(np.log(rows.signal.values))
            lines.append("  local exponents: " + ", ".join(f"{slope:.2f}" for slope in local))
    return "\n".join(lines)


def _interval(bounds: tuple[float, float]) -> str:
    return f"[{bounds[0]:.3g}, {bounds[1]:.3g}]"


def _samples(result: xr.Dataset) -> int:
    return specification(result)["data"]["samples"]
