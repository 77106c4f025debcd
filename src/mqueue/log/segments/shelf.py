"""The segments of a log, to read from: a frame by its place, commits in order. Everything read is checked."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator

from mqueue.log.segments import segment as names
from mqueue.log.segments.cache import Cache
from mqueue.log.segments.commit import HEADER_BYTES as COMMIT_BYTES
from mqueue.log.segments.commit import Commit, length_of, read
from mqueue.log.segments.disk import CLOSED, Disk
from mqueue.log.segments.scan import scan
from mqueue.log.segments.segment import Segment
from mqueue.log.segments.tape import Row, Tape
from mqueue.model.errors import Corrupt, Unavailable
from mqueue.wire.frame import Frame
from mqueue.wire.head import Head, head_length, head_of, stamps_of
from mqueue.wire.pack import unpack

FILES_MAX = 64
"""So many sealed segments are open at a time."""
_HEAD_BYTES = 1024
"""Mostly the whole head of a frame: that of nearly fifty stamps."""


class Shelf:
    def __init__(self, disk: Disk, segments: list[Segment], cache: Cache) -> None:
        self._disk = disk
        self.segments = segments
        """In the order of their positions."""
        self.cache = cache
        self._open: OrderedDict[int, Segment] = OrderedDict()
        """Sealed segments whose file is open, by their start; the one that was read last at the end."""
        self._guard = threading.Lock()
        """Held while a file is read or closed: what is read may be read by those who hold no other lock."""

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)

    def remove(self, segment: Segment) -> None:
        """The segment goes for good."""
        with self._guard:
            self.segments.remove(segment)
            self._close(segment)
            segment.gone = True
        self._disk.unlink(segment.name)

    def close(self) -> None:
        with self._guard:
            for segment in self.segments:
                self._close(segment)
                segment.gone = True

    def rest(self, segment: Segment) -> None:
        """A sealed segment need not be open until somebody reads it."""
        with self._guard:
            self._close(segment)

    def _close(self, segment: Segment) -> None:
        self._open.pop(segment.start, None)
        if segment.file != CLOSED:
            self._disk.close(segment.file)
            segment.file = CLOSED

    def read(self, segment: Segment, length: int, offset: int) -> bytes:
        """Bytes of a segment; fewer if it ends there, none if it has gone."""
        try:
            return self._pread(segment, length, offset)
        except OSError as error:  # says nothing about the bytes: they may be read well a moment later
            raise Unavailable(f"{segment.name} cannot be read now: {error}", code="unreadable") from error

    def _pread(self, segment: Segment, length: int, offset: int) -> bytes:
        with self._guard:
            if segment.gone:
                return b""
            if segment.file == CLOSED:
                segment.file = self._disk.open(segment.name)
                self._open[segment.start] = segment
                if len(self._open) > FILES_MAX:
                    self._close(next(iter(self._open.values())))
            elif segment.start in self._open:
                self._open.move_to_end(segment.start)
            return self._disk.pread(segment.file, length, offset)

    def of(self, position: int) -> Segment | None:
        """The segment that a position lies in."""
        segments = tuple(self.segments)
        number = bisect_right(segments, position, key=lambda segment: segment.start) - 1
        if number < 0 or position >= segments[number].end:
            return None
        return segments[number]

    def frame(self, tape: Tape, row: Row) -> Frame:
        """A frame of a partition that is on disk; Corrupt if it is not what it should be."""
        frame = self.cache.get(row.position)
        if frame is None:
            frame = unpack(self.raw(row, row.length))
            check_place(tape, row, frame)
            self.cache.add(row.position, frame)
        return frame

    def raw(self, row: Row, length: int) -> bytes:
        """So many of the bytes of a frame, as they lie on the disk."""
        segment = self.of(row.position)
        if segment is None:
            raise Corrupt(f"the segment of position {row.position} is not there")
        data = self.read(segment, length, segment.place(row.position))
        if len(data) < length:
            raise Corrupt(f"{segment.name} ends before the frame at position {row.position}")
        return data

    def offset_at(self, tape: Tape, row: Row, at: int) -> int:
        """The first offset of a frame that was appended at `at` or later.

        Of one that is not at hand the head will do: who asks a thousand partitions must not read a frame of each.
        """
        frame = self.cache.get(row.position)
        if frame is not None:
            return frame.base + frame.row_at(at)
        data = self.raw(row, min(row.length, _HEAD_BYTES))
        if head_length(data) > len(data):
            data = self.raw(row, min(row.length, head_length(data)))
        head = head_of(data)
        check_place(tape, row, head)
        rows, _, times = stamps_of(data, 0, head)
        return head.base + rows[bisect_left(times, at)]

    def commit(self, position: int) -> tuple[bytes, Commit] | None:
        """The commit at a position, if it can be read."""
        segment = self.of(position)
        if segment is None:
            return None
        header = self.read(segment, COMMIT_BYTES, segment.place(position))
        length = length_of(header)
        if length is None or position + length > segment.end:
            return None
        data = self.read(segment, length, segment.place(position))
        commit = read(memoryview(data), 0, segment.start, position)
        return None if commit is None else (data, commit)

    def commits(self, position: int) -> Iterator[tuple[bytes, int, Commit]]:
        """(bytes, where in them it begins, commit) of every commit from a position on."""
        for segment in list(self.segments):
            end = segment.end  # read once: it may rise meanwhile
            if end > position:
                data = self.read(segment, segment.place(end), 0)
                for commit in scan(data, segment.origin, segment.start, segment.first, 0, end).commits:
                    if commit.position >= position:
                        yield data, segment.place(commit.position), commit

    def sound(self, segment: Segment) -> bool:
        """Whether a segment reads back as it was written."""
        end = segment.end
        data = self.read(segment, segment.place(end), 0)
        if segment.gone:
            return True
        if names.unpack(data[: names.HEADER_BYTES], segment.name) is None:
            return False
        return not scan(data, segment.origin, segment.start, segment.first, 0, end).holes


def check_place(tape: Tape, row: Row, found: Frame | Head) -> None:
    """Raise unless what was read at a position is the frame that should be there."""
    if (found.topic, found.partition, found.base) != (tape.topic, tape.partition, row.base):
        raise Corrupt(f"the frame at position {row.position} is of another place")
