"""A store that is looked at again and again while others write it: what has not changed is not read again."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benign.report.cells import ENDED
from benign.sweep.lease import Lease, Note, leases_in, note_of
from benign.sweep.progress import Pace, UnitPosition
from benign.sweep.records import Record
from benign.sweep.status import SweepStatus, stores_in, sweep_status
from benign.sweep.store import Store, is_key
from benign.sweep.terminal import duration
from benign.sweep.validation import valid_headers
from benign.training.descent import Status

Look = Callable[[Path], Record]


class Stamp(NamedTuple):
    """What changes when a file is written again."""

    changed: int
    """in nanoseconds, by the clock of the file system"""
    size: int
    number: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Stamp":
        return cls(found.st_mtime_ns, found.st_size, found.st_ino)


class StoreReader(Store):
    """The store in a folder, which nothing is written to. It holds the records that were there at the last `look`."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._stamps: dict[str, Stamp] = {}
        self._held: dict[tuple[str, Look], tuple[Stamp, Record | None, str]] = {}

    def refresh(self) -> dict[str, Stamp]:
        """See which records there are now, and when each was written."""
        self.damaged.clear()
        self._stamps = stamps(self.folder / "records")
        self._held = {
            (key, how): held
            for (key, how), held in self._held.items()
            if self._stamps.get(key) == held[0]
        }
        return self._stamps

    def keys(self) -> set[str]:
        return self._stamps.keys() - self.damaged.keys()

    def read_once(self, key: str, read_file: Look) -> Record | None:
        """As that of a store; damage is remembered, too, until the file changes."""
        if held := self._held.get((key, read_file)):
            _, record, damage = held
            if damage:
                self.damaged[key] = damage
            return record
        record = super().read_once(key, read_file)
        damage = self.damaged.get(key, "")
        if key in self._stamps and (record or damage):
            self._held[key, read_file] = self._stamps[key], record, damage
        return record


