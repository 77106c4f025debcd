"""Times and durations: every shape users write, what is refused, and that nothing is rounded down."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadTime
from mqueue.model.limits import TIME_MS_MAX
from mqueue.model.times import duration_ms, instant, instant_ms, rfc3339, to_datetime

INSTANTS = st.integers(0, TIME_MS_MAX)
DURATIONS = st.integers(0, 10**12)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (30, 30_000),
        (0.25, 250),
        (16.1, 16_100),  # 16.1 * 1000 is 16100.000000000002 in floats
        (1e-9, 1),
        (0.0, 0),
        (timedelta(minutes=5), 300_000),
        (timedelta(microseconds=1), 1),
        (timedelta(0), 0),
        ("250ms", 250),
        ("30s", 30_000),
        ("1.5s", 1500),
        ("5m", 300_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        (" 1h 30m ", 5_400_000),
        ("5m1ms", 300_001),
        ("0.1ms", 1),
        ("0s", 0),
    ],
)
def test_durations_are_read(value: object, ms: int) -> None:
    assert duration_ms(value) == ms  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        *[-1, -0.001, -1e-9, timedelta(microseconds=-1), math.nan, math.inf, -math.inf, True, False, None, [], b"30s"],
        *["", " ", "1 s"],
        *["30", "ms", "s", "-5s", "5x", "5M", "5m5m", "30m1h", "1,5s", ".5s", "5.s", "1e3s", "inf", "٣s"],
        *["9" * 16 + "d", "1d" * 10_000, "999999999999d", 10**15, 1e300],
    ],
)
def test_what_is_no_duration_is_refused_by_name_and_value(value: object) -> None:
    with pytest.raises(BadTime) as caught:
        duration_ms(value, "ttl")  # type: ignore[arg-type]
    assert caught.value.message.startswith(f"ttl {value!r:.80} is ")
    assert len(caught.value.message) < 300


def test_a_refused_duration_is_told_the_allowed_shapes() -> None:
    with pytest.raises(BadTime, match=r"250ms, 30s, 1\.5s, 5m, 12h, 7d"):
        duration_ms("soon")


@given(DURATIONS)
def test_a_duration_means_the_same_in_every_shape(ms: int) -> None:
    assert duration_ms(f"{ms}ms") == ms
    assert duration_ms(timedelta(milliseconds=ms)) == ms
    assert duration_ms(f"{ms // 1000}.{ms % 1000:03}s") == ms
    assert duration_ms(ms / 1000) == ms
    days, rest = divmod(ms, 86_400_000)
    assert duration_ms(f"{days}d{rest}ms") == ms


@given(st.floats(0, 1e9))
def test_a_float_is_never_shortened(seconds: float) -> None:
    exact = Fraction(repr(seconds)) * 1000
    assert exact <= duration_ms(seconds) < exact + 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 1, 14, 15), "2026-01-14T15:00:00.000Z"),
        (datetime(2026, 1, 14, 15, tzinfo=UTC), "2026-01-14T15:00:00.000Z"),
        (datetime(2026, 1, 14, 15, tzinfo=timezone(timedelta(hours=-5))), "2026-01-14T20:00:00.000Z"),
        (datetime(2026, 1, 14, 15, 0, 0, 1), "2026-01-14T15:00:00.001Z"),
        (date(2026, 1, 14), "2026-01-14T00:00:00.000Z"),
        ("2026-01-14", "2026-01-14T00:00:00.000Z"),
        ("2026-01-14T15:00:00Z", "2026-01-14T15:00:00.000Z"),
        ("2026-01-14t15:00:00.25z", "2026-01-14T15:00:00.250Z"),
        ("2026-01-14 15:00:00+01:30", "2026-01-14T13:30:00.000Z"),
        ("2026-01-14T15:00:00", "2026-01-14T15:00:00.000Z"),
        ("2026-01-14T15:00:00.000000001Z", "2026-01-14T15:00:00.001Z"),
        ("2026-01-14T15:00:00.9999Z", "2026-01-14T15:00:01.000Z"),
        ("1970-01-01", "1970-01-01T00:00:00.000Z"),
        (datetime.max, "9999-12-31T23:59:59.999Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_instants_are_read(value: object, text: str) -> None:
    assert rfc3339(instant(value)) == text  # type: ignore[arg-type]
    assert rfc3339(instant_ms(value)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        *[None, b"2026-01-14", True, 2.5, datetime.min, date(1969, 12, 31)],
        *[
            "",
            "now",
            "2026",
            "20260114",
            "2026-W03-3",
            "2026-13-01",
            "2026-02-29",
            "2026-01-14T15",
            "2026-01-14T24:00:00Z",
        ],
        *["2026-01-14T15:00:00+25:00", "2026-01-14Z", "1970-01-01T00:00:00+01:00", "9999-12-31T23:59:59-00:01"],
    ],
)
def test_what_is_no_instant_is_refused(value: object) -> None:
    for parse in (instant, instant_ms):
        with pytest.raises(BadTime) as caught:
            parse(value, "deliver_at")  # type: ignore[operator]
        assert caught.value.message.startswith(f"deliver_at {value!r} is ")


def test_an_int_is_a_time_only_on_the_wire() -> None:
    with pytest.raises(BadTime, match="offset"):
        instant(1_768_402_800_000)  # type: ignore[arg-type]
    assert rfc3339(instant_ms(1_768_402_800_000)) == "2026-01-14T15:00:00.000Z"
    assert instant_ms(TIME_MS_MAX) == TIME_MS_MAX
    for out_of_range in (-1, TIME_MS_MAX + 1):
        with pytest.raises(BadTime, match="out of range"):
            instant_ms(out_of_range)


@given(INSTANTS)
def test_an_instant_survives_every_shape(ms: int) -> None:
    assert instant(to_datetime(ms)) == ms
    assert instant(to_datetime(ms).replace(tzinfo=None)) == ms
    assert instant(rfc3339(ms)) == ms
    assert instant_ms(ms) == ms
    assert to_datetime(ms).utcoffset() == timedelta(0)


@given(INSTANTS, INSTANTS)
def test_text_sorts_as_time_does(a: int, b: int) -> None:
    assert (rfc3339(a) < rfc3339(b)) == (a < b)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)))
def test_an_instant_is_never_early(moment: datetime) -> None:
    read = to_datetime(instant(moment)).replace(tzinfo=None)
    assert moment <= read < moment + timedelta(milliseconds=1)
