"""How far a unit is while it is computed, from the steps that its process tells."""

import time
from dataclasses import dataclass

from benign.sweep.plan import Unit
from benign.training.engine import TESTING


@dataclass(frozen=True)
class UnitPosition:
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
    tests: float
    """that testing it will still take, if it takes as long as that of units before; 0 where there was none"""

    @property
    def begun(self) -> bool:
        return self.step > 0 or self.training > 0

    @property
    def rest(self) -> float | None:
        """Seconds that are left if its runs go on to the last step; None where that cannot be told yet."""
        if self.done <= 0:
            return None
        return self.seconds * (1 - self.share) / self.done + self.tests


class UnitProgress:
    """Follows a unit, whose runs may be trained in several batches, one after another."""

    def __init__(self, unit: Unit, tests: float = 0.0):
        """`tests` are the seconds that testing it may take."""
        self.runs, self._tests = len(unit.runs), tests
        self.most = max(unit.runs[0].cell.training.most_steps(), 1)
        self.step = self.training = 0
        self.testing = False
        self._before = self._batch = self._number = 0
        """runs of earlier batches and of this one, and how many of its steps this one has taken"""
        self._first: float | None = None
        self._started = self._test_began = 0.0

    def tell(self, number: int, training: int) -> None:
        """Take what a process tells: a step and its training runs, or that it tests these.

        Without a run that trains it is a step of networks beside them (`benign.training.references`).
        """
        if number == TESTING:
            if not self.testing:
                self._test_began = time.monotonic()
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

    def now(self) -> UnitPosition:
        share, first = self._share(), self._first
        done, seconds = 0.0, 0.0
        if first is not None:
            done, seconds = share - first, time.monotonic() - self._started
        told = (self.step, self.most, self.training, self.testing)
        tests = max(self._tests * (1 - self._before / self.runs) - self.tested_for, 0.0)
        return UnitPosition(self.runs, *told, share, max(done, 0.0), seconds, tests)

    @property
    def tested_for(self) -> float:
        """Seconds for which it has been tested now."""
        return time.monotonic() - self._test_began if self.testing else 0.0


class UnitsInProgress:
    """The units that a process has under way, and how long it took to test those before."""

    def __init__(self) -> None:
        self.units: dict[str, UnitProgress] = {}
        self._tested, self._seconds = 0, 0.0

    def begin(self, unit: Unit) -> None:
        a_test = self._seconds / self._tested if self._tested else 0.0
        self.units[unit.key] = UnitProgress(unit, a_test * len(unit.runs))

    def end(self, unit: Unit) -> None:
        ended = self.units.pop(unit.key, None)
        if ended and ended.testing:
            self._tested += ended.training
            self._seconds += ended.tested_for

    def places(self) -> list[UnitPosition]:
        return [along.now() for along in self.units.values()]
