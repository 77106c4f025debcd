"""The log in memory: for tests, for caches, for queues that may die with the process."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice

from mqueue.heart.checkpoint import Checkpoint, TopicPoint
from mqueue.log.base import Entry
from mqueue.model.events import Event, TopicMade, TopicSet
from mqueue.model.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Extras

_WARM_FRAMES = 64
_CHUNK_EVENTS = 4096
_EVENTS_MAX = 1 << 20
"""So much of what happened to a topic is kept at most, whatever the age of its messages."""
_END_OF_TIME = 1 << 62


class Tape:
    """The frames of one partition."""

    __slots__ = ("bases", "frames", "hot", "next", "partition", "sealed_bytes", "tail", "topic")

    def __init__(self, topic: int, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.frames: list[Frame] = []
        self.bases = array("q")
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

    def trim(self, floor: int) -> None:
        gone = 0
        while gone < len(self.frames) and self.frames[gone].stop <= floor:
            gone += 1
        if gone:
            dropped = self.frames[:gone]
            if self.tail is not None and dropped[-1] is self.tail:
                self.tail = None
            self.sealed_bytes -= sum(frame.size for frame in dropped if not frame.open)
            del self.frames[:gone], self.bases[:gone]
            self.hot = None


class Journal:
    """What happened to one topic: in chunks, so that the oldest can be dropped."""

    __slots__ = ("_chunks", "_dropped", "_marked")

    def __init__(self) -> None:
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
        return chain.from_iterable(self._chunks)

    def since_mark(self) -> Iterator[Event]:
        return islice(self, self._marked - self._dropped, None)

    def trim(self, at: int) -> None:
        """Drop what a checkpoint covers, if it happened before the oldest message that is kept, or is too much."""
        while len(self._chunks) > 1 and self._dropped + len(self._chunks[0]) <= self._marked:
            if self._chunks[0][-1].at >= at and self.kept <= _EVENTS_MAX:
                break
            self._dropped += len(self._chunks.popleft())


class MemoryLog:
    durability = "memory"
    lag = 256

    def __init__(self) -> None:
        self._tapes: dict[tuple[int, int], Tape] = {}
        self._journals: dict[int, Journal] = {}
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
        for frame in tape.frames[index:]:
            if frame.base >= stop:
                return
            if frame.stop > start:
                self._warm_up(frame)
                yield frame

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

    def events(self, topic: int) -> Iterator[Event]:
        return iter(self._journals.get(topic, ()))

    def entries(self) -> Iterator[Entry]:
        """Topic by topic. Frames and events of a topic are merged by time: what shares a millisecond commutes.

        But a partition has to be there before its first frame.
        """
        for topic, journal in self._journals.items():
            partitions = self._partitions(topic)
            appended = self._appended(topic)
            frame, stamp = next(appended, (None, 0))
            for event in journal.since_mark():
                while frame is not None and frame.at[stamp] <= event.at and frame.partition < partitions:
                    yield frame, stamp
                    frame, stamp = next(appended, (None, 0))
                yield event
                if isinstance(event, TopicMade | TopicSet):
                    partitions = event.settings.partitions
            if frame is not None:
                yield frame, stamp
                yield from appended

    def _partitions(self, topic: int) -> int:
        """How many partitions a topic had at its last checkpoint."""
        return len(self._points[topic].partitions) if topic in self._points else 0

    def trim(self, topic: int, floors: tuple[int, ...]) -> None:
        tapes = [self.tape(topic, partition) for partition in range(len(floors))]
        for tape, floor in zip(tapes, floors, strict=True):
            tape.trim(floor)
        journal = self._journals.get(topic)
        if journal is not None:
            journal.trim(min((tape.frames[0].at[0] for tape in tapes if tape.frames), default=_END_OF_TIME))

    def drop(self, topic: int) -> None:
        for key in [key for key in self._tapes if key[0] == topic]:
            del self._tapes[key]
        self._journals.pop(topic, None)
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

    def _appended(self, topic: int) -> Iterator[tuple[Frame, int]]:
        """The stamps of a topic in order of time and id, which is the order they were written in."""
        stamps = [
            (frame.at[stamp], frame.ids[stamp], stamp, frame)
            for (number, _), tape in self._tapes.items()
            if number == topic
            for frame in tape.frames
            for stamp in range(len(frame.at))
        ]
        stamps.sort(key=lambda entry: entry[:2])
        return ((frame, stamp) for _, _, stamp, frame in stamps)
