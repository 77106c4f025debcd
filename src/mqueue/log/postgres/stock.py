"""What whoever takes over a virtual shard finds there: topics, the last checkpoint, the journal since then, frames.

All of it is read once, and then folded by `mqueue.store.recover`. Of most frames only the head is read: it tells the
order of all rows, or that all of them lie far ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TypeAlias

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
from mqueue.model.events import Event, TopicMade
from mqueue.model.settings import Settings
from mqueue.wire import journal as as_bytes
from mqueue.wire.frame import Frame
from mqueue.wire.head import NUMBERS, PRIORITY, head_of

_ENTRIES_AT_ONCE = 2_000
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


def take_stock(link: Link, vshard: int, horizon: int) -> Stock:
    """`horizon`: what is due later is not loaded now. It is at least so far ahead that time does not get there while
    what happened is folded."""
    rows = {row.id: row for row in map(catalog.known_as, catalog.topics_of(link, [vshard]))}
    point = journal.last_point(link, vshard)
    seq, saved = (0, []) if point is None else (point[0], msgspec.msgpack.decode(point[1], type=list[bytes]))
    point_seq = seq
    topics = {topic.id: topic for topic in map(points.decode, saved)}
    events: dict[int, list[Event]] = {}
    while found := journal.entries(link, vshard, seq, _ENTRIES_AT_ONCE):
        for number, _, body in found:
            assert number == seq + 1, "nothing is missing in a journal"
            seq = number
            for event in as_bytes.decode(body):
                events.setdefault(event.topic, []).append(event)
    stock = Stock(rows, topics, events, point_seq, seq, {}, {}, {}, horizon)
    for topic in {*rows, *topics}:
        _take_stock_of(link, topic, stock)
    stock.horizon = max(horizon, stock.newest() + FAR_MS)
    return stock


def _take_stock_of(link: Link, topic: int, stock: Stock) -> None:
    """The frames of a topic, those that are kept below a floor too."""
    late = {(partition, base): at for _, partition, base, _, at in journal.lates(link, [topic])}
    kept = shelf.kept_heads(link, topic)
    stock.kept[topic] = {(row[0], row[1]) for row in kept}
    for row in sorted((*kept, *shelf.heads(link, topic)), key=itemgetter(0, 1)):
        partition, base, count, id, at, size, head = row
        tape = stock.tapes.setdefault((topic, partition), Tape())
        tape.add(Place(base, count, id, late.get((partition, base), at), size, base))
        stock.heads.setdefault((topic, partition), []).append(head)
    for partition, end in shelf.ends_kept(link, topic):
        tape = stock.tapes.setdefault((topic, partition), Tape())
        tape.next = max(tape.next, end)


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
