"""A checkpoint on disk: of each topic a point, and up to which position of the log it tells everything.

  0  4s  magic "MQK1"      24 u64  position: what is folded starts here
  4 u32  crc of the rest   32 i64  last id that was given out
  8 16s  uuid of the log   40 u32  last number of a topic
                           44 u16  version, u16 0
then per topic: u64 position, u32 topic, u32 length, the point (see `points`).

Each topic has its own position, because they need not be taken at once; the file's is the lowest of them. A file is
written aside, synced and renamed; the last two are kept, and nothing is removed from the log that the older one needs.
"""

from __future__ import annotations

import re
import struct

from msgspec import Struct

from mqueue.log.segments.disk import Disk
from mqueue.log.segments.replace import replace
from mqueue.log.segments.sealed import check_version, read, seal, unseal

VERSION = 1
KEPT = 2
TEMPORARY = "checkpoint.tmp"
_MAGIC = b"MQK1"
_FIELDS = struct.Struct("<16sQqIHH")
_POINT = struct.Struct("<QII")
_NAME = re.compile(r"checkpoint-(\d{20})")


class Saved(Struct):
    """The contents of a checkpoint file. `points`: position and encoded point by topic."""

    uuid: bytes
    position: int
    last_id: int
    topic_id: int
    points: dict[int, tuple[int, bytes]]


def position_of(name: str) -> int | None:
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def save(disk: Disk, saved: Saved) -> None:
    """Durable on return; the oldest beyond two is removed."""
    parts = [_FIELDS.pack(saved.uuid, saved.position, saved.last_id, saved.topic_id, VERSION, 0)]
    for topic, (position, point) in saved.points.items():
        parts += (_POINT.pack(position, topic, len(point)), point)
    replace(disk, TEMPORARY, f"checkpoint-{saved.position:020}", seal(_MAGIC, b"".join(parts)))
    for name in names(disk)[KEPT:]:
        disk.unlink(name)


def names(disk: Disk) -> list[str]:
    """The checkpoints there are, newest first."""
    return sorted((name for name in disk.list() if position_of(name) is not None), reverse=True)


def load(disk: Disk, name: str) -> Saved | None:
    """What a file says; None if it is damaged."""
    data = unseal(_MAGIC, read(disk, name), _FIELDS.size)
    if data is None:
        return None
    uuid, position, last_id, topic_id, version, _ = _FIELDS.unpack_from(data)
    check_version(name, version, VERSION)
    if position != position_of(name):
        return None
    points: dict[int, tuple[int, bytes]] = {}
    place = _FIELDS.size
    while place < len(data):
        taken, topic, length = _POINT.unpack_from(data, place)
        place += _POINT.size
        points[topic] = taken, data[place : place + length]
        place += length
    return Saved(uuid, position, last_id, topic_id, points)
