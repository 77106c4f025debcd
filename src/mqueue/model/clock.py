"""Time, as a thing that is handed in. Only `SystemClock` reads the machine's clock."""

from __future__ import annotations

import time
from typing import Protocol

_read = time.clock_gettime_ns
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MS = 1_000_000
_SLEW_PERIOD_NS = 1000 * _MS
SLOW_MS_MAX = 24 * 3600 * 1000


class Sleeper(Protocol):
    """Somebody who waits for time to pass, or for something else to wake him."""

    def wake(self) -> None: ...


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970, never falling."""

    def timeout(self, ms: int) -> float | None:
        """For how many real seconds to sleep until so much time has passed; None: until woken."""

    def watch(self, sleeper: Sleeper) -> None:
        """From now on wake him whenever time passes other than by itself."""

    def unwatch(self, sleeper: Sleeper) -> None: ...


class SystemClock:
    """The wall clock as it was at start, carried forward by a clock that cannot be set.

    A lease must not end early, nor a delay fire early, because somebody set the wall clock: so a step of the
    wall clock is followed slowly, by at most 1 ms per second, and time never falls.
    """

    __slots__ = ("_corrected_at", "_offset")

    def __init__(self) -> None:
        self._corrected_at = _read(_BOOT)
        self._offset = time.time_ns() - self._corrected_at

    def now(self) -> int:
        boot = _read(_BOOT)
        if boot - self._corrected_at >= _SLEW_PERIOD_NS:
            self._slew(boot)
        return (boot + self._offset) // _MS

    def timeout(self, ms: int) -> float | None:
        return ms / 1000

    def watch(self, sleeper: Sleeper) -> None:
        pass

    def unwatch(self, sleeper: Sleeper) -> None:
        pass

    def _slew(self, boot: int) -> None:
        """Move towards the wall clock, by a thousandth of the time that passed at most."""
        most = (boot - self._corrected_at) // 1000
        error = time.time_ns() - boot - self._offset
        self._corrected_at = boot
        self._offset += max(-most, min(most, error))


class Ahead:
    """A clock that goes on from where a log ended, though the machine's clock stands before that: time never falls.

    It goes at half speed until the machine's has caught up, so that it is right again one day; unless that would take
    days: then nobody knows which of the two is wrong, and it goes on as it is.
    """

    __slots__ = ("_clock", "_slow", "_start", "_then")

    def __init__(self, clock: Clock, start: int) -> None:
        self._clock = clock
        self._start = start
        self._then = clock.now()
        self._slow = start - self._then <= SLOW_MS_MAX

    def now(self) -> int:
        real = self._clock.now()
        passed = real - self._then
        return max(real, self._start + (passed // 2 if self._slow else passed))

    def timeout(self, ms: int) -> float | None:
        lead = self.now() - self._clock.now() if self._slow else 0
        return self._clock.timeout(ms + min(ms, lead))

    def watch(self, sleeper: Sleeper) -> None:
        self._clock.watch(sleeper)

    def unwatch(self, sleeper: Sleeper) -> None:
        self._clock.unwatch(sleeper)
