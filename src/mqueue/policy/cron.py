"""Cron expressions: which seconds of which days they name. Knows no time zone and no clock; see `calendar`.

Five fields (minute, hour, day of month, month, day of week), six with the second first, or one of @hourly, @daily,
@midnight, @weekly, @monthly, @yearly, @annually. A field is `*`, a number or a name, a range, any of these with a step,
or a list. If both kinds of days are given, either will do, as everywhere with cron.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date
from typing import Any

from msgspec import Struct

from mqueue.model.errors import BadTime

_TEXT_MAX = 256
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LEAP_YEAR = 2024


class Field(Struct, frozen=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, text: str, cron: str) -> int:
        """A number or a name of this field."""
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.low
        if not (text.isascii() and text.isdecimal() and len(text) <= 4 and self.low <= int(text) <= self.high):
            names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise _bad(cron, f"{self.name} {text!r:.40}: it takes {self.low} to {self.high}{names}")
        return int(text)


_FIELDS = (
    Field("second", 0, 59),
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, _MONTHS),
    Field("day of week", 0, 7, _DAYS),
)


class Cron(Struct, frozen=True):
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0: Sunday"""
    either: bool
    """Whether one of day and weekday will do: both were given."""

    @property
    def hourly(self) -> bool:
        """Whether it names every hour: then it goes by time that passes, not by what clocks show."""
        return len(self.hours) == 24

    def names(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.either else in_month and in_week


def parse(cron: Any) -> Cron:
    """A cron expression; BadTime (`bad_cron`) says what is wrong with it, or that no day is ever named."""
    if not isinstance(cron, str) or len(cron) > _TEXT_MAX:
        raise _bad(cron, f"it takes text of at most {_TEXT_MAX} characters")
    text = cron.strip()
    if text.startswith("@"):
        if text.lower() not in _MACROS:
            raise _bad(cron, f"it takes one of {', '.join(_MACROS)}")
        text = _MACROS[text.lower()]
    parts = text.split()
    if len(parts) not in (5, 6):
        raise _bad(cron, f"it has {len(parts)} fields: it takes minute, hour, day of month, month, day of week,"
                         " or six with the second first")  # fmt: skip
    if len(parts) == 5:
        parts = ["0", *parts]
    found = [_numbers(field, part, cron) for field, part in zip(_FIELDS, parts, strict=True)]
    weekdays = frozenset(number % 7 for number in found[5])
    either = not parts[3].startswith("*") and not parts[5].startswith("*")
    parsed = Cron(
        _ordered(found[0]), _ordered(found[1]), _ordered(found[2]), found[3], found[4], weekdays, either
    )  # fmt: skip
    if not either and not any(
        day <= monthrange(_LEAP_YEAR, month)[1] for month in parsed.months for day in parsed.days
    ):
        raise _bad(cron, f"no month that it names has a day {min(parsed.days)}: it would never come")
    return parsed


def _numbers(field: Field, text: str, cron: str) -> frozenset[int]:
    return frozenset(number for item in text.split(",") for number in _item(field, item, cron))


def _item(field: Field, item: str, cron: str) -> range:
    span, slash, step_text = item.partition("/")
    step = 1
    if slash:
        if not (step_text.isascii() and step_text.isdecimal() and len(step_text) <= 4 and int(step_text)):
            raise _bad(cron, f"{field.name}: step {step_text!r:.40} takes a number above 0")
        step = int(step_text)
    if span == "*":
        return range(field.low, field.high + 1, step)
    first, dash, last = span.partition("-")
    low = field.number(first, cron)
    high = field.number(last, cron) if dash else field.high if slash else low
    if field.names is _DAYS and dash and low and not high:
        high = 7  # a week that is said to end with Sunday does
    if high < low:
        raise _bad(cron, f"{field.name} {span!r:.40} ends before it begins; give it as two")
    return range(low, high + 1, step)


def _ordered(numbers: frozenset[int]) -> tuple[int, ...]:
    return tuple(sorted(numbers))


def _bad(cron: object, why: str) -> BadTime:
    return BadTime(f"cron {cron!r:.80}: {why}", code="bad_cron")
