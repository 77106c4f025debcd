"""When a failed message comes back.

A pure function of the attempt and the settings. Chance is handed in: does not roll the dice, nor know the clock.
"""

from __future__ import annotations

from mqueue.model.limits import TICK_MS, TIME_MS_MAX

JITTER_MAX = 0.2
"""Messages that failed together should not come back together."""

_DOUBLINGS_MAX = TIME_MS_MAX.bit_length()  # more cannot matter: 1 ms is past the year 9999 by then


def backoff_due(attempt: int, now: int, backoff_ms: int, backoff_max_ms: int, jitter: float) -> int:
    """`now` + min(backoff * 2^(attempt - 1), maximum) * (1 + jitter), on the next tick."""
    assert attempt >= 1, attempt
    assert -JITTER_MAX <= jitter <= JITTER_MAX, jitter
    delay_ms = min(backoff_ms << min(attempt - 1, _DOUBLINGS_MAX), backoff_max_ms)
    return tick_up(now + delay_ms + round(delay_ms * jitter))


def tick_up(at: int) -> int:
    """The first tick that is not before `at`."""
    return -(-at // TICK_MS) * TICK_MS
