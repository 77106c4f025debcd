"""Settling many at once: what is lost is named, a repeated call answers as the first did, nothing else is touched."""

from __future__ import annotations

import pytest

import mqueue
from tests.conformance.steps import payloads, receive_one, refused, take


def hold(q, count: int, topic: str = "t", **options):
    q.publish_many(topic, [b"%d" % n for n in range(count)])
    return q.receive(topic, limit=count, **options)


def test_ack_many(q, clock) -> None:
    held = hold(q, 5)
    answer = q.ack(held[1:4])
    assert (answer.settled, answer.lost) == (3, ())
    clock.advance("30s")
    assert payloads(q.receive("t", limit=9)) == [b"0", b"4"]


def test_one_message_is_a_list_of_one(q) -> None:
    assert q.ack(hold(q, 1)[0]).settled == 1


def test_nothing_to_settle(q) -> None:
    for verb in (q.ack, q.nack, q.reject, q.release):
        assert verb([]).settled == 0


def test_only_what_is_named_is_settled(q) -> None:
    """Not as many as are named."""
    a, b, c, d = hold(q, 4)
    q.ack([a, b])
    with refused(mqueue.LeaseLost) as caught:
        q.nack([a, b])
    assert caught.value.lost == (a.id, b.id)
    assert q.ack([a, b]).settled == 2
    q.release([c])
    q.release([d])
    assert take(q, "t") == [b"2", b"3"]


def test_the_same_message_twice_in_one_call(q) -> None:
    a, b = hold(q, 2)
    assert q.ack([a, a]).settled == 1
    b.release()
    assert take(q, "t") == [b"1"]


def test_what_is_lost_is_named(q, clock) -> None:
    held = hold(q, 4)
    held[1].extend("1h")
    held[3].extend("1h")
    clock.advance("30s")
    answer = q.ack(held)
    assert (answer.settled, answer.lost) == (2, (held[0].id, held[2].id))
    assert take(q, "t") == [b"0", b"2"]


def test_if_all_is_lost_it_is_an_error(q, clock) -> None:
    held = hold(q, 3)
    clock.advance("30s")
    with refused(mqueue.LeaseLost, "lease_lost") as caught:
        q.ack(held)
    assert caught.value.lost == tuple(m.id for m in held)
    assert len(q.receive("t", limit=9)) == 3


def test_messages_of_several_leases_topics_and_groups(q) -> None:
    q.publish_many("a", [b"1", b"2"])
    q.publish("b", b"3")
    held = [receive_one(q, "a"), receive_one(q, "a"), receive_one(q, "b"), receive_one(q, "a", group="g")]
    assert q.ack(held).settled == 4
    assert [q.stats(t).groups["default"].acked for t in "ab"] == [2, 1]


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release"])
def test_a_repeated_call_answers_as_the_first(q, clock, verb: str) -> None:
    held = hold(q, 3)
    first = getattr(q, verb)(held[:2])
    getattr(held[2], verb)()
    before = q.stats("t").groups["default"]
    clock.advance("500ms")
    again = getattr(q, verb)(held[:2])
    getattr(held[2], verb)()
    after = q.stats("t").groups["default"]
    assert again == first
    assert (after.acked, after.dead, after.ready, after.waiting) == (
        before.acked,
        before.dead,
        before.ready,
        before.waiting,
    )


def test_a_repeated_call_does_not_touch_the_next_lease(q) -> None:
    old = hold(q, 1)[0]
    old.release()
    new = receive_one(q, "t")
    old.release()
    assert q.receive("t") == []
    new.ack()


def test_repeated_within_ten_minutes_only(q, clock) -> None:
    m = hold(q, 1)[0]
    m.ack()
    clock.advance("10m")
    m.ack()
    clock.advance("1ms")
    with refused(mqueue.LeaseLost):
        m.ack()


def test_a_nack_that_ended_dead_can_be_repeated(q) -> None:
    q.configure("t", max_retries=0)
    m = hold(q, 1)[0]
    m.nack(error="boom")
    m.nack(error="boom")
    assert len(q.dlq("t")) == 1


def test_a_repeated_extend_extends_again(q, clock) -> None:
    m = hold(q, 1)[0]
    m.extend("1m")
    clock.advance("30s")
    m.extend("1m")
    clock.advance("59s")
    m.ack()


@pytest.mark.parametrize("end", ["seek", "delete_group", "delete_topic"])
def test_tokens_do_not_outlive_what_they_were_for(q, end: str) -> None:
    m = hold(q, 1)[0]
    if end == "seek":
        q.seek("t", to="earliest")
    elif end == "delete_group":
        q.delete_group("t", "default")
    else:
        q.delete_topic("t")
    for verb in (m.ack, m.nack, m.reject, m.release, lambda: m.extend("1m"), lambda: q.ack([m])):
        with refused(mqueue.LeaseLost):
            verb()


def test_messages_of_another_broker_are_refused(make) -> None:
    one, other = make(), make()
    mine, theirs = hold(one, 1), hold(other, 1)
    with refused(mqueue.Refused):
        one.ack([*mine, *theirs])
    assert one.ack(mine).settled == other.ack(theirs).settled == 1
