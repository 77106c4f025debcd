"""The log on disk: the same verbs as every log, over segments of commits.

A verb only hands in what is to be written, and says in `wants` how safe it has to be before the caller may be answered.
Whoever calls commits afterwards, for himself and for all who came meanwhile: `take` and `catch_up` with the verbs, by
one thread at a time; `writer.write` and `writer.sync_to` may run beside them. Reads see what was handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from mqueue.heart import bulk
from mqueue.heart.checkpoint import Checkpoint
from mqueue.heart.dedup import Claim
from mqueue.heart.fold import Entry
from mqueue.heart.marks import Marks
from mqueue.heart.topic import Topic
from mqueue.log.base import alone
from mqueue.log.segments import commit as envelope
from mqueue.log.segments import epoch
from mqueue.log.segments.cache import Cache
from mqueue.log.segments.checkpoint import Saved
from mqueue.log.segments.commit import Commit
from mqueue.log.segments.committer import Batch, Committer, Kept
from mqueue.log.segments.disk import Disk
from mqueue.log.segments.entries import in_order
from mqueue.log.segments.epoch import Epoch
from mqueue.log.segments.history import History
from mqueue.log.segments.ids import Ids
from mqueue.log.segments.index import Table, by_partition
from mqueue.log.segments.packing import Packing
from mqueue.log.segments.pointbook import PointBook, packed
from mqueue.log.segments.recovery import Opened, Recovery
from mqueue.log.segments.reserve import Reserve
from mqueue.log.segments.segment import Hole, Segment
from mqueue.log.segments.shelf import Shelf
from mqueue.log.segments.storage import Storage
from mqueue.log.segments.tape import Row, Tape
from mqueue.log.segments.writer import Writer
from mqueue.model.errors import Corrupt
from mqueue.model.events import Event, Leased, TopicMade
from mqueue.model.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX
from mqueue.wire.frame import Frame
from mqueue.wire.pack import unpack
from mqueue.wire.rows import Extras

NOTHING, WRITTEN, SYNCED = 0, 1, 2
"""How safe something has to be before an answer."""


class SegmentLog:
    durability, standbys = "fsync", alone
    lag = 1
    remembers = True
    frames_tell = True

    def __init__(
        self,
        disk: Disk,
        entropy: Callable[[int], bytes],
        storage: Storage,
    ) -> None:
        """Open the log in a directory that is locked."""
        opened = Recovery(disk, entropy, storage.accept_loss).open()
        self.disk = disk
        self.storage = storage
        self.uuid = opened.uuid
        self.epoch = opened.epoch
        self.reports = opened.reports
        """What was found to be damaged, in sentences."""
        self.reserve = Reserve(disk, storage.reserve_bytes)
        active = opened.segments[-1] if opened.segments and not opened.fresh_segment else None
        for segment in opened.segments:
            segment.sealed = segment is not active
        self.writer = Writer(disk, self.uuid, self.epoch, opened.link, active, storage.segment_bytes, self.reserve)
        self.shelf = Shelf(disk, opened.segments, Cache(storage.cache_bytes))
        self.holes = opened.holes
        self.pending_bytes = 0
        """How much was handed in and not taken yet."""
        self.wants = NOTHING
        """How safe what was handed in since this was last reset has to be."""
        self.dirty: set[int] = set()
        """Topics that something happened to since their last point."""
        self.topic_id = max([opened.saved.topic_id, *opened.saved.points]) if opened.saved else 0
        """The highest number that a topic ever had."""
        self.told: deque[int] = deque([opened.saved.position if opened.saved else 0], 2)
        """The positions of the last two checkpoints: nothing before the older one is needed to recover."""
        self._committer = Committer(opened.link.at)
        self._cuts: list[Batch] = []
        """Batches that wait to be taken."""
        self._taken: deque[Batch] = deque()
        """Batches that are not written yet, as far as we know."""
        self.unsafe: deque[Batch] = deque()
        """Batches whose messages are not durable yet, as far as we know."""
        self._tapes: dict[tuple[int, int], Tape] = {}
        self._partitions: dict[int, list[int]] = {}
        """Of each topic, those that have a tape."""
        self._book = PointBook(opened.saved.points if opened.saved else {})
        self._landed = (0, opened.link.position)
        self._copies: dict[tuple[int, int], list[Row]] = {}
        """Where frames were copied to, until their rows are changed."""
        self._ids = Ids()
        self._last_id = opened.saved.last_id if opened.saved else 0
        indexers = {} if opened.indexer is None else {opened.indexer.start: opened.indexer}
        self.history = History(disk, self.uuid, self.shelf, indexers)
        self._stretches: Callable[[int, int], Table] | None = None
        self._claims = [index.claims for index in opened.indexes if len(index.claims)]
        self._take_stock(opened)

    @property
    def full(self) -> str:
        """Why no messages are taken; empty while they are."""
        return self.reserve.full

    @property
    def last_at(self) -> int:
        """The newest time in the log."""
        return self._committer.at

    @property
    def last_id(self) -> int:
        """The highest id in the log."""
        return max(self._last_id, self._ids.last)

    # Handing in

    def append(self, frame: Frame, id: int, now: int) -> None:
        tape = self._tape(frame.topic, frame.partition)
        frame.stamp(tape.next, id, now)
        tape.add(frame)
        self._committer.add(frame, now)
        self.pending_bytes += frame.size
        self.wants = SYNCED
        self.dirty.add(frame.topic)

    def extend(self, topic: int, partition: int, payload: bytes, extras: Extras | None, id: int, now: int) -> int:
        tape = self._tapes.get((topic, partition)) or self._tape(topic, partition)
        frame = tape.tail
        if frame is None or frame.count >= FRAME_ROWS_MAX or frame.size >= FRAME_BYTES_MAX:
            tape.close()
            frame = tape.open()
            self._committer.add(frame, now)
        offset = tape.next
        frame.add(payload, extras, id, now)
        tape.next = offset + 1
        self._committer.at = now
        self.pending_bytes += len(payload)
        self.wants = SYNCED
        self.dirty.add(topic)
        return offset

    def record(self, events: list[Event]) -> None:
        self._committer.record(events)
        for event in events:
            self.dirty.add(event.topic)
            if type(event) is TopicMade:
                self.topic_id = event.topic
            if type(event) is not Leased or not self._is_safe(event):
                self.wants = SYNCED
        self.wants = self.wants or WRITTEN

    def _is_safe(self, leased: Leased) -> bool:
        """Whether all that is handed out is durable: nobody may work on what a power cut could take back."""
        spans = leased.spans
        if len(spans) == 1:
            return spans[0][2] <= self._tapes[leased.topic, spans[0][0]].safe
        return all(span[2] <= self._tapes[leased.topic, span[0]].safe for span in spans)

    # Committing

    @property
    def batch(self) -> int:
        """The number of the batch that holds what was handed in last."""
        return self._committer.number if self._committer.items else self._committer.number - 1

    def take(self, *, empty: bool = False) -> list[Batch]:
        """What is to be written next. `empty`: if it is nothing, then just that, to say how far the log is durable."""
        self._cut(empty=empty)
        taken, self._cuts = self._cuts, []
        return taken

    def _cut(self, *, empty: bool = False) -> None:
        """Nothing is added any more to the batch that is being gathered."""
        batch = self._committer.cut(empty=empty)
        if batch is not None:
            for item in batch.items:
                if isinstance(item, Frame) and item.open:
                    tape = self._tapes.get((item.topic, item.partition))
                    item.close() if tape is None else tape.close()
            self.pending_bytes = 0
            self._cuts.append(batch)
            self._taken.append(batch)

    def catch_up(self) -> None:
        """Take note of what was written and synced meanwhile."""
        writer = self.writer
        while writer.landed:
            while writer.begun:  # a segment is begun before anything lands in it
                self.shelf.add(writer.begun.popleft())
            batch = writer.landed.popleft()
            taken = self._taken.popleft()
            assert taken is batch, "batches are written in the order they were taken in"
            self._land(batch)
        while self.unsafe and self.unsafe[0].number <= writer.synced:
            for frame, _, _, kept in self.unsafe.popleft().places:
                tape = self._tapes.get((frame.topic, frame.partition))
                if tape is not None and not kept:
                    tape.safe = frame.stop

    def _land(self, batch: Batch) -> None:
        for frame, position, length, kept in batch.places:
            first, last = frame.ids[0], frame.id_of(frame.count - 1)
            tape = self._tapes.get((frame.topic, frame.partition))
            if kept:
                self._ids.add_copy(first, last, batch.position)
                row = Row(frame.base, frame.stop, position, length, frame.at[-1], frame.size)
                self._copies.setdefault((frame.topic, frame.partition), []).append(row)
            else:
                self._ids.add(first, last, batch.position)
                if tape is not None:
                    tape.land(frame, position, length)
                    self.shelf.cache.add(position, frame)
            segment = self.shelf.of(position)
            assert segment is not None, "what landed lies in a segment"
            if tape is not None:
                segment.live_bytes += length
        self._landed = batch.number, batch.end
        self._book.land(batch.number, batch.end)
        if batch.places:
            self.unsafe.append(batch)

    # Reading

    def frame(self, topic: int, partition: int, offset: int) -> Frame | None:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            return None
        hot = tape.hot
        if hot is None or not hot.base <= offset < hot.base + hot.count or offset < tape.floor:
            found = tape.find(offset)
            hot = tape.hot = self.shelf.frame(tape, found) if isinstance(found, Row) else found
        return hot

    def frames(self, topic: int, partition: int, start: int, stop: int) -> Iterator[Frame]:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            return
        for found, first, last in tape.pieces(start, stop):
            frame = self.shelf.frame(tape, found) if isinstance(found, Row) else found
            whole = first == frame.base and last == frame.stop
            yield frame if whole else frame.slice(first - frame.base, last - frame.base)

    def packed(self, topic: int, partition: int, start: int, stop: int, bytes_max: int) -> Packing:
        return Packing(self.shelf, self._tapes.get((topic, partition)), start, stop, bytes_max)

    def seal(self, frame: Frame) -> None:
        tape = self._tapes.get((frame.topic, frame.partition))
        if tape is not None and tape.tail is frame:
            tape.close()

    def find(self, id: int) -> tuple[Frame, int] | None:
        for frame in self._candidates(id):
            row = frame.row_of(id)
            if row is not None:
                found = self.frame(frame.topic, frame.partition, frame.base + row)
                return None if found is None else (found, frame.base + row - found.base)
        return None

    def _candidates(self, id: int) -> Iterator[Frame]:
        """The frames that an id may be in."""
        fresh = [self._committer.items, *(batch.items for batch in self._taken)]
        for items in fresh:
            yield from (item for item in items if isinstance(item, Frame))
        for position in self._ids.places(id):
            found = self.shelf.commit(position)
            if found is not None:
                data, commit = found
                for kind, place, length in envelope.bodies(memoryview(data), 0, commit):
                    if kind != envelope.EVENTS:
                        yield unpack(data[place : place + length])

    def offset_at(self, topic: int, partition: int, at: int) -> int:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            return 0
        number = tape.offset_row(at)
        if number < len(tape.base):
            return self.shelf.offset_at(tape, tape.row(number), at)
        for frame in tape.fresh:
            if frame.at and frame.at[-1] >= at:
                return frame.base + frame.row_at(at)
        return tape.next

    def size(self, topic: int, partition: int) -> int:
        tape = self._tapes.get((topic, partition))
        return 0 if tape is None else tape.bytes

    def sizes(self, topic: int, partition: int) -> Iterator[tuple[int, int, int]]:
        tape = self._tapes.get((topic, partition))
        if tape is not None:
            yield from zip(tape.stop, tape.at, tape.size, strict=True)
            for frame in tape.fresh:
                if frame.count:
                    yield frame.stop, frame.at[-1], frame.size

    # What happened

    def events(self, topic: int, partition: int, start: int, stop: int) -> Iterator[Event]:
        gathered = [*(batch.items for batch in self._taken), self._committer.items]
        fresh = [list(item) for items in gathered for item in items if isinstance(item, list)]
        written = self.history.batches(topic, partition, start, stop, self._landed[1])
        return (event for found in chain(written, fresh) for event in found if event.topic == topic)

    # Points

    def mark(self) -> set[int]:
        """Begin a checkpoint: the topics that need new points for it."""
        self._cut()  # what is begun from now on is not told by it
        self._book.mark(self.batch, self._landed)
        return set(self.dirty)

    def checkpoint(self, point: Checkpoint) -> None:
        self._cut()  # what others hand in from now on is not told by these points
        for topic in point.topics:
            self._book.put(topic, self.batch, self._landed)
            self.dirty.discard(topic.id)

    def load(self) -> Checkpoint | None:
        found = self._book.load()
        return Checkpoint(found) if found else None

    def overdue(self, topic: int) -> bool:
        return False

    def collect(self) -> Callable[[], Saved] | None:
        """What goes into a checkpoint, to be packed by whoever has the time; None if some of it is not written yet."""
        collected = self._book.collect(self.dirty, self.writer.synced)
        if collected is None:
            return None
        position, found = collected
        last_id, topic_id = self.last_id, self.topic_id

        def pack() -> Saved:
            bodies = {topic: (taken, packed(point)) for topic, (taken, point) in found.items()}
            return Saved(self.uuid, position, last_id, topic_id, bodies)

        return pack if position > self.told[-1] else None

    def saved(self, saved: Saved) -> None:
        """A checkpoint is durable."""
        self.told.append(saved.position)

    # Trimming

    def trim(self, topic: int, floors: tuple[int, ...], kept: Sequence[Marks]) -> None:
        for partition, (floor, marks) in enumerate(zip(floors, kept, strict=True)):
            tape = self._tape(topic, partition)
            for position, length in tape.trim(floor, marks):
                self._bury(position, length)

    def drop(self, topic: int) -> None:
        for partition in self._partitions.pop(topic, ()):
            tape = self._tapes.pop((topic, partition))
            for position, length in zip(tape.position, tape.length, strict=True):
                self._bury(position, length)
        self._book.drop(topic, self.batch)
        self.dirty.discard(topic)

    def _bury(self, position: int, length: int) -> None:
        """A frame is needed no more."""
        self.shelf.cache.drop(position)
        segment = self.shelf.of(position)
        if segment is not None:
            segment.live_bytes -= length

    def copy_on(self, segment: Segment) -> int:
        """Hand in what is still needed of a segment; the number of the batch that it goes with."""
        found = [
            self.shelf.frame(tape, row).slice(first - row.base, last - row.base)
            for tape in self._tapes.values()
            for row in map(tape.row, tape.rows_in(segment.start, segment.end))
            for first, last in tape.alive(row.base, row.stop)
        ]
        for frame in found:
            self._committer.add(Kept(frame), self._committer.at)
        return self.batch

    def copied(self, segment: Segment) -> None:
        """What was needed of a segment lies elsewhere now."""
        for key, copies in self._copies.items():
            tape = self._tapes.get(key)
            if tape is not None:
                tape.move(tape.rows_in(segment.start, segment.end), copies)
        self._copies.clear()
        segment.live_bytes = 0

    def remove(self, segment: Segment) -> None:
        """A segment goes, and its index with it."""
        self.history.forget(segment)
        self._ids.forget(segment.start, segment.end)
        self.shelf.remove(segment)

    def finish(self) -> None:
        """Everything is durable, and nothing more will be written: say so, and give back the zeros that went ahead."""
        active = self.writer.active
        if active is not None:
            self.disk.truncate(active.file, active.place(active.end))
            self.disk.sync(active.file)
            epoch.save(self.disk, Epoch(self.uuid, self.epoch, active.end))

    def close(self) -> None:
        self.shelf.close()
        self.disk.unlock()

    # At the start

    def stretches(self, topic: int, partition: int) -> bulk.Table:
        assert self._stretches is not None, "they are given up once the state is recovered"
        rows = self._stretches(topic, partition)
        return np.stack([rows[name] for name in ("start", "stop", "priority", "due", "expires", "at")], 1)

    def claims(self, topic: int) -> Iterator[tuple[bytes, Claim]]:
        for table in self._claims:
            for row in table[table["topic"] == topic]:
                _, key, made_at, id, partition, offset, priority, at, digest = row.item()
                yield key, Claim(made_at, id, partition, offset, priority, at, digest)

    def entries(self) -> Iterator[Entry]:
        told = self._book.positions()
        known = set(told)
        for data, offset, commit in self.shelf.commits(self.told[-1]):
            for topic, entry in self._readable(data, offset, commit):
                if isinstance(entry, TopicMade):
                    known.add(topic)
                    self.topic_id = max(self.topic_id, topic)
                if topic in known and commit.position >= told.get(topic, 0):
                    self.dirty.add(topic)
                    yield entry

    def _readable(self, data: bytes, offset: int, commit: Commit) -> list[tuple[int, Entry]]:
        """The entries of a commit; if they make no sense although it is whole, it counts as a hole."""
        try:
            return in_order(data, offset, commit)
        except Corrupt as error:
            hole = Hole(commit.position, commit.end, str(error))
            if hole not in self.holes:
                self.holes.append(hole)
                self.reports.append(f"the commit at {commit.position} cannot be read: {error}; it is set aside")
            return []

    def started(self, topics: Iterable[Topic]) -> None:
        """The state is recovered: what these topics have dropped, other topics, and what was needed for that can go."""
        known = {topic.id: topic for topic in topics}
        for number in (self._partitions.keys() | self._book.positions().keys() | self.dirty) - known.keys():
            self.drop(number)
        for topic in known.values():
            self.trim(topic.id, topic.floors, [partition.kept for partition in topic.partitions])
            for partition in topic.partitions:
                tape = self._tape(topic.id, partition.number)
                tape.next = tape.safe = max(tape.next, partition.next)  # what was last may have been dropped
                for start, stop in tape.missing(partition.next):
                    place = f"{topic.name}/{partition.number}"
                    self.reports.append(f"{stop - start} messages of {place} from offset {start} on are missing")
        self._stretches = None
        self._claims = []

    def _take_stock(self, opened: Opened) -> None:
        """Note where the frames are that were found."""
        starts = np.array([segment.start for segment in opened.segments], np.int64)
        live = np.zeros(len(starts), np.int64)
        frames = by_partition([index.frames for index in opened.indexes], "base")
        self._stretches = by_partition([index.stretches for index in opened.indexes], "start")
        pairs = {
            pair
            for index in opened.indexes
            for pair in zip(index.frames["topic"].tolist(), index.frames["partition"].tolist(), strict=True)
        }
        for topic, partition in sorted(pairs):
            self.topic_id = max(self.topic_id, topic)
            tape = self._tape(topic, partition)
            rows = frames(topic, partition)
            tape.load(rows)
            numbers = np.searchsorted(starts, rows["position"], "right") - 1
            np.add.at(live, numbers, rows["length"])
        for segment, length in zip(opened.segments, live.tolist(), strict=True):
            segment.live_bytes = length
        for index in opened.indexes:
            self._ids.load(index.ids)

    def _tape(self, topic: int, partition: int) -> Tape:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            tape = self._tapes[topic, partition] = Tape(topic, partition)
            self._partitions.setdefault(topic, []).append(partition)
        return tape
