"""Packs: a store as one file, to carry results between machines.

A pack is a zip of a store's own files under their own names, uncompressed. Packing the same store
twice gives the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from benign.sweep.records import (
    LARGEST_RECORD,
    DamagedRecord,
    check_unit,
    decode_record,
    read_bytes,
    remove_stale,
    replacing,
)
from benign.sweep.results import outdoes
from benign.sweep.store import (
    LARGEST_ABOUT,
    About,
    Store,
    StoreError,
    decode_about,
    encode_about,
    try_writing,
)

History = list[dict[str, Any]]

_HEADER = 30  # bytes that a zip has before the name of a member
_MEMBER = re.compile(r"records/([0-9a-f]{32})\.npz")
# What zipfile raises, besides OSError, when the bytes of a member are not what the zip says.
_BAD_MEMBER = (BadZipFile, EOFError, RuntimeError, ValueError)


@dataclass(frozen=True)
class Merged:
    """How many records of the source were added, were there already, or were damaged."""

    added: int
    present: int
    damaged: int


@dataclass(frozen=True)
class _Source:
    """A pack or a store to read from; `load` gives a record's bytes, unchecked."""

    about: About
    keys: list[str]
    load: Callable[[str], bytes]

    def intact(self, key: str) -> bytes | None:
        """The bytes of a record, or None if it is damaged."""
        try:
            data = self.load(key)
            check_unit(decode_record(data))
        except DamagedRecord:
            return None
        return data


def pack(folder: str | os.PathLike[str], file: str | os.PathLike[str]) -> int:
    """Write the store in `folder` into one `file`; return the number of records.

    Damaged records count as missing and stay behind.
    """
    file, count = Path(file), 0
    with _open_source(Path(folder)) as source:
        _check_output(file)
        with replacing(file) as output, ZipFile(output, "w", ZIP_STORED) as archive:
            archive.writestr(_member("experiment.json"), encode_about(source.about))
            for key in source.keys:
                if data := source.intact(key):
                    archive.writestr(_member(f"records/{key}.npz"), data)
                    count += 1
    return count


def merge(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    agree: Callable[[History, History], History],
) -> Merged:
    """Add the records of a pack or store to the store in `folder`, made if it is not there.

    `agree(target_history, source_history)` gives the history of the merged store, or raises
    ValueError with the difference. Records already there stay as they are, unless more of their
    runs ended properly in the source, and only intact ones enter. Killed at any moment, the store
    is readable, and merging again completes it.
    """
    source, folder = Path(source), Path(folder)
    if source.exists() and folder.exists() and source.samefile(folder):
        raise StoreError(f"{source} cannot be merged into itself: choose another folder")
    with _open_source(source) as origin:
        target = Store.open(folder, create=True)
        here, there = target.about, origin.about
        try:
            merged = agree(here.history, there.history) if here.history else there.history
        except ValueError as error:
            raise StoreError(f"{source} does not fit into {folder}: {error}") from error
        if merged != here.history:
            target.set_about(replace(here if here.history else there, history=merged))
        return _add_records(origin, target)


def _add_records(source: _Source, target: Store) -> Merged:
    added = present = damaged = 0
    for key in source.keys:
        there, data = target.read(key), source.intact(key)
        if data and (there is None or outdoes(decode_record(data), there)):
            with replacing(target.path(key)) as file:
                file.write(data)
            added += 1
        elif there:
            present += 1
        else:
            damaged += 1
    return Merged(added, present, damaged)


@contextlib.contextmanager
def _open_source(path: Path) -> Iterator[_Source]:
    with contextlib.ExitStack() as stack:
        if path.is_dir():
            store = Store.open(path, writing=False)
            source = _Source(
                store.about, sorted(store.keys()), lambda key: read_bytes(store.path(key))
            )
        elif path.exists():
            source = _read_pack(path, stack)
        else:
            raise StoreError(f"{path} does not exist: name a pack or the folder of a store")
        if not source.about.history:
            raise StoreError(f"{path} has no specification yet: run its experiment first")
        yield source


def _read_pack(path: Path, stack: contextlib.ExitStack) -> _Source:
    """Open a pack, which may come from anybody: only names that a store uses are accepted."""
    try:
        archive = stack.enter_context(ZipFile(path))
        members = _members(archive, path.stat().st_size)
        experiment = _load(archive, members.pop("experiment.json"), LARGEST_ABOUT)
    except (*_BAD_MEMBER, OSError, KeyError) as error:
        raise StoreError(
            f"{path} is not an intact pack ({error}): copy it again or pack its store again"
        ) from error
    records = {}
    for name, member in members.items():
        if not (match := _MEMBER.fullmatch(name)):
            raise StoreError(f"{path} holds {name!r}, which no pack does: pack its store again")
        records[match[1]] = partial(_load, archive, member, LARGEST_RECORD)
    about = decode_about(experiment, path / "experiment.json")
    return _Source(about, list(records), lambda key: records[key]())


def _load(archive: ZipFile, member: ZipInfo, largest: int) -> bytes:
    if member.file_size > largest:
        raise DamagedRecord(f"{member.filename} is larger than {largest} bytes")
    try:
        return archive.read(member)
    except _BAD_MEMBER as error:
        raise DamagedRecord(f"{member.filename} is damaged ({error})") from error


def _check_output(file: Path) -> None:
    """Raise if the file cannot be written or is something else than a pack, before any work."""
    if file.is_dir():
        raise StoreError(f"{file} is a folder: name a file for the pack")
    if file.exists():
        try:
            with contextlib.ExitStack() as stack:
                _read_pack(file, stack)
        except StoreError as error:
            raise StoreError(f"{file} is there and no pack: delete it or name another") from error
    try:
        remove_stale(file.parent, now=try_writing(file.parent), of=file.name)
    except OSError as error:
        raise StoreError(
            f"{file.parent} cannot be written ({error.strerror}): make it or choose another folder"
        ) from error


def _member(name: str) -> ZipInfo:
    """A zip entry without the time and the operating system it was written at."""
    member = ZipInfo(name)
    member.create_system = 3
    return member


def _members(archive: ZipFile, size: int) -> dict[str, ZipInfo]:
    """The members of a zip of `size` bytes; refuses zip bombs and all else never written here."""
    entries = archive.infolist()
    members = {entry.filename: entry for entry in entries}
    if len(members) < len(entries):
        raise ValueError("two of its members have the same name")
    if any(entry.compress_type != ZIP_STORED for entry in entries):
        raise ValueError("it has a compressed member")
    if sum(entry.file_size for entry in entries) > size:
        raise ValueError("its members claim more bytes than the file has")
    if any(entry.header_offset < 0 for entry in entries):
        raise ValueError("one of its members lies outside the file")
    # A flipped length in the list of members can swallow those that follow.
    if (
        sum(_HEADER + len(name.encode()) + entry.file_size for name, entry in members.items())
        != archive.start_dir
    ):
        raise ValueError("its list of members does not cover the file")
    return members
