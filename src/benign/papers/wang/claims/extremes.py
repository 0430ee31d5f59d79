"""Runs of a study trained again: the quantities of Wang's lemmas at each step, and their extremes over a run."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from benign.claims import Evidence, Measured, Undecided
from benign.claims.replays import Replays
from benign.experiment import Experiment
from benign.losses import logistic_slope
from benign.networks.network import Params
from benign.networks.two_layer import TwoLayer
from benign.papers.statistics import cells_of
from benign.papers.wang.bounds import CLUSTER_CONSTANT
from benign.training.descent import Step
from benign.training.metrics.two_layer import active_neurons_min, active_points_min
from benign.training.setup import Setup

PerRun = Float[Tensor, " runs"]


def rhos(experiment: Experiment) -> np.ndarray:
    """Return alpha / |mu| of every cell."""
    return np.array([LemmaNumbers.of(cell).rho for cell in cells_of(experiment)])


def steps_of(replay: Replays) -> Iterator[Step]:
    """Yield every step of runs that end together, before its update; weights change in place."""
    for step, _ in replay.steps():
        if len(step.batch) < len(replay):
            raise Undecided("some runs of a cell end before the others")
        yield step


@dataclass(frozen=True)
class LemmaNumbers:
    """The numbers of a cell in which the lemmas are stated."""

    samples: int
    width: int
    dim: float
    signal: float
    radius: float
    """alpha"""
    rate: float
    slope: float
    """gamma: the slope of the smoothed leaky ReLU; 1 for ReLU"""

    @property
    def rho(self) -> float:
        """alpha / |mu|"""
        return round(self.radius / self.signal, 9)

    @staticmethod
    def of(cell: Setup) -> "LemmaNumbers":
        data: Any = cell.data
        layer = two_layer(cell)
        ball: Any = cell.attack.threat() if cell.attack else None
        radius = 0.0 if ball is None else float(ball.size(data))
        slope = layer.slope if layer.activation == "smoothed_leaky_relu" else 1.0
        return LemmaNumbers(
            data.samples, layer.width, data.dim, data.signal, radius, cell.training.rate, slope or 1.0
        )  # fmt: skip


def two_layer(setup: Setup) -> TwoLayer:
    assert isinstance(setup.network, TwoLayer)
    return setup.network


def signal_of(step: Step) -> Float[Tensor, "runs dim"]:
    """Return mu in the coordinates of the runs."""
    return step.batch.sample.latent["signal"][:, 0]


def signal_direction(step: Step) -> Float[Tensor, "runs dim"]:
    """Return mu / |mu|."""
    signal = signal_of(step)
    return signal / torch.linalg.vector_norm(signal, dim=1, keepdim=True)


def is_smooth(setup: Setup) -> bool:
    return two_layer(setup).activation == "smoothed_leaky_relu"


def slack_text(ratio: Measured) -> str:
    """Return by which factor a ratio that may be 1 is smaller."""
    return f"the bound is {1 / ratio.estimate.value:.2g} times larger"


def copied(params: Params) -> Params:
    return {name: value.clone() for name, value in params.items()}


def outputs(step: Step, params: Params, points: Tensor) -> Float[Tensor, "runs samples"]:
    """Return y f at some points with some weights."""
    return step.batch.sample.y * step.batch.setup.network.run(params, points).outputs


def slopes(step: Step) -> Float[Tensor, "runs samples"]:
    """Return g = -l'(y f) at the points trained on."""
    return -logistic_slope(step.margins)


def along_signal(step: Step) -> PerRun:
    """Return <-grad, V>, where the rows of V are a_s mu / (|mu| sqrt m) with signs a_s (Lemma B.15)."""
    gradient, outer = step.gradient()["inner"], step.batch.params["outer"]
    return -torch.einsum("rmd,rm,rd->r", gradient, outer, signal_direction(step))


def pairs(steps: Iterator[Step]) -> Iterator[tuple[Step, Params, Step]]:
    """Yield each step, its weights, and the next step.

    Points and outputs of a step stay; `params` of both steps are those of the next one.
    """
    before = next(steps)
    weights = copied(before.batch.params)
    for step in steps:
        yield before, weights, step
        before, weights = step, copied(step.batch.params)


# Extremes over a run: one replay of a cell serves all lemmas.


Move = tuple[Step, Params, Step]
Extreme = tuple[Callable[[LemmaNumbers, Move], Tensor], Callable[[Tensor, Tensor], Tensor]]


def rise(numbers: LemmaNumbers, move: Move) -> Float[Tensor, "runs points"]:
    """Return the growth of y_i f in a step, at x_i and at its attacked versions before and after the step (Lemma
    B.9)."""
    before, weights, after = move
    points = (before.batch.sample.x, before.attacked, after.attacked)
    rises = [outputs(before, after.batch.params, x) - outputs(before, weights, x) for x in points]
    return torch.cat(rises, 1)


def signal_share(numbers: LemmaNumbers, move: Move) -> Float[Tensor, "runs samples"]:
    """Return y_c <mu, x_i> / |mu|^2 of attacked points, with y_c the clean label (Lemma B.11)."""
    step, signal = move[2], signal_of(move[2])
    along = torch.einsum("rnd,rd->rn", step.attacked[:, :, 0], signal) / numbers.signal**2
    return along * step.batch.sample.clean_y


def pull(numbers: LemmaNumbers, move: Move) -> Float[Tensor, "runs 1"]:
    """Return <-grad, V> / (|mu| G) (Lemma B.15)."""
    step = move[0]
    share = along_signal(step) / (numbers.signal * slopes(step).mean(1))
    return share[:, None]


