"""How far a unit is while it is computed, from the steps that its process tells."""

import time
from dataclasses import dataclass

from benign.plan.runs import Unit
from benign.training.engine import TESTING


@dataclass(frozen=True)
class At:
    """Where a unit is."""

    runs: int
    """of the whole unit"""
    step: int
    """its last one, or where it tests the last there may be"""
    most: int
    """no run takes more steps"""
    training: int
    """runs that still train; where it tests, those that are tested; none: networks train beside them"""
    testing: bool
    share: float
    """of all its steps, as if no run stopped before the last one"""
    done: float
    """the part of this share that took the `seconds`; the rest came from a checkpoint"""
    seconds: float
    """since its first step"""

    @property
    def begun(self) -> bool:
        return self.step > 0 or self.training > 0

    @property
    def rest(self) -> float | None:
        """Seconds that are left if its runs go on to the last step; None where that cannot be told yet."""
        return self.seconds * (1 - self.share) / self.done if self.done > 0 else None


class Along:
    """Follows a unit, whose runs may be trained in several batches, one after another."""

    def __init__(self, unit: Unit):
        self.runs = len(unit.runs)
        self.most = max(unit.runs[0].cell.training.most_steps(), 1)
        self.step = self.training = 0
        self.testing = False
        self._before = self._batch = self._number = 0
        """runs of earlier batches and of this one, and how many of its steps this one has taken"""
        self._first: float | None = None
        self._started = 0.0

    def tell(self, number: int, training: int) -> None:
        """Take what a process tells: a step and its training runs, or that it tests these.

        Without a run that trains it is a step of networks beside them (`benign.training.references`).
        """
        if number == TESTING:
            number = self._number = self.most
            self.testing = True
        elif training:
            self._follow(number, training)
        self.step, self.training = number, training
        if self._first is None and training:
            self._first, self._started = self._share(), time.monotonic()

    def _follow(self, number: int, training: int) -> None:
        if self.testing or number < self._number:  # the batch before has ended
            self._before, self._batch = self._before + self._batch, training
        self._batch = max(self._batch, training)
        self._number, self.testing = number, False

    def _share(self) -> float:
        return min((self._before + self._batch * self._number / self.most) / self.runs, 1.0)

    def now(self) -> At:
        share, first = self._share(), self._first
        done, seconds = 0.0, 0.0
        if first is not None:
            done, seconds = share - first, time.monotonic() - self._started
        told = (self.step, self.most, self.training, self.testing)
        return At(self.runs, *told, share, max(done, 0.0), seconds)
