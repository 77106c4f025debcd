"""What happens to messages later: due times and expiry times, in bounded memory however far ahead they lie.

Hour buckets of columns, spilled into minute buckets when their hour comes, and those into a heap for the minute that
runs. A far message costs 36 bytes and no work until its hour. Entries are never removed: whoever takes them out
checks whether they still hold (a message may have been cancelled or rescheduled meanwhile).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
NEVER = 1 << 62

Entry: TypeAlias = tuple[int, int, int, int, int]
"""when, start, stop, priority, at"""


class Columns:
    """Entries of one bucket, unsorted."""

    __slots__ = ("at", "priority", "starts", "stops", "when")

    def __init__(self) -> None:
        self.when = array("q")
        self.starts = array("q")
        self.stops = array("q")
        self.priority = array("i")
        self.at = array("q")

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

    def __iter__(self) -> Iterator[Entry]:
        return zip(self.when, self.starts, self.stops, self.priority, self.at, strict=True)

    def below(self, offset: int) -> Iterator[Entry]:
        for i in np.flatnonzero(np.array(self.starts) < offset).tolist():
            yield self.when[i], self.starts[i], self.stops[i], self.priority[i], self.at[i]


class Schedule:
    __slots__ = ("_heap", "_hour", "_hours", "_minute", "_minutes", "next_at")

    def __init__(self) -> None:
        self.next_at = NEVER
        """Nothing needs doing before this time."""
        self._heap: list[Entry] = []
        self._minutes: dict[int, Columns] = {}
        self._hours: dict[int, Columns] = {}
        self._minute = 0  # the first minute that is not in the heap
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
        due: list[Entry] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap))
        self.next_at = self._next()
        return due

    def entries(self) -> Iterator[Entry]:
        """Everything, in order of time; a bucket is sorted only when it is reached."""
        yield from sorted(self._heap)
        for minute in sorted(self._minutes):
            yield from sorted(self._minutes[minute])
        for hour in sorted(self._hours):
            yield from sorted(self._hours[hour])

    def below(self, offset: int) -> Iterator[Entry]:
        """The entries that begin below an offset, in no order; quick also where there are many others."""
        yield from (entry for entry in self._heap if entry[1] < offset)
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
            for minute in [minute for minute in self._minutes if minute < self._minute]:
                for entry in self._minutes.pop(minute):
                    heappush(self._heap, entry)

    def _next(self) -> int:
        if self._heap:
            return self._heap[0][0]
        if self._minutes:
            return min(self._minutes) * MINUTE_MS
        return min(self._hours, default=NEVER // HOUR_MS) * HOUR_MS


def _into(buckets: dict[int, Columns], number: int, entry: Entry) -> None:
    bucket = buckets.get(number)
    if bucket is None:
        bucket = buckets[number] = Columns()
    bucket.add(entry)
