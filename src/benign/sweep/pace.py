"""How long a sweep will take: one estimate for the terminal and for the live page."""

from collections.abc import Sequence
from dataclasses import dataclass

from benign.sweep.progress import UnitPosition

OVERDUE = 0.25
"""a unit that takes longer than those before is expected to take this share of its time once more"""


@dataclass(frozen=True)
class Pace:
    """What units that have ended tell of those to come."""

    units: int = 0
    runs: int = 0
    seconds: float = 0.0
    """that these units took, one after another"""
    capped: int = 0
    """units of which a run went to its last step"""

    def plus(self, runs: int, seconds: float, capped: bool) -> "Pace":
        """With one more unit."""
        return Pace(self.units + 1, self.runs + runs, self.seconds + seconds, self.capped + capped)

    def left(
        self, under_way: Sequence[UnitPosition], waiting: int, at_a_time: int = 1
    ) -> float | None:
        """About how many seconds are left, with as many units at a time as now, or `at_a_time` where one has just
        ended and the next not yet begun; None where nobody can tell.

        Units under way go on to their last step as often as those before did. `waiting` runs, which belong to no
        unit under way, take as long as those under way or those that have ended, whichever is more: most sweeps
        begin with their small cells.
        """
        if not under_way:  # between two units
            return self._a_run * waiting / at_a_time if self.runs else None
        rests = [self._rest(at) for at in under_way]
        known = [(at, rest) for at, rest in zip(under_way, rests, strict=True) if rest is not None]
        if not known:
            return None
        typical = sum(rest for _, rest in known) / len(known)
        whole = [typical if rest is None else rest for rest in rests]
        now = sum(at.seconds + rest for at, rest in known) / sum(at.runs for at, _ in known)
        a_run = max(now, self._a_run)
        return max(*whole, (sum(whole) + a_run * waiting) / max(len(whole), at_a_time))

    @property
    def _a_run(self) -> float:
        return self.seconds / self.runs if self.runs else 0.0

    def _rest(self, at: UnitPosition) -> float | None:
        """Seconds that are left of a unit."""
        if at.testing:
            return at.tests or max(self._a_run * at.runs - at.seconds, 0.0)
        if not self.runs:
            return at.rest
        like_others = max(self._a_run * at.runs - at.seconds, OVERDUE * at.seconds)
        if at.rest is None:
            return like_others
        capped = self.capped / self.units
        return capped * at.rest + (1 - capped) * min(like_others, at.rest)
