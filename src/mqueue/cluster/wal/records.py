"""A frame on its way, as bytes: one entry of a commit in the log of a node, and of its copy in Redis.

 0 u32 virtual shard    8 u32 partition    16 i64 id of its first message    32 u32 length of the head
 4 u32 topic           12 u32 count        24 i64 what it weighs             36 u32 0           then head and body

A commit in Redis is one as in a file, of a log that begins with it: so it tells its position, and whether it is whole.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from mqueue.log.postgres.appends import Sheet
from mqueue.log.segments import commit as envelope
from mqueue.log.segments.commit import Commit, Link

_FIELDS = struct.Struct("<IIIIqqII")


class Stretch(Struct):
    """A commit: where in the log it begins and ends, and its frames. All or nothing of it gets into the shard."""

    start: int
    stop: int
    sheets: Sequence[Sheet]


def pack(sheet: Sheet) -> bytes:
    numbers = (sheet.vshard, sheet.topic, sheet.partition, sheet.count, sheet.base_id, sheet.size, len(sheet.head), 0)
    return b"".join((_FIELDS.pack(*numbers), sheet.head, sheet.body))


def unpack(data: bytes) -> Sheet:
    """A frame as it was packed. The map epoch is for who appends it to say."""
    vshard, topic, partition, count, base_id, size, length, _ = _FIELDS.unpack_from(data)
    middle = _FIELDS.size + length
    return Sheet(vshard, 0, topic, partition, count, base_id, size, data[_FIELDS.size : middle], data[middle:])


def stretch_of(data: bytes, offset: int, commit: Commit) -> Stretch:
    """A commit that begins at an offset of some bytes."""
    places = envelope.bodies(memoryview(data), offset, commit)
    sheets = [unpack(data[place : place + length]) for kind, place, length in places if kind == envelope.OTHER]
    return Stretch(commit.position, commit.end, sheets)


def pack_copy(position: int, records: Sequence[bytes]) -> bytes:
    """A commit for Redis."""
    entries = [(envelope.OTHER, record) for record in records]
    return envelope.pack(entries, Link(position, 0, 0, 0), 0, 0, 0, 0)[0]


def unpack_copy(data: bytes, position: int) -> Stretch | None:
    """What a copy says; None if it is not whole, or of another place."""
    commit = envelope.read(memoryview(data), 0, 0, position)
    return None if commit is None or commit.length != len(data) else stretch_of(data, 0, commit)
