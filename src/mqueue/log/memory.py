"""The log in memory: for tests, for caches, for queues that may die with the process."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np

from mqueue.heart.bulk import Table
from mqueue.heart.checkpoint import Checkpoint, TopicPoint
from mqueue.heart.dedup import Claim
from mqueue.heart.fold import Entry
from mqueue.heart.marks import BLOCK, Marks
from mqueue.heart.runs import segments
from mqueue.log import told
from mqueue.log.base import alone
from mqueue.log.merge import merged
from mqueue.model.events import (
    Duplicated,
    Event,
    Extended,
    Leased,
    Purged,
    Redriven,
    Rescheduled,
    Settled,
    TopicMade,
    TopicSet,
    Voided,
)
from mqueue.model.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX
from mqueue.wire.frame import Frame
from mqueue.wire.packed import packed
from mqueue.wire.rows import Extras

_OF_DELIVERIES = (Leased, Settled, Extended, Duplicated)
"""What nobody needs here whose topic is not traced: memory is never folded, and the state has it already."""
_WARM_FRAMES = 64
_CHUNK_EVENTS = 4096
_EVENTS_MAX = 1 << 20
"""So much of what happened to a topic is kept at most, whatever the age of its messages."""
_OLD_EVENTS_MAX = 1 << 16
"""So much of what happened to messages that are kept below the floors."""
_END_OF_TIME = 1 << 62


class Tape:
    """The frames of one partition."""

    __slots__ = ("bases", "floor", "frames", "hot", "kept", "next", "partition", "sealed_bytes", "tail", "topic")

    def __init__(self, topic: int, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.frames: list[Frame] = []
        self.bases = array("q")
        self.floor = 0
        self.kept = Marks()
        """What is there below the floor, as the last trim left it."""
        self.next = 0
        self.sealed_bytes = 0
        self.tail: Frame | None = None
        """The open frame, if the last one is open."""
        self.hot: Frame | None = None

    def add(self, frame: Frame) -> None:
        self.seal()
        if not frame.open:
            self.sealed_bytes += frame.size
        self.frames.append(frame)
        self.bases.append(frame.base)
        self.next = frame.stop
        self.tail = frame if frame.open else None

    def seal(self) -> None:
        """The open frame, if there is one, is full or wanted as it is."""
        if self.tail is not None:
            self.tail.seal()
            self.sealed_bytes += self.tail.size
            self.tail = self.hot = None

    def open(self) -> Frame:
        """A new open frame at the end."""
        frame = Frame.opened(self.topic, self.partition, self.next)
        self.add(frame)
        return frame

    def frame(self, offset: int) -> Frame | None:
        index = bisect_right(self.bases, offset) - 1
        if index < 0 or offset >= self.frames[index].stop:
            return None
        return self.frames[index]

    def trim(self, floor: int, kept: Marks) -> None:
        """Drop what lies below the floor and is not kept. Only frames in which something changed are looked at."""
        if self.tail is not None and self.tail.base < floor:
            self.seal()
        touched = self._touched(floor, kept)
        self.floor, self.kept = floor, kept
        if not touched:
            return
        frames: list[Frame] = []
        done = 0
        for index in touched:
            left = _kept_of(self.frames[index], kept)
            self.sealed_bytes += sum(frame.size for frame in left) - self.frames[index].size
            frames += self.frames[done:index]
            frames += left
            done = index + 1
        self.frames = frames + self.frames[done:]
        self.bases = array("q", [frame.base for frame in frames]) + self.bases[done:]
        self.hot = None

    def _touched(self, floor: int, kept: Marks) -> list[int]:
        """The places of the frames that a trim could change: above the old floor, and where the marks differ."""
        high = bisect_left(self.bases, floor)
        touched = set(range(bisect_left(self.bases, self.floor), high))
        before, after = self.kept.blocks, kept.blocks
        for block in before.keys() | after.keys():
            if before.get(block) != after.get(block):
                first = max(0, bisect_right(self.bases, block * BLOCK) - 1)
                touched.update(range(first, min(high, bisect_left(self.bases, (block + 1) * BLOCK))))
        return sorted(touched)


def _kept_of(frame: Frame, kept: Marks) -> list[Frame]:
    """What is kept of a frame: itself, or slices of it."""
    pieces = list(segments(frame.base, kept.mask(frame.base, frame.stop)))
    if pieces == [(frame.base, frame.stop)]:
        return [frame]
    return [frame.slice(start - frame.base, stop - frame.base) for start, stop in pieces]


class Journal:
    """What happened to one topic: in chunks, so that the oldest can be dropped."""

    __slots__ = ("_chunks", "_dropped", "_marked", "_old")

    def __init__(self) -> None:
        self._old: list[Event] = []
        """What was told, before all that is in the chunks, of messages that are kept below a floor."""
        self._chunks: deque[list[Event]] = deque([[]])
        self._dropped = 0
        self._marked = 0

    def add(self, event: Event) -> None:
        chunk = self._chunks[-1]
        if len(chunk) >= _CHUNK_EVENTS:
            chunk = []
            self._chunks.append(chunk)
        chunk.append(event)

    def __len__(self) -> int:
        return self._dropped + (len(self._chunks) - 1) * _CHUNK_EVENTS + len(self._chunks[-1])

    @property
    def kept(self) -> int:
        return len(self) - self._dropped

    def mark(self) -> None:
        """A checkpoint was taken: to fold, only what comes from now on is needed."""
        self._marked = len(self)

    def __iter__(self) -> Iterator[Event]:
        return chain(self._old, chain.from_iterable(self._chunks))

    def since_mark(self) -> Iterator[Event]:
        return islice(chain.from_iterable(self._chunks), self._marked - self._dropped, None)

    def trim(self, at: int, kept: Sequence[Marks]) -> None:
        """Drop what a checkpoint covers, if it happened before the first message above the floors, or is too much.

        What it tells of messages that are kept below the floors stays, up to a limit: it is their trace.
        """
        old = [event for event in self._old if _tells_of(event, kept)]
        while len(self._chunks) > 1 and self._dropped + len(self._chunks[0]) <= self._marked:
            if self._chunks[0][-1].at >= at and self.kept <= _EVENTS_MAX:
                break
            chunk = self._chunks.popleft()
            self._dropped += len(chunk)
            old += [event for event in chunk if _tells_of(event, kept)]
        self._old = old[-_OLD_EVENTS_MAX:]


def _tells_of(event: Event, kept: Sequence[Marks]) -> bool:
    """Whether an event speaks of a message that is kept."""
    if not kept:
        return False
    if isinstance(event, Purged):
        return True
    if isinstance(event, Rescheduled | Duplicated):
        return event.offset in kept[event.partition]
    if isinstance(event, Leased | Settled | Extended | Voided | Redriven):
        return any(kept[span[0]].mask(span[1], span[2]) & span[3] for span in event.spans)
    return False


class Packing:
    """Frames that are to be packed."""

    __slots__ = ("next", "pieces")

    def __init__(self) -> None:
        self.pieces: list[tuple[Frame, int, int]] = []
        self.next: int | None = None

    def read(self) -> tuple[list[bytes], int | None]:
        return [packed(*piece) for piece in self.pieces], self.next


class MemoryLog:
    durability = "memory"
    standbys = alone
    lag = 256
    full = ""
    remembers = False
    frames_tell = False

    def __init__(self) -> None:
        self.reports: list[str] = []
        self._tapes: dict[tuple[int, int], Tape] = {}
        self._journals: dict[int, Journal] = {}
        self._untraced: set[int] = set()
        self._warm: dict[int, Frame] = {}
        self._points: dict[int, TopicPoint] = {}

    def append(self, frame: Frame, id: int, now: int) -> None:
        tape = self.tape(frame.topic, frame.partition)
        frame.stamp(tape.next, id, now)
        tape.add(frame)
        self._warm_up(frame)

    def extend(self, topic: int, partition: int, payload: bytes, extras: Extras | None, id: int, now: int) -> int:
        tape = self._tapes.get((topic, partition)) or self.tape(topic, partition)
        frame = tape.tail
        if frame is None or frame.count >= FRAME_ROWS_MAX or frame.size >= FRAME_BYTES_MAX:
            frame = tape.open()
        offset = tape.next
        frame.add(payload, extras, id, now)
        tape.next = offset + 1
        return offset

    def record(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TopicMade | TopicSet):
                (self._untraced.discard if event.settings.trace else self._untraced.add)(event.topic)
            elif event.topic in self._untraced and isinstance(event, _OF_DELIVERIES):
                continue
            journal = self._journals.get(event.topic)
            if journal is None:
                journal = self._journals[event.topic] = Journal()
            journal.add(event)

    def checkpoint(self, point: Checkpoint) -> None:
        for topic in point.topics:
            self._points[topic.id] = topic
            if topic.id in self._journals:
                self._journals[topic.id].mark()

    def load(self) -> Checkpoint | None:
        return Checkpoint(tuple(self._points.values())) if self._points else None

    def overdue(self, topic: int) -> bool:
        journal = self._journals.get(topic)
        return journal is not None and journal.kept > _EVENTS_MAX

    def frame(self, topic: int, partition: int, offset: int) -> Frame | None:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            return None
        hot = tape.hot
        if hot is None or not hot.base <= offset < hot.base + hot.count:
            hot = tape.hot = tape.frame(offset)
            self._warm_up(hot)
        return hot

    def frames(self, topic: int, partition: int, start: int, stop: int) -> Iterator[Frame]:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            return
        index = max(0, bisect_right(tape.bases, start) - 1)
        frames = tape.frames  # a trim makes a new list
        while index < len(frames) and (frame := frames[index]).base < stop:
            if frame.stop > start:
                self._warm_up(frame)
                yield frame
            index += 1

    def packed(self, topic: int, partition: int, start: int, stop: int, bytes_max: int) -> Packing:
        packing = Packing()
        size = 0
        for frame in self.frames(topic, partition, start, stop):
            first, last = max(start, frame.base), min(stop, frame.stop)
            size += frame.size * (last - first) // frame.count
            if packing.pieces and size > bytes_max:
                packing.next = first
                break
            self.seal(frame)  # it is packed without the lock
            packing.pieces.append((frame, first, last))
        return packing

    def seal(self, frame: Frame) -> None:
        tape = self.tape(frame.topic, frame.partition)
        if tape.tail is frame:
            tape.seal()

    def find(self, id: int) -> tuple[Frame, int] | None:
        for tape in self._tapes.values():
            index = bisect_right(tape.frames, id, key=lambda frame: frame.ids[0]) - 1
            if index >= 0 and (row := tape.frames[index].row_of(id)) is not None:
                return tape.frames[index], row
        return None

    def offset_at(self, topic: int, partition: int, at: int) -> int:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            return 0
        index = bisect_left(tape.frames, at, key=lambda frame: frame.at[-1])
        if index == len(tape.frames):
            return tape.next
        frame = tape.frames[index]
        return frame.base + frame.row_at(at)

    def size(self, topic: int, partition: int) -> int:
        tape = self._tapes.get((topic, partition))
        return 0 if tape is None else tape.sealed_bytes + (tape.tail.size if tape.tail else 0)

    def sizes(self, topic: int, partition: int) -> Iterator[tuple[int, int, int]]:
        tape = self._tapes.get((topic, partition))
        for frame in tape.frames if tape is not None else ():
            yield frame.stop, frame.at[-1], frame.size

    def events(self, topic: int, partition: int, start: int, stop: int) -> Iterator[Event]:
        return iter(list(self._journals.get(topic, ())))

    def claims(self, topic: int) -> Iterator[tuple[bytes, Claim]]:
        return iter(())

    def stretches(self, topic: int, partition: int) -> Table:
        rows = [
            (*stretch, frame.at[stamp])
            for frame in self.frames(topic, partition, 0, _END_OF_TIME)
            for stamp in range(len(frame.at))
            for stretch in frame.stretches(stamp)
        ]
        return np.array(rows, np.int64).reshape(-1, 6)

    def entries(self) -> Iterator[Entry]:
        """Topic by topic."""
        for topic, journal in self._journals.items():
            for entry in merged(journal.since_mark(), self._appended(topic), self._partitions(topic)):
                yield told.appended(*entry[2]) if isinstance(entry, tuple) else entry

    def _partitions(self, topic: int) -> int:
        """How many partitions a topic had at its last checkpoint."""
        return len(self._points[topic].partitions) if topic in self._points else 0

    def trim(self, topic: int, floors: tuple[int, ...], kept: Sequence[Marks]) -> None:
        tapes = [self.tape(topic, partition) for partition in range(len(floors))]
        for tape, floor, marks in zip(tapes, floors, kept, strict=True):
            tape.trim(floor, marks)
        journal = self._journals.get(topic)
        if journal is not None:
            firsts = (frame.at[0] for tape in tapes for frame in tape.frames[bisect_left(tape.bases, tape.floor) :][:1])
            journal.trim(min(firsts, default=_END_OF_TIME), kept if any(kept) else ())

    def drop(self, topic: int) -> None:
        for key in [key for key in self._tapes if key[0] == topic]:
            del self._tapes[key]
        self._journals.pop(topic, None)
        self._untraced.discard(topic)
        self._points.pop(topic, None)

    def _warm_up(self, frame: Frame | None) -> None:
        """Keep the lists of the last few frames that were written or read message by message, not of all."""
        if frame is not None and not frame.open:
            self._warm.pop(id(frame), None)
            self._warm[id(frame)] = frame
            if len(self._warm) > _WARM_FRAMES:
                self._warm.pop(next(iter(self._warm))).chill()

    def tape(self, topic: int, partition: int) -> Tape:
        tape = self._tapes.get((topic, partition))
        if tape is None:
            tape = self._tapes[topic, partition] = Tape(topic, partition)
        return tape

    def _appended(self, topic: int) -> Iterator[tuple[int, int, tuple[Frame, int]]]:
        """The stamps of a topic in order of time and id, which is the order they were written in."""
        stamps = [
            (frame.at[stamp], frame.ids[stamp], stamp, frame)
            for (number, _), tape in self._tapes.items()
            if number == topic
            for frame in tape.frames
            for stamp in range(len(frame.at))
        ]
        stamps.sort(key=lambda entry: entry[:2])
        return ((at, frame.partition, (frame, stamp)) for at, _, stamp, frame in stamps)
