"""Sweeps that are read again and again while other processes write them; unchanged records are not read again."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benign.report.cells import STATUS_TEXT
from benign.sweep.lease import Lease, Note, leases_in, note_of
from benign.sweep.progress import Pace, UnitPosition
from benign.sweep.records import Record
from benign.sweep.status import SweepStatus, stores_in, sweep_status
from benign.sweep.store import Store, is_key, request_text
from benign.sweep.terminal import duration
from benign.sweep.validation import valid_headers
from benign.training.descent import Status

ReadRecord = Callable[[Path], Record]


class Stamp(NamedTuple):
    """Time, size and inode of a file; one of them changes when the file is written again."""

    changed: int
    """in nanoseconds, by the clock of the file system"""
    size: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> "Stamp":
        return cls(stat.st_mtime_ns, stat.st_size, stat.st_ino)


class StoreReader(Store):
    """A store that is only read. It has the records that were there at the last `refresh`, each read once."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._stamps: dict[str, Stamp] = {}
        self._cache: dict[tuple[str, ReadRecord], tuple[Stamp, Record | None, str]] = {}

    def refresh(self) -> dict[str, Stamp]:
        """List the records that are there now; return their stamps."""
        self.damaged.clear()
        self._stamps = stamps(self.folder / "records")
        self._cache = {
            (key, read): entry
            for (key, read), entry in self._cache.items()
            if self._stamps.get(key) == entry[0]
        }
        return self._stamps

    def keys(self) -> set[str]:
        return self._stamps.keys() - self.damaged.keys()

    def read_once(self, key: str, read_file: ReadRecord) -> Record | None:
        """Return a record as `Store.read_once` does; records and damage are remembered until the file changes."""
        if cached := self._cache.get((key, read_file)):
            _, record, damage = cached
            if damage:
                self.damaged[key] = damage
            return record
        record = super().read_once(key, read_file)
        damage = self.damaged.get(key, "")
        if key in self._stamps and (record or damage):
            self._cache[key, read_file] = self._stamps[key], record, damage
        return record


