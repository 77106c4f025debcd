"""Frames of one partition whose messages all lie far ahead: that they are there, not what is in them.

Whoever has the log loads them before anything in them is due (`Partition.load`). Until then a frame costs 28 bytes,
however many messages it has, and nobody can tell that it is not loaded: it counts as scheduled, and is kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mqueue.heart.schedule import HOUR_MS, NEVER

FAR_MS = HOUR_MS
"""What is due later than this is far."""
FAR = -1
"""Stands where the expiry of a stretch is, if it is far: its due time is then the earliest in it."""


class Far:
    """In columns, in the order of offsets."""

    __slots__ = ("_due", "_priority", "_starts", "_stops", "next_at")

    def __init__(self) -> None:
        self.next_at = NEVER
        """Nothing in them is due or expires before this time."""
        self._starts = array("q")
        self._stops = array("q")
        self._priority = array("i")
        self._due = array("q")

    def __bool__(self) -> bool:
        return self.next_at < NEVER

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._stops[index]

    def add(self, start: int, stop: int, priority: int, due: int) -> None:
        assert not self._stops or self._stops[-1] <= start, "frames come in the order of offsets"
        self._starts.append(start)
        self._stops.append(stop)
        self._priority.append(priority)
        self._due.append(due)
        self.next_at = min(self.next_at, due)

    def within(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """(start, stop) of each, cut to [low, high)."""
        for index in range(bisect_right(self._stops, low), bisect_left(self._starts, high)):
            yield max(low, self._starts[index]), min(high, self._stops[index])

    def near(self, until: int, most: int | None = None) -> list[tuple[int, int, int, int]]:
        """(due, start, stop, priority) of those that have something due by then, the earliest first."""
        if until < self.next_at:
            return []
        due: NDArray[np.int64] = np.array(self._due, np.int64)
        chosen = np.flatnonzero(due <= until)
        chosen = chosen[np.argsort(due[chosen], kind="stable")][:most]
        return [(self._due[i], self._starts[i], self._stops[i], self._priority[i]) for i in chosen.tolist()]

    def remove(self, start: int) -> int:
        """Forget the frame that begins there; where it ends."""
        index = bisect_left(self._starts, start)
        stop = self._stops[index]
        for column in (self._starts, self._stops, self._priority, self._due):
            del column[index]
        self.next_at = int(np.array(self._due, np.int64).min()) if self._due else NEVER
        return stop


NOTHING = Far()
"""What partitions share that have no such frames: nothing is ever added to it."""
