"""The steps of training, for all runs of a batch together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benign.attacks.attack import Attack, Target, repeated
from benign.data.model import BLOCK, Sample, column
from benign.losses import loss, loss_slope, margin
from benign.networks.network import Params, Pass
from benign.networks.products import CarriedPass, SeesProducts
from benign.reduction.random_starts import draws_starts, widened
from benign.reduction.test_points import TestPoints, View
from benign.spec import axes
from benign.spec.registry import has_guarantee
from benign.streams import Streams
from benign.training.fast.gram_state import GramState
from benign.training.fast.recording import Recording
from benign.training.setup import Setup

MEASURED_POINTS = 1000
"""training points that metrics are computed on if a step goes through mini-batches; a snapshot costs about as much as
an epoch of so many points"""


class Status(IntEnum):
    """How a run ended. A missing run has no record."""

    MISSING = 0
    CONVERGED = 1
    STEP_CAP = 2
    DIVERGED = 3
    FAILED = 4
    OUT_OF_MEMORY = 5

    @property
    def label(self) -> str:
        """The text after a number of runs: `4 at the step cap`."""
        name = self.name.lower().replace("_", " ")
        return f"at the {name}" if self is Status.STEP_CAP else name


@dataclass(eq=False)
class Batch:
    """Runs of one shape that are trained together. Their parameters and moments change in place."""

    setup: Setup
    streams: Streams
    index: Int[Tensor, " runs"]
    """the position of each run in the batch it started in"""
    sample: Sample
    """the training points"""
    raw_params: Params
    """the tensors of the parameters, without the steps that a `gram_state` has not applied yet: read `params`"""
    source: TestPoints = field(default_factory=TestPoints)
    """draws the points that the runs were not trained on"""
    dim: int | None = None
    """d, if the runs are computed in fewer coordinates"""
    moments: Params = field(default_factory=dict)
    """state of the optimiser, with a leading runs axis"""
    whole: Sample | None = None
    """all training points, if `sample` is a mini-batch of them"""
    point_weights: Float[Tensor, "runs samples"] | None = None
    """weight of every training point in means over them, if they are padded (training/slots.py); None: all are equal"""
    initial_params: Params | None = None
    """the parameters at the start, if the batch keeps them"""

    @staticmethod
    def start(setup: Setup, streams: Streams) -> "Batch":
        """Draw the training points and the initial weights; from here on `setup` is in the coordinates of its space."""
        drawn = setup.space.start(setup.data, setup.network, streams, setup.dtype)
        index = torch.arange(len(streams), device=drawn.sample.x.device)
        dim = None if setup.space.mode == "ambient" else setup.data.dim
        setup = setup.within(drawn.data, drawn.network)
        params, network = drawn.params, drawn.network
        moments = setup.training.moments({name: params[name] for name in network.trained(params)})
        return Batch(setup, streams, index, drawn.sample, params, drawn.test_points, dim, moments)

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def gram_state(self) -> GramState | None:
        """Products of the training tokens, updated instead of the weights.

        None under attack, if updates are not plain, or if that is slower.
        """
        if self.setup.attack is not None or not has_guarantee(self.setup.training, "plain_update"):
            return None
        return GramState.of(self.setup.network, self.raw_params, self.sample.x)

    @property
    def params(self) -> Params:
        """The parameters now. They change in place, some only when this is read: copy them to compare steps."""
        if self.gram_state is not None:
            self.gram_state.flush()
        return self.raw_params

    @cached_property
    def recording(self) -> Recording:
        """Attacks the training points and runs the network on them."""
        return Recording()

    def target(self, sample: Sample, part: str) -> Target:
        """Return points to attack, with the streams of this part of the run."""
        return Target(
            self.setup.network, self.params, self.setup.data, sample, self.streams.within(part)
        )

    def widened_for(self, attack: Attack, target: Target) -> Target:
        """Return the target, with added dimensions if the attack draws random starts in R^d."""
        if self.dim is None or not draws_starts(attack):
            return target
        view = self.source if isinstance(self.source, View) else None
        return widened(target, self.dim, view)

    def test_points(self, split: str, count: int, view: str | None = None) -> Sample:
        """Draw points that the runs were not trained on; with `view`, that view of them (`DataModel.views`)."""
        model = self.source.model(self.setup.data)
        if view is not None:
            model = model.views()[view]
        return self.source.draw(model, self.streams, split, count, self.setup.dtype)

    def run(self, fresh: Sample) -> Pass:
        """Run the networks on points of `test_points`."""
        return self.source.run(self.setup.network, self.params, fresh)

    def select(self, keep: Bool[Tensor, " runs"]) -> "Batch":
        """Return the runs of the batch where a mask is true."""
        places = keep.nonzero()[:, 0]
        params = {name: value[places] for name, value in self.params.items()}
        moments = {name: value[places] for name, value in self.moments.items()}
        setup = axes.select(self.setup, places)
        streams = self.streams[places.tolist()]
        sample, source = self.sample.select(places), self.source.select(places)
        index = self.index[places]
        return Batch(setup, streams, index, sample, params, source, self.dim, moments)

    @property
    def batches_per_epoch(self) -> int:
        """How many updates a step has."""
        return self.setup.training.batches_per_epoch(self.sample.y.shape[1])

    def order(self, number: int) -> Int[Tensor, "runs samples"]:
        """Return the order in which a step goes through the training points."""
        count = self.sample.y.shape[1]
        return self.streams(f"train/order/{number}").uniform(count).argsort(1)

    def part(self, places: Int[Tensor, "runs chosen"]) -> "Batch":
        """Return the same runs with some of their training points. The weights are shared.

        The next part of the same size overwrites these points, because a GPU records the operations on them.
        """
        sample = self.sample.points(places, self.setup.data.latent_vectors)
        part = self._parts.setdefault(
            places.shape[1], replace(self, sample=sample, whole=self.sample)
        )
        part.sample.copy_(sample)
        return part

    @cached_property
    def _parts(self) -> "dict[int, Batch]":
        return {}


@dataclass(frozen=True)
class Step:
    """One step of a batch before its update: weights, attacked points and the forward pass on them."""

    number: Any
    """the number of steps before; a tensor [runs] where runs are at different steps (training/slots.py)"""
    batch: Batch
    """the runs that still train, with their parameters"""
    attacked: Float[Tensor, "runs samples tokens dim"]
    """the points trained on: attacked, or the clean ones without an attack"""
    attacked_pass: Pass
    """the forward pass on those points"""

    @cached_property
    def test_target(self) -> Target:
        """The first block of the test points, for metrics that attack them."""
        count = min(BLOCK, self.batch.setup.evaluation.samples)
        return self.batch.target(self.batch.test_points("test/0", count), "attack/fresh")

    @cached_property
    def y(self) -> Float[Tensor, "runs samples"]:
        """Labels of the points trained on; an attack may return several sets of them."""
        return repeated(self.batch.sample.y, self.attacked)

    @cached_property
    def margins(self) -> Float[Tensor, "runs samples"]:
        """y f, or the margin of several classes, on the points trained on."""
        return margin(self.attacked_pass.outputs, self.y)

    @cached_property
    def loss(self) -> Float[Tensor, " runs"]:
        """The training loss that is descended."""
        return self._mean(loss(self.attacked_pass.outputs, self.y))

    @cached_property
    def clean_pass(self) -> Pass:
        """The forward pass on the clean training points."""
        setup, params, x = self.batch.setup, self.batch.params, self.batch.sample.x
        if setup.attack is None:
            return self.attacked_pass
        products = self.attacked_pass.clean_products
        if products is None:
            return setup.network.run(params, x)
        assert isinstance(setup.network, SeesProducts)
        return setup.network.known_pass(params, x, products)

    @cached_property
    def clean_margins(self) -> Float[Tensor, "runs samples"]:
        return margin(self.clean_pass.outputs, self.batch.sample.y)

    @cached_property
    def clean_loss(self) -> Float[Tensor, " runs"]:
        return self._mean(loss(self.clean_pass.outputs, self.batch.sample.y))

    @property
    def stopping_loss(self) -> Float[Tensor, " runs"]:
        """The training loss that decides when a run stops."""
        return self.loss if self.batch.setup.training.stop_on == "attacked" else self.clean_loss

    def gradient(self) -> Params:
        """Gradient of the loss in the parameters, the attacked points held fixed (Zhang Algorithm 1)."""
        return self.attacked_pass.params_gradient(self._slope())

    def moves(self) -> Float[Tensor, "runs points columns"]:
        """Return what the step subtracts from the weights, as coefficients of the training tokens (`GramState`)."""
        assert isinstance(self.attacked_pass, CarriedPass)
        slope, rate = self._slope(), self.batch.setup.training.rate_at(self.number)
        return self.attacked_pass.moves(slope * column(rate, slope))

    def _slope(self) -> Float[Tensor, "runs samples *classes"]:
        """Return the derivative of the loss in the outputs."""
        slope = loss_slope(self.attacked_pass.outputs, self.y)
        weights = self._weights(slope)
        if weights is None:
            return slope / slope.shape[1]
        return slope * (weights if slope.ndim == 2 else weights[..., None])

    def _mean(self, values: Float[Tensor, "runs points"]) -> Float[Tensor, " runs"]:
        """Return the mean over the points of each run, in which padded points have no weight."""
        weights = self._weights(values)
        return values.mean(1) if weights is None else (values * weights).sum(1)

    def _weights(self, values: Float[Tensor, "runs points ..."]) -> Tensor | None:
        """Return the weights of such points, which may be several sets of the training points; they sum to 1."""
        weights = self.batch.point_weights
        if weights is None:
            return None
        return repeated(weights, values) * (weights.shape[1] / values.shape[1])

    def status(self, reached: Float[Tensor, " runs"] | None = None) -> Int[Tensor, " runs"]:
        """Return how each run ends here; MISSING if it goes on.

        With mini-batches the mean loss of the last step, `reached`, decides: no run converges before it has gone
        through all its points once.
        """
        training = self.batch.setup.training
        stopping = self.stopping_loss if self.batch.whole is None else reached
        ended = torch.full_like(self.batch.index, Status.MISSING)
        finite = self.attacked_pass.outputs.isfinite().flatten(1).all(1)
        # Filled by masks: a GPU would wait for the number of places that an index has.
        if isinstance(self.number, Tensor):
            ended.masked_fill_(self.number >= training.most_steps(), Status.STEP_CAP)
        elif self.number >= training.most_steps():
            ended.fill_(Status.STEP_CAP)
        if stopping is not None:
            ended.masked_fill_(stopping <= training.stop_loss, Status.CONVERGED)
            finite &= stopping.isfinite()
        return ended.masked_fill_(~finite, Status.DIVERGED)


def attacked_step(batch: Batch, number: Any, part: str = "") -> Step:
    """Attack the training points and run the network on them."""
    sample, attack = batch.sample, training_attack(batch, number)
    if batch.gram_state is not None:
        return Step(number, batch, sample.x, batch.gram_state.forward_pass())
    target = batch.target(sample, f"attack/{number}{part}")
    if attack is not batch.setup.attack:  # a recording is always of the same attack
        return Step(number, batch, sample.x, target.training_pass(sample.x))
    points, forward_pass = batch.recording.training_pass(attack, target)
    return Step(number, batch, points, forward_pass)


@torch.no_grad()
def subset_step(step: Step) -> Step:
    """Return the step that metrics are computed on: the step itself, or, with mini-batches, one on the first training
    points with the same weights.

    The first mini-batch would not do: it has other points at every step.
    """
    batch, number = step.batch, step.number
    if batch.whole is None:
        return step
    places = torch.arange(min(MEASURED_POINTS, batch.whole.y.shape[1]), device=batch.whole.y.device)
    sample = batch.whole.points(places.expand(len(batch), -1), batch.setup.data.latent_vectors)
    subset = replace(batch, sample=sample, whole=None)
    target = subset.target(sample, f"attack/{number}/watched")
    attack = training_attack(batch, number)
    points = sample.x if attack is None else attack.perturb(target)
    return Step(number, subset, points, target.run(points))


def training_attack(batch: Batch, number: Any) -> Attack | None:
    """Return the attack on the training points of a step, or None if they are clean."""
    first = batch.setup.training.first_attacked_step
    return batch.setup.attack if not first or number >= first else None


@dataclass(frozen=True)
class Position:
    """How far a batch has been trained."""

    batch: Batch
    number: int = 0
    """the number of steps made"""
    reached: Tensor | None = None
    """with mini-batches: the mean loss of the last step"""


@torch.no_grad()
def descend(
    batch: Batch, begin: Position | None = None, before: Callable[[Position], None] | None = None
) -> Iterator[tuple[Step, Int[Tensor, " runs"]]]:
    """Yield every step with the status of its runs. A run that has ended leaves the batch before the next step.

    Training goes on from `begin`; `before` is called with the position before every step.
    """
    position = begin or Position(batch)
    while True:
        if before:
            before(position)
        batch, number = position.batch, position.number
        parts = _parts(batch, number)
        step = attacked_step(parts[0](), number)
        status = step.status(position.reached)
        yield step, status
        stay = status == Status.MISSING
        if not stay.any():
            return
        position = _through(step, stay, batch, parts)


def _parts(batch: Batch, number: int) -> list[Callable[[], Batch]]:
    """Return the batches of the updates of a step: all points, or mini-batches of them."""
    if batch.batches_per_epoch == 1:
        return [lambda: batch]
    dealt = batch.order(number).tensor_split(batch.batches_per_epoch, dim=1)
    return [lambda places=places: batch.part(places) for places in dealt]


def _through(
    step: Step, stay: Bool[Tensor, " runs"], batch: Batch, parts: list[Callable[[], Batch]]
) -> Position:
    """Make all updates of a step for the runs that stay, and return the position after it."""
    number, everyone = step.number, bool(stay.all())
    if everyone and batch.gram_state is not None:
        batch.gram_state.move(step.moves())
        return Position(batch, number + 1)
    gradient, total = step.gradient(), step.stopping_loss[stay]
    if not everyone:
        batch = batch.select(stay)
        gradient = {name: part[stay] for name, part in gradient.items()}
        parts = _parts(batch, number)
    update(batch, gradient, number)
    for turn, part in enumerate(parts[1:], 1):
        next_step = attacked_step(part(), number, f"/{turn}")
        total = total + next_step.stopping_loss
        update(batch, next_step.gradient(), number, turn)
    return Position(batch, number + 1, None if len(parts) == 1 else total / len(parts))


def update(batch: Batch, gradient: Params, number: int = 0, turn: int = 0) -> None:
    """Make update `turn` of step `number`, in place."""
    training, batches_per_epoch = batch.setup.training, batch.batches_per_epoch
    training.update(
        batch.params,
        gradient,
        batch.moments,
        number + turn / batches_per_epoch,
        number * batches_per_epoch + turn,
    )
