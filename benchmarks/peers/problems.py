"""The problems: a cell of each figure at three sample sizes, as arrays from which every contestant starts."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.networks.attention import Attention
from benign.networks.two_layer import TwoLayer
from benign.spec import axes
from benign.streams import RunId, Streams
from benign.sweep.plan import runs_of
from benign.training.descent import Batch
from benign.training.setup import Setup, stack


@dataclass(frozen=True)
class Figure:
    """A recipe's cell, and the numbers that its runs and sizes differ by."""

    recipe: str
    samples: tuple[int, int, int]
    """small, middle and full sample size"""
    varied: tuple[str, str]
    """the field that runs of a batch differ by"""
    values: tuple[float, ...]
    runs: dict[str, int]
    """runs that benign trains at once, on a CPU and on a GPU"""
    peer_runs: dict[str, tuple[int, ...]]
    """how many runs at once vmap and JAX try at the small size; the faster number is theirs"""
    width: str
    """the name of the network's width"""
    dim: int | None = None
    """the full dimension, if it differs from the recipe's first cell"""
    fixed: tuple[tuple[tuple[str, ...], Any], ...] = ()
    """further differences from that cell"""
    exact: bool = False
    """also in the exact small coordinates of the run"""


FIGURES = {
    "zhang/fig1": Figure(
        recipe="zhang/fig1",
        samples=(2, 12, 22),
        varied=("data", "snr"),
        values=(0.16, 0.5, 1.6, 5.0, 16.0),
        runs={"cpu": 8, "cuda": 660},
        peer_runs={"cpu": (1, 8), "cuda": (60, 660)},
        width="hidden",
    ),
    "jiang/fig1": Figure(
        recipe="jiang/fig1",
        samples=(2, 10, 20),
        varied=("data", "snr"),
        values=(0.15625, 0.5, 1.5625, 5.0, 15.625),
        runs={"cpu": 8, "cuda": 500},
        peer_runs={"cpu": (1, 8), "cuda": (50, 500)},
        width="hidden",
        exact=True,
    ),
    # The cell of the paper's Figure 1 with the largest dimension; the other settings are those of Figure 2.
    "wang/fig1": Figure(
        recipe="wang/fig2",
        samples=(20, 50, 100),
        varied=("data", "signal"),
        values=(2.0, 4.0, 6.0, 8.0, 10.0),
        runs={"cpu": 2, "cuda": 10},
        peer_runs={
            "cpu": (1,),
            "cuda": (10,),
        },  # 72 MB of weights a run: on a CPU several at once are no faster
        width="width",
        dim=18_000,
        fixed=((("training", "drop_every"), 0),),
        exact=True,
    ),
    "li/fig3": Figure(
        recipe="li/fig3",
        samples=(20, 50, 100),
        varied=("attack", "clip"),
        values=(1.2,),
        runs={"cpu": 8, "cuda": 64},
        peer_runs={"cpu": (1, 8), "cuda": (64,)},
        width="width",
        # The larger reading of sigma_0: from 0.01 the loss stays at log 2 for so long that all agree trivially.
        fixed=((("network", "init_std"), 0.1),),
    ),
}


