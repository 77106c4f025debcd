"""Statistics: every message is in exactly one state of each group."""

from __future__ import annotations

import pytest

from mqueue import Draft
from tests.conformance.steps import assert_conserved, die, receive_one, take


def test_an_unread_topic(q, clock) -> None:
    q.publish_many("t", [b"ab", b"cd", Draft(b"later", delay="1h"), Draft(b"short", ttl="1s")])
    clock.advance("2s")
    stats = q.stats("t")
    assert (stats.topic, stats.published, stats.retained, stats.partitions) == ("t", 4, 4, 1)
    assert (stats.ready, stats.scheduled, stats.expired, stats.depth) == (2, 1, 1, 3)
    assert (stats.leased, stats.acked, stats.dead, stats.groups) == (0, 0, 0, {})
    assert stats.oldest_ready_seconds == 2.0
    assert stats.bytes > 0


def test_every_state(q, clock) -> None:
    q.create_group("t", "default")
    q.publish_many("t", [b"%d" % n for n in range(6)])
    a, b, c, d, *_ = q.receive("t", limit=5)
    a.ack()
    b.nack(delay="1h")
    c.reject()
    d.release()
    q.publish("t", b"scheduled", delay="1h")
    q.publish("t", b"expired", ttl="1s")
    q.cancel(q.publish("t", b"cancelled", delay="1h"))
    clock.advance("1s")
    stats = q.stats("t")
    states = stats.groups["default"]
    assert (states.acked, states.waiting, states.dead, states.leased, states.ready) == (1, 1, 1, 1, 2)
    assert (states.expired, states.cancelled, stats.scheduled) == (1, 1, 1)
    assert (states.delivered, states.depth) == (5, 4)
    assert (stats.ready, stats.waiting, stats.leased, stats.acked, stats.dead) == (2, 1, 1, 1, 1)
    assert stats.depth == 5
    assert_conserved(q, "t")


def test_the_topic_shows_its_slowest_group(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    take(q, "t", group="fast")
    take(q, "t", group="slow", limit=1)
    stats = q.stats("t")
    assert (stats.ready, stats.acked, stats.depth) == (1, 1, 1)


def test_the_oldest(q, clock) -> None:
    for _ in range(3):
        q.publish("t", b"x")
        clock.advance("10s")
    assert q.stats("t").oldest_ready_seconds == 30.0
    first = receive_one(q, "t")
    assert q.stats("t").oldest_ready_seconds == 20.0
    first.release()
    assert q.stats("t").oldest_ready_seconds == 30.0
    take(q, "t")
    assert q.stats("t").oldest_ready_seconds is None


def test_what_was_delayed_is_as_old_as_its_due_time(q, clock) -> None:
    q.publish("t", b"x", delay="10s")
    clock.advance("15s")
    assert q.stats("t").oldest_ready_seconds == 5.0


@pytest.mark.parametrize("end", ["cancel", "purge", "expire"])
def test_what_ends_before_anybody_saw_it_is_counted(q, clock, end: str) -> None:
    for group in ("default", "g"):
        q.create_group("t", group)
    r = q.publish("t", b"x", delay="1h", ttl="1h")
    q.publish("t", b"y")
    if end == "cancel":
        q.cancel(r)
    elif end == "purge":
        assert q.purge("t") == 2
    else:
        clock.advance("2h")
    for group in ("default", "g"):
        assert_conserved(q, "t", group)
    assert q.stats("t").scheduled == 0


def test_a_group_made_later_counts_from_then(q, clock) -> None:
    q.cancel(q.publish("t", b"x", delay="1h"))
    q.publish("t", b"y", ttl="1s")
    q.publish_many("t", [b"z", Draft(b"later", delay="1h")])
    clock.advance("1s")
    q.create_group("t", "late")
    stats = q.stats("t").groups["late"]
    assert (stats.ready, stats.depth) == (1, 1)
    take(q, "t", group="late")
    assert q.stats("t").groups["late"].acked == 1


def test_after_a_seek(q) -> None:
    q.publish_many("t", [b"%d" % n for n in range(4)])
    take(q, "t", limit=2)
    die(q, "t")
    q.seek("t", to="earliest")
    assert_conserved(q, "t")
    stats = q.stats("t").groups["default"]
    assert (stats.ready, stats.acked, stats.dead) == (4, 0, 0)


def test_after_a_redrive(q) -> None:
    q.publish_many("t", [b"%d" % n for n in range(4)])
    die(q, "t")
    q.dlq("t").redrive()
    assert_conserved(q, "t")


def test_metrics(q, clock) -> None:
    q.publish_many("t", [b"1", b"2", b"3", Draft(b"4", delay="1h")])
    other = q.namespace("other")
    other.publish("u", b"5")
    held = q.receive("t", limit=2)
    held[0].ack()
    take(other, "u")
    found = q.metrics()
    wanted = {
        "topics": 2,
        "groups": 2,
        "leases": 1,
        "published": 5,
        "retained": 5,
        "scheduled": 1,
        "ready": 1,
        "leased": 1,
        "delivered": 3,
        "acked": 2,
        "dead": 0,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert all(type(value) in (int, float) for value in found.values())


def test_metrics_of_nothing(q) -> None:
    assert set(q.metrics().values()) == {0}
