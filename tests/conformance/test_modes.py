"""At most once, effectively once, and several topics at a time."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import beside, kinds, log, payloads, receive_one, refused, take


def test_at_most_once_is_acked_as_handed_out(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(3)])
    assert payloads(q.receive("t", limit=2, mode="at_most_once")) == [b"0", b"1"]
    stats = q.stats("t").groups["default"]
    assert (stats.acked, stats.leased, stats.ready) == (2, 0, 1)
    clock.advance("1h")
    assert take(q, "t") == [b"2"]


def test_at_most_once_can_be_acked_but_not_failed(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    m, other = q.receive("t", limit=2, mode="at_most_once")
    assert (m.payload, m.attempt) == (b"1", 1)
    m.ack()
    with other:
        pass
    with refused(mqueue.LeaseLost):
        m.nack()
    assert kinds(q, m) == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]
    assert q.stats("t").acked == 2


def test_at_most_once_is_not_in_flight(make) -> None:
    q = make(in_flight_max=1)
    q.publish_many("t", [b"1", b"2"])
    for _ in range(2):
        assert len(q.receive("t", limit=5, mode="at_most_once")) == 1


OUT, LOG = beside("in", "out"), beside("in", "log")


@pytest.fixture
def step(q):
    """Two messages in hand, and what follows from them to be published."""
    q.publish_many("in", [b"1", b"2"])
    return q.receive("in", limit=2)


def test_ack_and_publish_in_one_commit(q, step) -> None:
    answer = q.ack(step, publish=[Draft(b"a", topic=OUT), Draft(b"b", topic=LOG, delay="1h")])
    assert (answer.settled, answer.lost) == (2, ())
    assert [r.topic for r in answer.receipts] == [OUT, LOG]
    assert (log(q, OUT), log(q, LOG)) == ([b"a"], [b"b"])
    assert q.stats("in").acked == 2


def test_a_repeated_ack_publishes_once_and_answers_as_the_first(q, step) -> None:
    first = q.ack(step, publish=[Draft(b"a", topic=OUT)])
    again = q.ack(step, publish=[Draft(b"a", topic=OUT)])
    assert again == first
    assert log(q, OUT) == [b"a"]


def test_a_repeated_ack_of_a_part_publishes_once(q, step) -> None:
    first = q.ack(step[:1], publish=[Draft(b"a", topic=OUT)])
    again = q.ack(step[:1], publish=[Draft(b"a", topic=OUT)])
    assert again == first
    assert log(q, OUT) == [b"a"]
    q.ack(step[1:], publish=[Draft(b"b", topic=OUT)])
    assert log(q, OUT) == [b"a", b"b"]


def test_nothing_is_published_for_a_lost_lease(q, clock, step) -> None:
    step[0].extend("1h")
    clock.advance("30s")
    for chosen in (step, step[1:]):
        with refused(mqueue.LeaseLost) as caught:
            q.ack(chosen, publish=[Draft(b"a", topic=OUT)])
        assert caught.value.lost == (step[1].id,)
    assert OUT not in q.topics()
    step[0].ack()
    assert take(q, "in") == [b"2"]


def test_nothing_is_acked_if_what_follows_goes_to_too_many_topics(q, step) -> None:
    with refused(mqueue.Refused, "too_many_topics"):
        q.ack(step, publish=[Draft(b"a", topic=beside("in", f"t{number}")) for number in range(257)])
    assert q.topics() == ["in"]
    assert q.ack(step).settled == 2


@pytest.mark.parametrize(
    "bad", [Draft(b"x", topic=OUT, priority="urgent"), Draft(b"x" * (2**20 + 1), topic=OUT), Draft(b"x"), b"x"]
)
def test_nothing_is_acked_if_nothing_can_be_published(q, step, bad) -> None:
    with pytest.raises(mqueue.Refused):
        q.ack(step, publish=[Draft(b"a", topic=LOG), bad])
    assert q.stats("in").leased == 2
    assert all(log(q, t) == [] for t in q.topics() if t != "in")
    assert q.ack(step).settled == 2


def test_nothing_is_acked_if_there_is_no_room(q, step) -> None:
    q.configure(OUT, max_depth=1)
    with refused(mqueue.QueueFull):
        q.ack(step, publish=[Draft(b"a", topic=OUT), Draft(b"b", topic=OUT)])
    assert (q.stats("in").leased, log(q, OUT)) == (2, [])


def test_publish_to_the_topic_that_is_acked(q, step) -> None:
    q.ack(step[0], publish=[Draft(b"again", topic="in")])
    step[1].release()
    assert take(q, "in") == [b"2", b"again"]


def test_publish_with_an_idempotency_key(q, step) -> None:
    q.publish(OUT, b"a", idempotency_key="k")
    answer = q.ack(step, publish=[Draft(b"a", topic=OUT, idempotency_key="k")])
    assert answer.receipts[0].duplicate
    assert log(q, OUT) == [b"a"]


def test_publish_goes_to_the_namespace_of_the_message(q) -> None:
    other, out = q.namespace("other"), beside("in", "out", "other")
    other.publish("in", b"1")
    other.ack(other.receive("in"), publish=[Draft(b"a", topic=out)])
    assert (q.topics(), log(other, out)) == ([], [b"a"])


def test_receive_from_several_topics(q) -> None:
    q.publish("a", b"1")
    q.publish("c", b"3")
    messages = q.receive(["a", "b", "c"], limit=10)
    assert sorted((m.topic, m.payload) for m in messages) == [("a", b"1"), ("c", b"3")]
    assert q.ack(messages).settled == 2


def test_several_topics_share_the_limit(q) -> None:
    for topic in "abc":
        q.publish_many(topic, [b"x"] * 5)
    assert len(q.receive(["a", "b", "c"], limit=7)) == 7


def test_no_topic_starves(q) -> None:
    for topic in "abc":
        q.publish_many(topic, [b"x"] * 50)
    first = [receive_one(q, ["a", "b", "c"]).topic for _ in range(30)]
    assert {first.count(topic) for topic in "abc"} == {10}


def test_what_was_acked_before_publishes_nothing(q) -> None:
    q.publish("t", b"x")
    [m] = q.receive("t")
    m.ack()
    with refused(mqueue.LeaseLost):
        q.ack([m], publish=[Draft(b"y", topic=beside("t", "n"))])
    assert q.topics() == ["t"]
