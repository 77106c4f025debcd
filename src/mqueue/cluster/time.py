"""What time it is in a shard: PostgreSQL's, carried forward between two looks by a clock that cannot be set.

A look that took long tells little: the process may have stood still in between, or the line is slow. All it says is
that the server's time lies between what it answered and that much later. Late does no harm, early does; and a clock
that goes back and then forth again ends leases before whoever has them thinks. Time never falls.
"""

from __future__ import annotations

import time

from mqueue.model.clock import Sleeper

TRIP_US_MAX = 20_000
"""A look that took no longer is good enough."""
_FIRST_TRIP_US_MAX = 2_000_000
"""Who knows nothing yet takes one that took no longer."""
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
        """What a look showed, just now; False: it took too long to be of use.

        The server's time is not earlier than that, and later by no more than the look took. What is known goes no
        further than into these bounds: so it is never early for long, and comes closer with every look that is quick.
        """
        if self._offset is None and trip_us > _FIRST_TRIP_US_MAX:
            return False
        earliest = server_ms * _MS - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        known = earliest if self._offset is None else self._offset
        self._offset = min(max(known, earliest), earliest + trip_us * 1000)
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
