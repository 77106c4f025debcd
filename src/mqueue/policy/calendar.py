"""When something that repeats happens: by a cron expression in a time zone, or every so often. Time is an argument.

Clocks that are changed. A cron expression that names hours goes by what clocks show: a time that is left out counts as
the instant at which clocks go on, a time that comes twice counts the first time; so each comes once. One that names
every hour goes by the time that passes: it happens at each instant whose minute and second it names, also in an hour
that comes twice. Periods know no clocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from mqueue.model.errors import BadTime
from mqueue.model.limits import SCHEDULE_EVERY_MS_MIN, TIME_MS_MAX
from mqueue.model.times import to_datetime
from mqueue.policy.cron import Cron, parse

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_DAYS_MAX = 9 * 366
"""From one 29th of February to the next it is eight years at most."""
_ZONE_MAX = 64
_ZONES_NOT = ("localtime", "posixrules")
"""Files of the database that are no zones: each machine has others there."""


class Calendar(Struct, frozen=True):
    """`cron` in the time zone `tz`, or, if that is empty, every `every_ms` from `since` on."""

    cron: str = ""
    tz: str = "UTC"
    every_ms: int = 0
    since: int = 0

    def after(self, at: int) -> int | None:
        """The first time it happens after `at`, both in milliseconds since 1970; None: never again."""
        if not self.cron:
            steps = max(0, (at - self.since) // self.every_ms) + 1
            found: int | None = self.since + steps * self.every_ms
        else:
            found = _after(parsed(self.cron), zone(self.tz), at)
        return found if found is not None and found <= TIME_MS_MAX else None

    def last(self, first: int, until: int) -> int:
        """The last time it happens up to `until`, given that it happens at `first`."""
        back = 1_000  # it may well be near: look there first
        while until - back > first and not self._happens(until - back, until):
            back *= 2
        low, high = max(first, until - back), until  # it happens from low on, and not after high
        while low < high:
            middle = (low + high + 1) // 2
            found = self.after(middle - 1)
            if found is not None and found <= until:
                low = found
            else:
                high = middle - 1
        return low

    def _happens(self, start: int, until: int) -> bool:
        found = self.after(start - 1)
        return found is not None and found <= until

    def times(self, first: int, until: int, most: int) -> list[int]:
        """When it happens from `first` to `until`; the last ones, if these are more than `most`."""
        found = [first]
        while (following := self.after(found[-1])) is not None and following <= until:
            if len(found) == most:
                return self._last_times(first, until, most)
            found.append(following)
        return found

    def _last_times(self, first: int, until: int, most: int) -> list[int]:
        found = [self.last(first, until)]
        while len(found) < most:
            found.append(self.last(first, found[-1] - 1))
        return found[::-1]


def check(calendar: Calendar) -> None:
    """Raise BadTime unless it is a calendar."""
    if calendar.cron:
        parsed(calendar.cron)
        zone(calendar.tz)
    elif calendar.every_ms < SCHEDULE_EVERY_MS_MIN:
        raise BadTime(
            f"every {calendar.every_ms} ms is too often: {SCHEDULE_EVERY_MS_MIN} ms is the least", code="too_frequent"
        )


@lru_cache(maxsize=1024)
def parsed(cron: str) -> Cron:
    return parse(cron)


def zone(name: Any) -> tzinfo:
    """A time zone of the IANA database, as this machine or the package tzdata has it."""
    try:
        if not isinstance(name, str) or not 0 < len(name) <= _ZONE_MAX or name in _ZONES_NOT:
            raise ValueError
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ValueError, LookupError, OSError) as error:  # not found; no such key; a folder
        raise BadTime(
            f"time zone {name!r:.80} is not known; it takes a name such as UTC or Europe/Berlin", code="bad_time_zone"
        ) from error


def _after(cron: Cron, tz: tzinfo, at: int) -> int | None:
    now = to_datetime(at).astimezone(tz)
    try:
        found = _passing(cron, tz, now) if cron.hourly else _shown(cron, tz, now)
    except OverflowError:  # behind the last day there is
        return None
    return None if found is None else round(found.timestamp()) * 1000


def _shown(cron: Cron, tz: tzinfo, now: datetime) -> datetime | None:
    """By what clocks show: instants never fall as that rises, so the first that lies ahead is the one."""
    day, clock, at = now.date(), now.time(), now.astimezone(UTC)
    for _ in range(_DAYS_MAX):
        if cron.names(day):
            for shown in _clocks(cron, clock):
                found = _instant(datetime.combine(day, shown), tz)
                if found > at:
                    return found
        day += _DAY
        clock = time.min
    return None


def _clocks(cron: Cron, start: time) -> Iterator[time]:
    """What clocks show when it happens, from a time of the day on."""
    for hour in cron.hours[bisect_left(cron.hours, start.hour) :]:
        minutes = cron.minutes[bisect_left(cron.minutes, start.minute) :] if hour == start.hour else cron.minutes
        for minute in minutes:
            now = (hour, minute) == (start.hour, start.minute)
            for second in cron.seconds[bisect_left(cron.seconds, start.second) :] if now else cron.seconds:
                yield time(hour, minute, second)


def _passing(cron: Cron, tz: tzinfo, now: datetime) -> datetime | None:
    """By the time that passes, hour by hour."""
    at = now.astimezone(UTC).replace(microsecond=0) + _SECOND
    for _ in range(_DAYS_MAX * 24):
        shown = at.astimezone(tz)
        if not cron.names(shown.date()):
            at = _day_after(cron, shown, tz)
            continue
        found = _in_hour(cron, at, tz)
        if found is not None:
            return found
        at += timedelta(minutes=59 - shown.minute, seconds=60 - shown.second)
    return None


def _day_after(cron: Cron, shown: datetime, tz: tzinfo) -> datetime:
    """When the next day begins that is named."""
    day = shown.date()
    for _ in range(_DAYS_MAX):
        day += _DAY
        if cron.names(day):
            break
    return _instant(datetime.combine(day, time.min), tz)


def _in_hour(cron: Cron, at: datetime, tz: tzinfo) -> datetime | None:
    """The first that is named from `at` on, before clocks show another hour, or go on or back."""
    shown = at.astimezone(tz)
    for minute in cron.minutes[bisect_left(cron.minutes, shown.minute) :]:
        first = bisect_left(cron.seconds, shown.second) if minute == shown.minute else 0
        for second in cron.seconds[first:]:
            found = at + timedelta(seconds=(minute - shown.minute) * 60 + second - shown.second)
            clock = found.astimezone(tz)
            if (clock.minute, clock.second) == (minute, second) and cron.names(clock.date()):
                return found
    return None


def _instant(shown: datetime, tz: tzinfo) -> datetime:
    """When clocks show this for the first time; if they never do, when they go on past it."""
    found = shown.replace(tzinfo=tz).astimezone(UTC)
    if found.astimezone(tz).replace(tzinfo=None) == shown:
        return found
    low, high = shown.replace(tzinfo=tz, fold=1).astimezone(UTC), found  # before they go on; after it
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(tz).replace(tzinfo=None) < shown:
            low = middle
        else:
            high = middle
    return high
