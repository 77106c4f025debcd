"""Calendars: which instants a cron expression names, in which time zone, whatever clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from mqueue.model.errors import BadTime
from mqueue.model.times import instant, rfc3339
from mqueue.policy.calendar import Calendar, zone
from mqueue.policy.cron import parse

BERLIN = "Europe/Berlin"


def following(cron: str, tz: str, at: str, count: int) -> list[str]:
    found, now = [], instant(at)
    for _ in range(count):
        after = Calendar(cron, tz).after(now)
        assert after is not None
        now = after
        found.append(rfc3339(now)[:16])
    return found


@pytest.mark.parametrize(
    ("cron", "tz", "at", "expected"),
    [
        ("30 2 * * *", BERLIN, "2026-03-28", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        ("*/10 2 * * *", BERLIN, "2026-03-29", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        ("30 2 * * *", BERLIN, "2026-10-24", ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
        ("30 * * * *", BERLIN, "2026-03-29", ["2026-03-29T00:30", "2026-03-29T01:30"]),
        ("30 * * * *", BERLIN, "2026-10-25", ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", ["2018-11-04T03:00", "2018-11-05T02:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", ["2026-10-03T15:30", "2026-10-04T15:15"]),
        ("0 0 29 2 *", "UTC", "2096-03-01", ["2104-02-29T00:00", "2108-02-29T00:00"]),
        ("0 0 13 * fri", "UTC", "2026-01-01", ["2026-01-02T00:00", "2026-01-09T00:00", "2026-01-13T00:00"]),
        ("0 12 * jan,jul mon-wed/2", "UTC", "2026-01-06", ["2026-01-07T12:00", "2026-01-12T12:00"]),
        ("@weekly", "UTC", "2026-01-01", ["2026-01-04T00:00", "2026-01-11T00:00"]),
        ("0 0 * * 7", "UTC", "2026-01-01", ["2026-01-04T00:00"]),
        ("0 0 * * fri-sun", "UTC", "2026-01-01", ["2026-01-02T00:00", "2026-01-03T00:00", "2026-01-04T00:00"]),
        ("0 0 * * 6-0", "UTC", "2026-01-01", ["2026-01-03T00:00", "2026-01-04T00:00", "2026-01-10T00:00"]),
        ("0 0 * * sun-sun", "UTC", "2026-01-01", ["2026-01-04T00:00", "2026-01-11T00:00"]),
    ],
)
def test_what_comes_next(cron: str, tz: str, at: str, expected: list[str]) -> None:
    assert following(cron, tz, at, len(expected)) == expected


def test_it_ends_with_the_last_year() -> None:
    assert Calendar("0 0 1 1 *").after(instant("9999-06-01")) is None


@pytest.mark.parametrize("tz", ["UTC", BERLIN, "Asia/Kolkata", "America/New_York"])
def test_each_minute_of_a_year_agrees_with_what_clocks_show(tz: str) -> None:
    """Far from the nights in which clocks are changed, an instant is named if what clocks show is."""
    chance = Random(tz)
    for _ in range(40):
        minute, hour, day = chance.randrange(60), chance.randrange(24), chance.randrange(1, 29)
        weekday = chance.randrange(7)
        cron = chance.choice(
            [f"{minute} {hour} {day} * *", f"{minute} * * * {weekday}", f"*/{minute + 1} {hour} * * *"]
        )
        at = datetime(2026, 7, chance.randrange(1, 20), chance.randrange(24), tzinfo=UTC)
        parsed, named = parse(cron), None
        for step in range(1, 32 * 24 * 60):
            shown = (at + timedelta(minutes=step)).astimezone(ZoneInfo(tz))
            if shown.minute in parsed.minutes and shown.hour in parsed.hours and parsed.names(shown.date()):
                named = shown
                break
        found = Calendar(cron, tz).after(instant(at))
        assert named is not None, cron
        assert found == instant(named), (cron, at)


def test_the_last_ones() -> None:
    chance = Random(4)
    for cron in ("*/7 * * * *", "0 */5 * * *", "30 2 * * *", "*/20 * 3 * * *", "0 0 1 * *"):
        dates = Calendar(cron, BERLIN)
        first = dates.after(instant("2026-03-20"))
        assert first is not None
        until = first + chance.randrange(40 * 86_400_000)
        every = [first]
        while (one := dates.after(every[-1])) is not None and one <= until:
            every.append(one)
        assert dates.last(first, until) == every[-1], cron
        assert dates.times(first, until, 5) == every[-5:], cron


def test_periods_count_from_their_beginning() -> None:
    dates = Calendar(every_ms=900_000, since=100)
    assert [dates.after(at) for at in (0, 100, 900_099, 900_100)] == [900_100, 900_100, 900_100, 1_800_100]
    assert dates.last(900_100, 10_000_000) == 9_900_100


BAD = (
    *("", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
    *(
        "5-1 * * * *",
        "0 0 * * fri-mon",
        "*/0 * * * *",
        "*/x * * * *",
        "1,,2 * * * *",
        "a * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
    ),
    *("@often", "- * * * *", "¼ * * * *", "-1 * * * *", "1-2-3 * * * *", "* * * * ?", "x" * 300, 5, None),
)


@pytest.mark.parametrize("cron", BAD)
def test_bad_expressions_say_what_is_wrong(cron: object) -> None:
    with pytest.raises(BadTime) as caught:
        parse(cron)
    assert caught.value.code == "bad_cron"


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "..", "../UTC", "/etc/passwd", "Europe", "localtime", "\0", "x" * 99, None, 1]
)
def test_bad_zones(name: object) -> None:
    with pytest.raises(BadTime) as caught:
        zone(name)
    assert caught.value.code == "bad_time_zone"
