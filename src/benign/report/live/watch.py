"""Watches the sweeps below a folder: how far each is, what is wrong with it, when it may end.

The disk is looked at about once a second, in a thread. A look lists the files; only records that are new are
read, and of these only which runs they hold (`Reader`).
"""

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benign.experiment import history_of
from benign.report.live.reader import Reader, stamp_of
from benign.sweep.lease import Lease, leases_in
from benign.sweep.notes import Note, note_of
from benign.sweep.pace import Pace
from benign.sweep.progress import UnitPosition
from benign.sweep.records import Record
from benign.sweep.status import SweepStatus, standing_of, stores_in
from benign.sweep.store import Store
from benign.sweep.validation import glances
from benign.training.descent import Status

ABOUT = "experiment.json"
EVERY = 1.0
"""seconds between looks, at least"""
SHARE = 10
"""a look that takes long is followed by a pause of so many times as long: no more than a tenth of a core"""


@dataclass(frozen=True)
class UnderWay:
    """A unit that a process works on, as far as one can see from here."""

    since: float
    """when it was taken, in seconds since 1970"""
    note: Note | None
    """what that process wrote of it; None where it is too new, or the process of another version"""

    def at(self, runs: float, now: float) -> UnitPosition:
        """Where it is; one without a note has as many runs as others."""
        if self.note:
            return self.note.at
        return UnitPosition(
            max(round(runs), 1), 0, 1, 0, False, 0.0, 0.0, max(now - self.since, 0.0), 0.0
        )


@dataclass(frozen=True)
class Sweep:
    """A sweep as it was last seen."""

    id: str
    """where it lies below the folder; the address of its page"""
    folder: Path
    made: dict[str, Any] = field(default_factory=dict)
    """what was asked for to make it"""
    standing: SweepStatus | None = None
    problem: str = ""
    """why there is no standing"""
    started: float = 0.0
    """when its specification was written, in seconds since 1970"""
    changed: float = 0.0
    """when something was last written"""
    pace: Pace = field(default_factory=Pace)
    """of the units that have ended"""
    under_way: tuple[UnderWay, ...] = ()
    """those that were taken first come first"""

    @property
    def at_work(self) -> bool:
        """Whether a process works on it, as far as one can see from here."""
        return self.standing is not None and self.standing.counts.running > 0

    def left(self, now: float) -> float | None:
        """About how many seconds are left; None where nobody can tell."""
        if self.standing is None or not self.under_way:
            return None
        counts = self.standing.counts
        places = [unit.at(counts.running / len(self.under_way), now) for unit in self.under_way]
        left = self.pace.left(places, counts.missing)
        heard = max((unit.note.written for unit in self.under_way if unit.note), default=now)
        return left and max(left - max(now - heard, 0.0), 0.0)


