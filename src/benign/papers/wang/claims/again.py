"""What the lemmas of Wang et al. are stated in: numbers of a cell; slopes, outputs and the signal at a step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benign.claims import Undecided
from benign.claims.replays import Replays
from benign.experiment import Experiment
from benign.losses import logistic_slope
from benign.networks.network import Params
from benign.networks.two_layer import TwoLayer
from benign.spec.axes import cells
from benign.training.descent import Step
from benign.training.setup import Setup

PerRun = Float[Tensor, " runs"]


def cells_of(experiment: Experiment) -> list[Setup]:
    """Its cells, in the order of its axis."""
    return [cell for _, cell in cells(experiment)]


def rhos(experiment: Experiment) -> np.ndarray:
    """alpha / |mu| of its cells."""
    return np.array([Numbers.of(cell).rho for cell in cells_of(experiment)])


def walked(replay: Replays) -> Iterator[Step]:
    """Every step of runs that end together, before its update; weights change in place."""
    for step, _ in replay.steps():
        if len(step.batch) < len(replay):
            raise Undecided("some runs of a cell end before the others")
        yield step


@dataclass(frozen=True)
class Numbers:
    """What the lemmas are stated in, for runs of one cell."""

    samples: int
    width: int
    dim: float
    signal: float
    radius: float
    """alpha"""
    rate: float
    slope: float
    """gamma: 1 for ReLU, of whose class it is the slope above 0"""

    @property
    def rho(self) -> float:
        """alpha / |mu|"""
        return round(self.radius / self.signal, 9)

    @staticmethod
    def of(cell: Setup) -> "Numbers":
        data: Any = cell.data
        layer = two_layer(cell)
        ball: Any = cell.attack.threat() if cell.attack else None
        radius = 0.0 if ball is None else float(ball.size(data))
        slope = layer.slope if layer.activation == "smoothed_leaky_relu" else 1.0
        return Numbers(
            data.samples, layer.width, data.dim, data.signal, radius, cell.training.rate, slope or 1.0
        )  # fmt: skip


def two_layer(setup: Setup) -> TwoLayer:
    assert isinstance(setup.network, TwoLayer)
    return setup.network


def signal_of(step: Step) -> Float[Tensor, "runs dim"]:
    """mu, in the coordinates of the runs."""
    return step.batch.sample.latent["signal"][:, 0]


def signal_direction(step: Step) -> Float[Tensor, "runs dim"]:
    signal = signal_of(step)
    return signal / torch.linalg.vector_norm(signal, dim=1, keepdim=True)


def is_smooth(setup: Setup) -> bool:
    return two_layer(setup).activation == "smoothed_leaky_relu"


def copied(params: Params) -> Params:
    return {name: value.clone() for name, value in params.items()}


def outputs(step: Step, params: Params, points: Tensor) -> Float[Tensor, "runs samples"]:
    """y f at some points with some weights."""
    return step.batch.sample.y * step.batch.setup.network.run(params, points).outputs


def slopes(step: Step) -> Float[Tensor, "runs samples"]:
    """g = -l'(y f) of the points trained on."""
    return -logistic_slope(step.margins)


def along_signal(step: Step) -> PerRun:
    """<-grad, V> with rows a_s mu / (|mu| sqrt m) of V, where a_s is a sign (Lemma B.15)."""
    gradient, outer = step.gradient()["inner"], step.batch.params["outer"]
    return -torch.einsum("rmd,rm,rd->r", gradient, outer, signal_direction(step))


def pairs(steps: Iterator[Step]) -> Iterator[tuple[Step, Params, Step]]:
    """Each step with its weights, and the next step. What a step saw stays; `params` of both are those of the next."""
    before = next(steps)
    weights = copied(before.batch.params)
    for step in steps:
        yield before, weights, step
        before, weights = step, copied(step.batch.params)
