"""Ordered topics: one message of a key at a time, and what a failure does to those behind it."""

from __future__ import annotations

import random
from threading import Thread

import pytest

from mqueue import BadSetting, Draft
from tests.conformance.steps import payloads, receive_one, refused, take


@pytest.fixture
def topic(q) -> str:
    q.configure("t", ordered=True, max_retries=1, backoff="1s", backoff_max="2s")
    return "t"


def test_one_message_of_a_key_is_in_flight(q, topic) -> None:
    q.publish_many(topic, [Draft(f"{key}{n}", key=key) for n in range(3) for key in "abc"])
    first = q.receive(topic, limit=10)
    assert payloads(first) == [b"a0", b"b0", b"c0"]
    assert q.receive(topic, limit=10) == []
    assert payloads(q.receive(topic, limit=10, group="other")) == [b"a0", b"b0", b"c0"]
    first[1].ack()
    assert payloads(q.receive(topic, limit=10)) == [b"b1"]
    first[0].release()
    assert payloads(q.receive(topic, limit=10)) == [b"a0"]


def test_messages_without_a_key_are_not_held_up(q, topic) -> None:
    q.publish_many(topic, [Draft(b"k", key="k"), b"1", Draft(b"k2", key="k"), b"2"])
    assert sorted(payloads(q.receive(topic, limit=10))) == [b"1", b"2", b"k"]


def test_a_long_line_of_one_key_hides_nobody_behind_it(q, topic) -> None:
    """However many of a held key lie before it: who is free goes before those of less urgent lanes."""
    q.publish_many(topic, [Draft(b"a", key="a")] * 1_000 + [Draft(b"b", key="b"), Draft(b"c", key="c", priority="low")])
    q.publish_many(topic, [Draft(b"d", key="d"), Draft(b"e", key="e", priority="low")])
    assert payloads(q.receive(topic)) == [b"a"]
    assert payloads(q.receive(topic)) == [b"b"]
    found = []
    while messages := q.receive(topic, limit=100):
        found += payloads(messages)
    assert found == [b"d", b"c", b"e"]


def test_order_per_key_whatever_fails(q, clock) -> None:
    q.configure("t", ordered=True, backoff="1s", partitions=2)
    chance = random.Random(5)
    sent = [(f"k{chance.randrange(7)}", n) for n in range(120)]
    for start in range(0, 120, 30):
        q.publish_many("t", [Draft(b"%d" % n, key=key) for key, n in sent[start : start + 30]])
    got: dict[bytes, list[int]] = {}
    while sum(map(len, got.values())) < len(sent):
        for message in q.receive("t", limit=chance.randrange(1, 12), visibility="2s"):
            what = chance.random()
            if what < 0.7:
                message.ack()
                got.setdefault(message.key, []).append(int(message.payload))
            elif what < 0.8:
                message.nack()
            elif what < 0.9:
                message.release()
        clock.advance("1s")
    for key, numbers in got.items():
        assert numbers == [n for name, n in sent if name.encode() == key]


def test_block_is_tried_again_for_ever_and_told(q, topic, clock) -> None:
    q.publish_many(topic, [Draft(b"1", key="k"), Draft(b"2", key="k"), Draft(b"3", key="other")])
    for attempt in range(1, 6):
        messages = q.receive(topic, limit=10)
        assert payloads(messages) == ([b"1", b"3"] if attempt == 1 else [b"1"])
        q.ack(messages[1:])
        messages[0].nack()
        clock.advance("3s")
    group = q.stats(topic).groups["default"]
    assert (group.blocked_keys, group.dead, group.ready) == (1, 0, 2)
    receive_one(q, topic).ack()
    assert q.stats(topic).groups["default"].blocked_keys == 0
    assert take(q, topic) == [b"2"]


def test_a_lease_that_runs_out_blocks_too(q, topic, clock) -> None:
    q.publish_many(topic, [Draft(b"1", key="k"), Draft(b"2", key="k")])
    for _ in range(4):
        assert payloads(q.receive(topic, limit=10, visibility="1s")) == [b"1"]
        clock.advance("1s")
    receive_one(q, topic).reject("no use")
    assert take(q, topic) == [b"2"]
    assert payloads(q.dlq(topic).messages()) == [b"1"]


def test_skip_goes_on_with_the_next(q, topic, clock) -> None:
    q.configure(topic, on_failure="skip")
    q.publish_many(topic, [Draft(b"1", key="k"), Draft(b"2", key="k")])
    for _ in range(2):
        receive_one(q, topic).nack()
        clock.advance("3s")
    assert take(q, topic) == [b"2"]
    assert payloads(q.dlq(topic).messages()) == [b"1"]


