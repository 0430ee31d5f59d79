"""A store: a folder with the specifications of an experiment and one record per finished unit.

    folder/experiment.json        {"format": 1, "history": [specification, extension, ...]}
    folder/records/<key>.npz      key: 32 hex digits, fixed by what the record holds

Every file appears whole or not at all, so a killed run leaves a readable store. Processes may write
one store together: the same key means the same content, and the last writer wins.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benign.sweep.records import (
    DamagedRecord,
    Record,
    canonical_json,
    is_temporary,
    read_record,
    remove_stale,
    replacing,
    temporary_name,
    write_record,
)

FORMAT = 1
_KEY = re.compile(r"[0-9a-f]{32}")


class StoreError(ValueError):
    """A folder or file that cannot be used as a store; the message says why and what to do."""


class Store:
    """The results of one experiment on disk. `damaged` collects the records found unreadable."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.damaged: dict[str, str] = {}

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], create: bool = False, *, writing: bool = True
    ) -> Store:
        """Open a store, or make one in a new or empty folder.

        With `writing` the folder is tried by writing to it before any work is done, and what killed
        processes left behind over an hour ago is removed; without, nothing is touched.
        """
        store = cls(Path(folder))
        try:
            store._open(create, writing)
        except OSError as error:
            use = "written" if writing else "read"
            raise StoreError(
                f"{folder} cannot be {use} ({error.strerror}): "
                "change its permissions, free space or choose another folder"
            ) from error
        return store

    @property
    def history(self) -> list[dict[str, Any]]:
        """The first specification and each extension after it; the last one is current."""
        path = self.folder / "experiment.json"
        try:
            return decode_history(path.read_bytes(), path)
        except FileNotFoundError:
            return []

    def set_history(self, history: list[dict[str, Any]]) -> None:
        """Replace the specifications."""
        data = encode_history(history)
        with replacing(self.folder / "experiment.json") as file:
            file.write(data)

    def keys(self) -> set[str]:
        """The keys on disk now, less those already found damaged (`records` looks at them all)."""
        try:
            with os.scandir(self.folder / "records") as entries:
                names = [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return set()
        keys = {name.removesuffix(".npz") for name in names if name.endswith(".npz")}
        return {key for key in keys if is_key(key)} - self.damaged.keys()

    def path(self, key: str) -> Path:
        """The file of the record with this key."""
        if not is_key(key):
            raise ValueError(f"`key` must be 32 hex digits, got {key!r}")
        return self.folder / "records" / f"{key}.npz"

    def read(self, key: str) -> Record | None:
        """The record, or None if it is missing or damaged (then the reason is in `damaged`)."""
        path = self.path(key)
        self.damaged.pop(key, None)
        try:
            return read_record(path)
        except FileNotFoundError:
            return None
        except DamagedRecord as error:
            self.damaged[key] = str(error)
            return None

    def write(self, key: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Write a record; it takes the place of a damaged one."""
        write_record(self.path(key), arrays, meta)
        self.damaged.pop(key, None)

    def records(self) -> Iterator[tuple[str, Record]]:
        """Every intact record, in the order of the keys; the others are noted in `damaged`."""
        for key in sorted(self.keys() | self.damaged.keys()):
            if record := self.read(key):
                yield key, record

    def _open(self, create: bool, writing: bool) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"{self.folder} is a file: choose a folder for the store")
        if not self.folder.exists() and not create:
            raise StoreError(f"{self.folder} does not exist: check the path or run an experiment")
        if create:
            self.folder.mkdir(parents=True, exist_ok=True)
        self._check_contents(create)
        if writing:
            (self.folder / "records").mkdir(exist_ok=True)
            for folder in (self.folder, self.folder / "records"):
                remove_stale(folder, now=try_writing(folder))

    def _check_contents(self, create: bool) -> None:
        """Refuse a folder that is no store; one killed before its first specification is one."""
        names = {name for name in os.listdir(self.folder) if not is_temporary(name)}
        if (self.folder / "records").exists() and not (self.folder / "records").is_dir():
            raise StoreError(f"{self.folder / 'records'} is not a folder: move it away")
        if "experiment.json" in names:
            _ = self.history
        elif names - {"records"}:
            raise StoreError(
                f"{self.folder} holds other things and no experiment.json: "
                "choose the folder of a store, or a new one"
            )
        elif not names and not create:
            raise StoreError(f"{self.folder} is empty: check the path or run an experiment there")


def is_key(key: str) -> bool:
    """Whether this is the key of a record: 32 hex digits."""
    return _KEY.fullmatch(key) is not None


def encode_history(history: list[dict[str, Any]]) -> bytes:
    """The content of experiment.json."""
    _check_history(history)
    return canonical_json({"format": FORMAT, "history": history}).encode()


def decode_history(data: bytes, path: Path) -> list[dict[str, Any]]:
    """The specifications in an experiment.json; `path` is for the messages."""
    try:
        content = json.loads(data)
        number, history = content["format"], content["history"]
        if number == FORMAT:
            _check_history(history)
            canonical_json(history)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged ({error}): restore it from a copy, or remove it and run the "
            "experiment again (finished records are kept)"
        ) from error
    if number != FORMAT:
        raise StoreError(
            f"{path} has format {number!r}, this version reads {FORMAT}: use a newer benign"
        )
    return history


def _check_history(history: Any) -> None:
    if not isinstance(history, list) or not all(isinstance(spec, dict) for spec in history):
        raise ValueError("`history` must be a list of dicts, one for each specification")


def try_writing(folder: Path) -> float:
    """Write and remove a small file; returns its time, by the clock of the file system."""
    probe = temporary_name(folder / "probe")
    try:
        with open(probe, "xb") as file:
            file.write(b"may benign write here?")
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
