"""One virtual shard of a PostgreSQL server as a log: below the heart of the node that owns it.

Events and frames are handed in and gathered; somebody else commits them, together with those of other virtual shards,
by one statement. Offsets come with that commit, from PostgreSQL, because every node may append: so what is appended
here is known to the heart only when it comes back as an arrival, as do the frames of other nodes.

What was in the order when a frame arrived lies before it, whatever the clocks say: one that arrives late counts as
appended later than it was, and that is written down, so that whoever takes over gets the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mqueue.heart.bulk import Table
from mqueue.heart.checkpoint import Checkpoint
from mqueue.heart.dedup import Claim
from mqueue.heart.far import FAR_MS
from mqueue.heart.fold import Entry
from mqueue.heart.marks import BLOCK, Marks
from mqueue.heart.partition import Stretch
from mqueue.heart.schedule import NEVER
from mqueue.heart.state import State
from mqueue.log.postgres import frames as shelf
from mqueue.log.postgres import journal
from mqueue.log.postgres.batch import ANYWHERE, Arrival, Batch, Promise
from mqueue.log.postgres.cache import Cache
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.stock import Stock, stretches_of, take_stock
from mqueue.log.postgres.tape import Place, Tape
from mqueue.log.postgres.witness import standbys_at
from mqueue.log.segments import points
from mqueue.model.errors import Unavailable
from mqueue.model.events import Event, TopicDropped
from mqueue.model.message import Receipt
from mqueue.wire import journal as events_as_bytes
from mqueue.wire.frame import Frame
from mqueue.wire.pack import unpack
from mqueue.wire.packed import packed
from mqueue.wire.rows import Extras

_READ_AHEAD = 64
_READ_BYTES = 4 << 20
"""What is read of a partition at once, when one of its frames is not at hand."""


class Packing:
    """Frames that are packed already."""

    __slots__ = ("_next", "_pieces")

    def __init__(self, pieces: list[bytes], next: int | None) -> None:
        self._pieces = pieces
        self._next = next

    def read(self) -> tuple[list[bytes], int | None]:
        return self._pieces, self._next


class PostgresLog:
    durability = "shard"
    lag = 1
    full = ""
    remembers = True
    frames_tell = True

    def __init__(self, link: Link, vshard: int, cache: Cache) -> None:
        self.reports: list[str] = []
        self.vshard = vshard
        self.batch = Batch(1)
        """What is being gathered."""
        self.flying: list[Batch] = []
        """What is being committed."""
        self.landed = 0
        """Batches up to this number are durable."""
        self.wants = False
        """Whether the call that is being made has handed in something."""
        self.early = False
        """Whether who makes it is content with less than the shard."""
        self.touched: list[Promise] = []
        """What it has published, or published again."""
        self.seq = 0
        """Of the last row of the journal that was handed out to be written."""
        self.point_seq = 0
        """The row that the checkpoint came after which this was loaded from."""
        self.horizon = NEVER
        """What is due later than this is not loaded when it is taken over."""
        self._link = link
        self._cache = cache
        self._tapes: dict[tuple[int, int], Tape] = {}
        self._stock: Stock | None = None
        self.trimmed: set[tuple[int, int]] = set()
        """Partitions whose floor is higher than the shard knows."""
        self._kept: dict[int, set[tuple[int, int]]] = {}
        """(partition, base) of what the shard keeps below the floors of a topic."""

    def standbys(self, at: int) -> list[str]:
        return standbys_at(self._link, at)

    # Handing in

    def append(self, frame: Frame, id: int, now: int) -> None:
        self.promise(frame, id, now)

    def promise(self, frame: Frame, id: int, now: int) -> Promise:
        """A frame gets its place with the commit."""
        frame.stamp(-frame.count, id, now)  # no offset that anybody could take for one
        self.batch.at = now
        return self._promised(self.batch.put(frame, id))

    def extend(self, topic: int, partition: int, payload: bytes, extras: Extras | None, id: int, now: int) -> int:
        self.single(topic, partition, payload, extras, id, now)
        return -1

    def single(self, topic: int, partition: int, payload: bytes, extras: Extras | None, id: int, now: int) -> Promise:
        """One message gets its place with the commit; its row is the last of the frame."""
        self.batch.at = now
        return self._promised(self.batch.add(topic, partition, payload, extras, id, now))

    def again(self, promise: Promise, row: int, receipt: Receipt) -> None:
        """Somebody publishes what another is publishing just now: he waits with him."""
        promise.receipts.append((row, receipt))
        self._promised(promise)

    def _promised(self, promise: Promise) -> Promise:
        self.wants = True
        self.touched.append(promise)
        return promise

    def claim(self, promise: Promise, rows: range) -> None:
        """Some rows of what is handed in have idempotency keys."""
        self.batch.claim(promise, rows)

    def claimed(self, topic: int, key: bytes) -> tuple[Promise, int, Claim] | None:
        """Who claims a key in what is not durable yet."""
        for batch in (self.batch, *self.flying):
            found = batch.claims.get((topic, key))
            if found is not None:
                return found
        return None

    def claiming(self, topic: int) -> int:
        """How many keys of a topic are claimed in what is not durable yet."""
        return sum(number == topic for batch in (self.batch, *self.flying) for number, _ in batch.claims)

    def record(self, events: list[Event]) -> None:
        self.wants = True
        self.batch.events += events
        self.batch.at = events[-1].at

    def drops(self, topic: int) -> bool:
        """Whether a topic ends with what is not durable yet."""
        events = (event for batch in (self.batch, *self.flying) for event in batch.events)
        return any(isinstance(event, TopicDropped) and event.topic == topic for event in events)

    @property
    def number(self) -> int:
        """Of the batch that holds what was handed in last."""
        return self.batch.number if self.batch else self.batch.number - 1

    @property
    def promised(self) -> bool:
        """Whether frames were handed in that have no place yet."""
        if self.batch.promises:
            return True
        return bool(self.flying) and any(batch.promises for batch in self.flying)

    def cut(self) -> Batch | None:
        """What is to be committed next; None: nothing is."""
        if not self.batch:
            return None
        batch, self.batch = self.batch, Batch(self.batch.number + 1)
        self.flying.append(batch)
        if batch.events:
            self.seq += 1
        return batch

    def land(self, batch: Batch) -> None:
        """A batch is durable."""
        assert self.flying.pop(0) is batch, "batches land in the order they were cut"
        self.landed = batch.number

    # Arrivals

    def next(self, topic: int, partition: int) -> int:
        """The first offset that is not known here."""
        tape = self._tapes.get((topic, partition))
        return 0 if tape is None else tape.next

    def arrive(self, arrival: Arrival, at: int) -> list[Stretch]:
        """A frame is known from now on, and counts as appended at `at`; what is in it, for the heart.

        It may have to be read for that: if it cannot be, it is not known, and is looked for again.
        """
        place = Place(arrival.base, arrival.count, arrival.id, at, arrival.size, arrival.base)
        if arrival.frame is not None:
            arrival.frame.stamp(arrival.base, arrival.id, at)
            self._cache.add((arrival.topic, arrival.partition, arrival.base), arrival.frame)

        def read(topic: int, partition: int, base: int) -> Frame:
            return self._at(topic, partition, place, [place])

        stretches = stretches_of(place, arrival.topic, arrival.partition, arrival.head, read, at + FAR_MS)
        self.tape(arrival.topic, arrival.partition).add(place)
        if at != arrival.at:
            self.batch.late.append((arrival.topic, arrival.partition, arrival.base, arrival.count, at))
        return stretches

    # Reading

    def frame(self, topic: int, partition: int, offset: int) -> Frame | None:
        tape = self._tapes.get((topic, partition))
        index = None if tape is None else tape.find(offset)
        return None if tape is None or index is None else self._frame(topic, partition, tape, index)

    def frames(self, topic: int, partition: int, start: int, stop: int) -> Iterator[Frame]:
        tape = self._tapes.get((topic, partition))
        if tape is not None:
            places = [tape.place(index) for index in tape.touching(start, stop)]
            for number, place in enumerate(places):
                yield self._at(topic, partition, place, places[number : number + _READ_AHEAD])

    def packed(self, topic: int, partition: int, start: int, stop: int, bytes_max: int) -> Packing:
        pieces: list[bytes] = []
        size = 0
        for frame in self.frames(topic, partition, start, stop):
            first, last = max(start, frame.base), min(stop, frame.stop)
            size += frame.size * (last - first) // frame.count
            if pieces and size > bytes_max:
                return Packing(pieces, first)
            pieces.append(packed(frame, first, last))
        return Packing(pieces, None)

    def seal(self, frame: Frame) -> None:
        """What is here is sealed."""

    def find(self, id: int) -> tuple[Frame, int] | None:
        place = shelf.find(self._link, id)
        if place is None:
            return None
        topic, partition, offset, _ = place
        frame = self.frame(topic, partition, offset)
        return None if frame is None else (frame, offset - frame.base)

    def offset_of(self, id: int) -> int:
        """Where a message is, also one of a topic that others deliver; -1: nowhere any more."""
        place = shelf.find(self._link, id)
        return -1 if place is None else place[2]

    def offset_at(self, topic: int, partition: int, at: int) -> int:
        tape = self._tapes.get((topic, partition))
        return 0 if tape is None else tape.offset_at(at)

    def size(self, topic: int, partition: int) -> int:
        tape = self._tapes.get((topic, partition))
        return 0 if tape is None else tape.bytes

    def sizes(self, topic: int, partition: int) -> Iterator[tuple[int, int, int]]:
        tape = self._tapes.get((topic, partition))
        return iter(()) if tape is None else tape.weights()

    def events(self, topic: int, partition: int, start: int, stop: int) -> list[Event]:
        blocks = range(start // BLOCK, (stop - 1) // BLOCK + 1)
        rows = dict.fromkeys(journal.rows_about(self._link, self.vshard, topic, partition, blocks))
        rows |= dict.fromkeys(journal.rows_about(self._link, self.vshard, topic, ANYWHERE, [0]))
        known = self.seq - sum(bool(batch.events) for batch in self.flying)  # what flies may be there already
        found = [event for seq, _, body in sorted(rows) if seq <= known for event in events_as_bytes.decode(body)]
        waiting = [event for batch in (*self.flying, self.batch) for event in batch.events]
        return [event for event in (*found, *waiting) if event.topic == topic]

    def claims(self, topic: int) -> Iterable[tuple[bytes, Claim]]:
        return ()

    def _frame(self, topic: int, partition: int, tape: Tape, index: int) -> Frame:
        place = tape.place(index)
        found = self._at_hand(topic, partition, place)
        if found is not None:
            return found
        ahead = [tape.place(more) for more in range(index, min(len(tape), index + _READ_AHEAD))]
        return self._at(topic, partition, place, ahead)

    def _at(self, topic: int, partition: int, place: Place, ahead: list[Place]) -> Frame:
        """The frame at a place, from the cache or, with those behind it, from the shard."""
        found = self._at_hand(topic, partition, place)
        if found is None:
            self._read(topic, partition, _affordable(ahead))
            found = self._at_hand(topic, partition, place)
            assert found is not None, "what was read is at hand"
        return found

    def _at_hand(self, topic: int, partition: int, place: Place) -> Frame | None:
        """A frame in the cache. If only some of it is kept by now, just that."""
        key = (topic, partition, place.base)
        found = self._cache.get(key)
        if found is not None and found.id_of(0) != place.id:
            return None  # of a server that has lost what it had, and given the same places again
        if found is not None and found.count != place.count:
            found = found.slice(0, place.count)
            self._cache.add(key, found)
        return found

    def _read(self, topic: int, partition: int, places: list[Place]) -> None:
        copies = self._cache.copies
        stored = {} if copies is None else copies.find(topic, partition, places)
        missing = [place for place in places if place.base not in stored]
        stored |= {base: (head, body) for base, head, body in self._stored(topic, partition, missing)}
        for place in reversed(places):  # the first one is wanted now: it is the last to go
            found = stored.get(place.origin) or stored.get(place.base)
            if found is None:
                why = f"virtual shard {self.vshard} is not all here: it has moved, or is looked at anew; try again"
                raise Unavailable(why, code="not_owner")
            head, body = found
            frame = unpack(head + body)
            origin = place.origin if place.origin in stored else place.base
            frame.stamp(origin, place.id - (place.base - origin), place.at)
            if (frame.base, frame.count) != (place.base, place.count):
                frame = frame.slice(place.base - origin, place.stop - origin)
            self._cache.add((topic, partition, place.base), frame)

    def _stored(self, topic: int, partition: int, places: list[Place]) -> list[tuple[int, bytes, bytes]]:
        bases = sorted({base for place in places for base in (place.origin, place.base)})
        return shelf.bodies(self._link, topic, partition, bases) if bases else []

    def tape(self, topic: int, partition: int) -> Tape:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            tape = self._tapes[topic, partition] = Tape()
        return tape

    # Taking over

    def load(self) -> Checkpoint | None:
        """The last checkpoint; what lies in the shard is taken stock of."""
        stock = self._stock = take_stock(self._link, self.vshard, self.horizon)
        self._tapes = stock.tapes
        self._kept = stock.kept
        self.seq = stock.seq
        self.point_seq = stock.point_seq
        return Checkpoint(tuple(stock.points.values())) if stock.points else None

    def stretches(self, topic: int, partition: int) -> Table:
        assert self._stock is not None, "only while it is loaded"
        return self._stock.stretches(topic, partition, self.frame)

    def entries(self) -> Iterator[Entry]:
        assert self._stock is not None, "only while it is loaded"
        return self._stock.entries(self.frame)

    def started(self, state: State) -> None:
        """The state was folded: what it has dropped since the last checkpoint is not here any more, either."""
        self._stock = None
        for topic in state.topics.values():
            for partition in topic.partitions:
                tape = self._tapes.get((topic.id, partition.number))
                if tape is not None:
                    tape.trim(partition.floor, partition.kept.copy())

    # Keeping

    def checkpoint(self, point: Checkpoint) -> None:
        """Whoever commits takes checkpoints, with `saved`."""

    def saved(self, point: Checkpoint) -> bytes:
        """A checkpoint as bytes."""
        return msgspec.msgpack.encode([points.encode(topic) for topic in point.topics])

    def overdue(self, topic: int) -> bool:
        return False

    def trim(self, topic: int, floors: tuple[int, ...], kept: Sequence[Marks]) -> None:
        for partition, (floor, marks) in enumerate(zip(floors, kept, strict=True)):
            tape = self.tape(topic, partition)
            tape.trim(floor, marks)
            self.trimmed.add((topic, partition))

    def kept_places(self, topic: int) -> set[tuple[int, int]]:
        """(partition, base) of what the shard keeps below the floors of a topic."""
        return self._kept.get(topic, set())

    def learned(self, topic: int, floors: tuple[int, ...], kept: list[tuple[int, int]]) -> None:
        """The shard knows these floors, and keeps this below them."""
        self._kept[topic] = set(kept)
        for partition, floor in enumerate(floors):
            tape = self._tapes.get((topic, partition))
            if tape is not None:
                tape.stored_anew(floor, sorted(base for number, base in kept if number == partition))
            if tape is None or tape.floor == floor:
                self.trimmed.discard((topic, partition))

    def drop(self, topic: int) -> None:
        self._kept.pop(topic, None)
        self.trimmed = {place for place in self.trimmed if place[0] != topic}
        for place in [place for place in self._tapes if place[0] == topic]:
            del self._tapes[place]


def _affordable(places: list[Place]) -> list[Place]:
    """As many of these as make a read of a bearable size, the first one at least."""
    size = 0
    for number, place in enumerate(places):
        size += place.size
        if number and size > _READ_BYTES:
            return places[:number]
    return places
