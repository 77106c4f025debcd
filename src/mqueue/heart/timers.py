"""One clockwork for the whole heart: what has to be looked at, and when.

A heap with lazy removal. An entry whose reason is gone (a lease that was settled) is counted by `drop` and swept out
once such entries are the majority, so the heap stays in proportion to what is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from mqueue.heart.schedule import NEVER

_SLACK = 64


class Timers:
    __slots__ = ("_alive", "_dropped", "_serial", "heap")

    def __init__(self, alive: Callable[[Any], bool]) -> None:
        self.heap: list[tuple[int, int, Any]] = []
        """(when, something to tell equal times apart, thing): always the same list, so that others may peek at it."""
        self._serial = 0
        self._dropped = 0
        self._alive = alive

    @property
    def next_at(self) -> int:
        return self.heap[0][0] if self.heap else NEVER

    def set(self, when: int, thing: Any) -> None:
        self._serial += 1
        heappush(self.heap, (when, self._serial, thing))

    def drop(self) -> None:
        """One entry lost its reason."""
        self._dropped += 1
        if self._dropped > _SLACK and self._dropped * 2 > len(self.heap):
            self.heap[:] = [entry for entry in self.heap if self._alive(entry[2])]
            heapify(self.heap)
            self._dropped = 0

    def take(self, now: int) -> Any | None:
        """The next thing whose time has come, or None."""
        while self.heap and self.heap[0][0] <= now:
            thing = heappop(self.heap)[2]
            if self._alive(thing):
                return thing
            self._dropped -= 1
        return None
