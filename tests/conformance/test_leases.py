"""Leases: who holds what until when, counted when handed out, fenced by their token."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import offsets, payloads, receive_one, refused, take


def test_what_is_leased_is_nobody_elses(q) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    assert payloads(q.receive("t", limit=2)) == [b"1", b"2"]
    assert payloads(q.receive("t", limit=2)) == [b"3"]
    assert q.receive("t", limit=2) == []


def test_visibility_is_thirty_seconds(q, clock) -> None:
    q.publish("t", b"x")
    q.receive("t")
    clock.advance("29.999s")
    assert q.receive("t") == []
    clock.advance("1ms")
    assert receive_one(q, "t").attempt == 2


def test_visibility_of_the_topic_and_of_the_call(make, clock) -> None:
    q = make(visibility="10s")
    q.publish_many("t", [b"1", b"2"])
    q.receive("t")
    q.receive("t", visibility="5s")
    clock.advance("5s")
    assert payloads(q.receive("t", limit=9, visibility="12h")) == [b"2"]
    clock.advance("5s")
    assert payloads(q.receive("t", limit=9)) == [b"1"]


def test_the_attempt_is_counted_when_leased(q, clock) -> None:
    q.configure("t", max_retries=None)
    q.publish("t", b"x")
    for attempt in range(1, 8):
        assert receive_one(q, "t", visibility="1s").attempt == attempt
        clock.advance("1s")


def test_the_attempt_of_a_message_in_hand_does_not_change(q, clock) -> None:
    q.publish("t", b"x")
    first = receive_one(q, "t", visibility="1s")
    clock.advance("1s")
    second = receive_one(q, "t")
    assert (first.attempt, second.attempt) == (1, 2)
    second.release()
    third = receive_one(q, "t")
    assert (first.attempt, second.attempt, third.attempt) == (1, 2, 2)


def test_what_was_only_looked_at_has_no_attempt(q) -> None:
    q.publish("t", b"x")
    assert [m.attempt for m in (*q.peek("t"), *q.scan("t"))] == [0, 0]


def test_in_flight_max(make, clock) -> None:
    q = make(in_flight_max=3)
    q.publish_many("t", [b"%d" % n for n in range(6)])
    held = q.receive("t", limit=10)
    assert len(held) == 3
    assert q.receive("t") == []
    assert q.explain(next(q.scan("t", start=3))).code == "in_flight_max"
    held[1].ack()
    assert payloads(q.receive("t", limit=10)) == [b"3"]
    clock.advance("30s")
    assert len(q.receive("t", limit=10)) == 3


def test_in_flight_max_is_per_group(make) -> None:
    q = make(in_flight_max=1)
    q.publish("t", b"x")
    assert [len(q.receive("t", group=group)) for group in "abc"] == [1, 1, 1]


def test_in_flight_max_can_be_lowered(q) -> None:
    q.publish_many("t", [b"x"] * 4)
    held = q.receive("t", limit=3)
    q.configure("t", in_flight_max=2)
    assert q.receive("t") == []
    held[0].ack()
    assert q.receive("t") == []
    held[1].ack()
    assert len(q.receive("t", limit=9)) == 1


def test_what_waits_for_a_retry_is_not_in_flight(make) -> None:
    q = make(in_flight_max=1)
    q.publish_many("t", [b"1", b"2"])
    receive_one(q, "t").nack(delay="1h")
    assert payloads(q.receive("t")) == [b"2"]


def test_extend(q, clock) -> None:
    q.publish("t", b"x")
    m = receive_one(q, "t")
    clock.advance("20s")
    m.extend("1m")
    clock.advance("59s")
    assert q.receive("t") == []
    m.extend("1m")
    clock.advance("1m")
    assert receive_one(q, "t").attempt == 2


def test_extend_one_of_many(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(5)])
    held = q.receive("t", limit=5)
    held[2].extend("1h")
    clock.advance("30s")
    assert payloads(q.receive("t", limit=9)) == [b"0", b"1", b"3", b"4"]
    held[2].ack()
    with refused(mqueue.LeaseLost):
        held[1].ack()


def test_extend_some_of_many(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(6)])
    held = q.receive("t", limit=6, visibility="10s")
    assert q.extend(held[::2], "20s").settled == 3
    q.extend([held[0]], "30s")
    clock.advance("10s")
    assert payloads(q.receive("t", limit=9, visibility="1h")) == [b"1", b"3", b"5"]
    clock.advance("10s")
    assert payloads(q.receive("t", limit=9, visibility="1h")) == [b"2", b"4"]
    clock.advance("10s")
    assert payloads(q.receive("t", limit=9)) == [b"0"]


def test_extend_may_shorten(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    first, _ = q.receive("t", limit=2, visibility="1h")
    first.extend("5s")
    clock.advance("4.999s")
    assert q.receive("t") == []
    clock.advance("1ms")
    assert payloads(q.receive("t", limit=2)) == [b"1"]


@pytest.mark.parametrize("visibility", [0, -1, "12h1ms", "for ever"])
def test_extend_by_no_time_is_refused(q, clock, visibility) -> None:
    q.publish("t", b"x")
    m = receive_one(q, "t")
    with refused(mqueue.BadTime):
        m.extend(visibility)
    with refused(mqueue.BadTime):
        q.extend([m], visibility)
    clock.advance("30s")
    assert len(q.receive("t")) == 1


def test_extend_of_what_is_lost(q, clock) -> None:
    q.publish("t", b"x")
    m = receive_one(q, "t")
    clock.advance("30s")
    with refused(mqueue.LeaseLost):
        m.extend("1m")
    assert receive_one(q, "t").attempt == 2


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release"])
def test_a_lease_that_ran_out_settles_nothing(q, clock, verb: str) -> None:
    q.publish("t", b"x")
    old = receive_one(q, "t")
    clock.advance("30s")
    with refused(mqueue.LeaseLost, "lease_lost") as caught:
        getattr(old, verb)()
    assert (caught.value.status, caught.value.lost) == (409, (old.id,))
    new = receive_one(q, "t")
    with refused(mqueue.LeaseLost):
        getattr(old, verb)()
    new.ack()
    assert q.stats("t").acked == 1


@pytest.mark.parametrize("verb", ["nack", "reject", "release"])
def test_what_was_acked_cannot_be_settled_otherwise(q, verb: str) -> None:
    q.publish("t", b"x")
    m = receive_one(q, "t")
    m.ack()
    with refused(mqueue.LeaseLost):
        getattr(m, verb)()
    assert q.stats("t").acked == 1


def test_what_was_only_looked_at_cannot_be_settled(q) -> None:
    q.publish("t", b"x")
    for m in (*q.peek("t"), *q.scan("t")):
        for verb in ("ack", "nack", "reject", "release"):
            with refused(mqueue.LeaseLost):
                getattr(m, verb)()
        with refused(mqueue.LeaseLost):
            q.ack([m])
    assert take(q, "t") == [b"x"]


def test_expiry_is_ready_at_once_and_in_its_place(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    q.receive("t", visibility="5s")
    clock.advance("5s")
    assert take(q, "t") == [b"1", b"2"]


def test_expiry_uses_attempts_up(q, clock) -> None:
    q.configure("t", max_retries=1)
    q.publish("t", b"x")
    for _ in range(2):
        q.receive("t")
        clock.advance("30s")
    assert q.receive("t") == []
    [dead] = q.dlq("t").messages()
    assert (dead.reason, dead.attempts) == ("visibility_timeout", 2)


def test_part_of_a_lease_runs_out(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(6)])
    held = q.receive("t", limit=6)
    held[0].ack()
    q.nack(held[1:3], delay="1h")
    clock.advance("30s")
    again = q.receive("t", limit=9)
    assert offsets(again) == [3, 4, 5]
    assert {m.attempt for m in again} == {2}


def test_a_lease_over_priorities_and_partitions(q, clock) -> None:
    q.configure("t", partitions=3)
    q.publish_many("t", [Draft(b"%d" % n, key=str(n), priority=n % 4) for n in range(100)])
    held = q.receive("t", limit=100)
    assert len({m.id for m in held}) == 100
    assert q.ack(held[:50]).settled == 50
    clock.advance("30s")
    again = q.receive("t", limit=200)
    assert payloads(again) == payloads(held[50:])
    assert q.ack(again).settled == 50


def test_single_messages_of_a_large_lease(q) -> None:
    q.publish_many("t", [Draft(b"%d" % n, priority=n % 100) for n in range(1000)])
    held = q.receive("t", limit=1000)
    for m in held[::2]:
        m.ack()
    for m in held[1::2]:
        m.release()
    assert q.stats("t").acked == 500
    assert payloads(q.receive("t", limit=1000)) == payloads(held[1::2])


def test_an_unsettled_lease_names_its_consumer(make) -> None:
    q = make(name="worker-7")
    r = q.publish("t", b"x")
    q.receive("t")
    assert q.explain(r).by == "worker-7"
