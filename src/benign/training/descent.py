"""The steps of gradient descent, for all runs of a batch together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benign import axes
from benign.attacks.attack import Attack, Target, repeated
from benign.coordinates.beyond import draws_starts, widened
from benign.coordinates.fresh import Fresh
from benign.coordinates.span import View
from benign.coordinates.start import start
from benign.data.feature_patches import FeaturePatches
from benign.data.model import BLOCK, Sample, column
from benign.losses import loss, loss_slope, margin
from benign.networks.network import Params, Pass
from benign.networks.products import CarriedPass
from benign.streams import Streams
from benign.training.carried import Carried
from benign.training.recording import Recording
from benign.training.setup import Setup


class Status(IntEnum):
    """How a run ended. Missing means that there is no record of it."""

    MISSING = 0
    CONVERGED = 1
    STEP_CAP = 2
    DIVERGED = 3
    FAILED = 4
    OUT_OF_MEMORY = 5

    @property
    def words(self) -> str:
        """As it is told of runs: `4 at the step cap`."""
        told = self.name.lower().replace("_", " ")
        return f"at the {told}" if self is Status.STEP_CAP else told


@dataclass(frozen=True)
class Batch:
    """Runs of one shape that are trained together; `index` tells each one's place in the batch it started in."""

    setup: Setup
    streams: Streams
    index: Int[Tensor, " runs"]
    sample: Sample
    held: Params
    """the parameters when somebody last looked at them: read `params`"""
    source: Fresh = field(default_factory=Fresh)
    """where points come from that the runs were not trained on"""
    dim: int | None = None
    """d, where the runs' own coordinates are fewer"""

    @staticmethod
    def start(setup: Setup, streams: Streams) -> "Batch":
        """Draw the training points and the initial weights; `setup` is in the coordinates of its space from here on."""
        drawn = start(setup.space, setup.data, setup.network, streams, setup.dtype)
        index = torch.arange(len(streams), device=drawn.sample.x.device)
        dim = None if setup.space.mode == "ambient" else setup.data.dim
        setup = setup.within(drawn.data, drawn.network)
        return Batch(setup, streams, index, drawn.sample, drawn.params, drawn.fresh, dim)

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def carried(self) -> Carried | None:
        """What clean training carries in place of the weights, where that pays."""
        if self.setup.attack is not None:
            return None
        return Carried.of(self.setup.network, self.held, self.sample.x)

    @property
    def params(self) -> Params:
        """The parameters now. They change in place, some not before this is read: copy what you keep."""
        if self.carried is not None:
            self.carried.settle()
        return self.held

    @cached_property
    def recording(self) -> Recording | None:
        """What attacks the training points, where anything does."""
        return None if self.setup.attack is None else Recording(self.setup.attack)

    def target(self, sample: Sample, part: str) -> Target:
        """Points to attack, with draws for this part of the run."""
        return Target(
            self.setup.network, self.params, self.setup.data, sample, self.streams.within(part)
        )

    def as_seen_by(self, attack: Attack, target: Target) -> Target:
        """The target, with room for random starts of R^d where the attack has any."""
        if self.dim is None or not draws_starts(attack):
            return target
        view = self.source if isinstance(self.source, View) else None
        return widened(target, self.dim, view)

    def fresh(self, split: str, count: int, only: str = "both") -> Sample:
        """Points that the runs were not trained on; `only` is for `FeaturePatches`, see there."""
        model = self.source.model(self.setup.data)
        if isinstance(model, FeaturePatches) and only != "both":
            model = model.showing(only)
        return self.source.draw(model, self.streams, split, count, self.setup.dtype)

    def see(self, fresh: Sample) -> Pass:
        """What the networks make of such points."""
        return self.source.run(self.setup.network, self.params, fresh)

    def select(self, keep: Bool[Tensor, " runs"]) -> "Batch":
        """The runs of the batch that a mask keeps."""
        places = keep.nonzero()[:, 0]
        params = {name: value[places] for name, value in self.params.items()}
        setup = axes.select(self.setup, places)
        streams = self.streams[places.tolist()]
        sample, source = self.sample.select(places), self.source.select(places)
        return Batch(setup, streams, self.index[places], sample, params, source, self.dim)