def test_divert_takes_the_rest_of_the_key_along_until_it_is_redriven(q, topic) -> None:
    q.configure(topic, on_failure="divert")
    q.publish_many(topic, [Draft(b"1", key="k"), Draft(b"2", key="k"), Draft(b"x", key="other")])
    receive_one(q, topic).reject()
    assert take(q, topic) == [b"x"]
    third = q.publish(topic, b"3", key="k")
    assert q.explain(third.id).code == "diverted"
    assert take(q, topic) == []
    assert payloads(q.dlq(topic).messages()) == [b"1", b"2", b"3"]
    dead = q.dlq(topic).messages()[1]
    assert (dead.reason, dead.group) == ("diverted", "default")
    group = q.stats(topic).groups["default"]
    assert (group.diverted_keys, group.dead, group.ready) == (1, 3, 0)
    assert q.trace(third.id).events[-1].kind == "DEAD"
    q.dlq(topic).redrive()
    q.publish(topic, b"4", key="k")
    assert q.stats(topic).groups["default"].diverted_keys == 0
    assert [take(q, topic, limit=1) for _ in range(4)] == [[b"1"], [b"2"], [b"3"], [b"4"]]


def test_ordered_is_set_and_taken_back_while_messages_are_in_flight(q) -> None:
    q.publish_many("t", [Draft(b"%d" % n, key="k") for n in range(6)])
    held = q.receive("t", limit=2)
    q.configure("t", ordered=True)
    assert q.receive("t", limit=10) == []
    q.ack(held[:1])
    assert q.receive("t", limit=10) == []
    q.ack(held[1:])
    assert payloads(q.receive("t", limit=10)) == [b"2"]
    q.configure("t", ordered=False)
    assert take(q, "t") == [b"3", b"4", b"5"]


def test_explain_names_who_holds_the_key(q, topic) -> None:
    first = q.publish(topic, b"1", key="k")
    second = q.publish(topic, b"2", key="k")
    message = receive_one(q, topic)
    why = q.explain(second.id)
    assert (why.code, why.by) == ("key_held", str(first.id))
    assert str(first.id) in str(why)
    message.nack(delay="1h")
    assert q.explain(second.id).code == "key_held"


def test_partitions_cannot_be_added_while_anything_is_owed(q, topic) -> None:
    q.publish(topic, b"1", key="k")
    with refused(BadSetting):
        q.configure(topic, partitions=2)
    take(q, topic)
    assert q.configure(topic, partitions=2)["partitions"] == 2
    q.publish_many(topic, [Draft(b"%d" % n, key=str(n)) for n in range(20)])
    assert len(take(q, topic)) == 20


def test_at_most_once(q, topic) -> None:
    q.publish_many(topic, [Draft(b"%d" % n, key="k") for n in range(3)])
    got = [payloads(q.receive(topic, limit=5, mode="at_most_once")) for _ in range(4)]
    assert got == [[b"0"], [b"1"], [b"2"], []]


def test_what_ends_holds_nobody_up(q, topic, clock) -> None:
    q.publish_many(topic, [Draft(b"1", key="k", ttl="5s"), Draft(b"2", key="k")])
    receive_one(q, topic).nack(delay="1h")
    assert q.receive(topic) == []
    clock.advance("5s")
    assert take(q, topic) == [b"2"]
    q.publish_many(topic, [Draft(b"3", key="k"), Draft(b"4", key="k")])
    held = receive_one(q, topic)
    q.purge(topic)
    q.publish(topic, b"5", key="k")
    held.ack()
    assert take(q, topic) == [b"5"]


def test_seek_begins_anew(q, topic) -> None:
    q.publish_many(topic, [Draft(b"%d" % n, key="k") for n in range(3)])
    assert [take(q, topic) for _ in range(2)] == [[b"0"], [b"1"]]
    held = receive_one(q, topic)
    q.seek(topic, to="earliest")
    assert payloads(q.receive(topic, limit=5)) == [b"0"]
    assert held.payload == b"2"


def test_who_waits_gets_the_next_of_a_key_when_it_is_free(q, topic) -> None:
    q.publish_many(topic, [Draft(b"1", key="k"), Draft(b"2", key="k")])
    first = receive_one(q, topic)
    got: list[bytes] = []
    waiting = Thread(target=lambda: got.extend(take(q, topic, wait="60s")))
    waiting.start()
    first.ack()
    waiting.join(120)
    assert got == [b"2"]
