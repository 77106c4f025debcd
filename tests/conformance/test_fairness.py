"""Fairness keys take turns inside a priority, within their limits."""

from __future__ import annotations

from collections import Counter

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import payloads, refused, take


def flood(q, topic: str, key: str | None, count: int, **more) -> None:
    q.publish_many(topic, [Draft(key or "none", fairness_key=key, **more) for _ in range(count)])


def test_without_the_setting_keys_have_no_effect(q) -> None:
    flood(q, "t", "a", 10)
    flood(q, "t", "b", 1)
    assert take(q, "t", limit=10) == [b"a"] * 10


def test_keys_take_turns(q) -> None:
    q.configure("t", fairness=True, partitions=2)
    flood(q, "t", "a", 100)
    for key in "bcd":
        flood(q, "t", key, 3)
    assert sorted(take(q, "t", limit=4)) == [b"a", b"b", b"c", b"d"]
    assert Counter(take(q, "t", limit=8)) == {b"a": 2, b"b": 2, b"c": 2, b"d": 2}
    assert take(q, "t", limit=3) == [b"a"] * 3, "nobody waits for who has nothing"


def test_those_without_a_key_share_one(q) -> None:
    q.configure("t", fairness=True)
    flood(q, "t", None, 50)
    flood(q, "t", "a", 2)
    assert sorted(take(q, "t", limit=4)) == [b"a", b"a", b"none", b"none"]


def test_inside_a_priority_only(q) -> None:
    q.configure("t", fairness=True)
    flood(q, "t", "a", 5, priority="high")
    flood(q, "t", "b", 5, priority="low")
    assert take(q, "t") == [b"a"] * 5 + [b"b"] * 5


def test_weights(q) -> None:
    q.configure("t", fairness={"weights": {"a": 3}})
    flood(q, "t", "a", 100)
    flood(q, "t", "b", 100)
    assert Counter(take(q, "t", limit=40)) == {b"a": 30, b"b": 10}


def test_in_flight_limit(q) -> None:
    q.configure("t", fairness={"in_flight_max": 2})
    flood(q, "t", "a", 10)
    flood(q, "t", "b", 1)
    held = q.receive("t", limit=10)
    assert sorted(payloads(held)) == [b"a", b"a", b"b"]
    assert q.receive("t", limit=10) == []
    [waiting, *_] = q.peek("t")
    why = q.explain(waiting.id)
    assert (why.code, why.by) == ("throttled", "a")
    q.ack(held[:1])
    assert payloads(q.receive("t", limit=10)) == [b"a"]


def test_rate_limit(q, clock) -> None:
    q.configure("t", fairness={"rate": 2})
    flood(q, "t", "a", 10)
    flood(q, "t", "b", 1)
    assert sorted(take(q, "t")) == [b"a", b"a", b"b"]
    assert take(q, "t") == []
    clock.advance("500ms")
    assert take(q, "t") == [b"a"]
    assert take(q, "t") == []
    clock.advance("10s")
    assert take(q, "t") == [b"a", b"a"], "what was not used is not saved up"


def test_a_key_has_limits_of_its_own(q, clock) -> None:
    limits = {"a": {"in_flight_max": 3}, "c": {"rate": 5}}
    shown = q.configure("t", fairness={"in_flight_max": 1, "limits": limits})
    assert shown["fairness"] == {"in_flight_max": 1, "limits": {"a": {"in_flight_max": 3}, "c": {"rate": 5.0}}}
    for key in "abc":
        flood(q, "t", key, 10)
    held = q.receive("t", limit=30)
    assert Counter(payloads(held)) == {b"a": 3, b"b": 1, b"c": 1}
    q.configure("t", fairness={"limits": limits | {"a": {"rate": 1}}})
    q.ack(held)
    assert Counter(take(q, "t", limit=30)) == {b"a": 1, b"b": 9, b"c": 5}
    clock.advance("1s")
    assert Counter(take(q, "t", limit=30)) == {b"a": 1, b"c": 4}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ([1], "a mapping"),
        ({"a": 5}, "limits: a is 5; it takes a mapping with in_flight_max, rate"),
        ({"a": {"speed": 1}}, "unknown 'speed'; allowed: in_flight_max, rate"),
        ({"a": {"in_flight_max": 0}}, "a: in_flight_max is 0; it takes a whole number from 1"),
        ({"a": {"rate": -1}}, "a: rate is -1"),
        ({"not a name!": {"rate": 1}}, "not a name!"),
    ],
)
def test_limits_that_cannot_be_meant(make, embedded, limits, told) -> None:
    q = make()
    with refused(mqueue.BadSetting) as caught:
        q.configure("t", fairness={"limits": limits})
    assert told in str(caught.value)


def test_set_and_taken_back_while_messages_wait(q) -> None:
    flood(q, "t", "a", 5)
    flood(q, "t", "b", 5)
    held = q.receive("t", limit=2)
    q.configure("t", fairness={"in_flight_max": 2})
    assert payloads(q.receive("t", limit=10)) == [b"b", b"b"]
    q.release(held)
    q.configure("t", fairness=False)
    assert take(q, "t") == [b"a"] * 5 + [b"b"] * 3


def test_with_ordering_keys(q) -> None:
    q.configure("t", fairness=True, ordered=True)
    q.publish_many("t", [Draft(f"a{n}", key=f"k{n % 2}", fairness_key="a") for n in range(6)])
    q.publish_many("t", [Draft(b"b", key="k9", fairness_key="b")])
    held = q.receive("t", limit=10)
    assert payloads(held) == [b"a0", b"b", b"a1"]
    q.ack(held)
    assert payloads(q.receive("t", limit=10)) == [b"a2", b"a3"]