def stamps(folder: Path) -> dict[str, Stamp]:
    """Return the stamps of the records in a folder; records or folders that vanish meanwhile are left out."""
    by_key = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                key = entry.name.removesuffix(".npz")
                if is_key(key) and (stamp := stamp_of(folder / entry.name)):
                    by_key[key] = stamp
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return by_key


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if there is no such file."""
    try:
        return Stamp.of(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


ABOUT = "experiment.json"
EVERY = 1.0
"""least seconds between two refreshes"""
SHARE = 10
"""a pause is at least so many times as long as the refresh before it, which takes a tenth of a core at most"""


@dataclass(frozen=True)
class RunningUnit:
    """A unit with a lease whose process is not known to be dead."""

    since: float
    """when its lease was acquired, in seconds since 1970"""
    note: Note | None
    """the position written by its process; None if the unit is too new, or the process is of another version"""

    def at(self, runs: float, now: float) -> UnitPosition:
        """Return its position; without a note it counts as begun, with `runs` runs."""
        if self.note:
            return self.note.at
        return UnitPosition(
            max(round(runs), 1), 0, 1, 0, False, 0.0, 0.0, max(now - self.since, 0.0), 0.0
        )


@dataclass(frozen=True)
class SweepState:
    """A sweep at its last refresh."""

    id: str
    """its path below the folder; the address of its page"""
    folder: Path
    made: dict[str, Any] = field(default_factory=dict)
    """the target and options of the command that made it"""
    status: SweepStatus | None = None
    problem: str = ""
    """why it has no status"""
    started: float = 0.0
    """when its specification was written, in seconds since 1970"""
    changed: float = 0.0
    """when something was last written"""
    pace: Pace = field(default_factory=Pace)
    """speed of the units that have ended"""
    running: tuple[RunningUnit, ...] = ()
    """in the order in which their leases were acquired"""

    @property
    def active(self) -> bool:
        """Whether a process works on it, as far as leases show."""
        return self.status is not None and self.status.counts.running > 0

    def left(self, now: float) -> float | None:
        """Estimate the seconds that are left; None if there is no estimate."""
        if self.status is None or not self.running:
            return None
        counts = self.status.counts
        positions = [unit.at(counts.running / len(self.running), now) for unit in self.running]
        left = self.pace.left(positions, counts.missing)
        latest = max((unit.note.written for unit in self.running if unit.note), default=now)
        return left and max(left - max(now - latest, 0.0), 0.0)


class SweepMonitor:
    """The sweeps below a folder. `version` rises when anything changes; `sweeps` is then another dict."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sweeps: dict[str, SweepState] = {}
        """by id: active ones first, the newest first; then the others, the last changed first"""
        self.problem = ""
        """why the folder cannot be read"""
        self.version = 0
        self._monitored: dict[Path, _MonitoredSweep] = {}
        self._stopped = threading.Event()

    def refresh(self) -> None:
        """Read the sweeps that are there now."""
        try:
            os.listdir(self.folder)
            folders = [path for path in stores_in(self.folder) if stamp_of(path / ABOUT)]
            problem = ""
        except OSError as error:  # it does not exist (yet), or permission is missing
            folders, problem = [], f"{sendable(str(self.folder))}: {error.strerror}"
        self._monitored = {
            path: self._monitored.get(path) or _MonitoredSweep(path, self._id(path))
            for path in folders
        }
        states = [each.refresh() for each in self._monitored.values()]
        states.sort(key=_rank, reverse=True)
        sweeps = {sweep.id: sweep for sweep in states}
        if (sweeps, problem) != (self.sweeps, self.problem) or not self.version:
            self.sweeps, self.problem, self.version = sweeps, problem, self.version + 1

    def start(self) -> None:
        """Refresh again and again, in a thread."""
        threading.Thread(target=self._refresh_repeatedly, name="monitor", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _refresh_repeatedly(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            begin = time.monotonic()
            try:
                self.refresh()
            except Exception as error:  # without its thread no page would ever change again
                self._fail(f"{sendable(str(self.folder))}: {error or type(error).__name__}")
            pause = max(EVERY, SHARE * (time.monotonic() - begin))

    def _fail(self, problem: str) -> None:
        """Report a problem of the folder as a whole; sweeps stay as they are."""
        if problem != self.problem:
            self.problem, self.version = problem, self.version + 1

    def _id(self, folder: Path) -> str:
        path = folder.relative_to(self.folder).as_posix()
        return sendable(self.folder.resolve().name if path == "." else path)


class _MonitoredSweep:
    """One sweep of a monitor."""

    def __init__(self, folder: Path, name: str):
        self.reader, self.name = StoreReader(folder), name
        self.before: Any = None
        self.sweep = SweepState(name, folder)

    def refresh(self) -> SweepState:
        """Return the state of the sweep; the same object as long as nothing changes."""
        try:
            leases = {
                unit: (lease, lease.alive()) for unit, lease in leases_in(self.reader).items()
            }
            running = self._running_units(leases)
            specification = stamp_of(self.reader.folder / ABOUT)
            now = (specification, self.reader.refresh(), leases)
            if now != self.before:
                stamps = [each for each in (specification, *now[1].values()) if each]
                times = [stamp.changed / 1e9 for stamp in stamps] or [0.0]
                self.before, self.sweep = now, self._read(times[0], max(times))
            if running != self.sweep.running:
                notes = [unit.note.written for unit in running if unit.note]
                changed = max([self.sweep.changed, *notes])
                self.sweep = replace(self.sweep, running=running, changed=changed)
        except OSError as error:  # it vanished, or permission is missing
            self.before, self.sweep = None, self._with_problem(f"cannot be read: {error.strerror}")
        # Whatever is wrong with one sweep is shown in its row, and does not affect the others.
        except Exception as error:
            self.before, self.sweep = None, self._with_problem(str(error) or type(error).__name__)
        return self.sweep

    def _read(self, started: float, changed: float) -> SweepState:
        folder = self.reader.folder
        try:
            Store.open(folder, writing=False)  # raises for links and other files
            status = sweep_status(self.reader, self.reader.experiments())
            made = self.reader.about.made
            pace = pace_of(valid_headers(self.reader))
        # A foreign file may be wrong in any way; the row shows why, and the other sweeps are not affected.
        except Exception as error:
            return self._with_problem(str(error) or type(error).__name__, started, changed)
        return SweepState(self.name, folder, made, status, "", started, changed, pace)

    def _running_units(
        self, leases: Mapping[str, tuple[Lease, bool | None]]
    ) -> tuple[RunningUnit, ...]:
        """Return the units whose processes are not known to be dead; notes of dead processes are ignored."""
        units = [
            RunningUnit(lease.since, note_of(self.reader, unit))
            for unit, (lease, alive) in leases.items()
            if alive is not False
        ]
        return tuple(sorted(units, key=lambda unit: unit.since))

    def _with_problem(self, problem: str, started: float = 0.0, changed: float = 0.0) -> SweepState:
        first = sendable((problem.splitlines() or [""])[0].replace(f"{self.reader.folder}/", ""))
        return SweepState(
            self.name, self.reader.folder, problem=first, started=started, changed=changed
        )


def pace_of(records: Iterable[Record]) -> Pace:
    """Return how long units took, as far as their records contain it."""
    pace = Pace()
    for record in records:
        if seconds := float(record.meta.get("seconds") or 0):
            status = record.arrays["status"]
            pace = pace.plus(len(status), seconds, bool((status == Status.STEP_CAP).any()))
    return pace


def _rank(sweep: SweepState) -> tuple[bool, float, str]:
    """Return the rank in the list; that of active sweeps does not change with each step."""
    return sweep.active, sweep.started if sweep.active else sweep.changed, sweep.id


def sendable(text: str) -> str:
    """Return a text that can be sent: names of files may contain bytes that are not UTF-8."""
    return text.encode("utf-8", "replace").decode()


MOST_UNITS = 3
"""running units that are listed one by one; more are summarised"""


def made_text(sweep: SweepState) -> str:
    """Return recipe or file, scale, reading and changes."""
    return sendable(request_text(sweep.made))


def share_done(sweep: SweepState) -> float:
    """Return the share of runs that are done, between 0 and 1."""
    counts = sweep.status.counts if sweep.status else None
    return counts.done / counts.runs if counts and counts.runs else 0.0


def trouble_text(sweep: SweepState) -> str:
    """Return what is wrong with it, in a line; empty if nothing is."""
    if sweep.status is None:
        return sweep.problem
    counts, damaged = sweep.status.counts, len(sweep.status.damaged)
    numbers = {
        "failed": counts.failed,
        "out of memory": counts.out_of_memory,
        f"damaged record{'s' * (damaged != 1)}": damaged,
    }
    return ", ".join(f"{number} {problem}" for problem, number in numbers.items() if number)


def progress_text(sweep: SweepState) -> str:
    """Return how many runs are done and running."""
    if sweep.status is None:
        return ""
    counts = sweep.status.counts
    running = f", {counts.running} running" if counts.running else ""
    return f"{counts.done} of {counts.runs} runs done{running}"


def ended_text(sweep: SweepState) -> str:
    """Return how its runs ended; empty if none has."""
    if sweep.status is None:
        return ""
    counts = sweep.status.counts
    numbers = {
        Status.CONVERGED: counts.converged,
        Status.STEP_CAP: counts.step_cap,
        Status.DIVERGED: counts.diverged,
    }
    return ", ".join(f"{number} {STATUS_TEXT[end]}" for end, number in numbers.items() if number)


def steps_text(sweep: SweepState) -> str:
    """Return the positions of the running units; empty if there are none, or if none has written a note yet."""
    positions = [unit.note.at for unit in sweep.running if unit.note and sweep.active]
    if len(positions) <= MOST_UNITS:
        return "; ".join(_position_text(at) for at in positions)
    steps = [at.step for at in positions if not at.testing]
    training = sum(at.training for at in positions if not at.testing)
    parts = [f"{len(positions)} units running"]
    if steps:
        parts += [f"at steps {min(steps):,} to {max(steps):,}", f"{training:,} runs still training"]
    return ", ".join(parts)


def _position_text(at: UnitPosition) -> str:
    if at.testing and at.training:
        return f"evaluating {at.training:,} runs"
    if at.step and not at.training:
        return f"reference networks, step {at.step:,}"
    return f"step {at.step:,} of at most {at.most:,}, {at.training:,} still training"


def left_text(sweep: SweepState, now: float) -> str:
    """Return how long it will take, or why that is not known."""
    if sweep.status is None:
        return ""
    counts = sweep.status.counts
    if counts.done == counts.runs:
        return "finished"
    if not sweep.active:
        return "nobody is working on it"
    left = sweep.left(now)
    if left is None:
        return "running; the time left is not known yet"
    if left < 1:
        return "nearly done; the time for the last runs is not known"
    if sweep.pace.runs:
        return f"about {duration(left)} left"
    return f"about {duration(left)} of training left, less if runs stop early; evaluation follows"


def empty_text(sweep: SweepState, folder: str) -> str:
    """Return a sentence about cells that have not run."""
    if sweep.active:
        return "Empty cells have not run yet; they fill by themselves."
    return f"Empty cells have not run, and nobody is working on them: `benign resume {folder}` computes them."


def clock(seconds: float, now: float) -> str:
    """Return a time of day, with the date if it is not today."""
    then, today = datetime.fromtimestamp(seconds), datetime.fromtimestamp(now).date()
    return then.strftime("%H:%M:%S" if then.date() == today else "%Y-%m-%d %H:%M")
