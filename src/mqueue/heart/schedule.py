"""What happens to messages later: due times and expiry times, in bounded memory however far ahead they lie.

Hour buckets of columns, spilled into minute buckets when their hour comes, and those, sorted, into a line when their
minute does. What is added for a minute that runs already goes into a heap beside it. A far message costs 36 bytes and
no work until its hour. Entries are never removed: whoever takes them out checks whether they still hold (a message may
have been cancelled or rescheduled meanwhile).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace, merge
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
NEVER = 1 << 62
_SLACK = 4096

Entry: TypeAlias = tuple[int, int, int, int, int]
"""when, start, stop, priority, at: the time that they were given. Of what expires that is negative for what was not
visible at once: its time in the order may be another by then."""


class Columns:
    """Entries of one bucket, in no order until somebody wants to see them."""

    __slots__ = ("at", "ordered", "priority", "starts", "stops", "when")

    def __init__(self) -> None:
        self.when = array("q")
        self.starts = array("q")
        self.stops = array("q")
        self.priority = array("i")
        self.at = array("q")
        self.ordered = False

    @classmethod
    def of(cls, *columns: NDArray[np.int64]) -> Columns:
        bucket = cls()
        for own, column in zip(
            (bucket.when, bucket.starts, bucket.stops, bucket.priority, bucket.at), columns, strict=True
        ):
            own.frombytes(column.astype(np.int32 if own is bucket.priority else np.int64).tobytes())
        return bucket

    def add(self, entry: Entry) -> None:
        self.when.append(entry[0])
        self.starts.append(entry[1])
        self.stops.append(entry[2])
        self.priority.append(entry[3])
        self.at.append(entry[4])
        self.ordered = False

    def __iter__(self) -> Iterator[Entry]:
        return zip(self.when, self.starts, self.stops, self.priority, self.at, strict=True)

    def since(self, low: tuple[int, int]) -> Iterator[Entry]:
        """In order of time, then offset, from the first on that reaches a time and an offset of that time."""
        if not self.ordered:
            self._order()
        first, last = bisect_left(self.when, low[0]), bisect_right(self.when, low[0])
        for i in range(max(first, bisect_right(self.starts, low[1], first, last) - 1), len(self.when)):
            if self.when[i] > low[0] or self.stops[i] > low[1]:
                yield self.when[i], self.starts[i], self.stops[i], self.priority[i], self.at[i]

    def _order(self) -> None:
        """Once, until something is added: whoever turns pages does not pay for each."""
        order = np.lexsort((np.array(self.starts), np.array(self.when)))
        for column in (self.when, self.starts, self.stops, self.priority, self.at):
            column[:] = array(column.typecode, np.array(column)[order].tobytes())
        self.ordered = True

    def below(self, offset: int) -> Iterator[Entry]:
        for i in np.flatnonzero(np.array(self.starts) < offset).tolist():
            yield self.when[i], self.starts[i], self.stops[i], self.priority[i], self.at[i]


class Schedule:
    __slots__ = ("_done", "_heap", "_hour", "_hours", "_line", "_minute", "_minutes", "next_at")

    def __init__(self) -> None:
        self.next_at = NEVER
        """Nothing needs doing before this time."""
        self._line: list[Entry] = []
        self._done = 0  # how many of the line were taken out
        self._heap: list[Entry] = []
        self._minutes: dict[int, Columns] = {}
        self._hours: dict[int, Columns] = {}
        self._minute = 0  # the first minute that is in neither
        self._hour = 0  # the first hour that is not in minute buckets

    def __bool__(self) -> bool:
        return self.next_at < NEVER

    def add(self, entry: Entry) -> None:
        when = entry[0]
        minute = when // MINUTE_MS
        hour = when // HOUR_MS
        if minute < self._minute:
            heappush(self._heap, entry)
            wake = when
        elif hour < self._hour:
            _into(self._minutes, minute, entry)
            wake = minute * MINUTE_MS
        else:
            _into(self._hours, hour, entry)
            wake = hour * HOUR_MS
        if wake < self.next_at:
            self.next_at = wake

    def fill(self, *columns: NDArray[np.int64]) -> None:
        """Many entries into an empty schedule: when, start, stop, priority and at of each."""
        when = columns[0]
        if not len(when):
            return
        hours = when // HOUR_MS
        order = np.argsort(hours, kind="stable")
        hours = hours[order]
        borders = np.flatnonzero(np.diff(hours)) + 1
        pieces = [np.split(column[order], borders) for column in columns]
        for hour, *piece in zip(hours[np.concatenate(([0], borders))].tolist(), *pieces, strict=True):
            self._hours[hour] = Columns.of(*piece)
        self.next_at = int(hours[0]) * HOUR_MS

    def take(self, now: int) -> list[Entry]:
        """Everything that is due, in order of time, then offset."""
        if now < self.next_at:
            return []
        self._open(now)
        stop = bisect_left(self._line, (now + 1,), self._done)
        due = self._line[self._done : stop]
        self._pass(stop)
        if self._heap and self._heap[0][0] <= now:
            while self._heap and self._heap[0][0] <= now:
                due.append(heappop(self._heap))
            due.sort()
        self.next_at = self._next()
        return due

    def first(self, now: int) -> Entry | None:
        """What is due and comes first; it stays where it is."""
        if now < self.next_at:
            return None
        self._open(now)
        self.next_at = self._next()
        return self._front() if self.next_at <= now else None

    def shorten(self, start: int) -> None:
        """Of what comes first only that from an offset on is left; nothing, if it ends there."""
        front = self._front()
        assert front is not None, "somebody has seen it"
        when, _, stop, priority, at = front
        rest = (when, start, stop, priority, at) if start < stop else None
        if self._heap and self._heap[0] is front:
            heappop(self._heap) if rest is None else heapreplace(self._heap, rest)
        elif rest is not None:  # what comes behind it at the same time begins where it ends, or later
            self._line[self._done] = rest
        else:
            self._pass(self._done + 1)
        self.next_at = self._next()

    def _front(self) -> Entry | None:
        """The first that is in the line or in the heap."""
        if self._done == len(self._line):
            return self._heap[0] if self._heap else None
        if not self._heap:
            return self._line[self._done]
        return min(self._line[self._done], self._heap[0])

    def _pass(self, upto: int) -> None:
        """The line is done with up to there. What lies behind is cleared away when it is the greater part."""
        self._done = upto
        if upto == len(self._line):
            self._line, self._done = [], 0
        elif upto > _SLACK and upto * 2 > len(self._line):
            del self._line[:upto]
            self._done = 0

    def entries(self, low: tuple[int, int] = (0, 0)) -> Iterator[Entry]:
        """Everything from a time, and an offset of that time, on, in order; a bucket is sorted when it is reached."""
        self._heap.sort()  # still a heap, and quick the next time
        yield from merge(_since(self._line, low, self._done), _since(self._heap, low, 0))
        for size, buckets in ((MINUTE_MS, self._minutes), (HOUR_MS, self._hours)):
            for number in sorted(number for number in buckets if number >= low[0] // size):
                yield from buckets[number].since(low)

    def below(self, offset: int) -> Iterator[Entry]:
        """The entries that begin below an offset, in no order; quick also where there are many others."""
        for entries in (self._line[self._done :], self._heap):
            yield from (entry for entry in entries if entry[1] < offset)
        for bucket in (*self._minutes.values(), *self._hours.values()):
            yield from bucket.below(offset)

    def _open(self, now: int) -> None:
        """Spill the hours and minutes that have begun."""
        if now // HOUR_MS >= self._hour:
            self._hour = now // HOUR_MS + 1
            for hour in [hour for hour in self._hours if hour < self._hour]:
                for entry in self._hours.pop(hour):
                    _into(self._minutes, entry[0] // MINUTE_MS, entry)
        if now // MINUTE_MS >= self._minute:
            self._minute = now // MINUTE_MS + 1
            for minute in sorted(minute for minute in self._minutes if minute < self._minute):
                self._line += self._minutes.pop(minute).since((0, 0))

    def _next(self) -> int:
        if (front := self._front()) is not None:
            return front[0]
        if self._minutes:
            return min(self._minutes) * MINUTE_MS
        return min(self._hours, default=NEVER // HOUR_MS) * HOUR_MS


def _since(entries: list[Entry], low: tuple[int, int], first: int) -> Iterator[Entry]:
    """From a time, and an offset of that time, on, of what is sorted."""
    for i in range(max(first, bisect_right(entries, low, first) - 1), len(entries)):
        entry = entries[i]
        if (entry[0], entry[2]) > low:
            yield entry


def _into(buckets: dict[int, Columns], number: int, entry: Entry) -> None:
    bucket = buckets.get(number)
    if bucket is None:
        bucket = buckets[number] = Columns()
    bucket.add(entry)
