"""How far a unit is while it is computed, from the steps that its process tells."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benign.sweep.plan import Unit
from benign.training.engine import TESTING


class Watcher:
    """This one says nothing; `benign.sweep.terminal` has others."""

    def begin(self, units: int, runs: int, done_runs: int) -> None: ...
    def unit_begins(self, unit: Unit) -> None: ...
    def step(self, key: str, number: int, training: int) -> None:
        """A step of the unit of this key, and how many of its runs train; `TESTING` as a step: they are tested."""

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None: ...
    def stopping(self) -> None: ...
    def end(self) -> None: ...


class Watchers(Watcher):
    """Several watchers, called one after another."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def begin(self, units: int, runs: int, done_runs: int) -> None:
        for each in self.watchers:
            each.begin(units, runs, done_runs)

    def unit_begins(self, unit: Unit) -> None:
        for each in self.watchers:
            each.unit_begins(unit)

    def step(self, key: str, number: int, training: int) -> None:
        for each in self.watchers:
            each.step(key, number, training)

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None:
        for each in self.watchers:
            each.unit_ends(unit, arrays, seconds)

    def stopping(self) -> None:
        for each in self.watchers:
            each.stopping()

    def end(self) -> None:
        for each in self.watchers:
            each.end()


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