class Watch:
    """The sweeps below a folder. `version` rises when anything changes; `sweeps` is then another dict."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sweeps: dict[str, Sweep] = {}
        """by id; those at work first, the newest of them first, then those that changed last"""
        self.problem = ""
        """why the folder cannot be looked into"""
        self.version = 0
        self._watched: dict[Path, _Watched] = {}
        self._ended = threading.Event()

    def look(self) -> None:
        """See what there is now."""
        try:
            os.listdir(self.folder)
            folders = [path for path in stores_in(self.folder) if stamp_of(path / ABOUT)]
            problem = ""
        except OSError as error:  # it is not there, not yet, or may not be read
            folders, problem = [], f"{shown(str(self.folder))}: {error.strerror}"
        self._watched = {
            path: self._watched.get(path) or _Watched(path, self._id(path)) for path in folders
        }
        found = [watched.look() for watched in self._watched.values()]
        found.sort(key=_rank, reverse=True)
        sweeps = {sweep.id: sweep for sweep in found}
        if (sweeps, problem) != (self.sweeps, self.problem) or not self.version:
            self.sweeps, self.problem, self.version = sweeps, problem, self.version + 1

    def start(self) -> None:
        """Look again and again, in a thread."""
        threading.Thread(target=self._go_on, name="watch", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _go_on(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            begin = time.monotonic()
            try:
                self.look()
            except Exception as error:  # a thread that ends would leave every page as it is
                self._fail(f"{shown(str(self.folder))}: {error or type(error).__name__}")
            pause = max(EVERY, SHARE * (time.monotonic() - begin))

    def _fail(self, problem: str) -> None:
        """Say what is wrong with the folder as a whole; sweeps stay as they are."""
        if problem != self.problem:
            self.problem, self.version = problem, self.version + 1

    def _id(self, folder: Path) -> str:
        inside = folder.relative_to(self.folder).as_posix()
        return shown(self.folder.resolve().name if inside == "." else inside)


class _Watched:
    """One sweep that is looked at again and again."""

    def __init__(self, folder: Path, name: str):
        self.reader, self.name = Reader(folder), name
        self.before: Any = None
        self.sweep = Sweep(name, folder)

    def look(self) -> Sweep:
        """What there is now; the same object as long as nothing has changed."""
        try:
            taken = {unit: (who, who.alive()) for unit, who in leases_in(self.reader).items()}
            under_way = self._under_way(taken)
            written = stamp_of(self.reader.folder / ABOUT)
            now = (written, self.reader.look(), taken)
            if now != self.before:
                stamps = [each for each in (written, *now[1].values()) if each]
                times = [stamp.changed / 1e9 for stamp in stamps] or [0.0]
                self.before, self.sweep = now, self._read(times[0], max(times))
            if under_way != self.sweep.under_way:
                heard = [unit.note.written for unit in under_way if unit.note]
                changed = max([self.sweep.changed, *heard])
                self.sweep = replace(self.sweep, under_way=under_way, changed=changed)
        except OSError as error:  # it vanishes, or may not be read
            self.before, self.sweep = None, self._without(f"cannot be read: {error.strerror}")
        # Whatever is wrong with one sweep, it shows that, and the others are shown.
        except Exception as error:
            self.before, self.sweep = None, self._without(str(error) or type(error).__name__)
        return self.sweep

    def _read(self, started: float, changed: float) -> Sweep:
        folder = self.reader.folder
        try:
            Store.open(folder, writing=False)  # which refuses links and other things
            standing = standing_of(self.reader, history_of(self.reader))
            made = self.reader.about.made
            pace = pace_of(glances(self.reader))
        # A file of a stranger may be wrong in any way: that is told, and the other sweeps are shown.
        except Exception as error:
            return self._without(str(error) or type(error).__name__, started, changed)
        return Sweep(self.name, folder, made, standing, "", started, changed, pace)

    def _under_way(self, taken: Mapping[str, tuple[Lease, bool | None]]) -> tuple[UnderWay, ...]:
        """The units of processes that are not known to be dead; notes of the others tell nothing."""
        found = [
            UnderWay(who.since, note_of(self.reader, unit))
            for unit, (who, alive) in taken.items()
            if alive is not False
        ]
        return tuple(sorted(found, key=lambda unit: unit.since))

    def _without(self, problem: str, started: float = 0.0, changed: float = 0.0) -> Sweep:
        first = shown((problem.splitlines() or [""])[0].replace(f"{self.reader.folder}/", ""))
        return Sweep(self.name, self.reader.folder, problem=first, started=started, changed=changed)


def pace_of(records: Iterable[Record]) -> Pace:
    """How long units took, as far as records tell."""
    pace = Pace()
    for record in records:
        if seconds := float(record.meta.get("seconds") or 0):
            status = record.arrays["status"]
            pace = pace.plus(len(status), seconds, bool((status == Status.STEP_CAP).any()))
    return pace


def _rank(sweep: Sweep) -> tuple[bool, float, str]:
    """Those at work do not change places whenever one of them tells of a step."""
    return sweep.at_work, sweep.started if sweep.at_work else sweep.changed, sweep.id


def shown(text: str) -> str:
    """A text that can be sent: names of files may hold bytes that are no letters."""
    return text.encode("utf-8", "replace").decode()
