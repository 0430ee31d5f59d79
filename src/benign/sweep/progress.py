"""Progress of the units under computation, from the steps that their processes report."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benign.sweep.plan import Unit
from benign.training.engine import TESTING


class Watcher:
    """Receives the progress of a sweep. `Watcher()` ignores it: it is silent. `benign.sweep.terminal` has displays."""

    def begin(self, units: int, runs: int, done_runs: int) -> None: ...
    def unit_begins(self, unit: Unit) -> None: ...
    def step(self, key: str, number: int, training: int) -> None:
        """Receive a step of a unit and the number of its runs in training; the step `TESTING`: in evaluation."""

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
    """How far a unit is."""

    runs: int
    """all runs of the unit"""
    step: int
    """the last step; in evaluation the largest step possible"""
    most: int
    """no run takes more steps"""
    training: int
    """runs in training, or in evaluation; 0 while reference networks train"""
    testing: bool
    share: float
    """share of all its steps, as if no run stopped before the last one"""
    done: float
    """the part of this share that took the `seconds`; the rest came from a checkpoint"""
    seconds: float
    """seconds since its first step"""
    tests: float
    """seconds that its evaluation will still take, judging by earlier units; 0 if there were none"""

    @property
    def begun(self) -> bool:
        return self.step > 0 or self.training > 0

    @property
    def rest(self) -> float | None:
        """Seconds left if its runs go on to the last step; None while that is unknown."""
        if self.done <= 0:
            return None
        return self.seconds * (1 - self.share) / self.done + self.tests


class UnitProgress:
    """Follows a unit, whose runs may be trained in several batches, one after another."""

    def __init__(self, unit: Unit, tests: float = 0.0):
        """`tests`: the seconds that its evaluation may take."""
        self.runs, self._tests = len(unit.runs), tests
        self.most = max(unit.runs[0].cell.training.most_steps(), 1)
        self.step = self.training = 0
        self.testing = False
        self._before = self._batch = self._number = 0
        """runs of earlier batches and of this one, and the steps that this one has made"""
        self._first: float | None = None
        self._started = self._test_began = 0.0

    def update(self, number: int, training: int) -> None:
        """Take a report of the process: a step and the number of runs in training, or in evaluation.

        With no run in training it is a step of reference networks (`benign.training.references`).
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
        position = (self.step, self.most, self.training, self.testing)
        tests = max(self._tests * (1 - self._before / self.runs) - self.tested_for, 0.0)
        return UnitPosition(self.runs, *position, share, max(done, 0.0), seconds, tests)

    @property
    def tested_for(self) -> float:
        """Seconds since its evaluation began."""
        return time.monotonic() - self._test_began if self.testing else 0.0


class UnitsInProgress:
    """The units that a process computes, and the time that evaluating earlier ones took."""

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

    def positions(self) -> list[UnitPosition]:
        return [progress.now() for progress in self.units.values()]


OVERDUE = 0.25
"""a unit that takes longer than those before is expected to take this share of its time once more"""


@dataclass(frozen=True)
class Pace:
    """The pace of the units that have ended, from which the time left follows."""

    units: int = 0
    runs: int = 0
    seconds: float = 0.0
    """the sum of the seconds that these units took"""
    capped: int = 0
    """units with a run that reached the step cap"""

    def plus(self, runs: int, seconds: float, capped: bool) -> "Pace":
        """Return the pace with one more unit."""
        return Pace(self.units + 1, self.runs + runs, self.seconds + seconds, self.capped + capped)

    def left(
        self, under_way: Sequence[UnitPosition], waiting: int, at_a_time: int = 1
    ) -> float | None:
        """Estimate the seconds left, with as many units at a time as now, or with `at_a_time` if one has just ended and
        the next has not begun. None if nothing is known.

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
        """Return the seconds left of a unit."""
        if at.testing:
            return at.tests or max(self._a_run * at.runs - at.seconds, 0.0)
        if not self.runs:
            return at.rest
        like_others = max(self._a_run * at.runs - at.seconds, OVERDUE * at.seconds)
        if at.rest is None:
            return like_others
        capped = self.capped / self.units
        return capped * at.rest + (1 - capped) * min(like_others, at.rest)
