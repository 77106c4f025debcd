"""What whoever takes over a virtual shard finds there: topics, the last checkpoint, the journal since then, frames.

All of it is read once, and then folded by `mqueue.store.recover`. Of most frames only the head is read: it tells the
order of all rows, or that all of them lie far ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from mqueue.heart.bulk import Table
from mqueue.heart.checkpoint import TopicPoint
from mqueue.heart.far import FAR, FAR_MS
from mqueue.heart.fold import Entry
from mqueue.heart.partition import Stretch
from mqueue.log.merge import merged
from mqueue.log.postgres import catalog, journal
from mqueue.log.postgres import frames as shelf
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.tape import Place, Tape
from mqueue.log.segments import points
from mqueue.model.errors import Corrupt
from mqueue.model.events import Event, TopicMade
from mqueue.model.settings import Settings
from mqueue.wire import journal as as_bytes
from mqueue.wire.frame import Frame
from mqueue.wire.head import NUMBERS, PRIORITY, head_of

LOGGER = logging.getLogger("mqueue.cluster")
_ENTRIES_AT_ONCE = 2_000
_BODIES = msgspec.msgpack.Decoder(list[bytes])
_SETTINGS = msgspec.msgpack.Decoder(Settings)

Read: TypeAlias = Callable[[int, int, int], Frame | None]
"""The frame of a topic and a partition that holds an offset."""


class Stock(Struct):
    rows: dict[int, catalog.TopicRow]
    points: dict[int, TopicPoint]
    events: dict[int, list[Event]]
    """Since the checkpoint, by topic."""
    point_seq: int
    seq: int
    tapes: dict[tuple[int, int], Tape]
    heads: dict[tuple[int, int], list[bytes]]
    kept: dict[int, set[tuple[int, int]]]
    """(partition, base) of what is kept below the floors of a topic."""
    horizon: int
    """Frames that have nothing due before this time are not loaded now."""

    def newest(self) -> int:
        """The latest time that anything happened."""
        folded = (point.at for point in self.points.values())
        told = (event.at for events in self.events.values() for event in events)
        return max((*folded, *told, *(tape.at[-1] for tape in self.tapes.values() if tape.at)), default=0)

    def stretches(self, topic: int, partition: int, read: Read) -> Table:
        tape, heads = self.tapes.get((topic, partition)), self.heads.get((topic, partition), ())
        rows = [
            (*stretch, tape.at[index])
            for index, head in enumerate(heads)
            if tape is not None
            for stretch in stretches_of(tape.place(index), topic, partition, head, read, self.horizon)
        ]
        return np.array(rows, np.int64).reshape(-1, 6)

    def entries(self, read: Read) -> Iterator[Entry]:
        """Topic by topic. Who made a topic wrote that down beside the journal; who deleted one, in it."""
        for topic in sorted({*self.rows, *self.points}):
            point = self.points.get(topic)
            if point is None:
                row = self.rows[topic]
                settings = _SETTINGS.decode(row.first_settings)
                yield TopicMade(row.made_at, topic, row.namespace, row.name, settings)
            partitions = settings.partitions if point is None else len(point.partitions)
            told = (event for event in self.events.get(topic, ()) if not isinstance(event, TopicMade))
            for entry in merged(told, self._frames(topic), partitions):
                if isinstance(entry, tuple):
                    at, partition, index = entry
                    place = self.tapes[topic, partition].place(index)
                    head = self.heads[topic, partition][index]
                    yield topic, partition, stretches_of(place, topic, partition, head, read, self.horizon), at, []
                else:
                    yield entry

    def _frames(self, topic: int) -> list[tuple[int, int, int]]:
        """(time, partition, index) of all frames of a topic, in an order in which they may have come."""
        found = [
            (at, partition, index)
            for (number, partition), tape in self.tapes.items()
            if number == topic
            for index, at in enumerate(tape.at)
        ]
        return sorted(found)


class Start(Struct):
    """The newest checkpoint that can be read."""

    seq: int
    topics: dict[int, TopicPoint]
    newest: bool
    """Whether it is the newest of all. Floors may have risen behind one that cannot be read."""


def take_stock(link: Link, vshard: int, horizon: int) -> Stock:
    """`horizon`: what is due later is not loaded now. It is at least so far ahead that time does not get there while
    what happened is folded. Raises Corrupt if what is there does not fit together."""
    rows = {row.id: row for row in map(catalog.known_as, catalog.topics_of(link, [vshard]))}
    start = _start(link, vshard)
    seq, topics = start.seq, start.topics
    events: dict[int, list[Event]] = {}
    while found := journal.entries(link, vshard, seq, _ENTRIES_AT_ONCE):
        for number, _, body in found:
            if number != seq + 1:
                raise Corrupt(f"row {seq + 1} of the journal of virtual shard {vshard} is missing")
            seq = number
            for event in as_bytes.decode(body):
                events.setdefault(event.topic, []).append(event)
    stock = Stock(rows, topics, events, start.seq, seq, {}, {}, {}, horizon)
    for topic in {*rows, *topics}:
        _take_stock_of(link, topic, stock, start)
    stock.horizon = max(horizon, stock.newest() + FAR_MS)
    return stock


def _start(link: Link, vshard: int) -> Start:
    """Two checkpoints are kept, and the journal since the older one. If none can be read, that may be all of it."""
    before: int | None = None
    while (point := journal.last_point(link, vshard, before)) is not None:
        seq, body = point
        try:
            saved = [points.decode(topic) for topic in _BODIES.decode(body)]
            return Start(seq, {topic.id: topic for topic in saved}, before is None)
        except (msgspec.MsgspecError, Corrupt) as problem:
            LOGGER.warning("checkpoint %d of virtual shard %d cannot be read: %s", seq, vshard, problem)
            before = seq
    return Start(0, {}, before is None)


def _take_stock_of(link: Link, topic: int, stock: Stock, start: Start) -> None:
    """The frames of a topic, those that are kept below a floor too."""
    late = {(partition, base): at for _, partition, base, _, at in journal.lates(link, [topic])}
    kept = shelf.kept_heads(link, topic)
    stock.kept[topic] = {(row[0], row[1]) for row in kept}
    found = [*kept, *shelf.heads(link, topic)] if start.newest else _as_of(link, topic, kept, start)
    for row in sorted(found, key=itemgetter(0, 1)):
        partition, base, count, id, at, size, head = row
        tape = stock.tapes.setdefault((topic, partition), Tape())
        tape.add(Place(base, count, id, late.get((partition, base), at), size, base))
        stock.heads.setdefault((topic, partition), []).append(head)
    for partition, end in shelf.ends_kept(link, topic):
        tape = stock.tapes.setdefault((topic, partition), Tape())
        tape.next = max(tape.next, end)
    if topic in stock.rows and not start.newest:
        _check_whole(topic, stock, start)


def _as_of(link: Link, topic: int, kept: list[tuple[Any, ...]], start: Start) -> list[tuple[Any, ...]]:
    """What an older checkpoint speaks of: the frames above the floors of its time, as far as their days are there."""
    point = start.topics.get(topic)
    floors = {} if point is None else {number: place.floor for number, place in enumerate(point.partitions)}
    found = [row for row in kept if row[1] < floors.get(row[0], 0)]
    return found + [row for row in shelf.heads(link, topic, below=True) if row[1] >= floors.get(row[0], 0)]


def _check_whole(topic: int, stock: Stock, start: Start) -> None:
    """Raise if something of what a checkpoint speaks of was dropped since then."""
    point = start.topics.get(topic)
    places = {} if point is None else dict(enumerate(point.partitions))
    for partition in {*places, *(part for number, part in stock.tapes if number == topic)}:
        tape, place = stock.tapes.get((topic, partition), Tape()), places.get(partition)
        due = 0 if place is None else place.floor
        owed = 0 if place is None else sum(mask.bit_count() for _, mask in place.kept)
        for base, count in zip(tape.bases, tape.counts, strict=True):
            owed -= count if base < due else 0
            if base > due:
                break
            due = max(due, base + count)
        if owed > 0 or due < max(tape.next, 0 if place is None else place.next):
            raise Corrupt(f"messages of topic {topic} were dropped since checkpoint {start.seq}, the last readable one")


def stretches_of(place: Place, topic: int, partition: int, head: bytes, read: Read, horizon: int) -> list[Stretch]:
    """The order keys of a frame: from its head, if that tells them for all rows, or that they are beyond the horizon.

    That has to tell the priority, too: a topic has a limit of these, and what is far counts.
    """
    told = head_of(head)
    if not told.columns & NUMBERS:
        return [(place.base, place.stop, told.priority, told.deliver_at, told.expires_at)]
    if told.nothing_before > horizon and not told.columns & PRIORITY:
        return [(place.base, place.stop, told.priority, told.nothing_before, FAR)]
    frame = read(topic, partition, place.base)
    assert frame is not None, "it is on the tape"
    return frame.stretches(0)