@dataclass(frozen=True)
class Problem:
    """Runs of one shape to be trained side by side."""

    figure: str
    cell: Setup
    """the run that all others are variations of"""
    doubled: str = ""
    """`runs`, `samples`, `dim` or `width` if this number is doubled, to measure the growth of time"""

    @staticmethod
    def of(
        figure: str, samples: int, scale: str = "paper", precision: str = "float32"
    ) -> "Problem":
        """Return a figure's cell at a sample size, without a stopping loss."""
        from benign.papers.registry import recipe  # slow to import, and workers do not need it

        its = FIGURES[figure]
        changes = {("data", "samples"): samples, ("precision",): precision}
        changes |= {
            ("training", "stop_loss"): 0.0,
            ("training", "max_steps"): 10**9,
            **dict(its.fixed),
        }
        if scale == "paper" and its.dim:
            changes[("data", "dim")] = its.dim
        first = next(iter(runs_of(recipe(its.recipe).experiment(scale)))).cell
        cell = Setup(**{name: part for name, part in first if name in Setup.model_fields})
        return Problem(figure, axes.replace(cell, changes))

    def twice(self, doubled: str) -> "Problem":
        """Return the problem with one number doubled; doubled runs leave it unchanged."""
        width = ("network", FIGURES[self.figure].width)
        places = {"samples": ("data", "samples"), "dim": ("data", "dim"), "width": width}
        cell = self.cell
        if doubled in places:
            section, field = places[doubled]
            number = getattr(getattr(cell, section), field)
            cell = axes.replace(cell, {(section, field): 2 * number})
        return Problem(self.figure, cell, doubled)

    def cells(
        self, first: int, count: int, coordinates: str = "ambient"
    ) -> tuple[list[Setup], list[RunId]]:
        """Return some runs, from the `first` on, with the identities of their draws."""
        figure, cell = FIGURES[self.figure], self.cell
        numbers = [
            figure.values[index % len(figure.values)] for index in range(first, first + count)
        ]
        cells = [
            axes.replace(cell, {figure.varied: number, ("coordinates",): coordinates})
            for number in numbers
        ]
        return cells, [RunId(0, index, "") for index in range(first, first + count)]

    def batch(self, first: int, count: int, device: str, coordinates: str = "ambient") -> Batch:
        """Return these runs before their first step, as benign trains them."""
        cells, ids = self.cells(first, count, coordinates)
        return Batch.start(stack(cells, device), Streams(ids, device))

    def task(self, count: int, device: str) -> "Task":
        """Return the first runs before their first step, as the others train them."""
        return task_of(self.batch(0, count, device))


@dataclass(frozen=True)
class Task:
    """Points, weights and numbers of a batch of runs, as plain tensors without benign's classes."""

    network: str
    """`attention`, `two_layer` or `patch_cnn`"""
    attack: str
    """`none`, `pgd` or `one_step`"""
    x: Tensor
    """[runs, samples, tokens, dim]"""
    y: Tensor
    """[runs, samples]: -1 and +1, or 0 to k - 1"""
    weights: dict[str, Tensor]
    """[runs, ...], named and laid out as in the modules of `by_loop`"""
    frozen: dict[str, Tensor]
    """weights that are not trained"""
    radius: Tensor
    """[runs]: of every token's l2 ball, or the largest move of a coordinate for `one_step`"""
    rate: float
    """step size of training"""
    attack_steps: int = 0
    attack_step: float = 0.0
    """length of a step as a share of the radius; for `one_step` the factor of the gradient"""


def task_of(batch: Batch) -> Task:
    setup, sample = batch.setup, batch.sample
    name, weights, frozen = _weights(batch)
    task = Task(
        network=name,
        attack="none",
        x=sample.x,
        y=sample.y.contiguous(),
        weights=weights,
        frozen=frozen,
        radius=sample.x.new_zeros(len(batch)),
        rate=_shared(setup.training.rate),
    )
    attack = setup.attack
    if isinstance(attack, PGD):
        radius = attack.ball.radii(setup.data, sample.x).reshape(-1)
        return replace(
            task,
            attack="pgd",
            radius=radius,
            attack_steps=attack.steps,
            attack_step=_shared(attack.step),
        )
    if isinstance(attack, OneStep):
        radius = attack.threat().radii(setup.data, sample.x).reshape(-1)
        return replace(task, attack="one_step", radius=radius, attack_step=_shared(attack.rate))
    return task


def _shared(number: Any) -> float:
    """Return a number that all runs of a batch share."""
    first, *others = torch.as_tensor(number).reshape(-1).tolist()
    assert all(other == first for other in others), "the other contestants know one step size only"
    return first


def _weights(batch: Batch) -> tuple[str, dict[str, Tensor], dict[str, Tensor]]:
    """Return the network's kind, its trained and its frozen weights; matrices have one row per output."""
    network, params = batch.setup.network, batch.params
    if isinstance(network, Attention):
        value = network.initial_value_matrix(batch.setup.data, batch.streams, batch.setup.dtype)
        matrices = {"query": network.queries(params), "key": network.keys(params), "value": value}
        weights = {
            f"{name}.weight": w.transpose(1, 2).clone(memory_format=torch.contiguous_format)
            for name, w in matrices.items()
        }
        return "attention", weights, {"output.weight": params["output"][:, None, :]}
    if isinstance(network, TwoLayer):
        weights = {
            "inner.weight": params["inner"],
            "inner.bias": params["inner_bias"],
            "outer.weight": params["outer"][:, None, :],
            "outer.bias": params["outer_bias"][:, None],
        }
        return "two_layer", weights, {}
    return "patch_cnn", {"filters": params["weights"]}, {}
