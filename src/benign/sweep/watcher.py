"""Who is told about a sweep as it goes."""

from collections.abc import Mapping

import numpy as np

from benign.sweep.plan import Unit


class Watcher:
    """This one says nothing; `benign.sweep.terminal` has others."""

    def begin(self, units: int, runs: int, done_runs: int) -> None: ...
    def unit_begins(self, unit: Unit) -> None: ...
    def step(self, key: str, number: int, training: int) -> None:
        """A step of the unit of this key, and how many of its runs train; `TESTING` as a step: they are tested."""

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None: ...
    def stopping(self) -> None: ...
    def end(self) -> None: ...


class Together(Watcher):
    """Tells several watchers, one after another."""

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
