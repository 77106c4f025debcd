"""Idempotency keys: the second publish answers as the first, in three modes."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import kinds, log, receive_one, refused, take


def test_the_second_publish_answers_with_the_first_id(q) -> None:
    first = q.publish("t", b"x", idempotency_key="k")
    again = q.publish("t", b"x", idempotency_key="k")
    assert (again.id, again.partition, again.offset) == (first.id, first.partition, first.offset)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert log(q, "t") == [b"x"]


def test_a_duplicate_is_not_delivered(q) -> None:
    for _ in range(3):
        q.publish("t", b"x", idempotency_key="k")
    assert take(q, "t") == [b"x"]


def test_keys_are_apart_per_topic_and_namespace(q) -> None:
    ids = {
        q.publish("a", b"x", idempotency_key="k").id,
        q.publish("b", b"x", idempotency_key="k").id,
        q.namespace("other").publish("a", b"x", idempotency_key="k").id,
    }
    assert len(ids) == 3


def test_keys_are_compared_exactly(q) -> None:
    keys = ["k", "K", "k ", "ž", "z\u030c", "k" * 1024]
    assert not any(q.publish("t", b"x", idempotency_key=key).duplicate for key in keys)
    assert all(q.publish("t", b"x", idempotency_key=key).duplicate for key in keys)


def test_another_payload_is_a_conflict(q) -> None:
    q.publish("t", b"x", idempotency_key="k")
    with refused(mqueue.Conflict, "conflict"):
        q.publish("t", b"y", idempotency_key="k")
    assert log(q, "t") == [b"x"]


def test_only_the_payload_is_compared(q) -> None:
    q.publish("t", b"x", idempotency_key="k")
    assert q.publish("t", b"x", idempotency_key="k", priority=0, delay="1h", headers={"a": "b"}).duplicate
    assert take(q, "t") == [b"x"]


def test_duplicates_in_one_call(q) -> None:
    a, b, c = q.publish_many("t", [Draft(b"x", idempotency_key="k"), Draft(b"y"), Draft(b"x", idempotency_key="k")])
    assert (a.id, a.duplicate, c.duplicate, b.duplicate) == (c.id, False, True, False)
    assert log(q, "t") == [b"x", b"y"]


def test_duplicates_of_an_earlier_call_are_filtered_out(q) -> None:
    old = q.publish("t", b"2", idempotency_key="2")
    receipts = q.publish_many("t", [Draft(b"%d" % n, idempotency_key=str(n), priority=-n) for n in range(5)])
    assert [r.duplicate for r in receipts] == [False, False, True, False, False]
    assert receipts[2].id == old.id
    stored = {m.id: m.payload for m in q.scan("t")}
    assert [stored[r.id] for r in receipts] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(stored) == 5


def test_a_call_of_nothing_but_duplicates(q) -> None:
    drafts = [Draft(b"%d" % n, idempotency_key=str(n)) for n in range(3)]
    first, again = q.publish_many("t", drafts), q.publish_many("t", drafts)
    assert [r.id for r in first] == [r.id for r in again]
    assert all(r.duplicate for r in again)
    assert len(log(q, "t")) == 3


def test_a_conflict_inside_one_call_stores_nothing(q) -> None:
    with refused(mqueue.Conflict):
        q.publish_many("t", [b"a", Draft(b"x", idempotency_key="k"), Draft(b"y", idempotency_key="k")])
    assert "t" not in q.topics() or log(q, "t") == []
    assert not q.publish("t", b"y", idempotency_key="k").duplicate


def test_a_refused_call_claims_no_key(q) -> None:
    with pytest.raises(mqueue.Refused):
        q.publish_many("t", [Draft(b"x", idempotency_key="k"), Draft(b"y", priority="no such lane")])
    assert not q.publish("t", b"other", idempotency_key="k").duplicate


def test_the_window_ends(q, clock) -> None:
    first = q.publish("t", b"x", idempotency_key="k")
    clock.advance("23h59m59s999ms")
    assert q.publish("t", b"x", idempotency_key="k").id == first.id
    clock.advance("1ms")
    again = q.publish("t", b"y", idempotency_key="k")
    assert (again.duplicate, again.id != first.id) == (False, True)


def test_a_duplicate_does_not_lengthen_the_window(make, clock) -> None:
    q = make(dedup_window="10s")
    q.publish("t", b"x", idempotency_key="k")
    clock.advance("9s")
    assert q.publish("t", b"x", idempotency_key="k").duplicate
    clock.advance("1s")
    assert not q.publish("t", b"x", idempotency_key="k").duplicate
    clock.advance("9s")
    assert q.publish("t", b"x", idempotency_key="k").duplicate


def test_a_window_holds_after_ack_and_purge(q) -> None:
    q.publish("t", b"x", idempotency_key="k")
    assert take(q, "t") == [b"x"]
    q.purge("t")
    assert q.publish("t", b"x", idempotency_key="k").duplicate


def test_forever_has_no_end(make, clock) -> None:
    q = make(dedup="forever")
    q.publish("t", b"x", idempotency_key="k")
    take(q, "t")
    clock.advance("3650d")
    assert q.publish("t", b"x", idempotency_key="k").duplicate


def test_forever_is_bounded(make) -> None:
    q = make(dedup="forever", dedup_keys_max=2)
    q.publish_many("t", [Draft(b"x", idempotency_key="1"), Draft(b"x", idempotency_key="2")])
    with refused(mqueue.QueueFull, "dedup_full"):
        q.publish_many("t", [b"plain", Draft(b"x", idempotency_key="3")])
    assert len(log(q, "t")) == 2
    assert q.publish("t", b"x", idempotency_key="1").duplicate
    assert not q.publish("t", b"without key").duplicate


def test_a_window_frees_its_keys(make, clock) -> None:
    q = make(dedup_window="1m", dedup_keys_max=1)
    q.publish("t", b"x", idempotency_key="1")
    with refused(mqueue.QueueFull, "dedup_full"):
        q.publish("t", b"x", idempotency_key="2")
    clock.advance("1m")
    assert not q.publish("t", b"x", idempotency_key="2").duplicate


@pytest.fixture
def acked(make):
    """A queue whose keys hold until every group has settled the message."""
    return make(dedup="until_acked")


def test_until_acked(acked) -> None:
    acked.publish("t", b"x", idempotency_key="k")
    m = receive_one(acked, "t")
    assert acked.publish("t", b"x", idempotency_key="k").duplicate
    m.ack()
    assert not acked.publish("t", b"x", idempotency_key="k").duplicate


def test_until_acked_outlives_the_window(acked, clock) -> None:
    acked.publish("t", b"x", idempotency_key="k")
    clock.advance("3d")
    assert acked.publish("t", b"x", idempotency_key="k").duplicate


def test_until_acked_by_every_group(acked) -> None:
    for group in ("g", "h"):
        acked.create_group("t", group)
    acked.publish("t", b"x", idempotency_key="k")
    take(acked, "t", group="g")
    assert acked.publish("t", b"x", idempotency_key="k").duplicate
    take(acked, "t", group="h")
    assert not acked.publish("t", b"x", idempotency_key="k").duplicate


def test_until_acked_with_a_retry_in_between(acked, clock) -> None:
    acked.publish("t", b"x", idempotency_key="k")
    receive_one(acked, "t").nack(delay="1m")
    assert acked.publish("t", b"x", idempotency_key="k").duplicate
    clock.advance("1m")
    assert acked.publish("t", b"x", idempotency_key="k").duplicate
    take(acked, "t")
    assert not acked.publish("t", b"x", idempotency_key="k").duplicate


def test_until_acked_ends_with_the_message(acked, clock) -> None:
    acked.publish("t", b"x", idempotency_key="dead")
    receive_one(acked, "t").reject()
    acked.publish("t", b"x", idempotency_key="purged")
    acked.purge("t")
    acked.publish("t", b"x", idempotency_key="expired", ttl="1s")
    acked.cancel(acked.publish("t", b"x", idempotency_key="cancelled", delay="1h"))
    clock.advance("1s")
    for key in ("dead", "purged", "expired", "cancelled"):
        assert not acked.publish("t", b"x", idempotency_key=key).duplicate, key


def test_until_acked_with_priorities_and_partitions(acked) -> None:
    acked.configure("t", partitions=3)
    drafts = [Draft(b"%d" % n, idempotency_key=str(n), key=str(n), priority=n % 4) for n in range(40)]
    acked.publish_many("t", drafts)
    done = set(take(acked, "t", limit=17))
    again = acked.publish_many("t", drafts)
    assert {d.payload for d, r in zip(drafts, again, strict=True) if not r.duplicate} == done


def test_until_acked_follows_a_message_that_is_rescheduled(acked, clock) -> None:
    sooner = acked.publish("t", b"x", idempotency_key="sooner", delay="1h")
    later = acked.publish("t", b"x", idempotency_key="later", delay="10s")
    acked.reschedule(sooner, delay="10s")
    acked.reschedule(later, delay="1h")
    clock.advance("20s")
    assert len(take(acked, "t")) == 1
    assert not acked.publish("t", b"x", idempotency_key="sooner").duplicate
    assert acked.publish("t", b"x", idempotency_key="later").duplicate


def test_until_acked_makes_room_for_new_keys(make, clock) -> None:
    q = make(dedup="until_acked", dedup_keys_max=2)
    for n in range(6):
        q.publish("t", b"x", idempotency_key=str(n))
        take(q, "t")
        clock.advance("1m")
    q.publish("t", b"x", idempotency_key="a")
    q.publish("t", b"x", idempotency_key="b")
    clock.advance("1m")
    with refused(mqueue.QueueFull, "dedup_full"):
        q.publish("t", b"x", idempotency_key="c")


def test_a_duplicate_shows_in_the_trace(q) -> None:
    id = q.publish("t", b"x", idempotency_key="k").id
    q.publish("t", b"x", idempotency_key="k")
    assert kinds(q, id) == ["PUBLISHED", "DUPLICATE"]
