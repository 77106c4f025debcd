"""What was settled lately, so that a settle call whose answer got lost can be repeated and answered as the first time.

Bounded: two generations of calls; when the young one is full the old one is forgotten.
"""

from __future__ import annotations

from mqueue.model.events import Settled
from mqueue.model.limits import SETTLED_MEMORY_CALLS, SETTLED_MEMORY_MS


class Recent:
    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        self._young: dict[int, list[Settled]] = {}
        self._old: dict[int, list[Settled]] = {}

    def add(self, event: Settled) -> None:
        events = self._young.get(event.token)
        if events is not None:
            events.append(event)
            return
        if len(self._young) >= SETTLED_MEMORY_CALLS // 2:
            self._old, self._young = self._young, {}
        self._young[event.token] = [event]

    def settled(self, token: int, verb: str, partition: int, start: int, mask: int, now: int) -> int:
        """Which of these bits that token settled with that verb in the last ten minutes."""
        found = 0
        for event in (*self._old.get(token, ()), *self._young.get(token, ())):
            if event.at + SETTLED_MEMORY_MS < now or not _same(event, verb):
                continue
            for number, first, _, bits in event.spans:
                if number == partition:
                    found |= bits << first - start if first >= start else bits >> start - first
        return found & mask


def _same(event: Settled, verb: str) -> bool:
    """Whether an event is what that verb led to: a nack or a reject may have ended as dead."""
    return event.verb == verb or event.verb == "dead" and event.reason == _REASONS.get(verb)


_REASONS = {"nack": "max_retries", "reject": "rejected"}
