"""A cap on how many scheduled messages become visible a second, so that many that are due at once flood nobody."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import assert_conserved, kinds, payloads, refused, take


@pytest.fixture
def q(make):
    q = make()
    q.configure("t", due_rate=10, partitions=1)
    q.publish_many("t", [Draft(b"%d" % n, delay="1m") for n in range(30)])
    return q


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, stop)]


def test_so_many_a_second_in_order(q, clock) -> None:
    clock.advance("59s")
    assert take(q, "t") == []
    clock.advance("1s")
    assert take(q, "t") == numbers(0, 2), "after a rest one portion, and one"
    for seen in range(2, 20):
        clock.advance("100ms")
        assert take(q, "t") == numbers(seen, seen + 1)
    clock.advance("1s")
    assert take(q, "t") == numbers(20, 30), "also if nobody looked meanwhile"
    assert_conserved(q, "t")


def test_others_do_not_wait(q, clock) -> None:
    clock.advance("1m")
    q.publish("t", b"now")
    q.publish("t", b"urgent", priority="critical")
    assert take(q, "t") == [b"urgent", b"0", b"1", b"now"]
    clock.advance("500ms")
    q.publish("t", b"later")
    assert take(q, "t") == [*numbers(2, 7), b"later"]


def test_what_waits_is_scheduled_and_says_why(q, clock) -> None:
    clock.advance("1m")
    assert q.stats("t").scheduled == 28
    page = q.scheduled("t", limit=10)
    assert payloads(page) == numbers(2, 12)
    assert payloads(q.scheduled("t", limit=100, after=page[-1])) == numbers(12, 30)
    why = q.explain(page[0].id)
    assert why.code == "throttled"
    assert "10 a second may become visible (due_rate)" in str(why)
    assert kinds(q, page[0].id) == ["PUBLISHED", "SCHEDULED"]


def test_what_is_cancelled_or_moved_makes_room(q, clock) -> None:
    clock.advance("1m")
    waiting = q.scheduled("t", limit=28)
    for message in waiting[:9]:
        q.cancel(message.id)
    q.reschedule(waiting[9].id, delay="1h")
    clock.advance("200ms")
    assert take(q, "t") == [b"0", b"1", b"12", b"13"]
    with refused(mqueue.Conflict, "not_scheduled"):
        q.cancel(waiting[10].id)
    clock.advance("1h")
    assert take(q, "t") == [*numbers(14, 30), b"11"]
    assert_conserved(q, "t", ended_before=9)


def test_what_expires_before_its_turn_is_not_delivered(make, clock) -> None:
    q = make()
    q.configure("t", due_rate=10, dlq_expired=True, partitions=1)
    q.publish_many("t", [Draft(b"%d" % n, delay="1m", ttl="1s") for n in range(30)])
    assert take(q, "t") == []
    clock.advance("1m")
    assert take(q, "t") == numbers(0, 2)
    clock.advance("500ms")
    assert take(q, "t") == numbers(2, 7)
    clock.advance("500ms")
    assert take(q, "t") == []
    clock.advance("1h")
    assert take(q, "t") == []
    stats = q.stats("t")
    assert (stats.scheduled, stats.groups["default"].expired) == (0, 23)
    assert_conserved(q, "t")
    assert sorted(payloads(q.scan("t.dlq"))) == sorted(numbers(7, 30))


def test_the_cap_is_changed_and_lifted(q, clock) -> None:
    clock.advance("1m")
    assert take(q, "t") == numbers(0, 2)
    q.configure("t", due_rate=0.01)
    clock.advance("10ms")
    assert take(q, "t") == [b"2"]
    clock.advance("99s")
    assert take(q, "t") == []
    q.configure("t", due_rate=None)
    clock.advance("10ms")
    assert take(q, "t") == numbers(3, 30)
    q.publish("t", b"later", delay="1s")
    clock.advance("1s")
    assert take(q, "t") == [b"later"]


def test_each_group_gets_what_became_visible(q, clock) -> None:
    clock.advance("61s")
    q.create_group("t", "late", start="latest")
    assert len(take(q, "t", group="a")) == 12
    assert take(q, "t", group="late") == []
    clock.advance("1h")
    assert take(q, "t", group="a") == numbers(12, 30)
    assert take(q, "t", group="b") == numbers(0, 30)


def test_who_died_can_be_redriven(q, clock) -> None:
    clock.advance("62s")
    for message in q.receive("t", limit=5):
        message.reject()
    assert q.dlq("t").redrive().redriven == 5
    assert take(q, "t")[:5] == numbers(0, 5)


@pytest.mark.parametrize("rate", [0, -1, True, "fast", 1_000_001, float("nan"), [5]])
def test_what_is_no_rate(q, rate) -> None:
    with refused(mqueue.BadSetting) as caught:
        q.configure("t", due_rate=rate)
    assert "due_rate" in str(caught.value)
    assert q.settings("t")["due_rate"] == 10
