"""What every attack offers: perturbed points that a network finds harder."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.balls import Ball, Balls, Units
from benign.data.model import DataModel, Sample
from benign.networks.network import Network, Params, Pass
from benign.spec.registry import Component
from benign.streams import Streams

Points = Float[Tensor, "runs samples tokens dim"]
Delta = Float[Tensor, "*pair runs samples tokens coordinates"]
"""perturbations in the coordinates of a `PerturbationSpace`, which may need a pair of tensors"""


@dataclass(frozen=True)
class Target:
    """What an attack sees. It changes none of it."""

    network: Network
    """what is attacked"""
    params: Params
    """its parameters now"""
    data: DataModel
    """what the points were drawn from"""
    sample: Sample
    """the points to attack, with the labels to attack and what generated them"""
    streams: Streams
    """for the attack's own draws"""

    @property
    def x(self) -> Points:
        return self.sample.x

    @property
    def y(self) -> Float[Tensor, "runs samples"]:
        return self.sample.y

    def relabelled(self, y: Float[Tensor, "runs samples"]) -> "Target":
        """The same points with other labels to attack."""
        return replace(self, sample=replace(self.sample, y=y))

    def uniform(self, ball: Ball, radius: Units, part: str) -> Points:
        """Perturbations uniform in the ball, to start from; `part` names their draws."""
        return ball.uniform(self.streams.within(part), radius, self.x)

    def run(self, points: Points) -> Pass:
        """The network on points in place of the clean ones, or on several sets of them in a row."""
        return self.network.attacked_pass(self.params, points, repeated(self.x, points))

    def train(self, points: Points) -> Pass:
        """The same for the pass whose loss is descended."""
        return self.network.training_pass(self.params, points, repeated(self.x, points))


def repeated(part: Tensor, points: Tensor) -> Tensor:
    """What belongs to the clean points, once for every set of attacked ones."""
    sets = points.shape[1] // part.shape[1]
    return part if sets == 1 else torch.cat([part] * sets, dim=1)


class Attack(Component):
    """A way to choose, for every point, a harder one in a ball around it."""

    @abstractmethod
    def perturb(self, target: Target) -> Points:
        """The attacked points: one for every point, or several sets of them, one after the other."""

    def training_pass(self, target: Target) -> tuple[Points, Pass]:
        """The attacked points, and the pass on them whose loss is descended."""
        points = self.perturb(target)
        return points, target.train(points)

    def threat(self) -> Ball | Balls | None:
        """The ball, or the balls, that hold every attacked point; None where there is no such ball."""
        return None

    def check_against(self, data: DataModel) -> None:
        """Raise ValueError where the attack cannot be measured on this data."""

    def passes(self) -> int:
        """How many forward passes one attack costs, for estimates."""
        return 1

    def recordable(self) -> bool:
        """Whether it asks the device nothing on the way and draws nothing: every step of training is then the same
        computation, which a GPU can record."""
        return False

    def held(self) -> int:
        """How many perturbations of every point it holds at once, for the memory budget."""
        return 3


class BestSoFar:
    """For every point the one of smallest margin among those offered, or its perturbation.

    Before any offer it is the one given first, with an infinite margin.
    """

    def __init__(self, first: Delta):
        self.points = first.clone()
        self.margins = torch.full(
            first.shape[-4:-2], torch.inf, dtype=first.dtype, device=first.device
        )

    def update(self, points: Delta, margins: Float[Tensor, "runs samples"]) -> None:
        worse = margins < self.margins
        # In place: with test points, fresh memory for the choice took eight times as long as the choice.
        torch.where(worse, margins, self.margins, out=self.margins)
        torch.where(worse[:, :, None, None], points, self.points, out=self.points)
