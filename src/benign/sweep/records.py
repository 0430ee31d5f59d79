"""A record: the arrays of one finished unit in one npz file that is never changed.

The file is a zip of `.npy` members, `meta.json` and `sha256`, so `numpy.load` and `unzip` open it
anywhere. Members are stored uncompressed: for 60 runs x 15 variables x 50 steps in float64 deflate
halves the file (364 to 188 kB) but writes 4.5 times slower (2.3 to 10.5 ms), and without it no
file can unfold to more bytes than it has.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import stat
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

LARGEST_RECORD = 2**30
STALE_AFTER = 3600.0
LONGEST = 1e10
"""seconds that a unit may have run: three hundred years"""
REMEDY = "delete it or compute it again"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{32}\.tmp")
# The one header numpy writes for plain arrays. numpy's own reader also takes pickles and evaluates
# literals, and it allocates the declared shape before it reads the data.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<>|][biufcUS]\d+)', "
    rb"'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n",
    re.DOTALL,
)


class DamagedRecord(ValueError):
    """A file that is not a whole, unaltered record."""


@dataclass(frozen=True, eq=False)
class Record:
    """The content of a record; its arrays are read-only."""

    arrays: Mapping[str, np.ndarray]
    meta: Mapping[str, Any]

    @property
    def names(self) -> frozenset[str]:
        """The names of all its arrays."""
        return frozenset(self.arrays)


@dataclass(frozen=True, eq=False)
class RecordHeader(Record):
    """A record of which only some arrays were read."""

    all_names: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return self.all_names


def canonical_json(value: Any) -> str:
    """Return the JSON text of a value, keys sorted. Raise if the value would read back changed."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"not plain JSON ({error}): use text, finite numbers, lists, dicts"
        ) from error
    if json.loads(text) != value:
        raise ValueError("not plain JSON: use lists instead of tuples and text as keys of dicts")
    return text


