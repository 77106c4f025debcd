"""The commit: what is written at once, checked at once and recovered at once. An envelope around entries.

  0  4s  magic "MQC1"              32 u32  epoch: which start of the store wrote it
  4 u32  crc of all that follows   36 u32  crc of the commit before it (the chain)
  8 u32  length, a multiple of 8   40 u64  synced: everything before this position was durable when it was written
 12 u16  version                   48 i64  at: milliseconds since 1970, never falling
 14 u16  0                         56 u32  how many entries
 16 u64  position in the log       60 u32  0
 24 u64  segment: the position its segment starts at

Entries follow: u8 kind, u8 0, u16 0, u32 length of the body, the body, zeros up to a multiple of 8. Position, segment
and chain tell a commit that belongs here from one that was left by an earlier life of the file, or was misdirected; a
checksum alone would not. A new kind of entry needs no new version; a change of the header does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import google_crc32c

MAGIC = b"MQC1"
VERSION = 1
FRAME = 1
EVENTS = 2
KEPT = 3
"""A frame, or what is left of one, that was copied here from a segment that went away."""
OTHER = 4
"""Something that only who wrote it can read: see `Packed`."""

_HEADER = struct.Struct("<4sIIHHQQIIQqII")
_TAIL = struct.Struct("<IHHQQIIQqII")
_ENTRY = struct.Struct("<BBHI")
HEADER_BYTES = _HEADER.size
_ENTRY_BYTES = _ENTRY.size
_PADDING = tuple(b"\0" * count for count in range(8))

assert HEADER_BYTES == 64


class Commit(NamedTuple):
    """The header of a commit that was found to be whole."""

    position: int
    length: int
    crc: int
    epoch: int
    previous: int
    synced: int
    at: int
    entries: int

    @property
    def end(self) -> int:
        return self.position + self.length


class Link(NamedTuple):
    """What the next commit has to go on from."""

    position: int
    crc: int
    epoch: int
    at: int


def pack(
    entries: Iterable[tuple[int, bytes]], link: Link, segment: int, epoch: int, synced: int, at: int
) -> tuple[bytes, Link, list[int]]:
    """The bytes of a commit, what the next one goes on from, and where in the bytes each body starts."""
    parts: list[bytes] = [b"", b""]
    places: list[int] = []
    length = HEADER_BYTES
    for kind, body in entries:
        places.append(length + _ENTRY_BYTES)
        padding = -len(body) % 8
        parts += (_ENTRY.pack(kind, 0, 0, len(body)), body, _PADDING[padding])
        length += _ENTRY_BYTES + len(body) + padding
    parts[1] = _TAIL.pack(length, VERSION, 0, link.position, segment, epoch, link.crc, synced, at, len(places), 0)
    crc = 0
    if length < _JOIN_BYTES:
        data = b"".join(parts)
        crc = google_crc32c.value(data)
        return b"".join((_LEAD.pack(MAGIC, crc), data)), Link(link.position + length, crc, epoch, at), places
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    parts[0] = _LEAD.pack(MAGIC, crc)
    return b"".join(parts), Link(link.position + length, crc, epoch, at), places


_LEAD = struct.Struct("<4sI")
_JOIN_BYTES = 1 << 16
"""Below this, one more copy is cheaper than a checksum piece by piece."""


def read(data: memoryview, offset: int, segment: int, position: int) -> Commit | None:
    """The commit at an offset, if there is a whole one that belongs at this position of this segment."""
    if offset + HEADER_BYTES > len(data):
        return None
    magic, crc, length, version, _, where, home, epoch, previous, synced, at, entries, _ = _HEADER.unpack_from(
        data, offset
    )
    if magic != MAGIC or version != VERSION or where != position or home != segment:
        return None
    if length < HEADER_BYTES or length % 8 or offset + length > len(data):
        return None
    if google_crc32c.value(bytes(data[offset + 8 : offset + length])) != crc:
        return None
    return Commit(position, length, crc, epoch, previous, synced, at, entries)


def length_of(header: bytes) -> int | None:
    """How long the commit with this header says it is."""
    if len(header) < HEADER_BYTES or header[:4] != MAGIC:
        return None
    length: int = struct.unpack_from("<I", header, 8)[0]
    return length if length >= HEADER_BYTES else None


def follows(commit: Commit, link: Link) -> bool:
    """Whether a commit is the one that was written behind another."""
    return commit.previous == link.crc and commit.epoch >= link.epoch and commit.at >= link.at


def bodies(data: memoryview, offset: int, commit: Commit) -> Iterator[tuple[int, int, int]]:
    """(kind, start, length) of each body of a commit that begins at an offset."""
    place = offset + HEADER_BYTES
    for _ in range(commit.entries):
        kind, _, _, length = _ENTRY.unpack_from(data, place)
        yield kind, place + _ENTRY_BYTES, length
        place += _ENTRY_BYTES + length + (-length % 8)
