"""One clockwork for the whole heart: what has to be looked at, and when.

A heap with lazy removal. An entry whose reason is gone (a lease that was settled) is counted by `drop` and swept out
once such entries are the majority, so the heap stays in proportion to what is alive.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from mqueue.heart.schedule import NEVER

_SLACK = 64


class Timed(Protocol):
    @property
    def open(self) -> object:
        """True while it still waits for its time."""


T = TypeVar("T", bound=Timed)


class Timers(Generic[T]):
    __slots__ = ("_dropped", "_serial", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, T]] = []
        """(when, something to tell equal times apart, thing): always the same list, so that others may peek at it."""
        self._serial = 0
        self._dropped = 0

    @property
    def next_at(self) -> int:
        return self.heap[0][0] if self.heap else NEVER

    def set(self, when: int, thing: T) -> None:
        self._serial += 1
        heappush(self.heap, (when, self._serial, thing))

    def drop(self) -> None:
        """One entry lost its reason."""
        self._dropped += 1
        if self._dropped > _SLACK and self._dropped * 2 > len(self.heap):
            self.sweep()

    def sweep(self) -> None:
        """Take out what has lost its reason."""
        self.heap[:] = [entry for entry in self.heap if entry[2].open]
        heapify(self.heap)
        self._dropped = 0

    def take(self, now: int) -> T | None:
        """The next thing whose time has come, or None."""
        while self.heap and self.heap[0][0] <= now:
            thing = heappop(self.heap)[2]
            if thing.open:
                return thing
            self._dropped = max(0, self._dropped - 1)
        return None
