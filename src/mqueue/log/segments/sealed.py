"""Bytes that tell whether they are whole: what all small files of a log, and headers of large ones, begin with.

0  4s  magic
4 u32  crc of the rest
8      the rest
"""

from __future__ import annotations

import struct

import google_crc32c

from mqueue.log.segments.disk import Disk
from mqueue.model.errors import Refused

_CRC = struct.Struct("<I")


def seal(magic: bytes, rest: bytes) -> bytes:
    return b"".join((magic, _CRC.pack(google_crc32c.value(rest)), rest))


def unseal(magic: bytes, data: bytes, least: int) -> bytes | None:
    """The rest; None if it is damaged, of something else, or shorter than that."""
    rest = data[8:]
    if len(rest) < least or data[:4] != magic or google_crc32c.value(rest) != _CRC.unpack_from(data, 4)[0]:
        return None
    return rest


def read(disk: Disk, name: str) -> bytes:
    """A whole file."""
    file = disk.open(name)
    try:
        return disk.pread(file, disk.size(file), 0)
    finally:
        disk.close(file)


def check_version(what: str, found: int, version: int) -> None:
    if found != version:
        raise Refused(
            f"{what} is of format {found}; this version of mqueue reads format {version}", code="other_version"
        )
