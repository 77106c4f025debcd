"""Delays and schedules: never early, listed, cancelled, moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import log, payloads, receive_one, refused, take

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("ms", [1, 9, 10, 1_000, 61_000, 3_600_000, 90_000_000, 315_360_000_000])
def test_never_early_and_not_late(q, clock, ms: int) -> None:
    q.publish("t", b"x", delay=timedelta(milliseconds=ms))
    clock.advance(timedelta(milliseconds=ms - 1))
    assert take(q, "t") == []
    clock.advance("11ms")
    assert take(q, "t") == [b"x"]


@pytest.mark.parametrize("when", ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00+01:00", START + timedelta(hours=1)])
def test_deliver_at(q, clock, when) -> None:
    q.publish("t", b"x", deliver_at=when)
    clock.advance("59m59s999ms")
    assert take(q, "t") == []
    clock.advance("1ms")
    assert receive_one(q, "t").deliver_at == START + timedelta(hours=1)


def test_microseconds_are_rounded_up(q, clock) -> None:
    q.publish("t", b"x", deliver_at=START + timedelta(microseconds=1))
    assert take(q, "t") == []
    clock.advance("1ms")
    assert take(q, "t") == [b"x"]


@pytest.mark.parametrize("options", [{"delay": 0}, {"deliver_at": "1970-01-01"}, {"deliver_at": START}])
def test_what_is_due_already_is_visible_at_once(q, options) -> None:
    r = q.publish("t", b"x", **options)
    assert q.scheduled("t") == []
    assert receive_one(q, "t").id == r.id


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"delay": "soon"},
        {"delay": True},
        {"delay": float("nan")},
        {"deliver_at": 5},
        {"deliver_at": "tomorrow"},
        {"deliver_at": "2026-02-30"},
        {"delay": 1, "deliver_at": "2027-01-01"},
        {"delay": "2920000d"},
        {"ttl": "2920000d"},
    ],
)
def test_bad_times_are_refused(q, options) -> None:
    q.configure("t")
    with refused(mqueue.BadTime, "bad_time"):
        q.publish("t", b"x", **options)
    assert log(q, "t") == []


def test_the_last_day_there_is(q) -> None:
    q.publish("t", b"x", deliver_at=datetime.max.replace(tzinfo=UTC))
    [m] = q.scheduled("t")
    assert m.deliver_at.year == 9999
    assert "9999" in str(q.explain(m.id))


def test_max_delay(make, clock) -> None:
    q = make(max_delay="1h")
    r = q.publish("t", b"x", delay="1h")
    with refused(mqueue.BadTime, "delay_too_long"):
        q.publish("t", b"x", delay="3600.001s")
    with refused(mqueue.BadTime, "delay_too_long"):
        q.publish("t", b"x", deliver_at="2026-01-01T01:00:00.001Z")
    with refused(mqueue.BadTime, "delay_too_long"):
        q.reschedule(r, delay="2h")
    clock.advance("1h")
    assert take(q, "t") == [b"x"]


def test_scheduled_lists_the_soonest_first(q) -> None:
    q.configure("t", partitions=3)
    delays = [50, 3, 7200, 61, 3, 90_000]
    for delay in delays:
        q.publish("t", str(delay), delay=delay)
    q.publish("t", b"now")
    assert payloads(q.scheduled("t")) == [b"3", b"3", b"50", b"61", b"7200", b"90000"]
    assert payloads(q.scheduled("t", limit=2)) == [b"3", b"3"]
    assert q.stats("t").scheduled == 6


def test_what_became_visible_is_no_longer_listed(q, clock) -> None:
    q.publish_many("t", [Draft(b"a", delay=1), Draft(b"b", delay=2)])
    clock.advance(1)
    assert payloads(q.scheduled("t")) == [b"b"]
    assert q.stats("t").scheduled == 1


def test_a_scheduled_message_cannot_be_settled(q) -> None:
    q.publish("t", b"x", delay=1)
    [m] = q.scheduled("t")
    assert m.attempt == 0
    with refused(mqueue.LeaseLost):
        m.ack()


def test_cancel(q, clock) -> None:
    a, b = q.publish("t", b"a", delay="1h"), q.publish("t", b"b", delay="1h")
    q.cancel(a.id)
    assert payloads(q.scheduled("t")) == [b"b"]
    assert q.stats("t").scheduled == 1
    clock.advance("1h")
    assert take(q, "t") == [b"b"]
    with refused(mqueue.Conflict, "not_scheduled"):
        q.cancel(b)


def test_cancel_one_of_a_batch(q, clock) -> None:
    receipts = q.publish_many("t", [Draft(b"%d" % n, delay="1h") for n in range(100)])
    for receipt in receipts[::3]:
        q.cancel(receipt)
    clock.advance("1h")
    assert take(q, "t") == [b"%d" % n for n in range(100) if n % 3]


def test_cancel_twice_is_a_conflict(q) -> None:
    r = q.publish("t", b"a", delay="1h")
    q.cancel(r)
    with refused(mqueue.Conflict, "not_scheduled"):
        q.cancel(r)
    with refused(mqueue.Conflict, "not_scheduled"):
        q.reschedule(r, delay=1)
    assert q.stats("t").scheduled == 0


def test_cancel_holds_for_later_groups_and_seeks(q, clock) -> None:
    q.cancel(q.publish("t", b"a", delay=1))
    clock.advance(1)
    assert take(q, "t", group="later") == []
    q.seek("t", group="later", to="earliest")
    assert take(q, "t", group="later") == []


def test_unknown_ids_are_not_found(q) -> None:
    q.publish("t", b"x", delay=1)
    for call in (q.cancel, q.trace, q.explain, lambda id: q.reschedule(id, delay=1)):
        for id in (0, 1, 2**62, -1):
            with refused(mqueue.NotFound, "not_found"):
                call(id)


@pytest.mark.parametrize("new", ["1s", "10m", "5h"])
def test_reschedule_sooner_or_later(q, clock, new: str) -> None:
    r = q.publish("t", b"x", delay="2h")
    q.reschedule(r, delay=new)
    assert len(q.scheduled("t")) == 1
    clock.advance(new)
    assert take(q, "t") == [b"x"]
    clock.advance("10h")
    assert take(q, "t") == []


def test_reschedule_leaves_the_rest_of_its_batch(q, clock) -> None:
    _, b, _ = q.publish_many("t", [Draft(x, delay="10s") for x in (b"a", b"b", b"c")])
    q.reschedule(b, delay="20s")
    clock.advance("10s")
    assert take(q, "t") == [b"a", b"c"]
    clock.advance("10s")
    assert take(q, "t") == [b"b"]


def test_reschedule_back_and_forth(q, clock) -> None:
    r = q.publish("t", b"x", delay="10s")
    for _ in range(3):
        q.reschedule(r, delay="20s")
        q.reschedule(r, delay="10s")
    assert payloads(q.scheduled("t")) == [b"x"]
    assert q.stats("t").scheduled == 1
    clock.advance("10s")
    assert q.stats("t").scheduled == 0
    assert take(q, "t") == [b"x"]
    clock.advance("10s")
    assert take(q, "t") == []
    q.seek("t", to="earliest")
    assert take(q, "t") == [b"x"]


def test_reschedule_back_and_forth_and_purge(q) -> None:
    r = q.publish("t", b"x", delay="10s")
    q.reschedule(r, delay="20s")
    q.reschedule(r, delay="10s")
    assert q.purge("t") == 1
    assert (q.stats("t").scheduled, q.scheduled("t")) == (0, [])


def test_reschedule_and_cancel(q, clock) -> None:
    r = q.publish("t", b"x", delay="10s")
    q.reschedule(r, delay="20s")
    q.cancel(r)
    assert q.stats("t").scheduled == 0
    clock.advance("1h")
    assert take(q, "t") == []


def test_reschedule_shows_everywhere(q, clock) -> None:
    r = q.publish("t", b"x", delay="10s")
    q.reschedule(r, deliver_at="2026-01-02")
    day = datetime(2026, 1, 2, tzinfo=UTC)
    assert q.explain(r).until == day
    assert q.scheduled("t")[0].deliver_at == day
    clock.advance("1d")
    assert receive_one(q, "t").deliver_at == day


def test_reschedule_to_the_past_is_next(q, clock) -> None:
    r = q.publish("t", b"x", delay="1h")
    q.publish("t", b"y")
    q.reschedule(r, deliver_at="1999-01-01")
    clock.advance("10ms")
    assert take(q, "t") == [b"y", b"x"]


def test_reschedule_of_what_is_visible_is_a_conflict(q, clock) -> None:
    r = q.publish("t", b"x", delay=1)
    clock.advance(1)
    for options in ({"delay": 5}, {"deliver_at": "2030-01-01"}):
        with refused(mqueue.Conflict, "not_scheduled"):
            q.reschedule(r, **options)
    assert take(q, "t") == [b"x"]


@pytest.mark.parametrize(
    "options", [{}, {"delay": 1, "deliver_at": "2030-01-01"}, {"delay": -1}, {"delay": "2920000d"}]
)
def test_reschedule_to_no_time_is_refused(q, options) -> None:
    r = q.publish("t", b"x", delay="1h")
    with refused(mqueue.BadTime):
        q.reschedule(r, **options)
    assert q.explain(r).until == START + timedelta(hours=1)


def test_reschedule_behind_the_expiry_is_refused(q, clock) -> None:
    r = q.publish("t", b"x", delay="10s", ttl="10s")
    for delay in ("20s", "21s"):
        with refused(mqueue.BadTime):
            q.reschedule(r, delay=delay)
    q.reschedule(r, delay="19.999s")
    clock.advance("19.999s")
    assert take(q, "t") == [b"x"]


def test_groups_before_and_after_get_a_rescheduled_message_once(q, clock) -> None:
    q.create_group("t", "before")
    r = q.publish("t", b"x", delay="10s")
    q.publish("t", b"y", delay="15s")
    q.reschedule(r, delay="20s")
    clock.advance("20s")
    for group in ("before", "after"):
        assert take(q, "t", group=group) == [b"y", b"x"], group
        clock.advance("1h")
        assert take(q, "t", group=group) == []


def test_a_delay_counts_from_the_publish(q, clock) -> None:
    q.publish("t", b"late", delay="2s")
    clock.advance("1s")
    q.publish("t", b"soon", delay="0.5s")
    q.publish("t", b"now")
    clock.advance("10s")
    assert take(q, "t") == [b"now", b"soon", b"late"]


def test_the_list_is_read_page_by_page(q, clock) -> None:
    q.configure("t", partitions=3)
    delays = [5, 5, 5, 61, 7200, 7200, 90_000, 90_000, 3, 5]
    receipts = [q.publish("t", b"%d" % n, delay=delay, key=str(n)) for n, delay in enumerate(delays)]
    q.publish_many("t", [Draft(b"many %d" % n, delay=5) for n in range(40)])
    q.reschedule(receipts[4], delay=4)
    q.cancel(receipts[0])
    whole = payloads(q.scheduled("t", 1000))
    assert len(whole) == q.stats("t").scheduled == 49
    for size in (1, 7, 49):
        found, last = [], None
        while page := q.scheduled("t", size, after=last):
            assert len(page) <= size
            found += payloads(page)
            last = page[-1]
        assert found == whole, size
    clock.advance("5s")
    assert payloads(q.scheduled("t", 2)) == [b"3", b"5"]
    with refused(mqueue.Refused, "bad_position"):
        q.scheduled("t", after="somewhere")
