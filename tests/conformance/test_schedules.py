"""Messages that repeat by the calendar: each occurrence once, whatever happens in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import mqueue
from mqueue.model.limits import SCHEDULE_AT_ONCE_MAX
from tests.conformance.steps import payloads, refused, take

START = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
KINDS = {"bad_setting": mqueue.BadSetting, "bad_name": mqueue.BadName, "bad_priority": mqueue.BadPriority}


def occurrences(q, topic: str = "t") -> list[str]:
    """When what is there now was to happen."""
    found = []
    while batch := q.receive(topic, 100):
        found += [m.headers["mqueue-occurrence"] for m in batch]
        q.ack(batch)
    return found


def day(number: int, hour: int = 8) -> str:
    return f"2026-01-{number:02}T{hour:02}:00:00.000Z"


def test_weekdays_at_nine_in_berlin(q, clock) -> None:
    made = q.schedules("t").add({"n": 1}, cron="0 9 * * 1-5", tz="Europe/Berlin", name="report", priority="high")
    assert (made.name, made.topic, made.cron, made.tz) == ("report", "t", "0 9 * * 1-5", "Europe/Berlin")
    assert made.next_at == START + timedelta(hours=8)
    clock.advance("7h59m59s999ms")
    assert take(q, "t") == []
    clock.advance("1ms")
    [m] = q.receive("t")
    assert (m.json(), m.priority, m.headers["mqueue-schedule"]) == ({"n": 1}, 25, "report")
    assert m.headers["mqueue-occurrence"] == day(1)
    m.ack()
    found = []
    for _ in range(7):
        clock.advance("1d")
        found += occurrences(q)
    assert found == [day(2), day(5), day(6), day(7), day(8)]
    told = q.schedules("t").get("report")
    assert (told.count, told.last_at, told.next_at) == (
        6,
        START + timedelta(days=7, hours=8),
        START + timedelta(days=8, hours=8),
    )


def test_every(q, clock) -> None:
    q.schedules("t").add(b"tick", every="15m", name="ticks")
    found = []
    for _ in range(8):
        clock.advance("7m30s")
        found += [at[11:16] for at in occurrences(q)]
    assert found == ["00:15", "00:30", "00:45", "01:00"]


def test_the_whole_message_repeats(q, clock) -> None:
    q.schedules("t").add(
        b"\xff\x00", every="1h", key=b"\xfe", headers={"a": "b", "raw": b"\xff"}, priority=7, ttl="10m", name="n"
    )
    for hour in (1, 2):
        clock.advance("1h")
        [m] = q.receive("t")
        assert (m.payload, m.key, m.priority) == (b"\xff\x00", b"\xfe", 7)
        assert (m.headers["a"], m.headers["raw"]) == ("b", b"\xff")
        assert m.expires_at == START + timedelta(hours=hour, minutes=10)
        m.ack()


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [("once", [day(9)]), ("skip", []), ("all", [day(n) for n in range(1, 10)])],
)
def test_what_was_missed(q, clock, misfire: str, expected: list[str]) -> None:
    q.schedules("t").add(b"x", cron="0 8 * * *", misfire=misfire, name="n")
    clock.advance("9d")
    assert occurrences(q) == expected
    clock.advance("8h")
    assert occurrences(q) == [day(10)]


def test_all_that_was_missed_is_bounded(q, clock) -> None:
    q.schedules("t").add(b"x", cron="* * * * * *", misfire="all", name="n")
    clock.advance("1h")
    found = occurrences(q)
    assert len(found) == 100
    assert (found[0], found[-1]) == ("2026-01-01T00:58:21.000Z", "2026-01-01T01:00:00.000Z")


def test_a_little_late_is_not_missed(q, clock) -> None:
    q.schedules("t").add(b"x", cron="0 8 * * *", misfire="skip", name="n")
    clock.advance("8h1m")
    assert occurrences(q) == [day(1)]
    clock.advance("24h1ms")
    assert occurrences(q) == []


def test_clocks_go_on_and_back(make, clock) -> None:
    clock.advance("86d")  # 28 March; in the night to the 29th clocks go from 02:00 to 03:00
    q = make()
    q.schedules("t").add(b"x", cron="30 2 * * *", tz="Europe/Berlin", name="night", misfire="all")
    q.schedules("t").add(b"x", cron="30 * * * *", tz="Europe/Berlin", name="hourly", misfire="all")
    clock.advance("2d")
    found = sorted((m.headers["mqueue-schedule"], m.headers["mqueue-occurrence"][5:16]) for m in q.receive("t", 1000))
    assert [at for name, at in found if name == "night"] == ["03-28T01:30", "03-29T01:00"]
    assert len([at for name, at in found if name == "hourly"]) == 48
    clock.advance("208d")  # 24 October; in the night to the 25th clocks go from 03:00 to 02:00
    q.purge("t")
    clock.advance("2d")
    found = sorted((m.headers["mqueue-schedule"], m.headers["mqueue-occurrence"][5:16]) for m in q.receive("t", 1000))
    assert [at for name, at in found if name == "night"] == ["10-24T00:30", "10-25T00:30"]
    assert len([at for name, at in found if name == "hourly"]) == 48


def test_pause_and_resume(q, clock) -> None:
    schedules = q.schedules("t")
    schedules.add(b"x", cron="0 8 * * *", misfire="all", name="n")
    assert schedules.pause("n").next_at is None
    clock.advance("3d")
    assert occurrences(q) == []
    assert schedules.get("n").paused
    assert schedules.resume("n").next_at == START + timedelta(days=3, hours=8)
    clock.advance("1d")
    assert occurrences(q) == [day(4)]


def test_change(q, clock) -> None:
    schedules = q.schedules("t")
    schedules.add(b"x", cron="0 8 * * *", name="n")
    assert schedules.change("n", cron="0 10 * * *", tz="Europe/Berlin").next_at == START + timedelta(hours=9)
    assert schedules.change("n", every="1h").cron is None
    clock.advance("1h")
    assert occurrences(q) == [day(1, 1)]
    with refused(mqueue.BadTime, "bad_cron"):
        schedules.change("n", cron="never")
    assert schedules.get("n").every == 3600


def test_run_now(q, clock) -> None:
    schedules = q.schedules("t")
    schedules.add(b"x", cron="0 8 * * *", name="n")
    clock.advance("1h")
    receipt = schedules.run("n")
    [m] = q.receive("t")
    assert (m.id, m.headers["mqueue-occurrence"]) == (receipt.id, day(1, 1))
    told = schedules.get("n")
    assert (told.count, told.last_id, told.next_at) == (1, receipt.id, START + timedelta(hours=8))


def test_delete(q, clock) -> None:
    schedules = q.schedules("t")
    schedules.add(b"x", every="1h", name="n")
    schedules.delete("n")
    clock.advance("1d")
    assert take(q, "t") == []
    assert schedules.all() == []
    with refused(mqueue.NotFound, "not_found"):
        schedules.delete("n")


def test_a_schedule_goes_with_its_topic(q, clock) -> None:
    q.schedules("t").add(b"x", every="1h", name="n")
    q.delete_topic("t")
    clock.advance("1d")
    assert take(q, "t") == []
    assert q.schedules("t").all() == []


def test_the_list(q) -> None:
    for topic, name in [("b", "z"), ("b", "a"), ("a", "m")]:
        q.schedules(topic).add(b"x", every="1h", name=name)
    q.namespace("other").schedules("a").add(b"x", every="1h", name="elsewhere")
    assert [(one.topic, one.name) for one in q.schedules().all()] == [("a", "m"), ("b", "a"), ("b", "z")]
    assert [one.name for one in q.schedules("b").all()] == ["a", "z"]
    assert [one.name for one in q.namespace("other").schedules().all()] == ["elsewhere"]


def test_the_same_said_twice_is_one(q) -> None:
    schedules = q.schedules("t")
    first = schedules.add(b"x", cron="0  8 * * *")
    assert schedules.add(b"x", cron="0 8 * * *") == first
    assert schedules.add(b"y", cron="0 8 * * *").name != first.name
    with refused(mqueue.Conflict, "schedule_exists"):
        schedules.add(b"z", cron="0 8 * * *", name=first.name)
    assert schedules.get(first.name) == first


BAD = [
    ({}, "bad_cron"),
    ({"cron": "0 9 * * *", "every": "1h"}, "bad_cron"),
    ({"cron": ""}, "bad_cron"),
    ({"cron": "0 9 * *"}, "bad_cron"),
    ({"cron": "61 9 * * *"}, "bad_cron"),
    ({"cron": "0 0 30 2 *"}, "bad_cron"),
    ({"cron": "0 0 31 apr,jun *"}, "bad_cron"),
    ({"cron": "@reboot"}, "bad_cron"),
    ({"cron": "0 9 * * *", "tz": "Mars/Olympus"}, "bad_time_zone"),
    ({"cron": "0 9 * * *", "tz": ""}, "bad_time_zone"),
    ({"every": "999ms"}, "too_frequent"),
    ({"every": 0}, "too_frequent"),
    ({"every": "often"}, "bad_time"),
    ({"every": "1h", "ttl": 0}, "bad_time"),
    ({"every": "1h", "misfire": "twice"}, "bad_setting"),
    ({"every": "1h", "name": "a b"}, "bad_name"),
    ({"every": "1h", "priority": "soon"}, "bad_priority"),
]


def test_bad_schedules_are_refused(q) -> None:
    q.configure("t")
    for options, code in BAD:
        with refused(KINDS.get(code, mqueue.BadTime), code):
            q.schedules("t").add(b"x", **options)
    assert q.schedules("t").all() == []


def test_too_large_and_too_many(make) -> None:
    q = make(limits=mqueue.Limits(schedules_max=2))
    with refused(mqueue.TooLarge, "payload_too_large"):
        q.schedules("t").add(b"x" * (64 * 1024 + 1), every="1h")
    q.schedules("t").add(b"1", every="1h")
    q.schedules("t").add(b"2", every="1h")
    with refused(mqueue.QueueFull, "schedules_full"):
        q.schedules("t").add(b"3", every="1h")
    assert len(q.schedules().all()) == 2


def test_a_topic_is_named(q) -> None:
    for call in (lambda s: s.add(b"x", every="1h"), lambda s: s.get("n"), lambda s: s.run("n")):
        with refused(mqueue.BadSetting):
            call(q.schedules())


def test_a_full_topic_makes_it_late(make, clock) -> None:
    q = make(max_depth=1)
    q.schedules("t").add(b"x", cron="0 8 * * *", name="n")
    q.publish("t", b"in the way")
    clock.advance("8h")
    assert q.schedules("t").get("n").count == 0
    assert take(q, "t") == [b"in the way"]
    clock.advance("1s")
    assert occurrences(q) == [day(1)]


@pytest.mark.parametrize("overflow", ["refuse", "drop_oldest"])
def test_more_was_missed_than_the_topic_may_hold(make, clock, overflow: str) -> None:
    q = make(max_depth=3, overflow=overflow)
    q.schedules("t").add(b"x", cron="0 8 * * *", misfire="all", name="n")
    clock.advance("5d")
    found: list[str] = []
    for _ in range(60):  # what finds no room is published once there is
        found += occurrences(q)
        if day(5) in found:
            break
        clock.advance("1s")
    assert found[-3:] == [day(3), day(4), day(5)]
    assert overflow == "drop_oldest" or found[:-3] == [day(1), day(2)]
    told = q.schedules("t").get("n")
    assert (told.count, told.next_at) == (5, START + timedelta(days=5, hours=8))


def test_many_messages_of_schedules_are_published_in_steps(make, clock) -> None:
    q = make()
    for number in range(11):
        q.schedules("t").add(b"x", cron="* * * * * *", misfire="all", name=f"n{number}")
    clock.advance("1h")
    before = q.stats("t").ready
    found = occurrences(q)
    assert before <= SCHEDULE_AT_ONCE_MAX < len(found) == len(set(found)) * 11


def test_who_waits_is_woken(q, clock) -> None:
    q.schedules("t").add(b"x", every="1s", name="n")
    clock.advance("1s")
    assert payloads(q.receive("t", wait="1s")) == [b"x"]
