"""Policies: weighted and ageing, and the settings that go with them."""

from __future__ import annotations

from collections import Counter

import pytest

from mqueue import BadSetting, Draft
from tests.conformance.steps import payloads, receive_one, refused, take


def test_strict_is_the_default(q) -> None:
    settings = q.configure("t")
    assert (settings["policy"], settings["ordered"], settings["fairness"]) == ("strict", False, False)
    assert settings["weights"] == {"critical": 50, "high": 25, "normal": 15, "low": 7, "background": 3}
    assert (settings["age_limit"], settings["on_failure"]) == (60.0, "block")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy": "fair"}, "strict, weighted, ageing"),
        ({"on_failure": "stop"}, "block, skip, divert"),
        ({"ordered": "yes"}, "true or false"),
        ({"age_limit": 0}, "more than 0"),
        ({"weights": {"urgent": 1}}, "critical, high, normal, low, background"),
        ({"weights": {"low": 0}}, "from 1 to 1000"),
        ({"fairness": {"weigth": {}}}, "weights, in_flight_max, rate"),
        ({"fairness": {"rate": 0}}, "above 0"),
        ({"fairness": {"in_flight_max": 0}}, "from 1 to"),
        ({"fairness": {"weights": {"a": 1.5}}}, "whole number"),
        ({"ordered": True, "on_failure": "divert", "dlq": False}, "dlq is off"),
    ],
)
def test_what_makes_no_sense_is_refused(q, settings, words) -> None:
    q.configure("t", max_retries=1)
    with refused(BadSetting) as error:
        q.configure("t", **settings)
    assert words in str(error.value)
    assert q.configure("t")["policy"] == "strict"


def test_settings_can_be_given_as_they_are_shown(q) -> None:
    told = {"weights": {"a": 5}, "in_flight_max": 3, "rate": 2.5}
    shown = q.configure("t", policy="weighted", weights={"low": 9}, fairness=told, ordered=True, on_failure="skip")
    assert (shown["fairness"], shown["weights"]["low"]) == (told, 9)
    names = ("policy", "weights", "age_limit", "fairness", "ordered", "on_failure")
    assert q.configure("t2", **{name: shown[name] for name in names})["fairness"] == told


def test_weighted_gives_each_lane_its_share(q) -> None:
    q.configure("t", policy="weighted", partitions=2)
    lanes = ("critical", "high", "normal", "low", "background")
    q.publish_many("t", [Draft(lane, priority=lane, key=str(n)) for n in range(120) for lane in lanes])
    for limit in (1, 7, 92):
        q.receive("t", limit=limit, group=f"g{limit}")
    got = Counter(take(q, "t", limit=100))
    assert [got[lane.encode()] for lane in lanes] == [50, 25, 15, 7, 3]
    got = Counter(payload for _ in range(100) for payload in take(q, "t", limit=1))
    assert [got[lane.encode()] for lane in lanes] == [50, 25, 15, 7, 3]


def test_weighted_leaves_nobody_waiting_for_who_has_nothing(q) -> None:
    q.configure("t", policy="weighted")
    q.publish_many("t", [Draft(b"%d" % n, priority="background") for n in range(50)])
    assert take(q, "t") == [b"%d" % n for n in range(50)]


def test_weighted_is_set_and_taken_back_while_messages_wait(q) -> None:
    q.publish_many("t", [Draft(b"l%d" % n, priority="low") for n in range(10)])
    q.publish_many("t", [Draft(b"h%d" % n, priority="high") for n in range(10)])
    assert take(q, "t", limit=1) == [b"h0"]
    q.configure("t", policy="weighted", weights={"high": 2, "low": 2})
    assert take(q, "t", limit=6) == [b"h1", b"h2", b"l0", b"l1", b"h3", b"h4"]
    q.configure("t", policy="strict")
    assert take(q, "t") == [b"h%d" % n for n in range(5, 10)] + [b"l%d" % n for n in range(2, 10)]


def test_ageing_lets_nobody_wait_too_long(q, clock) -> None:
    q.configure("t", policy="ageing", age_limit="10s", partitions=2)
    q.publish("t", b"old", priority="background", key="1")
    clock.advance("5s")
    q.publish_many("t", [Draft(b"%d" % n, priority="critical", key=str(n)) for n in range(4)])
    assert take(q, "t", limit=1) != [b"old"]
    clock.advance("5s")
    assert take(q, "t", limit=1) == [b"old"]
    assert len(take(q, "t")) == 3


def test_ageing_counts_from_the_first_time_for_what_comes_back(q, clock) -> None:
    q.configure("t", policy="ageing", age_limit="10s")
    q.publish("t", b"old", priority="low")
    receive_one(q, "t").nack(delay="9s")
    clock.advance("9s")
    q.publish_many("t", [Draft(b"new", priority="high")] * 2)
    assert take(q, "t", limit=1) == [b"new"]
    clock.advance("1s")
    assert take(q, "t") == [b"old", b"new"]


@pytest.mark.parametrize("policy", ["weighted", "ageing"])
def test_what_comes_back_keeps_its_place_in_its_lane(q, clock, policy) -> None:
    q.configure("t", policy=policy)
    q.publish_many("t", [b"%d" % n for n in range(10)])
    held = q.receive("t", limit=8)
    assert payloads(held) == [b"%d" % n for n in range(8)]
    q.release([held[6], held[1], held[4]])
    assert take(q, "t", limit=2) == [b"1", b"4"]
    assert take(q, "t") == [b"6", b"8", b"9"]
