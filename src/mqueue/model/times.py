"""Times and durations as users write them, turned into the integers that everything inside uses.

Inside, a time is milliseconds since 1970 and a duration is milliseconds; this is the one place that knows other shapes.
It does not know what time it is now, nor what a time is for. What falls between two milliseconds is rounded up: nothing
is delivered early, and of a range of times both ends mean the same set of milliseconds as the exact time would.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from mqueue.model.errors import BadTime
from mqueue.model.limits import TIME_MS_MAX

Duration: TypeAlias = int | float | timedelta | str
Instant: TypeAlias = datetime | date | str

_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = datetime(1970, 1, 1)

_DURATION_SHAPES = "seconds as a number, a timedelta, or text such as 250ms, 30s, 1.5s, 5m, 12h, 7d, 1h30m"
_INSTANT_SHAPES = "a datetime, a date, or text such as 2026-01-14T15:00:00Z or 2026-01-14"

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_TEXT_MAX = 64
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"  # bounded, so that what is in range is computed exactly
# Each unit at most once, the largest first: "5m5m" is a slip of the hand. `m` cannot swallow the head of `ms`: the
# whole text must match, so the pattern backs off to the right reading.
_DURATION = re.compile(r"\s*".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS_MS))

_ZONE = r"[Zz]|[+-][0-9]{2}:[0-9]{2}"
_INSTANT = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    rf"(?:[Tt ](?P<clock>[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})(?:\.(?P<fraction>[0-9]{{1,15}}))?(?P<zone>{_ZONE})?)?"
)


def duration_ms(value: Duration, name: str = "duration") -> int:
    """Milliseconds, rounded up. Numbers are seconds."""
    ms = _duration(value)
    if ms is None:
        raise BadTime(f"{name} {value!r:.80} is not a duration: give {_DURATION_SHAPES}")
    if not 0 <= ms <= TIME_MS_MAX:
        raise BadTime(f"{name} {value!r:.80} is out of range: a duration lies between 0 and {TIME_MS_MAX} ms")
    return ms


def instant(value: Instant, name: str = "time") -> int:
    """Milliseconds since 1970, rounded up. What names no zone is UTC; a date is its midnight."""
    ms = _instant(value, name)
    if ms is None:
        raise BadTime(f"{name} {value!r:.80} is not a time: give {_INSTANT_SHAPES}")
    return _in_range(ms, value, name)


def instant_ms(value: Instant | int, name: str = "time") -> int:
    """As `instant`, and an int is milliseconds since 1970: the shape that times have on the wire."""
    if isinstance(value, int):
        if isinstance(value, bool):
            raise BadTime(f"{name} {value!r} is not a time: give {_INSTANT_SHAPES}, or milliseconds since 1970")
        return _in_range(value, value, name)
    return instant(value, name)


def to_datetime(ms: int) -> datetime:
    """The UTC datetime, exact to the millisecond."""
    return _EPOCH + timedelta(milliseconds=ms)


def rfc3339(ms: int) -> str:
    """`2026-01-14T15:00:00.000Z`: always of the same length, so that text sorts as time does."""
    second, rest = divmod(ms, 1000)
    return f"{_second_text(second)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _second_text(second: int) -> str:
    """Most times that are shown one after the other are of a few seconds."""
    return (_EPOCH_NAIVE + timedelta(seconds=second)).isoformat(timespec="seconds")


def _duration(value: object) -> int | None:
    """Of whatever came: users have types, but nobody checks them."""
    if isinstance(value, str):
        return _text_ms(value) if len(value) <= _TEXT_MAX else None  # the cache must not keep long texts alive
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value * 1000
    if isinstance(value, float):
        return _float_ms(value)
    if isinstance(value, timedelta):
        return _ceil(value)
    return None


@lru_cache(maxsize=1024)
def _text_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text.strip())
    if match is None or match.lastgroup is None:
        return None
    parts = match.groupdict()
    return math.ceil(sum(Decimal(parts[unit]) * ms for unit, ms in _UNITS_MS.items() if parts[unit] is not None))


def _float_ms(value: float) -> int | None:
    """By way of the digits that the user wrote: 16.1 * 1000 is a hair above 16100, and would round up to 16101."""
    if not math.isfinite(value):
        return None
    ms = Decimal(float.__repr__(value)) * 1000
    return math.ceil(ms) if ms >= 0 else math.floor(ms)


def _instant(value: object, name: str) -> int | None:
    if isinstance(value, str):
        return _parsed(value)
    if isinstance(value, datetime):
        return _since_epoch(value)
    if isinstance(value, date):
        return _since_epoch(datetime(value.year, value.month, value.day))
    if isinstance(value, (int, float)):
        raise BadTime(
            f"{name} {value!r:.80} is a number, which is no time here (an int may be an offset; milliseconds since 1970"
            f" are for the wire): give {_INSTANT_SHAPES}"
        )
    return None


def _parsed(text: str) -> int | None:
    match = _INSTANT.fullmatch(text.strip())
    if match is None:
        return None
    zone = (match["zone"] or "Z").upper().replace("Z", "+00:00")
    try:
        whole = datetime.fromisoformat(f"{match['day']}T{match['clock'] or '00:00:00'}{zone}")
    except ValueError:  # the right shape, but no such day, hour or zone
        return None
    return _last_ms(_since_epoch(whole) + math.ceil(Decimal(f"0.{match['fraction'] or 0}") * 1000))


def _since_epoch(value: datetime) -> int:
    if value.utcoffset() is None:
        value = value.replace(tzinfo=UTC)
    return _last_ms(_ceil(value - _EPOCH))


def _ceil(length: timedelta) -> int:
    """Away from zero, so that a microsecond below zero stays below it and is refused."""
    return -(-length // _MS) if length >= timedelta(0) else length // _MS


def _last_ms(ms: int) -> int:
    """`datetime.max` is how many people write "never": its last microseconds must not round up into the year 10000."""
    return TIME_MS_MAX if ms == TIME_MS_MAX + 1 else ms


def _in_range(ms: int, value: object, name: str) -> int:
    if not 0 <= ms <= TIME_MS_MAX:
        raise BadTime(f"{name} {value!r:.80} is out of range: a time lies between 1970-01-01 and 9999-12-31 (UTC)")
    return ms
