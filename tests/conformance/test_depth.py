"""max_depth: refuse, or drop the oldest; with groups, depth is what the slowest is owed."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import Background, assert_conserved, log, payloads, receive_one, refused, take


def test_refuse(make) -> None:
    q = make(max_depth=3)
    q.publish_many("t", [b"1", b"2", b"3"])
    with refused(mqueue.QueueFull, "queue_full") as caught:
        q.publish("t", b"4")
    assert (caught.value.status, caught.value.retryable) == (429, True)
    assert log(q, "t") == [b"1", b"2", b"3"]


def test_a_call_that_does_not_fit_is_refused_as_a_whole(make) -> None:
    q = make(max_depth=3)
    q.publish("t", b"1")
    with refused(mqueue.QueueFull):
        q.publish_many("t", [b"2", b"3", b"4"])
    q.publish_many("t", [b"2", b"3"])
    assert len(log(q, "t")) == 3


@pytest.mark.parametrize("overflow", ["refuse", "drop_oldest"])
def test_a_call_that_never_fits(make, overflow: str) -> None:
    q = make(max_depth=3, overflow=overflow)
    q.publish("t", b"1")
    with refused(mqueue.QueueFull) as caught:
        q.publish_many("t", [b"x"] * 4)
    assert caught.value.retryable is False
    assert take(q, "t") == [b"1"]


def test_ack_makes_room(make) -> None:
    q = make(max_depth=1)
    q.publish("t", b"1")
    m = receive_one(q, "t")
    with refused(mqueue.QueueFull):
        q.publish("t", b"2")
    m.ack()
    q.publish("t", b"2")
    assert q.stats("t").depth == 1


def test_what_is_scheduled_and_waits_counts(make) -> None:
    q = make(max_depth=2)
    q.publish("t", b"1")
    receive_one(q, "t").nack()
    q.publish("t", b"2", delay="1h")
    with refused(mqueue.QueueFull):
        q.publish("t", b"3")


def test_what_ended_makes_room(make, clock) -> None:
    q = make(max_depth=1)
    q.publish("t", b"expired", ttl="1s")
    clock.advance("1s")
    r = q.publish("t", b"cancelled", delay="1s")
    q.cancel(r)
    q.publish("t", b"purged")
    q.purge("t")
    q.publish("t", b"dead")
    receive_one(q, "t").reject()
    q.publish("t", b"last")
    assert q.stats("t").depth == 1


def test_the_slowest_group_counts(make) -> None:
    q = make(max_depth=2)
    for group in ("fast", "slow"):
        q.create_group("t", group)
    q.publish_many("t", [b"1", b"2"])
    take(q, "t", group="fast")
    with refused(mqueue.QueueFull):
        q.publish("t", b"3")
    take(q, "t", group="slow", limit=1)
    q.publish("t", b"3")


def test_duplicates_need_no_room(make) -> None:
    q = make(max_depth=1)
    q.publish("t", b"x", idempotency_key="k")
    assert q.publish("t", b"x", idempotency_key="k").duplicate


def test_lowered_below_what_is_there(q) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    q.configure("t", max_depth=2)
    with refused(mqueue.QueueFull):
        q.publish("t", b"4")
    take(q, "t", limit=2)
    q.publish("t", b"4")
    assert take(q, "t") == [b"3", b"4"]


@pytest.fixture
def dropping(make):
    return make(max_depth=3, overflow="drop_oldest")


def test_drop_oldest(dropping) -> None:
    for n in range(5):
        dropping.publish("t", b"%d" % n)
    assert dropping.stats("t").depth == 3
    assert take(dropping, "t") == [b"2", b"3", b"4"]
    assert log(dropping, "t") == [b"0", b"1", b"2", b"3", b"4"]


def test_drop_oldest_by_age_not_by_priority(dropping, clock) -> None:
    for n, priority in enumerate(["critical", "background", "normal", "normal"]):
        dropping.publish("t", b"%d" % n, priority=priority)
        clock.advance("1s")
    assert take(dropping, "t") == [b"2", b"3", b"1"]


def test_drop_several_for_one_call(dropping) -> None:
    dropping.publish_many("t", [b"1", b"2", b"3"])
    dropping.publish_many("t", [b"4", b"5"])
    assert take(dropping, "t") == [b"3", b"4", b"5"]
    assert kinds_of_the_first(dropping) == ["PUBLISHED", "CANCELLED"]


def kinds_of_the_first(q) -> list[str]:
    return [event.kind for event in q.trace(next(q.scan("t"))).events]


def test_what_is_leased_is_not_dropped(dropping) -> None:
    dropping.publish_many("t", [b"1", b"2", b"3"])
    held = dropping.receive("t", limit=2)
    dropping.publish("t", b"4")
    dropping.ack(held)
    assert take(dropping, "t") == [b"4"]


def test_refused_if_all_is_leased(dropping) -> None:
    dropping.publish_many("t", [b"1", b"2", b"3"])
    held = dropping.receive("t", limit=3)
    with refused(mqueue.QueueFull):
        dropping.publish("t", b"4")
    assert dropping.ack(held).settled == 3


def test_drop_ready_does_not_count_what_is_leased_or_scheduled(make) -> None:
    q = make(max_depth=2, overflow="drop_ready", dlq_dropped=True)
    q.publish_many("t", [b"1", b"2"])
    held = q.receive("t", limit=2)
    q.publish("t", b"later", delay="1h")
    for payload in (b"3", b"4", b"5"):
        q.publish("t", payload)
    assert q.stats("t").depth == 5
    assert take(q, "t.dlq") == [b"3"]
    assert q.release(held).settled == 2  # four are ready now: that is too much until the next one comes
    q.publish("t", b"6")
    assert take(q, "t") == [b"5", b"6"]
    assert take(q, "t.dlq") == [b"1", b"2", b"4"]
    with refused(mqueue.QueueFull):
        q.publish_many("t", [b"7", b"8", b"9"])
    assert_conserved(q, "t", "default")


def test_drop_ready_drops_what_is_most_for_a_group(make) -> None:
    """One group holds what another has before it: the first has less that nobody has, and is owed as much."""
    q = make(max_depth=2, overflow="drop_ready")
    for group in ("g", "h"):
        q.create_group("t", group)
    q.publish_many("t", [b"1", b"2"])
    held = q.receive("t", limit=2, group="g")
    q.publish("t", b"3")
    assert q.ack(held).settled == 2
    assert take(q, "t", group="h") == [b"2", b"3"]
    assert take(q, "t", group="g") == [b"3"]


def test_what_waits_for_a_retry_can_be_dropped(dropping, clock) -> None:
    dropping.publish_many("t", [b"1", b"2", b"3"])
    receive_one(dropping, "t").nack()
    dropping.publish("t", b"4")
    clock.advance("1h")
    assert take(dropping, "t") == [b"2", b"3", b"4"]


def test_dropped_for_every_group(dropping) -> None:
    for group in ("g", "h"):
        dropping.create_group("t", group)
    for n in range(5):
        dropping.publish("t", b"%d" % n)
    for group in ("g", "h", "later"):
        assert take(dropping, "t", group=group) == [b"2", b"3", b"4"], group
    for group in ("g", "h"):
        assert_conserved(dropping, "t", group)


def test_what_is_dropped_goes_to_the_dead_if_the_topic_says_so(dropping) -> None:
    q = dropping
    q.configure("t", dlq_dropped=True)
    for group in ("g", "h"):
        q.create_group("t", group)
    q.publish("t", b"0", key="k", headers={"own": "1"}, priority="high")
    q.publish_many("t", [b"1", b"2"])
    assert q.ack(q.receive("t", group="h")).settled == 1
    q.publish("t", b"3")
    q.publish_many("t", [b"4", b"5"])
    dead = q.receive("t.dlq", limit=9)
    assert {m.payload for m in dead} == {b"0", b"1", b"2"}
    assert {(m.headers["x-reason"], m.headers["x-group"], m.headers["x-attempts"]) for m in dead} == {
        ("dropped", "", "0")
    }
    first = next(m for m in dead if m.payload == b"0")
    assert (first.key, first.headers["own"], first.priority) == (b"k", "1", 25)
    for group in ("g", "h"):
        assert take(q, "t", group=group) == [b"3", b"4", b"5"]
        assert_conserved(q, "t", group)


def test_what_is_dropped_comes_back_as_a_new_message(dropping) -> None:
    dropping.configure("t", dlq_dropped=True)
    for n in range(4):
        dropping.publish("t", b"%d" % n)
    take(dropping, "t", limit=1)
    assert dropping.dlq("t").redrive(filter="reason = dropped").redriven == 1
    assert take(dropping, "t") == [b"2", b"3", b"0"]
    assert take(dropping, "t.dlq") == []


def test_who_waits_for_the_dead_gets_what_is_dropped(dropping) -> None:
    dropping.configure("t", dlq_dropped=True)
    dropping.publish_many("t", [b"1", b"2", b"3"])
    waiting = Background(lambda: dropping.receive("t.dlq", wait="60s"))
    waiting.assert_waiting()
    dropping.publish("t", b"4")
    assert payloads(waiting.result()) == [b"1"]


def test_groups_that_owe_different_messages(make) -> None:
    q = make(max_depth=2, overflow="drop_oldest")
    for group in ("g", "h"):
        q.create_group("t", group)
    q.configure("t", max_depth=4)
    q.publish_many("t", [b"0", b"1", b"2", b"3"])
    for group, done in (("g", slice(2, 4)), ("h", slice(0, 2))):
        held = q.receive("t", limit=4, group=group)
        q.ack(held[done])
        q.release([m for m in held if m not in held[done]])
    q.configure("t", max_depth=2)
    q.publish("t", b"4")
    assert q.stats("t").depth <= 2
    for group in ("g", "h"):
        assert_conserved(q, "t", group)


def test_a_refused_publish_drops_nothing(make) -> None:
    q = make(max_depth=256, overflow="drop_oldest")
    q.publish_many("t", [Draft(b"%d" % n, priority=n) for n in range(256)])
    with refused(mqueue.BadPriority):
        q.publish("t", b"x", priority=256)
    with refused(mqueue.BadPriority):
        q.publish_many("t", [b"x", Draft(b"y", priority=256)])
    assert q.stats("t").depth == 256
    assert len(payloads(q.peek("t", limit=1000))) == 256
