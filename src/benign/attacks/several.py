"""Balls of several norms around the same points."""

from typing import Any, Literal

from benign.attacks.balls import Ball
from benign.spec.axes import PerRun, replace
from benign.spec.base import Count, NonNegative, Positive, Spec

NORMS = {"l1": 1, "l2": 2, "linf": "inf"}


class Balls(Spec):
    """Radii in several norms, each a multiple of one radius (Zhang C.3: 20, 1 and 1/30 times eps |mu|).

    >>> import benign as bo
    >>> [(ball.p, ball.radius) for ball in bo.Balls(radius=0.3, linf=0.5).each()]
    [(1, 6.0), (2, 0.3), ('inf', 0.15)]
    """

    radius: PerRun[NonNegative]
    """what the multiples are of: tau, or tau / |mu| when relative to the signal"""
    relative_to: Literal["signal", "point"] | None = None
    """what the radius is measured by, as in `Ball`"""
    per: Literal["token", "sample"] = "token"
    """every token has its own balls, or all tokens of a point share them"""
    box: tuple[float, float] | None = None
    """lowest and highest value of a coordinate of an attacked point"""
    l1: Positive | None = 20.0
    """multiple for the l1 ball; none leaves the norm out"""
    l2: Positive | None = 1.0
    """multiple for the l2 ball"""
    linf: Positive | None = 1 / 30
    """multiple for the linf ball"""
    coordinates: Count = 1
    """coordinates that a step in the l1 ball moves"""

    def check(self) -> None:
        if len(self.each()) < 2:
            raise ValueError(
                f"`l1`, `l2` and `linf`: give at least two of them, got {len(self.each())}: "
                "for one norm use `pgd`"
            )

    def each(self) -> list[Ball]:
        """The ball of every norm."""
        return [
            self._ball(norm, getattr(self, name))
            for name, norm in NORMS.items()
            if getattr(self, name) is not None
        ]

    def _ball(self, norm: Any, multiple: float) -> Ball:
        moved = {"coordinates": self.coordinates} if norm == 1 else {}
        ball = Ball(
            p=norm, radius=0.0, relative_to=self.relative_to, per=self.per, box=self.box, **moved
        )
        # The radius may be a tensor [runs] here, which a new specification would refuse.
        return replace(ball, {("radius",): multiple * self.radius})
