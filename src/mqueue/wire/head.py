"""The head of a packed frame: where its rows stand, when they came, and how long everything is.

    0        4         8         10       12            16            20
    +--------+---------+---------+--------+-------------+-------------+----------+
    | "MQF1" | u32 crc | u16     | u16    | u32         | u32         | u32 crc  |
    |        | of 8... | version | stamps | head length | body length | of body  |
    +--------+---------+---------+--------+-------------+-------------+----------+
    24            28          32         36          40              44             48
    +-------------+-----------+----------+-----------+---------------+--------------+
    | u32 columns | u32 count | u32 size | u32 topic | u32 partition | i32 priority |
    +-------------+-----------+----------+-----------+---------------+--------------+
    48           56              64              72               80               88
    +------------+---------------+---------------+----------------+----------------+
    | i64 base   | i64 id of     | i64 at of     | i64 deliver_at | i64 expires_at |
    |            | first stamp   | first stamp   |                |                |
    +------------+---------------+---------------+----------------+----------------+
    then for each further stamp: u32 first row, i64 id, i64 at (20 bytes); zeros up to a multiple of 8

Little-endian; checksums are CRC-32C. `columns` is a bitmap of what the body has (`mqueue.wire.pack`). Of times that are
a column of the body the earliest is here, not counting rows that never expire; older frames have 0 there. A priority
that is a column is 0 here. No stamps: the frame was not appended yet, and base, id and at are 0.

The head does not know the body, only its length and its checksum: a head can be written anew, for a frame that gets
its place, without reading the body. To change the layout, raise VERSION and keep reading the older ones.
"""

from __future__ import annotations

import struct

import google_crc32c
import numpy as np
from msgspec import Struct

from mqueue.model.errors import Corrupt
from mqueue.model.limits import FRAME_ROWS_MAX
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Numbers

MAGIC = b"MQF1"
VERSION = 1
HEAD_LENGTH_MIN = 88

PRIORITY, DELIVER_AT, EXPIRES_AT, IDEMPOTENCY_KEY = 1 << 3, 1 << 4, 1 << 6, 1 << 8
"""The bits of the numbers in `columns`, and of what is claimed."""
NUMBERS = PRIORITY | DELIVER_AT | EXPIRES_AT

_ALL = struct.Struct("<4sIHHIIIIIIIIiqqqqq")
_FRONT = struct.Struct("<4sI")
_REST = struct.Struct("<HHIIIIIIIIiqqqqq")
_STAMP = struct.Struct("<Iqq")
_LENGTH, _LENGTH_AT = struct.Struct("<I"), 12


class Head(Struct, frozen=True, gc=False):
    """What a reader knows of a frame before it looks at the body."""

    stamps: int
    head_length: int
    body_length: int
    body_crc: int
    columns: int
    count: int
    size: int
    topic: int
    partition: int
    priority: int
    base: int
    id: int
    """of the first row, as `at`"""
    at: int
    deliver_at: int
    expires_at: int
    last_id: int
    """of the last row, as `last_at`"""
    last_at: int

    @property
    def length(self) -> int:
        """How far it is to the next frame."""
        return self.head_length + self.body_length

    @property
    def stop(self) -> int:
        return self.base + self.count

    @property
    def nothing_before(self) -> int:
        """Before this time no row is due or expires; 0 if that cannot be told."""
        if self.columns & EXPIRES_AT and not self.expires_at:
            return 0  # an older frame
        return min(self.deliver_at, self.expires_at or self.deliver_at)

    @property
    def plain(self) -> bool:
        """Whether the head tells the order of all rows, and none claims an idempotency key."""
        return self.stamps == 1 and not self.columns & (PRIORITY | DELIVER_AT | EXPIRES_AT | IDEMPOTENCY_KEY)


