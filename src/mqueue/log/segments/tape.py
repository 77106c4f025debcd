"""The frames of one partition: where each one is. The newest are still in memory; of the others a row each.

Knows offsets and places; reads no file. Rows are sorted by offset. Below the floor only what is kept counts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mqueue.heart.marks import Marks
from mqueue.heart.runs import full, segments
from mqueue.log.segments.index import Table
from mqueue.wire.frame import Frame


class Row(NamedTuple):
    """A frame that is on disk."""

    base: int
    stop: int
    position: int
    length: int
    at: int
    size: int


COLUMNS = Row._fields


class Tape:
    __slots__ = (*COLUMNS, "floor", "fresh", "hot", "kept", "next", "partition", "safe", "stored", "tail", "topic")

    def __init__(self, topic: int, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.next = 0
        self.safe = 0
        """Everything below this offset is known to be durable."""
        self.floor = 0
        self.kept = Marks()
        self.tail: Frame | None = None
        """The open frame, if messages may still be added to the last one."""
        self.fresh: list[Frame] = []
        """What has no row yet."""
        self.hot: Frame | None = None
        self.stored = 0
        """How many bytes the frames with a row take."""
        self.base, self.stop, self.position, self.length, self.at, self.size = (array("q") for _ in COLUMNS)

    def open(self) -> Frame:
        """A new open frame at the end."""
        frame = self.tail = Frame.opened(self.topic, self.partition, self.next)
        self.fresh.append(frame)
        return frame

    def close(self) -> None:
        """The open frame, if there is one, takes no more messages."""
        if self.tail is not None:
            self.tail.close()
            self.tail = None

    def add(self, frame: Frame) -> None:
        """A whole frame at the end."""
        self.close()
        self.fresh.append(frame)
        self.next = frame.stop

    def land(self, frame: Frame, position: int, length: int) -> None:
        """The oldest fresh frame is written."""
        assert self.fresh[0] is frame, "frames land in the order they were added in"
        del self.fresh[0]
        row = (frame.base, frame.stop, position, length, frame.at[-1], frame.size)
        for name, value in zip(COLUMNS, row, strict=True):
            getattr(self, name).append(value)
        self.stored += frame.size

    def load(self, rows: Table) -> None:
        """Rows from an index, in the order of their offsets, behind those that are here."""
        for name in COLUMNS:
            getattr(self, name).frombytes(np.ascontiguousarray(rows[name]).tobytes())
        self.stored += int(rows["size"].sum())
        if len(rows):
            self.next = self.safe = max(self.next, int(rows["stop"][-1]))

    def row(self, number: int) -> Row:
        return Row(*(getattr(self, name)[number] for name in COLUMNS))

    def find(self, offset: int) -> Frame | Row | None:
        """Where the message at an offset is: in a frame at hand, or in one on disk; None if it is not there."""
        if offset < self.floor and offset not in self.kept:
            return None
        if self.fresh and offset >= self.fresh[0].base:
            frame = self.fresh[bisect_right(self.fresh, offset, key=lambda one: one.base) - 1]
            return frame if offset < frame.stop else None
        number = bisect_right(self.base, offset) - 1
        return self.row(number) if number >= 0 and offset < self.stop[number] else None

    def pieces(self, start: int, stop: int) -> Iterator[tuple[Frame | Row, int, int]]:
        """The frames that touch [start, stop), each with the first and last offset of what is not dropped of it."""
        for frame in self._between(start, stop):
            for first, last in self._alive(frame.base, frame.stop, start):
                if first >= stop:
                    return
                if last > start:
                    yield frame, first, last

    def _between(self, start: int, stop: int) -> Iterator[Frame | Row]:
        for number in range(max(0, bisect_right(self.base, start) - 1), len(self.base)):
            if self.base[number] >= stop:
                return
            if self.stop[number] > start:
                yield self.row(number)
        for frame in self.fresh:
            if frame.base < stop and frame.stop > start:
                yield frame

    def alive(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The stretches of [start, stop) that are not dropped."""
        return list(self._alive(start, stop, start))

    def _alive(self, start: int, stop: int, since: int) -> Iterator[tuple[int, int]]:
        """The same one by one, without those that end before `since`: of a frame with many, one may be asked for."""
        if start >= self.floor:
            return iter([(start, stop)])
        low = min(stop, self.floor)
        mask = self.kept.mask(start, low) | full(stop - low) << low - start
        before = (~mask & full(max(0, since - start))).bit_length()
        return segments(start + before, mask >> before)

    def offset_row(self, at: int) -> int:
        """The number of the first row whose last message was appended at `at` or later."""
        return bisect_left(self.at, at)

    @property
    def bytes(self) -> int:
        return self.stored + sum(frame.size for frame in self.fresh)

    def trim(self, floor: int, kept: Marks) -> list[tuple[int, int]]:
        """Drop what lies below the floor and is not kept; (position, length) of the frames that went as a whole."""
        self.floor, self.kept = floor, kept
        self.hot = None
        below = bisect_right(self.stop, floor)
        gone = [n for n in range(below) if not kept.mask(self.base[n], self.stop[n])] if kept else range(below)
        dropped = [(self.position[number], self.length[number]) for number in gone]
        self.stored -= sum(self.size[number] for number in gone)
        if len(gone) == below:  # mostly it is all of them
            for name in COLUMNS:
                del getattr(self, name)[:below]
        else:
            self._replace(gone, [])
        return dropped

    def _replace(self, numbers: Sequence[int], rows: list[Row]) -> None:
        """Rows go, others come; all stay sorted."""
        stay = np.ones(len(self.base), np.bool_)
        stay[np.array(numbers, np.int64)] = False
        fresh = np.array(rows, np.int64).reshape(-1, len(COLUMNS))
        columns = [
            np.concatenate((np.frombuffer(getattr(self, name), np.int64)[stay], fresh[:, place]))
            for place, name in enumerate(COLUMNS)
        ]
        order = np.argsort(columns[0], kind="stable")
        for name, column in zip(COLUMNS, columns, strict=True):
            setattr(self, name, array("q", column[order].tobytes()))

    def missing(self, stop: int) -> list[tuple[int, int]]:
        """The stretches up to an offset that should be here, and are not."""
        bases, ends = np.append(np.array(self.base, np.int64), stop), np.array(self.stop, np.int64)
        before = np.maximum.accumulate(np.concatenate(([0], ends)))
        gaps = np.flatnonzero(bases > before)
        return [piece for gap in gaps.tolist() for piece in self.alive(int(before[gap]), int(bases[gap]))]

    def rows_in(self, start: int, stop: int) -> list[int]:
        """The numbers of the rows that lie between two positions."""
        positions = np.frombuffer(self.position, np.int64)
        found: list[int] = np.flatnonzero((positions >= start) & (positions < stop)).tolist()
        return found

    def move(self, numbers: list[int], rows: list[Row]) -> None:
        """Frames were copied elsewhere: these rows take the place of those."""
        self._replace(numbers, rows)
        self.stored = sum(self.size)
        self.hot = None
