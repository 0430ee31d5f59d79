"""Checks that an intact record belongs to its sweep: anybody can write a file with the right checksum."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benign.spec.base import digest
from benign.sweep.records import REMEDY, Record, is_temporary
from benign.sweep.store import Store, is_key
from benign.training.checkpoint import fault_of as fault_of_kept
from benign.training.descent import Status

_ENDS = [status.value for status in Status if status != Status.MISSING]


def valid_records(store: Store) -> Iterator[Record]:
    """Yield every valid record, in the order of the keys. The others are listed in `store.damaged`."""
    for key, record in store.records():
        if _is_sound(store, key, record):
            yield record


class RecordCache:
    """The valid records of a store, in the order of their keys.

    A file is decoded again only if it has changed, or if the records would take more memory than `most_bytes`.
    """

    def __init__(self, store: Store, most_bytes: int = 2**28) -> None:
        self._store, self._free_bytes = store, most_bytes
        self._records: dict[str, tuple[tuple[int, ...], Record]] = {}

    def __iter__(self) -> Iterator[Record]:
        store = self._store
        for key in sorted(store.keys() | store.damaged.keys()):
            stamp = _stamp(store.path(key))
            known = self._records.get(key)
            if known and known[0] == stamp:
                yield known[1]
            elif (record := store.read(key)) and _is_sound(store, key, record):
                self._keep(key, stamp, record)
                yield record

    def _keep(self, key: str, stamp: tuple[int, ...], record: Record) -> None:
        if known := self._records.pop(key, None):
            self._free_bytes += _size(known[1])
        if _size(record) <= self._free_bytes:
            self._free_bytes -= _size(record)
            self._records[key] = stamp, record


def _stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is replaced; none if there is no file."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _size(record: Record) -> int:
    return sum(array.nbytes for array in record.arrays.values())


def valid_headers(store: Store) -> Iterator[Record]:
    """Yield every valid record with the arrays `run` and `status` alone; the rest of a file is not read.

    This takes 0.3 s instead of 1.6 s for 1,563 records of 255 kB.
    """
    for key in sorted(store.keys()):
        if (record := store.read_header(key)) and _is_sound(store, key, record):
            yield record


def fault_of(key: str, record: Record) -> str:
    """Return why a sweep cannot have written this record under this key; empty if it can."""
    runs, ends = record.arrays["run"], record.arrays["status"]
    if unknown := _unknown(ends):
        return f"holds runs that ended in an unknown way, {unknown}"
    if digest(runs.tolist()) != key:
        return "holds other runs than its name says"
    return ""


def _is_sound(store: Store, key: str, record: Record) -> bool:
    if fault := fault_of(key, record):
        store.damaged[key] = f"{store.path(key)} {fault}: {REMEDY}"
    return not fault


def _unknown(ends: np.ndarray) -> list[Any]:
    return [code for code in np.unique(ends).tolist() if code not in _ENDS]


@dataclass
class Checked:
    """The outcome of checking every file of a store."""

    records: int = 0
    """intact records"""
    runs: int = 0
    """runs in these records, each counted once"""
    damaged: dict[str, str] = field(default_factory=dict)
    """faults of the other records, by key"""
    strange: list[Path] = field(default_factory=list)
    """files among the records that are not records"""
    intact_files: int = 0
    """intact files of checkpoints and weights"""
    spoiled: dict[Path, str] = field(default_factory=dict)
    """faults of the others"""


def check_records(store: Store) -> Checked:
    """Read every record, checkpoint and file of weights, and compare it with its checksum, its form and its name."""
    checked, runs = Checked(), set[str]()
    for record in valid_records(store):
        checked.records += 1
        runs.update(record.arrays["run"].tolist())
    checked.runs, checked.damaged = len(runs), dict(store.damaged)
    checked.strange = [path for path in _files(store) if not _is_ours(path)]
    for path in sorted(kept_files(store)):
        if not (fault := fault_of_kept(path)):
            checked.intact_files += 1
        elif path.exists():  # a sweep that goes on replaces and removes its checkpoints
            checked.spoiled[path] = fault
    return checked


def kept_files(store: Store) -> Iterator[Path]:
    """Yield the checkpoints and the files of weights in a store, without links, which lead out of it."""
    home = store.folder.resolve()
    for names in ("checkpoints/*/*.safetensors", "weights/*.safetensors"):
        for path in store.folder.glob(names):
            if path.resolve() == home / path.relative_to(store.folder):
                yield path


def _files(store: Store) -> list[Path]:
    folder = store.folder / "records"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_ours(path: Path) -> bool:
    return is_temporary(path.name) or (path.suffix == ".npz" and is_key(path.stem))
