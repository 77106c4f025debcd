"""Not faster than so many a second: whoever has done a piece waits here until the next one may follow.

Knows no clock but the one it is given, and nothing of what is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mqueue.model.errors import Refused

RATE_MAX = 10_000_000


class Pace:
    """A bucket that refills by `rate` a second and holds one second's worth. Rate None: no limit."""

    def __init__(
        self,
        rate: float | None,
        seconds: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._rate = check_rate(rate)
        self._seconds = seconds
        self._wait = wait or threading.Event().wait
        self._left = 0.0
        self._at = seconds()
        self.waited_seconds = 0.0

    def spend(self, count: int) -> None:
        """So many were done; comes back when that is paid for. What was not used for a second is lost."""
        if self._rate is None:
            return
        now = self._seconds()
        self._left = min(self._rate, self._left + (now - self._at) * self._rate) - count
        self._at = now
        if self._left < 0:
            pause = -self._left / self._rate
            self.waited_seconds += pause
            self._wait(pause)


def check_rate(rate: float | None) -> float | None:
    """The rate as it came, or `Refused`."""
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise Refused(
            f"rate {rate!r:.80}; it takes messages a second, more than 0 and at most {RATE_MAX}", code="bad_rate"
        )
    return rate
