"""Fresh points of an evaluation, clean and under attack: what the metrics of `evaluation` and `audit` read.

Each part is computed when a metric first reads it, and once. A module of its own, because the registry names these
types and the metrics register there.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Attack, Target, repeated
from benign.data.model import Sample
from benign.losses import margin
from benign.networks.network import Pass
from benign.training.descent import Batch

T = TypeVar("T")
PerPoint = Float[Tensor, "runs samples"]
PerSet = Float[Tensor, "runs attacked"]
"""of every attacked point: an attack may give several sets of them"""


class PointBlock:
    """A block of fresh points of a batch, under the attack of the evaluation, if there is one."""

    def __init__(self, batch: Batch, attack: Attack | None, split: str, count: int):
        self.batch, self.setup, self.attack = batch, batch.setup, attack
        self._split, self._count = split, count

    @cached_property
    def sample(self) -> Sample:
        """The points."""
        return self.batch.test_points(self._split, self._count)

    @cached_property
    def clean_pass(self) -> Pass:
        """The forward pass on the points as they are."""
        return self.batch.run(self.sample)

    @cached_property
    def y(self) -> PerPoint:
        """Clean labels, in double precision, as all that follows."""
        return self.sample.y.double()

    @cached_property
    def outputs(self) -> Float[Tensor, "runs samples *classes"]:
        return self.clean_pass.outputs.double()

    @cached_property
    def margins(self) -> PerPoint:
        return margin(self.outputs, self.y)

    @cached_property
    def target(self) -> Target:
        """The points for an attack in the coordinates of the runs."""
        return self.batch.target(self.sample, f"attack/{self._split}")

    @cached_property
    def _attacked_target(self) -> Target:
        vars(self).pop("clean_pass", None)  # attacks need the memory
        assert self.attack is not None
        return self.batch.widened_for(self.attack, self.target)

    @cached_property
    def _attacked(self) -> tuple[Tensor, PerSet]:
        """Outputs on the attacked points, and their labels."""
        assert self.attack is not None
        target = self._attacked_target
        points = self.attack.perturb(target)
        outputs = target.run(points).outputs.double()
        return outputs, repeated(target.y.double(), points)

    @property
    def attacked_outputs(self) -> Float[Tensor, "runs attacked *classes"]:
        return self._attacked[0]

    @property
    def attacked_y(self) -> PerSet:
        return self._attacked[1]

    @cached_property
    def attacked_margins(self) -> PerSet:
        return margin(self.attacked_outputs, self.attacked_y)

    @cached_property
    def raised_margins(self) -> PerSet:
        """Margins under the attack of one who has flipped labels, and raises y f above 0."""
        assert self.attack is not None
        target = self._attacked_target
        target = target.relabelled(-target.y)
        points = self.attack.perturb(target)
        return margin(target.run(points).outputs.double(), self.attacked_y)

    @cached_property
    def training_attack_margins(self) -> PerSet:
        """Margins under the attack that trained the runs."""
        assert self.setup.attack is not None
        points = self.setup.attack.perturb(self.target)
        return margin(self.target.run(points).outputs, repeated(self.target.y, points))

    def over_sets(self, value: PerSet) -> PerPoint:
        """Return the mean of a value of every attacked point over the sets of them."""
        return value.unflatten(1, (-1, self._count)).mean(1)


class EvaluatedRuns:
    """The runs of a batch in an evaluation, with the values that they have so far."""

    def __init__(
        self, batch: Batch, attack: Attack | None, at_end: bool, values: dict[str, Tensor]
    ):
        self.batch, self.setup, self.attack = batch, batch.setup, attack
        self.at_end, self.values = at_end, values
        self._shared: dict[Callable, Any] = {}

    def once(self, compute: Callable[[Batch], T]) -> T:
        """Return what a function makes of the batch, computed once for all metrics."""
        if compute not in self._shared:
            self._shared[compute] = compute(self.batch)
        return self._shared[compute]
