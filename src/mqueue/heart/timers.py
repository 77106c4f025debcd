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
    __slots__ = ("_alive", "_dropped", "_heap", "_serial")

    def __init__(self, alive: Callable[[Any], bool]) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._serial = 0
        self._dropped = 0
        self._alive = alive

    @property
    def next_at(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def set(self, when: int, thing: Any) -> None:
        self._serial += 1
        heappush(self._heap, (when, self._serial, thing))

    def drop(self) -> None:
        """One entry lost its reason."""
        self._dropped += 1
        if self._dropped > _SLACK and self._dropped * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if self._alive(entry[2])]
            heapify(self._heap)
            self._dropped = 0

    def take(self, now: int) -> Any | None:
        """The next thing whose time has come, or None."""
        while self._heap and self._heap[0][0] <= now:
            thing = heappop(self._heap)[2]
            if self._alive(thing):
                return thing
            self._dropped -= 1
        return None