def write_record(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Write a record; a crash at any moment leaves the old file or the new one, never a part."""
    data = encode_record(arrays, meta)
    with replacing(path) as file:
        file.write(data)


def read_record(path: Path, check: Callable[[Record], None] | None = None) -> Record:
    """Read a record; raises DamagedRecord, with the path and the reason, if it is not intact or `check` refuses it."""
    try:
        record = decode_record(read_bytes(path))
        if check:
            check(record)
        return record
    except DamagedRecord as error:
        raise DamagedRecord(f"{path} {error}: {REMEDY}") from error


def read_header(path: Path, wanted: Iterable[str]) -> RecordHeader:
    """Return some arrays of a record and its meta, reading only that part of the file.

    Raise DamagedRecord if this part is not intact; the rest of the file is not checked.
    """
    try:
        _check_plain(path, LARGEST_RECORD)
        with open(path, "rb") as file:
            return _read_header(file, wanted)
    except OSError:
        raise
    except Exception as error:  # as in `decode_record`
        raise DamagedRecord(f"{path} is not an intact record ({error}): {REMEDY}") from error


def _read_header(file: BinaryIO, wanted: Iterable[str]) -> RecordHeader:
    size = file.seek(0, os.SEEK_END)
    begin = directory_at(_part(file, size - END.size, END.size), size)
    members = members_in(_part(file, begin, size - begin), begin)

    def content(name: str) -> bytes:
        place, length, crc = members[name]
        return checked(_part(file, place, length), name, crc)

    arrays = {name: _array(f"{name}.npy", content(f"{name}.npy")) for name in wanted}
    meta = json.loads(content("meta.json"))
    if not isinstance(meta, dict):
        raise ValueError("its `meta.json` is not a dict")
    return RecordHeader(arrays, meta, _names(tuple(members)))


def _part(file: BinaryIO, begin: int, length: int) -> bytes:
    file.seek(max(begin, 0))
    return file.read(length)


def read_bytes(path: Path, largest: int | None = None) -> bytes:
    """The bytes of a file of a store, not yet checked, unless it is a link, a device or too large."""
    _check_plain(path, largest or LARGEST_RECORD)
    return path.read_bytes()


def _check_plain(path: Path, largest: int) -> None:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedRecord("is a link or no file, and might lead anywhere")
    if status.st_size > largest:
        raise DamagedRecord(f"is larger than it may be ({largest} bytes)")


def check_unit(record: Record) -> None:
    """Raise if an intact record does not belong to a unit: every array must have a row for each run."""
    runs, status = (record.arrays.get(name) for name in ("run", "status"))
    if runs is None or status is None:
        raise DamagedRecord("holds no `run` and `status`")
    if runs.ndim != 1 or runs.dtype.kind != "U" or status.dtype.kind not in "iu":
        raise DamagedRecord("holds a malformed `run` or `status`")
    for name, array in record.arrays.items():
        if array.shape[:1] != runs.shape or (name != "run" and array.dtype.kind not in "biuf"):
            raise DamagedRecord(f"holds a `{name}` without a number for each run")
    code, seconds = record.meta.get("code") or {}, record.meta.get("seconds") or 0
    words = isinstance(code, dict) and all(isinstance(each, str | None) for each in code.values())
    if not words or type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST:
        raise DamagedRecord("holds a malformed `code` or `seconds`")


def encode_record(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    """The bytes of a record file: the same for the same content, on every machine."""
    if not isinstance(meta, dict):
        raise ValueError(f"`meta` must be a dict, got {type(meta).__name__}")
    for name, array in arrays.items():
        _check_array(name, array)
    contents = {f"{name}.npy": _npy(arrays[name]) for name in sorted(arrays)}
    contents["meta.json"] = canonical_json(meta).encode()
    contents["sha256"] = _checksum(arrays, meta).encode()
    data = joined(contents)
    if len(data) > LARGEST_RECORD:
        raise ValueError(
            f"a record may hold {LARGEST_RECORD} bytes, got {len(data)}: "
            "split the unit or store fewer steps"
        )
    return data


def _npy(array: np.ndarray) -> bytes:
    member = BytesIO()
    plain = np.asarray(array, order="C")
    np.lib.format.write_array(member, plain, version=(1, 0), allow_pickle=False)
    return member.getvalue()


def decode_record(data: bytes) -> Record:
    """The record in these bytes; raises DamagedRecord unless they are whole and unaltered."""
    try:
        begin = directory_at(data[-END.size :], len(data))
        contents = {
            name: data[place : place + size]
            for name, (place, size, _) in members_in(data[begin:], begin).items()
        }
        if joined(contents) != data:
            raise ValueError("it is not as it was written")
        if not {"meta.json", "sha256"} <= contents.keys():
            raise ValueError("it holds no `meta.json` and `sha256`")
        meta, checksum = json.loads(contents.pop("meta.json")), contents.pop("sha256")
        arrays = {name.removesuffix(".npy"): _array(name, npy) for name, npy in contents.items()}
        if not isinstance(meta, dict):
            raise ValueError("its `meta.json` is not a dict")
        if _checksum(arrays, meta).encode() != checksum:
            raise ValueError("its checksum does not fit its content")
    except MemoryError:
        raise
    # Only these bytes went in, so any error is their fault.
    except Exception as error:
        raise DamagedRecord(f"is not an intact record ({error})") from error
    return Record(arrays, meta)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces `path` at once when it is complete and on the disk."""
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say where
        raise
    _sync_folder(path.parent)


def temporary_name(path: Path) -> Path:
    """Return a name next to `path` that no other process will choose, on any machine."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def is_temporary(name: str, of: str | None = None) -> bool:
    """Whether a file name is a temporary one, and one of the file named `of` if given."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and of in (None, match[1])


def remove_stale(folder: Path, now: float, of: str | None = None) -> None:
    """Remove the temporary files that killed processes left in a folder over an hour ago.

    A clock may have jumped: a file that a living process has locked stays, whatever its time.
    """
    for path in list(folder.iterdir()):
        if is_temporary(path.name, of):
            with contextlib.suppress(OSError):  # another process removed it, or it is nobody's file
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and now - status.st_mtime > STALE_AFTER:
                    with open(path, "rb") as file:
                        left = _lock(file, shared=True)
                    if left:
                        path.unlink()


def _lock(file: BinaryIO, shared: bool = False) -> bool:
    """Lock a file until it is closed. Return False if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows, where a file that is open cannot be removed
        return True
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _check_array(name: str, array: np.ndarray) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"array name {name!r} must be letters, digits, `_`, `.` and `-`")
    if type(array) is not np.ndarray:
        raise ValueError(f"array `{name}` must be a plain numpy array, got {type(array).__name__}")
    if array.dtype.kind not in "biufcUS" or not array.dtype.itemsize:
        raise ValueError(
            f"array `{name}` must hold numbers, booleans or text, got dtype {array.dtype}"
        )


def _array(name: str, npy: bytes) -> np.ndarray:
    """The array of one member, a read-only view of its bytes."""
    header = _NPY.match(npy)
    if not header or not _NAME.fullmatch(name.removesuffix(".npy")) or name[-4:] != ".npy":
        raise ValueError(f"its member {name!r} is not a plain array")
    dtype, shape = _layout(header[1], header[2])
    if math.prod(shape) * dtype.itemsize != len(npy) - header.end():
        raise ValueError(f"its array {name!r} has more or fewer bytes than its shape needs")
    return np.ndarray(shape, dtype, npy, header.end())


@lru_cache(maxsize=1024)  # records of a folder are alike
def _names(members: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.removesuffix(".npy") for name in members if name.endswith(".npy"))


@lru_cache(maxsize=1024)
def _layout(dtype: bytes, shape: bytes) -> tuple[np.dtype, tuple[int, ...]]:
    return np.dtype(dtype.decode()), tuple(int(size) for size in re.findall(rb"\d+", shape))


def _checksum(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> str:
    """SHA-256 of names, dtypes, shapes and meta as one line of JSON, then the arrays' bytes."""
    names = sorted(arrays)
    layout = [[name, arrays[name].dtype.str, list(arrays[name].shape)] for name in names]
    digest = hashlib.sha256(canonical_json({"arrays": layout, "meta": meta}).encode() + b"\n")
    for name in names:
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Put a rename on the disk, where the system and the file system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


END = struct.Struct("<4s4H2LH")
"""what a zip ends with"""
_ENTRY = struct.Struct("<4s6xH4x3L3H8xL")
"""of a directory, before the name: sign, method, CRC, two sizes, three lengths, place; not its versions and dates"""
_LOCAL = struct.Struct("<4s5H3L2H")
"""in front of a member, before its name"""
_LISTED = struct.Struct("<4s6H3L5H2L")
"""the whole of what `_ENTRY` reads a part of"""
_VERSION, _UNIX, _DAY = 20, 3 << 8, 33
"""zip 2.0, of Unix, on 1 January 1980: the defaults of the zipfile of Python"""
_MODE = 0o600 << 16


Member: TypeAlias = tuple[int, int, int]
"""where the bytes of a member begin, how many they are, and their CRC-32"""


def joined(contents: Mapping[str, bytes]) -> bytes:
    """The file that holds these members."""
    parts, listed, at = [], [], 0
    for name, content in contents.items():
        word, size, crc = name.encode("ascii"), len(content), zlib.crc32(content)
        fields = (_VERSION, 0, 0, 0, _DAY, crc, size, size, len(word), 0)
        parts += [_LOCAL.pack(b"PK\x03\x04", *fields), word, content]
        more = (0, 0, 0, _MODE, at)
        listed += [_LISTED.pack(b"PK\x01\x02", _UNIX | _VERSION, *fields, *more), word]
        at += _LOCAL.size + len(word) + size
    directory = b"".join(listed)
    count = len(contents)
    end = END.pack(b"PK\x05\x06", 0, 0, count, count, len(directory), at, 0)
    return b"".join([*parts, directory, end])


def directory_at(end: bytes, size: int) -> int:
    """Where the directory of a file of `size` bytes begins, from its last `END.size` bytes."""
    if len(end) != END.size:
        raise ValueError("it is shorter than the end of a record")
    sign, *_, length, begin, comment = END.unpack(end)
    if sign != b"PK\x05\x06" or comment or begin + length + END.size != size:
        raise ValueError("it does not end as a record does")
    return begin


def members_in(directory: bytes, begin: int) -> dict[str, Member]:
    """Return the members that a directory lists, by name; they lie in the `begin` bytes before it."""
    members: dict[str, Member] = {}
    at = entries = 0
    while at < len(directory) - END.size:
        sign, method, crc, stored, size, name, extra, comment, header = _ENTRY.unpack_from(
            directory, at
        )
        if sign != b"PK\x01\x02" or extra or comment:
            raise ValueError("its directory is not one of a record")
        if method:
            raise ValueError("it has a compressed member")
        place = header + _LOCAL.size + name
        if stored != size or place + size > begin:
            raise ValueError("its members claim more bytes than the file has")
        named = at + _ENTRY.size
        at = named + name
        members[directory[named:at].decode("ascii")] = (place, size, crc)
        entries += 1
    if len(members) < entries:
        raise ValueError("two of its members have the same name")
    return members


def checked(content: bytes, name: str, crc: int) -> bytes:
    """The bytes of a member, as they were found, if they are what its CRC says."""
    if zlib.crc32(content) != crc:
        raise ValueError(f"its member {name!r} is not what was written")
    return content
