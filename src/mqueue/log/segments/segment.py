"""A segment: one file of the log. It begins with a header of 4 KiB; commits follow, without a gap.

  0  4s  magic "MQS1"      24 u64  start: its first position in the log (its number, and its name)
  4 u32  crc of the rest   32 u32  epoch that made it
  8 16s  uuid of the log   36 u32  crc of the commit before it (the chain goes through)
                           40 i64  at: when it was made
                           48 u16  version        then zeros

A segment is named by its start, so their names sort as they follow each other: `seg-00000000000000000000.log`.
"""

from __future__ import annotations

import re
import struct

from msgspec import Struct

from mqueue.log.segments.commit import Link
from mqueue.log.segments.sealed import check_version, seal, unseal

VERSION = 1
HEADER_BYTES = 4096
_MAGIC = b"MQS1"
_FIELDS = struct.Struct("<16sQIIqH")
_NAME = re.compile(r"seg-(\d{20})\.log")


class Hole(Struct, frozen=True):
    """A stretch of the log that cannot be read."""

    start: int
    stop: int
    reason: str


class Segment(Struct):
    """What is known of a segment while the log is open."""

    start: int
    file: int
    end: int
    """The position behind its last whole commit."""
    first: Link
    """What its first commit goes on from."""
    sealed: bool = True
    indexed: bool = False
    """Whether a file says what is in it, so that it need not be read as a whole."""
    live_bytes: int = 0
    """How much of it is messages that are still kept."""
    scrubbed_at: int = 0
    gone: bool = False
    """Removed, or the log is closed: it cannot be read any more."""

    @property
    def name(self) -> str:
        return name_of(self.start)

    @property
    def origin(self) -> int:
        """The position that the first byte of the file would have."""
        return self.start - HEADER_BYTES

    def place(self, position: int) -> int:
        """Where in the file a position is."""
        return HEADER_BYTES + position - self.start


def name_of(start: int) -> str:
    return f"seg-{start:020}.log"


def start_of(name: str) -> int | None:
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def pack(uuid: bytes, link: Link) -> bytes:
    """The header of a segment that goes on from a commit."""
    rest = _FIELDS.pack(uuid, link.position, link.epoch, link.crc, link.at, VERSION).ljust(HEADER_BYTES - 8, b"\0")
    return seal(_MAGIC, rest)


def unpack(data: bytes, name: str) -> tuple[bytes, Link] | None:
    """The uuid of the log and what the first commit goes on from; None if the header is damaged."""
    rest = unseal(_MAGIC, data[:HEADER_BYTES], HEADER_BYTES - 8)
    if rest is None:
        return None
    uuid, start, epoch, crc, at, version = _FIELDS.unpack_from(rest)
    check_version(name, version, VERSION)
    return (uuid, Link(start, crc, epoch, at)) if start == start_of(name) else None