def encode(frame: Frame, columns: int, body_length: int, body_crc: int) -> bytes:
    """The head of a frame over a body that is known by its length and checksum only."""
    stamps = len(frame.ids)
    assert 0 < frame.count <= FRAME_ROWS_MAX, "nobody would read it again"
    assert not stamps or frame.first_rows[0] == 0, "the first stamp has no room for its row"
    rest = _REST.pack(
        VERSION,
        stamps,
        _length(stamps),
        body_length,
        body_crc,
        columns,
        frame.count,
        frame.size,
        frame.topic,
        frame.partition,
        0 if columns & PRIORITY else _one(frame.priority),
        frame.base if stamps else 0,
        frame.ids[0] if stamps else 0,
        frame.at[0] if stamps else 0,
        int(np.min(np.asarray(frame.deliver_at))) if columns & DELIVER_AT else _one(frame.deliver_at),
        _first_expiry(frame.expires_at) if columns & EXPIRES_AT else _one(frame.expires_at),
    )
    if stamps > 1:
        rest += _further(frame)
    return _FRONT.pack(MAGIC, google_crc32c.value(rest)) + rest


def head_of(data: bytes | memoryview, offset: int = 0) -> Head:
    """The head that begins at `offset`. Only the head is looked at: the body may be broken, or not there at all."""
    try:
        magic, crc, version, stamps, length, body_length, body_crc, columns, count, *numbers = _ALL.unpack_from(
            data, offset
        )
    except struct.error as error:
        raise Corrupt(f"frame at {offset}: {len(data) - offset} bytes, and a head has {HEAD_LENGTH_MIN}") from error
    if magic != MAGIC:
        raise Corrupt(f"frame at {offset}: it begins with {magic!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise Corrupt(f"frame at {offset}: version {version}; this reads version {VERSION}")
    if length != _length(stamps) or offset + length > len(data):
        raise Corrupt(f"frame at {offset}: a head of {length} bytes for {stamps} stamps in {len(data) - offset} bytes")
    if google_crc32c.value(bytes(data[offset + 8 : offset + length])) != crc:
        raise Corrupt(f"frame at {offset}: the checksum of its head is wrong")
    if not 0 < count <= FRAME_ROWS_MAX or stamps > count or body_length % 8:
        raise Corrupt(f"frame at {offset}: {count} rows in {stamps} stamps and {body_length} bytes")
    size, topic, partition, priority, base, id, at, deliver_at, expires_at = numbers
    row, last_id, last_at = 0, id, at
    if stamps > 1:
        row, last_id, last_at = _STAMP.unpack_from(data, offset + _end(stamps) - _STAMP.size)
    return Head(
        stamps,
        length,
        body_length,
        body_crc,
        columns,
        count,
        size,
        topic,
        partition,
        priority,
        base,
        id,
        at,
        deliver_at,
        expires_at,
        last_id + count - 1 - row,
        last_at,
    )


def head_length(data: bytes | memoryview) -> int:
    """How long the head is that begins here, for who has only read its front. Nothing is checked."""
    length: int = _LENGTH.unpack_from(data, _LENGTH_AT)[0] if len(data) >= HEAD_LENGTH_MIN else HEAD_LENGTH_MIN
    return length


def stamps_of(data: bytes | memoryview, offset: int, head: Head) -> tuple[list[int], list[int], list[int]]:
    """First rows, ids and times of the stamps of a frame."""
    rows, ids, at = [0], [head.id], [head.at]
    further = data[offset + HEAD_LENGTH_MIN : offset + _end(head.stamps)]
    for row, id, time in _STAMP.iter_unpack(further):
        rows.append(row)
        ids.append(id)
        at.append(time)
    return rows, ids, at


def _one(numbers: Numbers) -> int:
    return numbers if isinstance(numbers, int) else int(numbers[0])


def _first_expiry(numbers: Numbers) -> int:
    """The earliest; 0 stands for never."""
    values = np.asarray(numbers)
    ends = values[values > 0]
    return int(ends.min()) if len(ends) else 0


def _further(frame: Frame) -> bytes:
    stamps = b"".join(map(_STAMP.pack, frame.first_rows[1:], frame.ids[1:], frame.at[1:]))
    return stamps + bytes(-len(stamps) % 8)


def _end(stamps: int) -> int:
    """Where the stamps end."""
    return HEAD_LENGTH_MIN + _STAMP.size * (stamps - 1) if stamps > 1 else HEAD_LENGTH_MIN


def _length(stamps: int) -> int:
    return _end(stamps) + 7 & ~7
