"""A clock that stands still until it is told to go on, so that tests never sleep."""

from __future__ import annotations

import threading

from mqueue.model.clock import Sleeper
from mqueue.model.times import Duration, Instant, duration_ms, instant


class ManualClock:
    """`Broker(clock=c)`; `c.advance("5m")` instead of sleeping. Starts at 2026-01-01 unless told otherwise."""

    def __init__(self, start: Instant = "2026-01-01") -> None:
        self._now = instant(start)
        self._sleepers: set[Sleeper] = set()
        self._lock = threading.Lock()

    def now(self) -> int:
        return self._now

    def advance(self, duration: Duration) -> None:
        """Let time pass, and wake whoever waits for that."""
        with self._lock:
            self._now += duration_ms(duration)
            sleepers = list(self._sleepers)
        for sleeper in sleepers:
            sleeper.wake()

    def timeout(self, ms: int) -> float | None:
        return None

    def watch(self, sleeper: Sleeper) -> None:
        with self._lock:
            self._sleepers.add(sleeper)

    def unwatch(self, sleeper: Sleeper) -> None:
        with self._lock:
            self._sleepers.discard(sleeper)
