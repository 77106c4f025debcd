"""What settle calls have published lately, so that one which is repeated is answered with the same receipts.

Bounded in time, in calls and in receipts: the oldest is forgotten first.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.model.events import Followed
from mqueue.model.limits import SETTLED_MEMORY_CALLS, SETTLED_MEMORY_MS, SETTLED_MEMORY_RECEIPTS


class Follows:
    __slots__ = ("_calls", "_receipts")

    def __init__(self) -> None:
        self._calls: dict[bytes, Followed] = {}
        self._receipts = 0

    def add(self, event: Followed) -> None:
        self._forget(event.call)
        self._calls[event.call] = event
        self._receipts += len(event.receipts)
        while self._is_over(oldest := next(iter(self._calls.values())), event.at):
            self._forget(oldest.call)

    def find(self, call: bytes, now: int) -> Followed | None:
        """What a call published, if that was in the last ten minutes."""
        known = self._calls.get(call)
        return None if known is None or known.at + SETTLED_MEMORY_MS < now else known

    def events(self) -> Iterable[Followed]:
        """What is remembered, oldest first."""
        return self._calls.values()

    def drop(self, topic: int) -> None:
        """A topic is gone, and with it all leases that a call could name."""
        for event in [event for event in self._calls.values() if event.topic == topic]:
            self._forget(event.call)

    def _is_over(self, oldest: Followed, now: int) -> bool:
        if len(self._calls) == 1:
            return False
        crowded = len(self._calls) > SETTLED_MEMORY_CALLS or self._receipts > SETTLED_MEMORY_RECEIPTS
        return crowded or oldest.at + SETTLED_MEMORY_MS < now

    def _forget(self, call: bytes) -> None:
        known = self._calls.pop(call, None)
        if known is not None:
            self._receipts -= len(known.receipts)
