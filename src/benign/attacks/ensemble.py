"""The default evaluation attack: the worst of several attacks."""

from typing import ClassVar

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack, BestSoFar, Points, Target
from benign.attacks.balls import Ball, Balls
from benign.attacks.pgd import PGD
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
        best = BestSoFar(target.x)
        best.update(target.x, margin(target.run(target.x).outputs, target.y))
        for attack in self._attacks(target.data):
            points = attack.perturb(target)
            for one_set in points.split(target.x.shape[1], dim=1):
                best.update(one_set, margin(target.run(one_set).outputs, target.y))
        return best.points

    def _attacks(self, data: DataModel) -> list[Attack]:
        attacks: list[Attack] = [self.also] if self.also else []
        for ball in self.ball.each():
            attacks.append(PGD(ball=ball, steps=self.steps, step=0.1, keep="best"))
            attacks.append(APGD(ball=ball, steps=self.steps, restarts=self.restarts))
            if (data.label_count() or 2) > 2:
                losses = ("dlr", "cross_entropy")
                attacks += [APGD(ball=ball, steps=self.steps, loss=loss) for loss in losses]
        return attacks


def evaluation_attack(attack: Attack | None) -> Attack | None:
    """Return the default evaluation attack of a network trained against `attack`: `EnsembleAttack` in its ball."""
    threat = attack.threat() if attack else None
    if threat is None or any(ball.p == 0 for ball in threat.each()):
        return attack
    return EnsembleAttack(ball=threat, also=attack)
