"""How fast the messages of one fairness key may go out: a bucket that holds what a second gives, one at least."""

from __future__ import annotations

from math import ceil


class Pace:
    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: float, now: int) -> None:
        self._rate = rate
        self._tokens = max(1.0, rate)
        self._at = now

    def room(self, now: int) -> int:
        """How many may go out now."""
        most = max(1.0, self._rate)
        self._tokens = min(most, self._tokens + max(0, now - self._at) * self._rate / 1000)
        self._at = max(self._at, now)
        return int(self._tokens + 1e-9)

    def spend(self, count: int) -> None:
        self._tokens -= count

    def ready_at(self, now: int) -> int:
        """When one may go out."""
        return now + max(1, ceil((1 - self._tokens) * 1000 / self._rate - 1e-6))

    def is_full(self, now: int) -> bool:
        """Whether nothing is to be remembered of it."""
        self.room(now)
        return self._tokens >= max(1.0, self._rate)
