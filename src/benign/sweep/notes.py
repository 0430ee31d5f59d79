"""How far each unit is, written beside the file that says who works on it, for people who look on.

    folder/taken/steps-<unit's key>    {"runs": ..., "step": ..., "most": ..., ..., "sha256": ...}

A note counts as long as its unit is taken by a process that may be alive. Nothing depends on one: what cannot be
written is not, and what no process wrote is no note.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benign.sweep.lease import LARGEST, note_path
from benign.sweep.plan import Unit
from benign.sweep.progress import UnitPosition, UnitsInProgress
from benign.sweep.records import DamagedRecord, read_bytes
from benign.sweep.sealed import sealed, unsealed
from benign.sweep.store import Store
from benign.sweep.watcher import Watcher

EVERY = 2.0
"""seconds between notes of a unit"""
SOON = 0.2
"""the same where a unit begins to be tested, of which no step is told"""

MOST = 1e15
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
        pause = EVERY if along.testing == was_testing else SOON
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
        return Note(_checked(UnitPosition(**content)), path.stat().st_mtime)
    except (OSError, DamagedRecord, ValueError, TypeError):
        return None


def _checked(at: UnitPosition) -> UnitPosition:
    kinds: dict[str, Any] = {name: type(value) for name, value in asdict(at).items()}
    numbers = [value for name, value in asdict(at).items() if name != "testing"]
    if [*kinds.values()] != [int, int, int, int, bool, float, float, float, float]:
        raise ValueError("a note holds other things than numbers")
    if not all(0 <= number <= MOST for number in numbers) or at.runs < 1:
        raise ValueError("a note holds numbers that cannot be")
    return at
