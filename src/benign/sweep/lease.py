"""Leases: which process computes which unit, so that several can work on one sweep.

    folder/taken/<unit's key>.json    {"host": ..., "pid": ..., "started": ..., "since": ..., "sha256": ...}
    folder/taken/steps-<unit's key>   how far it is (`Notes`)

A killed process leaves its lease behind. On the same host the lease is recognised as stale: its process is gone, or
its pid belongs to another process. A lease of another host is broken only by the user, with `--steal`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benign.sweep.plan import Unit
from benign.sweep.progress import UnitPosition, UnitsInProgress, Watcher
from benign.sweep.records import DamagedRecord, read_bytes, temporary_name
from benign.sweep.store import Store, is_key, sealed, unsealed

LARGEST = 4096
"""bytes of such a file"""
LARGEST_PID = 2**32
LAST = 1e11
"""seconds since 1970: the year 5138, which every system can write as a date"""


@dataclass(frozen=True)
class Lease:
    """The process that computes a unit."""

    host: str
    pid: int
    started: str
    """when that process started, according to its system: process ids are used again"""
    since: float
    """when it leased the unit, in seconds since 1970 by its clock"""

    def alive(self) -> bool | None:
        """Return whether that process still runs; None if it is on another host."""
        if self.host != socket.gethostname():
            return None
        return bool(self.started) and _started(self.pid) == self.started

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since).strftime("%Y-%m-%d %H:%M")
        return f"{self.host}, process {self.pid}, since {since}"


def acquire(store: Store, key: str, steal: bool = False) -> Lease | None:
    """Acquire the lease of a unit. Return None, or the lease that blocks it.

    steal: break leases of other hosts.
    """
    path = _path(store, key)
    with _alone(store):
        other = _read(path)
        alive = other is not None and other.alive()
        if other and (alive or (alive is None and not steal)):
            return other
        release(store, key)  # of a dead process, or malformed
        return _write(path)


def release(store: Store, key: str) -> None:
    """Release the lease of a unit."""
    note = note_path(store, key)
    for path in (note, note.with_suffix(".new")):
        with contextlib.suppress(OSError):  # nothing depends on them
            path.unlink()
    _path(store, key).unlink(missing_ok=True)


def note_path(store: Store, key: str) -> Path:
    """Return the file with the progress of a unit."""
    return store.folder / "taken" / f"steps-{key}"


def leases_in(store: Store) -> dict[str, Lease]:
    """Return the leases of a store by unit, stale ones included."""
    try:
        names = [path for path in (store.folder / "taken").iterdir() if is_key(path.stem)]
    except FileNotFoundError:
        return {}
    return {path.stem: lease for path in names if (lease := _read(path))}


def _path(store: Store, key: str) -> Path:
    return store.folder / "taken" / f"{key}.json"


def _read(path: Path) -> Lease | None:
    """Return the lease stored at `path`, or None if it is missing or malformed."""
    try:
        return _checked(Lease(**unsealed(read_bytes(path, LARGEST))))
    except (FileNotFoundError, DamagedRecord, ValueError, TypeError):
        return None


def _checked(lease: Lease) -> Lease:
    kinds = {"host": str, "pid": int, "started": str, "since": float}
    if not all(type(getattr(lease, name)) is kind for name, kind in kinds.items()):
        raise ValueError("a lease holds values of other types")
    if not (0 < lease.pid < LARGEST_PID and 0 <= lease.since < LAST and lease.host.isprintable()):
        raise ValueError("a lease holds values that cannot be")
    return lease


def _write(path: Path) -> Lease | None:
    """Write our lease, whole or not at all. Return None, or the lease of a faster process of another host."""
    pid = os.getpid()
    mine = Lease(socket.gethostname(), pid, _started(pid), time.time())
    draft = temporary_name(path)
    draft.write_bytes(sealed(asdict(mine)))
    try:
        os.link(draft, path)
    except FileExistsError:
        return _read(path)
    except (
        OSError
    ):  # a file system without links, where nobody is faster: processes of this host wait
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return None


@contextlib.contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Let in one process of this host at a time: two could break the same stale lease."""
    folder = store.folder / "taken"
    folder.mkdir(exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _started(pid: int) -> str:
    """Return when a process of this host started; empty if there is no such process."""
    return _own_start() if pid == os.getpid() else _start_of(pid)


@cache
def _own_start() -> str:
    return _start_of(os.getpid())


def _start_of(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
    # A Mac, or Windows with such a tool
    with contextlib.suppress(OSError):
        answer = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return answer.stdout.strip()
    return "unknown"


NOTE_EVERY = 2.0
"""seconds between notes of a unit"""
NOTE_SOON = 0.2
"""the same when an evaluation begins, which reports no steps"""

LARGEST_NUMBER = 1e15
"""no number of a note is larger"""


@dataclass(frozen=True)
class Note:
    """The progress of a unit, as its process wrote it."""

    at: UnitPosition
    written: float
    """seconds since 1970, by the clock of the file system"""


class Notes(Watcher):
    """Writes notes about the units that this process has leased."""

    def __init__(self, store: Store):
        self.store = store
        self._in_progress = UnitsInProgress()
        self._written: dict[str, float] = {}

    def unit_begins(self, unit: Unit) -> None:
        self._in_progress.begin(unit)
        self._written[unit.key] = time.monotonic()

    def step(self, key: str, number: int, training: int) -> None:
        progress, now = self._in_progress.units.get(key), time.monotonic()
        if progress is None:  # a late report of another machine
            return
        was_testing = progress.testing
        progress.update(number, training)
        pause = NOTE_EVERY if progress.testing == was_testing else NOTE_SOON
        if now - self._written[key] >= pause:
            self._written[key] = now
            write_note(self.store, key, progress.now())

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None:
        self._in_progress.end(unit)


def write_note(store: Store, key: str, at: UnitPosition) -> None:
    """Replace the note of a unit, whole or not at all. A full disk does not end a sweep."""
    path = note_path(store, key)
    draft = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)
        with open(draft, "xb") as file:
            file.write(sealed(asdict(at)))
        os.replace(draft, path)


def note_of(store: Store, key: str) -> Note | None:
    """Return the note of a unit, or None if it is missing or malformed."""
    path = note_path(store, key)
    try:
        content = unsealed(read_bytes(path, LARGEST))
        return Note(_checked_position(UnitPosition(**content)), path.stat().st_mtime)
    except (OSError, DamagedRecord, ValueError, TypeError):
        return None


def _checked_position(at: UnitPosition) -> UnitPosition:
    kinds: dict[str, Any] = {name: type(value) for name, value in asdict(at).items()}
    numbers = [value for name, value in asdict(at).items() if name != "testing"]
    if [*kinds.values()] != [int, int, int, int, bool, float, float, float, float]:
        raise ValueError("a note holds other things than numbers")
    if not all(0 <= number <= LARGEST_NUMBER for number in numbers) or at.runs < 1:
        raise ValueError("a note holds numbers that cannot be")
    return at
