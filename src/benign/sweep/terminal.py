"""Shows the progress of a sweep: a bar on a terminal, plain lines elsewhere.

A `Display` is a watcher of a sweep (`benign.sweep.progress`) that shows it; `Watcher` itself is silent. Displays are
called at every step: a call that has nothing to show only reads the clock.
"""

import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from benign.sweep.plan import Unit
from benign.sweep.progress import Pace, UnitPosition, UnitsInProgress, Watcher
from benign.training.descent import Status
from benign.training.engine import TESTING

TEST_SHOWN = 0.2
"""seconds since the last display before the start of an evaluation, which may take long, is shown"""


def statuses(counts: Mapping[Status, int]) -> str:
    """Return how runs ended, in words: `60 converged, 4 at the step cap`."""
    missing_last = sorted(Status, key=lambda status: status == Status.MISSING)
    return ", ".join(f"{counts[s]} {s.label}" for s in missing_last if counts.get(s)) or "none"


def counted(number: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def duration(seconds: float) -> str:
    """Return seconds in the unit a person would choose.

    >>> [duration(s) for s in (0.04, 7.4, 100, 5400, 400000, 1e6)]
    ['0.04 s', '7 s', '100 s', '90 min', '111 h', '12 days']
    """
    if seconds < 1:
        return f"{seconds:.1g} s"
    for unit, length in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 120 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def display_for(stream: Any) -> "Display":
    """Return a bar for a terminal and lines for any other stream; use it in a `with` block."""
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    return Bar(stream) if terminal else Lines(stream)


def display_on_terminal(stream: Any) -> AbstractContextManager[Watcher]:
    """Return the display of a terminal, or a silent watcher if the stream is not a terminal."""
    terminal = stream is not None and stream.isatty()  # a program without a console has no stderr
    return display_for(stream) if terminal else nullcontext(Watcher())


class Display(Watcher, ABC):
    """Counts the runs of a sweep; a subclass shows them, every few seconds and as each unit ends."""

    every = 5.0

    def begin(self, units: int, runs: int, done_runs: int) -> None:
        self.started = self.last_shown = time.monotonic()
        self.units, self.runs, self.before = units, runs, done_runs
        self.ended_units, self.done = 0, done_runs
        self.pace = Pace()
        self.under_way: dict[str, Unit] = {}
        self.in_progress, self.at_a_time = UnitsInProgress(), 1
        before = f"; {done_runs} of {runs} are done already" if done_runs else ""
        self.open(f"{counted(runs - done_runs, 'run')} to do in {counted(units, 'unit')}{before}")

    def unit_begins(self, unit: Unit) -> None:
        self.under_way[unit.key] = unit
        self.in_progress.begin(unit)
        self.at_a_time = max(self.at_a_time, len(self.under_way))

    def step(self, key: str, number: int, training: int) -> None:
        progress = self.in_progress.units.get(key)
        if progress is None:  # a late report of another machine
            return
        tests = number == TESTING != progress.testing
        progress.update(number, training)
        now = time.monotonic()
        if now - self.last_shown >= (TEST_SHOWN if tests else self.every):
            self.last_shown = now
            doing = _doing(self.in_progress.positions())
            self.show(f"{self._shape()}{doing}" if doing else "starting")

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None:
        self.under_way.pop(unit.key, None)
        self.in_progress.end(unit)
        self.done += len(unit.runs)
        if seconds:  # else another process computed it
            capped = bool((arrays["status"] == Status.STEP_CAP).any())
            self.pace = self.pace.plus(len(unit.runs), seconds, capped)
        self.ended_units += 1
        self.last_shown = time.monotonic()
        counts = Counter(Status(code) for code in arrays["status"].tolist())
        self.show(f"unit {self.ended_units} of {self.units}: {statuses(counts)}")

    def stopping(self) -> None:
        self.show("finishing the units in progress; ctrl-c again stops now")

    def end(self) -> None:
        self.close()

    def times(self) -> str:
        """Return the time elapsed, and about how much is left, unless only evaluations are left.

        How long an evaluation takes is not known before a unit has ended.
        """
        elapsed, places = duration(time.monotonic() - self.started), self.in_progress.positions()
        waiting = self.runs - self.done - sum(at.runs for at in places)
        left = self.pace.left(places, waiting, self.at_a_time)
        of_what = "" if self.pace.runs else " of training"
        return (
            f"{elapsed}, about {duration(left)}{of_what} left" if left and left >= 0.5 else elapsed
        )

    def _shape(self) -> str:
        """Return samples, tokens and dimension of the unit in progress, if it is the only one."""
        if len(self.under_way) != 1:
            return ""
        data = next(iter(self.under_way.values())).runs[0].cell.reduced().data
        return f"{data.samples} x {data.tokens} x {data.dim}, "

    @abstractmethod
    def open(self, message: str) -> None:
        """Show how much there is to do."""

    @abstractmethod
    def show(self, doing: str) -> None:
        """Show how far the sweep is."""

    def close(self) -> None:
        """Leave the terminal as it was; called at the end and when interrupted."""

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lines(Display):
    """Plain lines, for pipes and log files."""

    def __init__(self, stream: Any):
        self.stream = stream

    def open(self, message: str) -> None:
        print(message, file=self.stream, flush=True)

    def show(self, doing: str) -> None:
        line = f"{self.done} of {self.runs} runs done | {doing} | {self.times()}"
        print(line, file=self.stream, flush=True)


class Bar(Display):
    """A progress bar."""

    every = 0.2

    def __init__(self, stream: Any):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.progress = Progress(
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("runs | {task.fields[times]} | {task.description}", markup=False),
            console=Console(file=stream),
            refresh_per_second=4,
        )

    def open(self, message: str) -> None:
        self.progress.console.print(message, markup=False, highlight=False)
        if self.units:
            total, times = self.runs, self.times()
            self.task = self.progress.add_task("", total=total, completed=self.before, times=times)
            self.progress.start()

    def show(self, doing: str) -> None:
        self.progress.update(self.task, completed=self.done, times=self.times(), description=doing)

    def close(self) -> None:
        self.progress.stop()


def _doing(places: list[UnitPosition]) -> str:
    """Return what the units in progress do; empty if none has begun."""
    training = [at for at in places if at.training and not at.testing]
    tested = sum(at.training for at in places if at.testing)
    if training:
        runs, step = sum(at.training for at in training), max(at.step for at in training)
        others = f", {tested} being evaluated" if tested else ""
        return f"step {step}, {runs} training{others}"
    if step := max((at.step for at in places if not at.training), default=0):
        return f"reference networks, step {step}"
    return f"evaluating {counted(tested, 'run')}" if tested else ""
