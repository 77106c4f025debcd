"""What is in a segment: its frames, the order keys of its messages, idempotency keys, and where events speak of what.

Built by reading the segment; for a sealed one written to a file beside it, so that opening the log need not read it
all. Never trusted: a file that is damaged, or does not fit its segment, is built anew.

  0  4s  magic "MQI1"      32 u64  end of the segment      48 i64  at, of its last commit
  4 u32  crc of the rest   40 u32  crc of its last commit  56 u16  version, u16 0, u32 0
  8 16s  uuid of the log   44 u32  its epoch               64 five times: u64 how many rows a table has
 24 u64  start of the segment                             104 the rows of the tables, one after the other
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from mqueue.log.segments import commit as envelope
from mqueue.log.segments.commit import Commit, Link
from mqueue.log.segments.disk import Disk
from mqueue.log.segments.replace import replace
from mqueue.log.segments.sealed import read, seal, unseal
from mqueue.log.told import claims_of
from mqueue.model.errors import Corrupt
from mqueue.model.events import Duplicated, Event, Rescheduled
from mqueue.wire import journal
from mqueue.wire.frame import Frame
from mqueue.wire.pack import head_of, unpack

VERSION = 1
TEMPORARY = "index.tmp"
BLOCK = 4096
"""Events are found by the block of offsets that they speak of."""
ANYWHERE = -1
"""The block of an event that speaks of no offsets in particular."""

_MAGIC = b"MQI1"
_FIELDS = struct.Struct("<16sQQIIqHHI5Q")

FRAMES = np.dtype(
    [
        ("topic", "<i8"),
        ("partition", "<i8"),
        ("base", "<i8"),
        ("stop", "<i8"),
        ("position", "<i8"),
        ("length", "<i8"),
        ("at", "<i8"),
        ("size", "<i8"),
        ("kept", "<i8"),
    ]
)
STRETCHES = np.dtype(
    [
        ("topic", "<i8"),
        ("partition", "<i8"),
        ("start", "<i8"),
        ("stop", "<i8"),
        ("priority", "<i8"),
        ("due", "<i8"),
        ("expires", "<i8"),
        ("at", "<i8"),
        ("kept", "<i8"),
    ]
)
CLAIMS = np.dtype(
    [
        ("topic", "<i8"),
        ("key", "V16"),
        ("made_at", "<i8"),
        ("id", "<i8"),
        ("partition", "<i8"),
        ("offset", "<i8"),
        ("priority", "<i8"),
        ("at", "<i8"),
        ("digest", "V16"),
    ]
)
EVENTS = np.dtype([("topic", "<i8"), ("partition", "<i8"), ("block", "<i8"), ("position", "<i8")])
IDS = np.dtype([("first", "<i8"), ("last", "<i8"), ("position", "<i8"), ("copies", "<i8")])
_TABLES = (FRAMES, STRETCHES, CLAIMS, EVENTS, IDS)

Table: TypeAlias = NDArray[Any]
"""Rows with named columns."""


class Index(Struct):
    start: int
    link: Link
    """Where the segment ends, and what would go on from there."""
    frames: Table
    stretches: Table
    claims: Table
    events: Table
    ids: Table
    """The ids that each commit gave out, and where it is."""


def name_of(start: int) -> str:
    return f"seg-{start:020}.index"


class Indexer:
    """Builds the index of a segment, commit by commit. Rows are kept as plain numbers: there may be very many."""

    def __init__(self, start: int, first: Link) -> None:
        self.start = start
        self.link = first
        self._frames = array("q")
        self._stretches = array("q")
        self._claims: list[tuple[Any, ...]] = []
        self._events = array("q")
        self._ids = array("q")

    @classmethod
    def of(cls, index: Index) -> Indexer:
        """Go on with an index."""
        indexer = cls(index.start, index.link)
        for name in ("frames", "stretches", "events", "ids"):
            getattr(indexer, f"_{name}").frombytes(getattr(index, name).tobytes())
        indexer._claims = index.claims.tolist()
        return indexer

    def add(self, data: bytes, offset: int, commit: Commit) -> None:
        """Take in a commit that begins at an offset of some bytes."""
        shift = commit.position - offset
        for kind, place, length in envelope.bodies(memoryview(data), offset, commit):
            if kind == envelope.EVENTS:
                with suppress(Corrupt):  # whoever needs them will say so
                    self._add_events(journal.decode(data[place : place + length]), commit.position)
            elif kind in (envelope.FRAME, envelope.KEPT):
                head = head_of(data, place)
                kept = int(kind == envelope.KEPT)
                row = (head.topic, head.partition, head.base, head.stop, place + shift, length, head.last_at, head.size)
                self._frames.extend((*row, kept))
                self._add_ids(head.id, head.last_id, commit.position, kept)
                if head.plain:
                    order = (head.priority, head.deliver_at, head.expires_at, head.at, kept)
                    self._stretches.extend((head.topic, head.partition, head.base, head.stop, *order))
                else:
                    self._add_frame(unpack(data, place), kept)
        self.link = Link(commit.end, commit.crc, commit.epoch, commit.at)

    def _add_frame(self, frame: Frame, kept: int) -> None:
        """What only the body of a frame can tell."""
        for stamp, at in enumerate(frame.at):
            for start, stop, priority, due, expires in frame.stretches(stamp):
                row = (frame.topic, frame.partition, start, stop, priority, due, expires, at, kept)
                self._stretches.extend(row)
        for key, claim in claims_of(frame, range(frame.count)):
            self._claims.append((frame.topic, key, *astuple(claim)))

    def _add_ids(self, first: int, last: int, position: int, kept: int) -> None:
        """A row for each commit; copies of old frames have their own."""
        ids = self._ids
        if ids and ids[-2] == position and ids[-1] == kept:
            ids[-4], ids[-3] = min(first, ids[-4]), max(last, ids[-3])
        else:
            ids.extend((first, last, position, kept))

    def _add_events(self, events: list[Event], position: int) -> None:
        """Which blocks of offsets the events of a commit speak of."""
        seen = {(event.topic, partition, block) for event in events for partition, block in blocks_of(event)}
        for place in sorted(seen):
            self._events.extend((*place, position))

    def events(self) -> Table:
        return np.array(self._events, np.int64).view(EVENTS)

    def index(self) -> Index:
        rows = (self._frames, self._stretches, self._events, self._ids)
        frames, stretches, events, ids = (
            np.array(numbers, np.int64).view(table)
            for numbers, table in zip(rows, (FRAMES, STRETCHES, EVENTS, IDS), strict=True)
        )
        return Index(self.start, self.link, frames, stretches, np.array(self._claims, CLAIMS), events, ids)


def blocks_of(event: Event) -> Iterator[tuple[int, int]]:
    """(partition, block) of what an event speaks of; block ANYWHERE if it is the whole topic."""
    spans = getattr(event, "spans", None)
    if spans is not None:
        for span in spans:
            for block in range(span[1] // BLOCK, (span[2] - 1) // BLOCK + 1):
                yield span[0], block
    elif isinstance(event, Rescheduled | Duplicated):
        yield event.partition, event.offset // BLOCK
    else:
        yield ANYWHERE, ANYWHERE


def save(disk: Disk, uuid: bytes, index: Index) -> None:
    tables = [getattr(index, name) for name in ("frames", "stretches", "claims", "events", "ids")]
    link = index.link
    fields = (uuid, index.start, link.position, link.crc, link.epoch, link.at, VERSION, 0, 0, *map(len, tables))
    rest = _FIELDS.pack(*fields) + b"".join(table.tobytes() for table in tables)
    replace(disk, TEMPORARY, name_of(index.start), seal(_MAGIC, rest))


def load(disk: Disk, uuid: bytes, start: int) -> Index | None:
    """What the file beside a segment says; None if it is damaged, or of something else."""
    data = unseal(_MAGIC, read(disk, name_of(start)), _FIELDS.size)
    if data is None:
        return None
    owner, of, end, crc, epoch, at, version, _, _, *counts = _FIELDS.unpack_from(data)
    if owner != uuid or of != start or version != VERSION:
        return None
    tables = []
    place = _FIELDS.size
    for table, count in zip(_TABLES, counts, strict=True):
        tables.append(np.frombuffer(data, table, count, place))
        place += count * table.itemsize
    return Index(start, Link(end, crc, epoch, at), *tables)


def by_partition(tables: Iterable[Table], low: str) -> Callable[[int, int], Table]:
    """The rows of each partition, in the order of their offsets; `low`: the column that has those.

    What was copied from a segment that is still there is passed over: the original tells the same, and more.
    """
    whole = [table for table in tables if len(table)]
    if not whole:
        return lambda topic, partition: np.empty(0, STRETCHES if low == "start" else FRAMES)
    rows = np.concatenate(whole)
    order = np.lexsort((rows["kept"], rows[low], rows["partition"], rows["topic"]))
    rows = rows[order]
    keys = rows["topic"] << 20 | rows["partition"]

    def of(topic: int, partition: int) -> Table:
        key = topic << 20 | partition
        first, last = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        found: Table = rows[first:last]
        if found["kept"].any():
            covered = np.maximum.accumulate(np.concatenate(([-1], found["stop"][:-1])))
            found = found[found[low] >= covered]
        return found

    return of
