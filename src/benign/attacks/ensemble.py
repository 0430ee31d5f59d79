"""The default evaluation attack: the worst of several attacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Balls
from benign.attacks.pgd import PGD
from benign.attacks.tiles import attacked_tiles, blocks_of, by_point, joined
from benign.data.model import DataModel
from benign.losses import margin
from benign.spec.base import Count
from benign.spec.registry import guarantees


@guarantees("rotation_invariant")
class EnsembleAttack(Attack):
    """Return, for every point, the worst result of these attacks in a ball, or in each of several:

    - projected ascent of -margin in short steps from the clean point (a tenth of the radius);
    - APGD on -margin, from the clean point and from random ones;
    - with three classes or more, APGD on the difference of logits ratio and on the cross-entropy;
    - `also`, if given: the training attack, so that evaluation is at least as strong as training.

    The cross-entropy alone does not suffice: at interpolation its gradient is zero and fakes robustness.

    >>> import benign as bo
    >>> training = bo.PGD(ball=bo.Ball(radius=0.1), steps=10)
    >>> bo.EnsembleAttack(ball=training.ball, also=training).passes()  # forward passes of one attack
    432
    """

    kind: ClassVar[str] = "strong"

    ball: Ball | Balls
    """the ball, or balls of several norms"""
    steps: Count = 50
    """steps of every ascent"""
    restarts: Count = 3
    """number of ascents of APGD; the first starts at the clean point"""
    also: Attack | None = None
    """another attack to try; it must stay in the ball"""

    def check(self) -> None:
        if any(ball.p == 0 for ball in self.ball.each()):
            raise ValueError("`ball.p` must be 1, 2 or inf for `strong`, got 0: use `pgd`")

    def check_against(self, data: DataModel) -> None:
        for attack in self._attacks(data):
            attack.check_against(data)

    def threat(self) -> Ball | Balls:
        return self.ball

    def passes(self) -> int:
        also = self.also.passes() if self.also else 0
        return len(self.ball.each()) * (2 * self.steps + 3) * (1 + self.restarts) + also

    def stored_perturbations(self) -> int:
        # Those of its largest attack, the points it returned, the worst so far, and the pass that compares them.
        apgd = APGD(ball=self.ball.each()[0]).stored_perturbations()
        return 3 + max(apgd, self.also.stored_perturbations() if self.also else 0)

    def perturb(self, target: Target) -> Points:
        points = self.worst([target]).points
        assert points is not None
        return points

    def worst(self, blocks: Sequence[Target], *, signs_only: bool = False) -> "Worst":
        """Return the worst results for the points of several blocks, in a row.

        signs_only: a point that is wrong leaves the attacks that follow, so only the sign of its margin is that of
        `perturb`, and there are no attacked points. `also` attacks all points.
        """
        target = joined(blocks)
        margins = torch.full_like(target.y, torch.inf)
        points, under_also = None if signs_only else target.x.clone(), None
        for attack in [None, *self._attacks(target.data)]:
            if attack is not None and not by_point(attack):
                _attack_whole(attack, target, points, margins)
                continue
            chosen = margins > 0 if signs_only and attack is not self.also else None
            found_margins = torch.full_like(margins, torch.nan)
            for tile, found, found_margin in attacked_tiles(attack, target, chosen):
                tile.write(found_margins, found_margin)
                if points is not None:
                    worse = found_margin < tile.of(margins)
                    tile.write(points, torch.where(worse[:, :, None, None], found, tile.of(points)))
            margins = torch.where(found_margins < margins, found_margins, margins)
            if attack is not None and attack is self.also:
                under_also = found_margins
        return Worst(margins.masked_fill_(margins.isinf(), torch.nan), points, under_also)

    def _attacks(self, data: DataModel) -> list[Attack]:
        attacks: list[Attack] = [self.also] if self.also else []
        for ball in self.ball.each():
            attacks.append(PGD(ball=ball, steps=self.steps, step=0.1, keep="best"))
            attacks.append(APGD(ball=ball, steps=self.steps, restarts=self.restarts))
            if (data.label_count() or 2) > 2:
                losses = ("dlr", "cross_entropy")
                attacks += [APGD(ball=ball, steps=self.steps, loss=loss) for loss in losses]
        return attacks


@dataclass(frozen=True)
class Worst:
    """The worst results of several attacks, for every point."""

    margins: Float[Tensor, "runs samples"]
    points: Points | None
    under_also: Float[Tensor, "runs samples"] | None
    """margins under the attack `also`, if there is one that attacks point by point"""


def _attack_whole(
    attack: Attack, target: Target, points: Points | None, margins: Float[Tensor, "runs samples"]
) -> None:
    """Update the worst points and margins, in place, by an attack that may not be made in tiles."""
    begin = 0
    for block in blocks_of(target):
        place = slice(begin, begin + block.x.shape[1])
        begin = place.stop
        for found in attack.perturb(block).split(block.x.shape[1], dim=1):
            found_margins = margin(block.run(found).outputs, block.y)
            worse = found_margins < margins[:, place]
            margins[:, place] = torch.where(worse, found_margins, margins[:, place])
            if points is not None:
                points[:, place] = torch.where(worse[:, :, None, None], found, points[:, place])


def evaluation_attack(attack: Attack | None) -> Attack | None:
    """Return the default evaluation attack of a network trained against `attack`: `EnsembleAttack` in its ball."""
    threat = attack.threat() if attack else None
    if threat is None or any(ball.p == 0 for ball in threat.each()):
        return attack
    return EnsembleAttack(ball=threat, also=attack)
