"""A store: a folder with the specifications of an experiment and one record per finished unit.

    folder/experiment.json    {"format": 2, "numerics": 3, "made": {...}, "history": [specification, extension, ...],
                              "sha256": of all this}
    folder/records/<key>.npz  key: 32 hex digits, fixed by the runs that the record holds
    folder/checkpoints/<key>  of units in progress that take minutes: what they need to resume after a kill
    folder/weights            final weights, if requested (docs/images.md)

Every file appears whole or not at all, so a killed run leaves a readable store. Processes may write
one store together: the same key means the same runs, and the last writer wins. Which record counts
for a run is decided by `benign.sweep.results`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benign import __version__
from benign.experiment import Experiment
from benign.spec.base import SpecError
from benign.sweep.records import (
    REMEDY,
    DamagedRecord,
    Record,
    canonical_json,
    check_unit,
    is_temporary,
    read_bytes,
    read_header,
    read_record,
    remove_stale,
    replacing,
    temporary_name,
    write_record,
)

LARGEST_ABOUT = 2**26
MOST_EXTENSIONS = 1000
OWN_FOLDERS = {"records", "taken", "checkpoints", "weights"}

_RESTORE = (
    "restore it from a copy, or remove it and run the experiment again (finished records are kept)"
)
_KEY = re.compile(r"[0-9a-f]{32}")


class StoreError(ValueError):
    """A folder or file that cannot be used as a store; the message says why and what to do."""


@dataclass(frozen=True)
class About:
    """The content of an `experiment.json`."""

    history: list[dict[str, Any]] = field(default_factory=list)
    """the first specification and each extension after it; the last one is current"""
    made: dict[str, Any] = field(default_factory=dict)
    """the request that led to the folder: version of `benign`; of a command line target, scale, reading, changes"""
    numerics: int | None = None
    """the numerics of the version that ran here last; None if unknown"""

    def experiments(self, folder: Path) -> list[Experiment]:
        """Return the history as experiments; `folder` is for the message."""
        try:
            return [Experiment.from_dict(each) for each in self.history]
        except SpecError as error:
            raise StoreError(
                f"{folder} holds a specification that cannot be read here: load the code that defines its "
                f"components, or use the version it was made by (benign {self.made.get('benign', 'unknown')}, this is "
                f"{__version__})\n{error}"
            ) from error

    @property
    def recipe(self) -> str:
        """The recipe behind it in a line, with scale, reading and changes; empty if it is not a recipe."""
        return request_text(self.made) if self.made.get("scale") else ""


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
    def about(self) -> About:
        """The content of `experiment.json`; empty if there is no such file."""
        path = self.folder / "experiment.json"
        try:
            return decode_about(read_bytes(path, LARGEST_ABOUT), path)
        except FileNotFoundError:
            return About()
        except DamagedRecord as error:
            raise StoreError(f"{path} {error}: {_RESTORE}") from error

    @property
    def history(self) -> list[dict[str, Any]]:
        """The first specification and each extension after it; the last one is current."""
        return self.about.history

    def experiments(self) -> list[Experiment]:
        """Return the first experiment and each extension after it; the last one is current."""
        return self.about.experiments(self.folder)

    def set_about(self, about: About) -> None:
        """Replace `experiment.json`."""
        data = encode_about(about)
        with replacing(self.folder / "experiment.json") as file:
            file.write(data)

    def checkpoints(self, key: str) -> Path:
        """Return the folder of the checkpoints of a unit; it is removed once the unit is recorded."""
        return self.folder / "checkpoints" / key

    def keys(self) -> set[str]:
        """Return the keys on disk now, without those known to be damaged (`records` reads them all)."""
        try:
            with os.scandir(self.folder / "records") as entries:
                names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
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
        return self.read_once(key, _read_unit)

    def read_header(self, key: str) -> Record | None:
        """The same with the arrays `run` and `status` alone, of which the rest of the file is not read."""
        return self.read_once(key, _read_unit_header)

    def read_once(self, key: str, read_file: Callable[[Path], Record]) -> Record | None:
        """Return what `read_file` returns for the file of a record, or None as for `read`."""
        path = self.path(key)
        self.damaged.pop(key, None)
        try:
            return read_file(path)
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
        """Raise if the folder is not a store; a store killed before its first specification counts."""
        names = {name for name in os.listdir(self.folder) if not is_temporary(name)}
        for folder in (self.folder / name for name in names & OWN_FOLDERS):
            if folder.is_symlink():
                raise StoreError(
                    f"{folder} is a link: move it away, or link {self.folder} as a whole"
                )
            if not folder.is_dir():
                raise StoreError(f"{folder} is not a folder: move it away")
        if "experiment.json" in names:
            _ = self.history
        elif names - OWN_FOLDERS and not self.keys():
            raise StoreError(
                f"{self.folder} holds other things and no experiment.json: "
                "choose the folder of a store, or a new one"
            )
        elif not names and not create:
            raise StoreError(f"{self.folder} is empty: check the path or run an experiment there")


def _read_unit(path: Path) -> Record:
    return read_record(path, check_unit)


def _read_unit_header(path: Path) -> Record:
    record = read_header(path, ("run", "status"))
    try:
        check_unit(record)
    except DamagedRecord as error:
        raise DamagedRecord(f"{path} {error}: {REMEDY}") from error
    return record


def is_key(key: str) -> bool:
    """Whether this is the key of a record: 32 hex digits."""
    return _KEY.fullmatch(key) is not None


def encode_about(about: About) -> bytes:
    """The content of experiment.json."""
    _check(**vars(about))
    return sealed({"format": FORMAT, **vars(about)})


def decode_about(data: bytes, path: Path) -> About:
    """Return the content of an experiment.json; `path` is for the messages."""
    try:
        content = unsealed(data, required=False)  # files of earlier versions have no checksum
        number = content["format"]
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"`format` must be a whole number from 1 on, got {number!r}")
        if number <= FORMAT:
            content = upgraded(content)
            fields = {name: content[name] for name in ("history", "made", "numerics")}
            _check(**fields)
            return About(**fields)
    except DamagedRecord as error:
        raise StoreError(f"{path} {error}: {_RESTORE}") from error
    except Exception as error:  # nothing but these bytes went in
        raise StoreError(f"{path} is damaged ({error}): {_RESTORE}") from error
    raise StoreError(
        f"{path} was made by a newer benign: it has format {number}, this version reads up to {FORMAT}; update benign"
    )


def request_text(made: Mapping[str, Any]) -> str:
    """Return the request that led to a folder in a line: recipe or file, scale, reading, changes; empty if unknown."""
    scale, reading = made.get("scale"), made.get("reading") or {}
    answers = ", ".join(f"{question}={answer}" for question, answer in reading.items())
    changes = ", ".join(made.get("changes") or ())
    parts = [
        " at ".join(filter(None, [made.get("target"), f"{scale} scale" if scale else ""])),
        f"reading: {answers}" if answers else "",
        f"changed: {changes}" if changes else "",
    ]
    return "; ".join(filter(None, parts))


def _check(history: Any, made: Any, numerics: Any) -> None:
    if not isinstance(history, list) or not all(isinstance(spec, dict) for spec in history):
        raise ValueError("`history` must be a list of dicts, one for each specification")
    if not isinstance(made, dict) or not isinstance(numerics, int | None):
        raise ValueError("`made` must be a dict and `numerics` a whole number")
    if len(history) > MOST_EXTENSIONS:
        raise ValueError(f"`history` may hold {MOST_EXTENSIONS} specifications, got {len(history)}")
    _check_made(**made)
    canonical_json([history, made])


def _check_made(target="", scale="", reading=None, changes=(), **_: Any) -> None:
    words = [target, scale, *changes, *(reading or {}).values()]
    if isinstance(changes, str) or not all(isinstance(word, str) for word in words):
        raise ValueError("`made` must hold words")


def try_writing(folder: Path) -> float:
    """Write and remove a small file. Return its time, by the clock of the file system."""
    probe = temporary_name(folder / "probe")
    try:
        with open(probe, "xb") as file:
            file.write(b"may benign write here?")
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def sealed(content: Mapping[str, Any]) -> bytes:
    """The bytes of a file with this content."""
    return canonical_json({**content, "sha256": _content_checksum(content)}).encode()


def unsealed(data: bytes, required: bool = True) -> dict[str, Any]:
    """The content of a file; DamagedRecord unless it is as it was written.

    The checksum may be missing where it is not `required`.
    """
    try:
        content = json.loads(data)
        checksum = content.pop("sha256", None)
        intact = checksum == _content_checksum(content) or (checksum is None and not required)
    # Nothing but these bytes went in: RecursionError of brackets, OverflowError of numbers, and many more.
    except Exception as error:
        raise DamagedRecord(f"is damaged ({error})") from error
    if not intact:
        raise DamagedRecord("is damaged (its checksum does not fit its content)")
    return content


def _content_checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(content)).encode()).hexdigest()


FORMAT = 2


def _from_1(content: dict[str, Any]) -> dict[str, Any]:
    """Format 1 held the specifications alone."""
    return {"format": 2, "numerics": None, "made": {}, "history": content["history"]}


STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}
"""what leads from a format to the next"""


def upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """The content of an `experiment.json` of today or earlier, in today's format."""
    while content["format"] != FORMAT:
        content = STEPS[content["format"]](content)
    return content
