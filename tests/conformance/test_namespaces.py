"""Namespaces: tenants that do not see each other."""

from __future__ import annotations

import pytest

import mqueue
from tests.conformance.steps import die, receive_one, refused, take


@pytest.fixture
def a(q):
    return q.namespace("a")


@pytest.fixture
def b(q):
    return q.namespace("b")


def test_topics_are_apart(q, a, b) -> None:
    a.publish("t", b"a")
    b.publish("t", b"b")
    assert (a.topics(), b.topics(), q.topics()) == (["t"], ["t"], [])
    assert (take(a, "t"), take(b, "t")) == ([b"a"], [b"b"])
    assert receive_one(a, "t", group="g").namespace == "a"


def test_settings_and_groups_are_apart(a, b) -> None:
    a.configure("t", partitions=3)
    a.create_group("t", "g")
    b.publish("t", b"x")
    assert (b.settings("t")["partitions"], b.groups("t")) == (1, [])


def test_ids_of_another_namespace_are_not_found(q, a, b) -> None:
    r = a.publish("t", b"x", delay="1h")
    for other in (q, b):
        other.configure("t")
        for call in (other.trace, other.explain, other.cancel, lambda id, other=other: other.reschedule(id, delay=1)):
            with refused(mqueue.NotFound, "not_found"):
                call(r)
    assert len(a.scheduled("t")) == 1


def test_the_default_namespace_has_a_name(q) -> None:
    q.publish("t", b"x")
    assert take(q.namespace("default"), "t") == [b"x"]


def test_a_view_of_a_view(q) -> None:
    q.namespace("a").namespace("b").publish("t", b"x")
    assert take(q.namespace("b"), "t") == [b"x"]


def test_purge_and_delete_stay_at_home(a, b) -> None:
    for one in (a, b):
        one.publish("t", b"x")
    a.purge("t")
    a.delete_topic("t")
    assert take(b, "t") == [b"x"]


def test_the_dead_stay_at_home(a, b) -> None:
    a.publish("t", b"x")
    b.configure("t")
    die(a, "t")
    assert (len(a.dlq("t")), len(b.dlq("t"))) == (1, 0)
    assert b.dlq("t").redrive().matched == 0


def test_closing_a_view_does_not_close_the_broker(q, a) -> None:
    with a:
        a.publish("t", b"x")
    q.publish("t", b"y")
    assert take(q, "t") == [b"y"]


def test_a_woken_view(q, a) -> None:
    a.publish("t", b"x")
    assert q.receive("t") == []
    assert len(a.receive("t", wait="1s")) == 1
