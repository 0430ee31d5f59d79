"""Which process works on which unit: several may work on one sweep, and none does another's unit.

    folder/taken/<unit's key>.json    {"host": ..., "pid": ..., "started": ..., "since": ..., "sha256": ...}
    folder/taken/steps-<unit's key>   how far it is (`Notes`)

A file is left behind by a process that is killed. On its host anybody sees that it is dead, and takes the unit; from
another host nobody can, and a person decides (`--steal`).
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
    """Who works on a unit."""

    host: str
    pid: int
    started: str
    """when that process started, as its system tells: numbers of processes are used again"""
    since: float
    """when it took the unit, in seconds since 1970 by its clock"""

    def alive(self) -> bool | None:
        """Whether that process still runs; None where it is on another host."""
        if self.host != socket.gethostname():
            return None
        return bool(self.started) and _started(self.pid) == self.started

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since).strftime("%Y-%m-%d %H:%M")
        return f"{self.host}, process {self.pid}, since {since}"


def take(store: Store, key: str, steal: bool = False) -> Lease | None:
    """Take a unit; where another process has it, that one comes back and the unit stays its own.

    With `steal` a process on another host counts as dead.
    """
    path = _path(store, key)
    with _alone(store):
        other = _read(path)
        alive = other is not None and other.alive()
        if other and (alive or (alive is None and not steal)):
            return other
        release(store, key)  # of a dead process, or something that no process wrote
        return _write(path)


def release(store: Store, key: str) -> None:
    """Leave a unit that this process has taken."""
    note = note_path(store, key)
    for path in (note, note.with_suffix(".new")):
        with contextlib.suppress(OSError):  # nothing depends on them
            path.unlink()
    _path(store, key).unlink(missing_ok=True)


def note_path(store: Store, key: str) -> Path:
    """Where it is written how far a unit is."""
    return store.folder / "taken" / f"steps-{key}"


def leases_in(store: Store) -> dict[str, Lease]:
    """Who works on which unit, the dead among them."""
    try:
        names = [path for path in (store.folder / "taken").iterdir() if is_key(path.stem)]
    except FileNotFoundError:
        return {}
    return {path.stem: taken for path in names if (taken := _read(path))}


def _path(store: Store, key: str) -> Path:
    return store.folder / "taken" / f"{key}.json"


def _read(path: Path) -> Lease | None:
    """None where there is none, or something that no process wrote."""
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
    """None, or who on another host was faster. The file appears with its content, or not at all."""
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
    """One process of this host at a time: two that found the same dead one would both take its unit."""
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
    """When a process of this host started; empty where there is none."""
    return _own_start() if pid == os.getpid() else _asked(pid)


@cache
def _own_start() -> str:
    return _asked(os.getpid())


def _asked(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
    # A Mac, or Windows with such a tool
    with contextlib.suppress(OSError):
        told = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return told.stdout.strip()
    return "unknown"


NOTE_EVERY = 2.0
"""seconds between notes of a unit"""
NOTE_SOON = 0.2
"""the same where a unit begins to be tested, of which no step is told"""

LARGEST_NUMBER = 1e15
"""no number of a note is larger"""


@dataclass(frozen=True)
class Note:
    """What is written of a unit."""

    at: UnitPosition
    written: float
    """in seconds since 1970, by the clock of the file system"""


class Notes(Watcher):
    """Writes notes of the units that this process has taken."""

    def __init__(self, store: Store):
        self.store = store
        self._ways = UnitsInProgress()
        self._written: dict[str, float] = {}

    def unit_begins(self, unit: Unit) -> None:
        self._ways.begin(unit)
        self._written[unit.key] = time.monotonic()

    def step(self, key: str, number: int, training: int) -> None:
        along, now = self._ways.units.get(key), time.monotonic()
        if along is None:  # told late, by another machine
            return
        was_testing = along.testing
        along.tell(number, training)
        pause = NOTE_EVERY if along.testing == was_testing else NOTE_SOON
        if now - self._written[key] >= pause:
            self._written[key] = now
            write_note(self.store, key, along.now())

    def unit_ends(self, unit: Unit, arrays: Mapping[str, np.ndarray], seconds: float) -> None:
        self._ways.end(unit)


def write_note(store: Store, key: str, at: UnitPosition) -> None:
    """Replace the note of a unit, whole or not at all; a full disk is no reason to end a sweep."""
    path = note_path(store, key)
    draft = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)
        with open(draft, "xb") as file:
            file.write(sealed(asdict(at)))
        os.replace(draft, path)


def note_of(store: Store, key: str) -> Note | None:
    """The note of a unit; None where there is none, or something that no process wrote."""
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