def stamps(folder: Path) -> dict[str, Stamp]:
    """The records in a folder; one that vanishes meanwhile is not among them, nor is any of a folder that does."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                key = entry.name.removesuffix(".npz")
                if is_key(key) and (stamp := stamp_of(folder / entry.name)):
                    found[key] = stamp
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return found


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file; None where there is none."""
    try:
        return Stamp.of(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


ABOUT = "experiment.json"
EVERY = 1.0
"""seconds between looks, at least"""
SHARE = 10
"""a look that takes long is followed by a pause of so many times as long: no more than a tenth of a core"""


@dataclass(frozen=True)
class RunningUnit:
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
class SweepState:
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
    under_way: tuple[RunningUnit, ...] = ()
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


class SweepMonitor:
    """The sweeps below a folder. `version` rises when anything changes; `sweeps` is then another dict."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sweeps: dict[str, SweepState] = {}
        """by id; those at work first, the newest of them first, then those that changed last"""
        self.problem = ""
        """why the folder cannot be looked into"""
        self.version = 0
        self._monitored: dict[Path, _MonitoredSweep] = {}
        self._ended = threading.Event()

    def refresh(self) -> None:
        """See what there is now."""
        try:
            os.listdir(self.folder)
            folders = [path for path in stores_in(self.folder) if stamp_of(path / ABOUT)]
            problem = ""
        except OSError as error:  # it is not there, not yet, or may not be read
            folders, problem = [], f"{shown(str(self.folder))}: {error.strerror}"
        self._monitored = {
            path: self._monitored.get(path) or _MonitoredSweep(path, self._id(path))
            for path in folders
        }
        found = [each.refresh() for each in self._monitored.values()]
        found.sort(key=_rank, reverse=True)
        sweeps = {sweep.id: sweep for sweep in found}
        if (sweeps, problem) != (self.sweeps, self.problem) or not self.version:
            self.sweeps, self.problem, self.version = sweeps, problem, self.version + 1

    def start(self) -> None:
        """Look again and again, in a thread."""
        threading.Thread(target=self._go_on, name="monitor", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _go_on(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            begin = time.monotonic()
            try:
                self.refresh()
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


class _MonitoredSweep:
    """One sweep that is looked at again and again."""

    def __init__(self, folder: Path, name: str):
        self.reader, self.name = StoreReader(folder), name
        self.before: Any = None
        self.sweep = SweepState(name, folder)

    def refresh(self) -> SweepState:
        """What there is now; the same object as long as nothing has changed."""
        try:
            taken = {unit: (who, who.alive()) for unit, who in leases_in(self.reader).items()}
            under_way = self._under_way(taken)
            written = stamp_of(self.reader.folder / ABOUT)
            now = (written, self.reader.refresh(), taken)
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

    def _read(self, started: float, changed: float) -> SweepState:
        folder = self.reader.folder
        try:
            Store.open(folder, writing=False)  # which refuses links and other things
            standing = sweep_status(self.reader, self.reader.experiments())
            made = self.reader.about.made
            pace = pace_of(valid_headers(self.reader))
        # A file of a stranger may be wrong in any way: that is told, and the other sweeps are shown.
        except Exception as error:
            return self._without(str(error) or type(error).__name__, started, changed)
        return SweepState(self.name, folder, made, standing, "", started, changed, pace)

    def _under_way(self, taken: Mapping[str, tuple[Lease, bool | None]]) -> tuple[RunningUnit, ...]:
        """The units of processes that are not known to be dead; notes of the others tell nothing."""
        found = [
            RunningUnit(who.since, note_of(self.reader, unit))
            for unit, (who, alive) in taken.items()
            if alive is not False
        ]
        return tuple(sorted(found, key=lambda unit: unit.since))

    def _without(self, problem: str, started: float = 0.0, changed: float = 0.0) -> SweepState:
        first = shown((problem.splitlines() or [""])[0].replace(f"{self.reader.folder}/", ""))
        return SweepState(
            self.name, self.reader.folder, problem=first, started=started, changed=changed
        )


def pace_of(records: Iterable[Record]) -> Pace:
    """How long units took, as far as records tell."""
    pace = Pace()
    for record in records:
        if seconds := float(record.meta.get("seconds") or 0):
            status = record.arrays["status"]
            pace = pace.plus(len(status), seconds, bool((status == Status.STEP_CAP).any()))
    return pace


def _rank(sweep: SweepState) -> tuple[bool, float, str]:
    """Those at work do not change places whenever one of them tells of a step."""
    return sweep.at_work, sweep.started if sweep.at_work else sweep.changed, sweep.id


def shown(text: str) -> str:
    """A text that can be sent: names of files may hold bytes that are no letters."""
    return text.encode("utf-8", "replace").decode()


MOST_UNITS = 3
"""under way, of which each is told"""


def made_text(sweep: SweepState) -> str:
    """What was asked for: recipe, scale, reading, changes."""
    made = sweep.made
    reading = (f"{question}={answer}" for question, answer in (made.get("reading") or {}).items())
    words = [made.get("target"), made.get("scale"), *reading, *made.get("changes", ())]
    return shown(" ".join(str(word) for word in words if word))


def share_done(sweep: SweepState) -> float:
    """Runs that are done, between 0 and 1."""
    counts = sweep.standing.counts if sweep.standing else None
    return counts.done / counts.runs if counts and counts.runs else 0.0


def trouble_text(sweep: SweepState) -> str:
    """What is wrong with it, in a line; empty where nothing is."""
    if sweep.standing is None:
        return sweep.problem
    counts, damaged = sweep.standing.counts, len(sweep.standing.damaged)
    told = {
        "failed": counts.failed,
        "out of memory": counts.out_of_memory,
        f"damaged record{'s' * (damaged != 1)}": damaged,
    }
    return ", ".join(f"{number} {what}" for what, number in told.items() if number)


def progress_text(sweep: SweepState) -> str:
    """How far it is, in a line."""
    if sweep.standing is None:
        return ""
    counts = sweep.standing.counts
    running = f", {counts.running} running" if counts.running else ""
    return f"{counts.done} of {counts.runs} runs done{running}"


def ended_text(sweep: SweepState) -> str:
    """How its runs ended, in a line; empty where none has."""
    if sweep.standing is None:
        return ""
    counts = sweep.standing.counts
    told = {
        Status.CONVERGED: counts.converged,
        Status.STEP_CAP: counts.step_cap,
        Status.DIVERGED: counts.diverged,
    }
    return ", ".join(f"{number} {ENDED[end]}" for end, number in told.items() if number)


def steps_text(sweep: SweepState) -> str:
    """How far the units under way are; empty where nobody works, or none has told yet."""
    places = [unit.note.at for unit in sweep.under_way if unit.note and sweep.at_work]
    if len(places) <= MOST_UNITS:
        return "; ".join(_at_text(at) for at in places)
    steps = [at.step for at in places if not at.testing]
    training = sum(at.training for at in places if not at.testing)
    told = [f"{len(places)} units under way"]
    if steps:
        told += [f"at steps {min(steps):,} to {max(steps):,}", f"{training:,} runs still training"]
    return ", ".join(told)


def _at_text(at: UnitPosition) -> str:
    if at.testing and at.training:
        return f"evaluating {at.training:,} runs"
    if at.step and not at.training:
        return f"reference networks, step {at.step:,}"
    return f"step {at.step:,} of at most {at.most:,}, {at.training:,} still training"


def left_text(sweep: SweepState, now: float) -> str:
    """How long it will take, or why nobody can tell."""
    if sweep.standing is None:
        return ""
    counts = sweep.standing.counts
    if counts.done == counts.runs:
        return "finished"
    if not sweep.at_work:
        return "nobody is working on it"
    left = sweep.left(now)
    if left is None:
        return "at work; the time left is not known yet"
    if left < 1:
        return "nearly done; how long the last runs take is not known"
    if sweep.pace.runs:
        return f"about {duration(left)} left"
    return (
        f"about {duration(left)} of training left, less if runs stop early; then they are evaluated"
    )


def empty_text(sweep: SweepState, folder: str) -> str:
    """What is said of cells that have not run."""
    if sweep.at_work:
        return "Empty cells have not run yet; they fill by themselves."
    return f"Empty cells have not run, and nobody is working on them: `benign resume {folder}` goes on."


def clock(seconds: float, now: float) -> str:
    """A time of day, with the date where that is another than today's."""
    then, today = datetime.fromtimestamp(seconds), datetime.fromtimestamp(now).date()
    return then.strftime("%H:%M:%S" if then.date() == today else "%Y-%m-%d %H:%M")
