"""Fresh points of an evaluation, clean and under attack: what the metrics of `evaluation` and `audit` read.

The points come in blocks. Those of the first block are attacked in full. Of the others accuracies alone are asked, so
points that are wrong leave the attack, and the rest goes on in compacted batches (`EnsembleAttack.worst`). Where a
certificate is the exact answer, nothing is attacked.

Each part is computed when a metric first reads it, and once. A module of its own, because the registry names these
types and the metrics register there.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Attack, Target, repeated
from benign.attacks.certificates import certified_margins, is_exact
from benign.attacks.ensemble import EnsembleAttack, Worst
from benign.attacks.tiles import outputs_in_tiles
from benign.data.model import Sample
from benign.losses import margin
from benign.networks.network import Pass
from benign.training.descent import Batch
from benign.training.setup import Setup

T = TypeVar("T")
PerPoint = Float[Tensor, "runs samples"]
PerSet = Float[Tensor, "runs attacked"]
"""of every attacked point: an attack may give several sets of them"""


class PointBlock:
    """A block of fresh points of a batch, under the attack of the evaluation, if there is one.

    together: the blocks with this one whose attack is cut short, for the signs of margins alone.
    """

    def __init__(
        self,
        batch: Batch,
        attack: Attack | None,
        split: str,
        count: int,
        together: "list[PointBlock] | None" = None,
    ):
        self.batch, self.setup, self.attack, self.count = batch, batch.setup, attack, count
        self._split, self._together = split, together

    @staticmethod
    def several(batch: Batch, attack: Attack | None, sizes: dict[str, int]) -> "list[PointBlock]":
        """Return blocks whose attack is cut short, if it can be; `sizes`: their numbers of points by their splits."""
        blocks: list[PointBlock] = []
        together = blocks if cuts_short(batch.setup, attack) else None
        blocks += [PointBlock(batch, attack, *each, together) for each in sizes.items()]
        return blocks

    @cached_property
    def sample(self) -> Sample:
        """The points."""
        return self.batch.test_points(self._split, self.count)

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
    def _exact(self) -> PerPoint | None:
        """The smallest margins in the ball of the attack, if a certificate has them."""
        return _exact_margins(self.target, self.attack)

    @cached_property
    def _worst(self) -> Worst:
        """The worst results of an attack that is made of several."""
        assert isinstance(self.attack, EnsembleAttack)
        if self._together is None:
            return self.attack.worst([self._attacked_target])
        targets = [each._attacked_target for each in self._together]
        _give(self._together, "_worst", self.attack.worst(targets, signs_only=True))
        return vars(self)["_worst"]

    @cached_property
    def _worst_if_flipped(self) -> Worst:
        """The same with every label flipped."""
        assert isinstance(self.attack, EnsembleAttack)
        together = self._together or [self]
        targets = [
            target.relabelled(-target.y) for target in (each._attacked_target for each in together)
        ]
        found = self.attack.worst(targets, signs_only=self._together is not None)
        _give(together, "_worst_if_flipped", found)
        return vars(self)["_worst_if_flipped"]

    @cached_property
    def _attacked(self) -> tuple[Tensor, PerSet]:
        """Outputs on the attacked points, and their labels."""
        assert self.attack is not None
        if self._exact is not None:
            return self.y * self._exact, self.y
        if self._together is not None:
            raise RuntimeError(
                "the attack on this block is cut short: declare the metric without `signs_only`"
            )
        target = self._attacked_target
        if isinstance(self.attack, EnsembleAttack):
            assert self._worst.points is not None
            return outputs_in_tiles(target, self._worst.points).double(), self.y
        points = self.attack.perturb(target)
        return target.run(points).outputs.double(), repeated(target.y.double(), points)

    @property
    def attacked_outputs(self) -> Float[Tensor, "runs attacked *classes"]:
        return self._attacked[0]

    @property
    def attacked_y(self) -> PerSet:
        return self._attacked[1]

    @cached_property
    def attacked_margins(self) -> PerSet:
        """Margins of the attacked points; if the attack is cut short, numbers of the same signs."""
        if self._together is not None:
            return self._worst.margins.double()
        return margin(self.attacked_outputs, self.attacked_y)

    @cached_property
    def raised_margins(self) -> PerSet:
        """Margins under the attack of one who has flipped labels, and raises y f above 0; signs, if it is cut short."""
        assert self.attack is not None
        if self._exact is not None:
            flipped = _exact_margins(self.target.relabelled(-self.target.y), self.attack)
            assert flipped is not None
            return -flipped
        if isinstance(self.attack, EnsembleAttack):
            return -self._worst_if_flipped.margins.double()
        target = self._attacked_target
        target = target.relabelled(-target.y)
        points = self.attack.perturb(target)
        return margin(target.run(points).outputs.double(), self.attacked_y)

    @cached_property
    def training_attack_margins(self) -> PerSet:
        """Margins under the attack that trained the runs."""
        trained_by = self.setup.attack
        assert trained_by is not None
        if self._exact is None and isinstance(self.attack, EnsembleAttack):
            under_also = self._worst.under_also if self.attack.also is trained_by else None
            if under_also is not None:  # it was made already
                return under_also
        points = trained_by.perturb(self.target)
        return margin(self.target.run(points).outputs, repeated(self.target.y, points))

    def over_sets(self, value: PerSet) -> PerPoint:
        """Return the mean of a value of every attacked point over the sets of them."""
        return value.unflatten(1, (-1, self.count)).mean(1)


def cuts_short(setup: Setup, attack: Attack | None) -> bool:
    """Return whether the attack has a way to be cut short: it is made of several, and no certificate replaces it."""
    return isinstance(attack, EnsembleAttack) and not is_exact(setup.network, attack)


def _exact_margins(target: Target, attack: Attack | None) -> PerPoint | None:
    """Return the smallest margins in the ball of the attack if it asks for them and a certificate has them."""
    if attack is None or not is_exact(target.network, attack):
        return None
    return certified_margins(target, attack).double()


def _give(blocks: "list[PointBlock]", name: str, worst: Worst) -> None:
    """Give each block its part of what was computed for all."""
    begin = 0
    for block in blocks:
        part = slice(begin, begin + block.count)
        begin = part.stop
        points, under_also = (
            None if each is None else each[:, part] for each in (worst.points, worst.under_also)
        )
        vars(block)[name] = Worst(worst.margins[:, part], points, under_also)


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