@dataclass(frozen=True)
class Step:
    """One step of a batch before its update: weights, attacked points and what the network makes of them."""

    number: int
    """how many updates came before"""
    batch: Batch
    """the runs that still train, with their parameters"""
    attacked: Float[Tensor, "runs samples tokens dim"]
    """the points trained on: attacked, or the clean ones without an attack"""
    seen: Pass
    """the forward pass on those points"""

    @cached_property
    def fresh(self) -> Target:
        """The first of the points that runs are tested on, for probes that attack them."""
        count = min(BLOCK, self.batch.setup.evaluation.samples)
        return self.batch.target(self.batch.fresh("test/0", count), "attack/fresh")

    @cached_property
    def y(self) -> Float[Tensor, "runs samples"]:
        """Labels of the points trained on, of which an attack may give several sets."""
        return repeated(self.batch.sample.y, self.attacked)

    @cached_property
    def margins(self) -> Float[Tensor, "runs samples"]:
        """y f (or its like for several classes) on the points trained on."""
        return margin(self.seen.outputs, self.y)

    @cached_property
    def loss(self) -> Float[Tensor, " runs"]:
        """The training loss that is descended."""
        return loss(self.seen.outputs, self.y).mean(1)

    @cached_property
    def clean(self) -> Pass:
        """The forward pass on the clean training points."""
        if self.batch.setup.attack is None:
            return self.seen
        return self.batch.setup.network.run(self.batch.params, self.batch.sample.x)

    @cached_property
    def clean_margins(self) -> Float[Tensor, "runs samples"]:
        return margin(self.clean.outputs, self.batch.sample.y)

    @cached_property
    def clean_loss(self) -> Float[Tensor, " runs"]:
        return loss(self.clean.outputs, self.batch.sample.y).mean(1)

    def gradient(self) -> Params:
        """Gradient of the loss in the parameters, the attacked points held fixed (Zhang Algorithm 1)."""
        return self.seen.params_gradient(self._slope())

    def moves(self) -> Float[Tensor, "runs points columns"]:
        """What the step subtracts where products are carried, as coefficients of the training tokens."""
        assert isinstance(self.seen, CarriedPass)
        slope, rate = self._slope(), self.batch.setup.training.rate_at(self.number)
        return self.seen.moves(slope * column(rate, slope))

    def _slope(self) -> Float[Tensor, "runs samples *classes"]:
        """Of the loss in the outputs."""
        slope = loss_slope(self.seen.outputs, self.y)
        return slope / slope.shape[1]

    def status(self) -> Int[Tensor, " runs"]:
        """How each run ends here; MISSING for those that go on."""
        training = self.batch.setup.training
        stopping = self.loss if training.stop_on == "attacked" else self.clean_loss
        ended = torch.full_like(self.batch.index, Status.MISSING)
        if self.number >= training.max_steps:
            ended[:] = Status.STEP_CAP
        ended[stopping <= training.stop_loss] = Status.CONVERGED
        finite = self.seen.outputs.isfinite().flatten(1).all(1) & stopping.isfinite()
        ended[~finite] = Status.DIVERGED
        return ended


def look(batch: Batch, number: int) -> Step:
    """Attack the training points and run the network on them."""
    sample, recording = batch.sample, batch.recording
    if batch.carried is not None:
        return Step(number, batch, sample.x, batch.carried.look())
    target = batch.target(sample, f"attack/{number}")
    if recording is None or number < batch.setup.training.first_attacked_step:
        return Step(number, batch, sample.x, target.train(sample.x))
    points, seen = recording.training_pass(target)
    return Step(number, batch, points, seen)


@torch.no_grad()
def descend(batch: Batch) -> Iterator[tuple[Step, Int[Tensor, " runs"]]]:
    """Every step with the status of its runs. A run that has ended leaves the batch before the next step."""
    number = 0
    while True:
        step = look(batch, number)
        status = step.status()
        yield step, status
        stay = status == Status.MISSING
        if not stay.any():
            return
        everyone = bool(stay.all())
        if everyone and batch.carried is not None:
            batch.carried.move(step.moves())
        else:
            gradient = step.gradient()
            if not everyone:
                batch = batch.select(stay)
                gradient = {name: part[stay] for name, part in gradient.items()}
            update(batch, gradient, number)
        number += 1


def update(batch: Batch, gradient: Params, number: int = 0) -> None:
    """Step `number` of gradient descent, in place."""
    rate, params = batch.setup.training.rate_at(number), batch.params
    for name, part in gradient.items():
        params[name].addcmul_(part, -column(rate, part))
