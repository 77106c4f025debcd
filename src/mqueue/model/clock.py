"""Time, as a thing that is handed in. Only `SystemClock` reads the machine's clock."""

from __future__ import annotations

import time
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SLEW_PERIOD_MS = 1000


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970, never falling."""
        ...


class SystemClock:
    """The wall clock as it was at start, carried forward by a clock that cannot be set.

    A lease must not end early, nor a delay fire early, because somebody set the wall clock: so a step of the
    wall clock is followed slowly, by at most 1 ms per second, and time never falls.
    """

    __slots__ = ("_corrected", "_offset")

    def __init__(self) -> None:
        boot = time.clock_gettime_ns(_BOOT) // 1_000_000
        self._offset = time.time_ns() // 1_000_000 - boot
        self._corrected = boot

    def now(self) -> int:
        boot: int = time.clock_gettime_ns(_BOOT) // 1_000_000
        if boot - self._corrected >= _SLEW_PERIOD_MS:
            self._slew(boot)
        return boot + self._offset

    def _slew(self, boot: int) -> None:
        """Move towards the wall clock by one millisecond for each second that passed."""
        steps = (boot - self._corrected) // _SLEW_PERIOD_MS
        error = time.time_ns() // 1_000_000 - boot - self._offset
        self._corrected = boot
        self._offset += max(-steps, min(steps, error))
