"""What was settled lately, so that a settle call whose answer got lost can be repeated and answered as the first time.

Bounded: two generations of calls; when the young one is full the old one is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqueue.model.events import Settled
from mqueue.model.limits import SETTLED_MEMORY_CALLS, SETTLED_MEMORY_MS


class Recent:
    __slots__ = ("_count", "_old", "_young")

    def __init__(self) -> None:
        self._young: dict[bytes, Settled | list[Settled]] = {}
        self._old: dict[bytes, Settled | list[Settled]] = {}
        self._count = 0

    def add(self, event: Settled) -> None:
        young = self._young
        known = young.get(event.token)
        if known is None:
            young[event.token] = event
        elif isinstance(known, list):
            known.append(event)
        else:
            young[event.token] = [known, event]
        self._count += 1
        if self._count >= SETTLED_MEMORY_CALLS // 2:
            self._old, self._young, self._count = young, {}, 0

    def events(self) -> Iterator[Settled]:
        """What is remembered, oldest first."""
        for known in (*self._old.values(), *self._young.values()):
            yield from known if isinstance(known, list) else (known,)

    def of(self, token: bytes) -> list[Settled]:
        """What is remembered of a token, oldest first."""
        found: list[Settled] = []
        for known in (self._old.get(token), self._young.get(token)):
            found += known if isinstance(known, list) else [known] if known else []
        return found

    def settled(self, token: bytes, verb: str, partition: int, start: int, mask: int, now: int) -> int:
        """Which of these bits that token settled with that verb in the last ten minutes."""
        found = 0
        for event in self.of(token):
            if is_repeated(event, verb, now):
                for number, first, _, bits in event.spans:
                    if number == partition:
                        found |= bits << first - start if first >= start else bits >> start - first
        return found & mask


def is_repeated(event: Settled, verb: str, now: int) -> bool:
    """Whether that verb led to an event, and not too long ago: a nack or a reject may have ended as dead."""
    if event.at + SETTLED_MEMORY_MS < now:
        return False
    return event.verb == verb or (event.verb == "dead" and event.reason == _REASONS.get(verb))


_REASONS = {"nack": "max_retries", "reject": "rejected"}
