"""What time it is in a shard: PostgreSQL's, carried forward between two looks by a clock that cannot be set.

A look is worth nothing if it took long: the process may have stood still in between. Half of what it took is added, so
that nothing is early, and time never falls.
"""

from __future__ import annotations

import time

from mqueue.model.clock import Sleeper

TRIP_US_MAX = 20_000
_MS = 1_000_000


class ShardClock:
    """Asked by many threads; set by one."""

    def __init__(self) -> None:
        self._offset: int | None = None
        """Nanoseconds from the clock of this machine to the server's."""
        self._last = 0

    @property
    def is_set(self) -> bool:
        return self._offset is not None

    def set(self, server_ms: int, trip_us: int) -> bool:
        """What a look showed, just now; False: it took too long to be of use."""
        if trip_us > TRIP_US_MAX:
            return False
        self._offset = server_ms * _MS + trip_us * 500 - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return True

    def not_before(self, at: int) -> None:
        """Something happened at this time: it is not earlier now."""
        self._last = max(self._last, at)

    def now(self) -> int:
        assert self._offset is not None, "nobody has looked yet"
        now = (time.clock_gettime_ns(time.CLOCK_MONOTONIC) + self._offset) // _MS
        if now < self._last:
            return self._last
        self._last = now
        return now

    def shown(self) -> int:
        """What the server's own clock shows: that may fall, but is the same for all who look."""
        assert self._offset is not None, "nobody has looked yet"
        return (time.clock_gettime_ns(time.CLOCK_MONOTONIC) + self._offset) // _MS

    def timeout(self, ms: int) -> float | None:
        return ms / 1000

    def watch(self, sleeper: Sleeper) -> None:
        pass

    def unwatch(self, sleeper: Sleeper) -> None:
        pass