def band(numbers: LemmaNumbers, move: Move, scale: float) -> Float[Tensor, "runs points"]:
    """Return the growth of y_i f in a step over `scale` eta g_i / n (Lemma B.26, E2)."""
    unit = scale * numbers.rate * slopes(move[0]) / numbers.samples
    return rise(numbers, move) / unit.repeat(1, 3)


def band_low(numbers: LemmaNumbers, move: Move) -> Tensor:
    """Return the growth over the lower end of the band, without the share c0 of active neurons."""
    near = (math.sqrt(numbers.dim / CLUSTER_CONSTANT) - numbers.radius) ** 2
    return band(numbers, move, numbers.slope**2 * near / 2)


def band_high(numbers: LemmaNumbers, move: Move) -> Tensor:
    """Return the growth over the upper end of the band."""
    return band(numbers, move, 3 * (CLUSTER_CONSTANT * numbers.dim + numbers.radius**2))


def cosine(numbers: LemmaNumbers, move: Move) -> Float[Tensor, "runs samples"]:
    """Return the cosine between y_i times the perturbation of x_i and -sum_k y_k x_k (section 4.1)."""
    step, sample = move[2], move[2].batch.sample
    moves = (step.attacked - sample.x)[:, :, 0] * sample.y[..., None]
    direction = -torch.einsum("rn,rnd->rd", sample.y, sample.x[:, :, 0])
    return torch.nn.functional.cosine_similarity(moves, direction[:, None], dim=2)


EXTREMES: dict[str, Extreme] = {
    "rise": (rise, torch.minimum),
    "signal_low": (signal_share, torch.minimum),
    "signal_high": (signal_share, torch.maximum),
    "pull": (pull, torch.minimum),
    "band_low": (band_low, torch.minimum),
    "band_high": (band_high, torch.maximum),
    "cosine": (cosine, torch.minimum),
}


@lru_cache(maxsize=16)
def extremes_of(replay: Replays) -> dict[str, PerRun]:
    """Return every extreme of `EXTREMES` for the runs of a cell, and three more.

    `growth` is the effective C2 of Lemma B.12, `active` is c0, `first_move` is |W_1 - W_0| / |W_0| (Proposition B.34).
    """
    numbers = LemmaNumbers.of(replay.cell)
    values: dict[str, Tensor] = {}

    def update(name: str, now: Tensor, choose: Callable[[Tensor, Tensor], Tensor]) -> None:
        values[name] = choose(values[name], now) if name in values else now

    steepness = norm = torch.zeros(len(replay), dtype=torch.float64)
    for move in pairs(steps_of(replay)):
        before, weights, after = move
        if before.number == 0:
            norm = torch.linalg.vector_norm(weights["inner"], dim=(1, 2))
            values["active"] = _active(replay.first_step())
            moved = after.batch.params["inner"] - weights["inner"]
            values["first_move"] = torch.linalg.vector_norm(moved, dim=(1, 2)) / norm
        steepness = steepness + slopes(before).mean(1)
        new_norm = torch.linalg.vector_norm(after.batch.params["inner"], dim=(1, 2))
        unit = numbers.rate * math.sqrt(numbers.dim / numbers.samples) * steepness
        update("growth", (new_norm - norm) / unit, torch.maximum)
        for name, (measure, choose) in EXTREMES.items():
            now = measure(numbers, move)
            update(name, now.amin(1) if choose is torch.minimum else now.amax(1), choose)
        if after.number == 1:
            update("active", _active(after), torch.minimum)
    return values


def by_cell_and_seed(
    evidence: Evidence, replays: Sequence[Replays], rows: Sequence[Tensor | np.ndarray]
) -> xr.DataArray:
    """Return the numbers of the runs of each replay as [cells, seeds]; NaN for a run that was not replayed."""
    table = np.full((len(replays), evidence.experiment.seeds), np.nan)
    for row, replay, numbers in zip(table, replays, rows, strict=True):
        row[replay.seeds] = np.asarray(numbers)
    return xr.DataArray(table, dims=("cell", "seed"))


def _active(step: Step) -> PerRun:
    """Return c0 of Lemma 4.5: the smallest share of points of a neuron, and of neurons of a point."""
    return torch.minimum(active_neurons_min(step), active_points_min(step))


def aligned_share(replay: Replays, count: int) -> Float[Tensor, " runs"]:
    """Return the share of fresh points on which every neuron has the sign of a_s y at the end (Corollary B.31)."""
    *_, last = steps_of(replay)
    fresh = last.batch.test_points("test/0", count)
    weights = last.batch.params
    signs = (fresh.x[:, :, 0] @ weights["inner"].mT).sign()
    expected = fresh.clean_y[..., None] * weights["outer"][:, None].sign()
    return (signs == expected).all(2).double().mean(1)


def distance_between(replay: Replays, other: Replays) -> PerRun:
    """Return the largest |W - W'| / |W'| over the steps after 0, of runs of the same seeds that share their draws."""
    furthest = torch.zeros(len(replay), dtype=torch.float64)
    for one, two in zip(steps_of(replay), steps_of(other), strict=True):
        if one.number:
            weights, base = one.batch.params["inner"], two.batch.params["inner"]
            distance = torch.linalg.vector_norm(weights - base, dim=(1, 2))
            norm = torch.linalg.vector_norm(base, dim=(1, 2))
            furthest = torch.maximum(furthest, distance / norm)
    return furthest
