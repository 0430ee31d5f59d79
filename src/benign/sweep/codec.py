"""The file of a record: a zip of members stored one after another, every byte of it fixed by what they hold.

So it is written and read in a few lines, and anything else is refused: a file that is not what `joined` makes of its
members was altered. `zipfile` takes five times as long to read the directory of one of 60 members, and that was most of
the time it took to see which runs a folder holds.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import TypeAlias

END = struct.Struct("<4s4H2LH")
"""what a zip ends with"""
_ENTRY = struct.Struct("<4s6xH4x3L3H8xL")
"""of a directory, before the name: sign, method, CRC, two sizes, three lengths, place; not its versions and dates"""
_LOCAL = struct.Struct("<4s5H3L2H")
"""in front of a member, before its name"""
_LISTED = struct.Struct("<4s6H3L5H2L")
"""the whole of what `_ENTRY` reads a part of"""
_VERSION, _UNIX, _DAY = 20, 3 << 8, 33
"""zip 2.0, of Unix, on 1 January 1980: what the zipfile of Python writes unless told otherwise"""
_MODE = 0o600 << 16


Member: TypeAlias = tuple[int, int, int]
"""where the bytes of a member begin, how many they are, and their CRC-32"""


def joined(contents: Mapping[str, bytes]) -> bytes:
    """The file that holds these members."""
    parts, listed, at = [], [], 0
    for name, content in contents.items():
        word, size, crc = name.encode("ascii"), len(content), zlib.crc32(content)
        told = (_VERSION, 0, 0, 0, _DAY, crc, size, size, len(word), 0)
        parts += [_LOCAL.pack(b"PK\x03\x04", *told), word, content]
        more = (0, 0, 0, _MODE, at)
        listed += [_LISTED.pack(b"PK\x01\x02", _UNIX | _VERSION, *told, *more), word]
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
    """The members that a directory tells, by name; they lie in the `begin` bytes before it."""
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
