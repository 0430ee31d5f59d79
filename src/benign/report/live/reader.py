"""A store that is looked at again and again while others write it: what has not changed is not read again."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benign.sweep.records import Record
from benign.sweep.store import Store, is_key

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


class Reader(Store):
    """The store in a folder, which nothing is written to. It holds the records that were there at the last `look`."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._stamps: dict[str, Stamp] = {}
        self._held: dict[tuple[str, Look], tuple[Stamp, Record | None, str]] = {}

    def look(self) -> dict[str, Stamp]:
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

    def read_once(self, key: str, look: Look) -> Record | None:
        """As that of a store; damage is remembered, too, until the file changes."""
        if held := self._held.get((key, look)):
            _, record, damage = held
            if damage:
                self.damaged[key] = damage
            return record
        record = super().read_once(key, look)
        damage = self.damaged.get(key, "")
        if key in self._stamps and (record or damage):
            self._held[key, look] = self._stamps[key], record, damage
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
