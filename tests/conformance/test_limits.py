"""Limits and quotas: each with its own error, checked before anything is stored."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft, Limits
from tests.conformance.steps import beside, log, refused

MIB = 2**20
U = beside("t", "u")


@pytest.fixture
def t(q):
    """A queue with a topic `t` that has to stay empty."""
    q.configure("t")
    yield q
    assert log(q, "t") == []
    assert (q.stats("t").published, q.stats("t").depth, q.stats("t").bytes) == (0, 0, 0)


def test_payload(t) -> None:
    for payload in (b"x" * (MIB + 1), "ž" * (MIB // 2 + 1), {"a": "x" * MIB}):
        with refused(mqueue.TooLarge, "payload_too_large") as caught:
            t.publish("t", payload)
        assert str(MIB) in str(caught.value)
        with refused(mqueue.TooLarge, "payload_too_large"):
            t.publish_many("t", [b"a", payload])


def test_key(t) -> None:
    for key in (b"x" * 1025, "ž" * 513):
        with refused(mqueue.TooLarge, "key_too_large"):
            t.publish("t", b"x", key=key)


def test_headers(t) -> None:
    for headers in (
        {"a": "x" * 65_536},
        {"a": b"\xff" * 65_536},
        {"ž" * 32_768: "x"},
        {str(n): "x" * 100 for n in range(700)},
    ):
        with refused(mqueue.TooLarge, "headers_too_large"):
            t.publish("t", b"x", headers=headers)


def test_messages_of_a_call(t) -> None:
    with refused(mqueue.TooLarge, "too_many"):
        t.publish_many("t", [b""] * 10_001)


def test_bytes_of_a_call(t) -> None:
    with refused(mqueue.TooLarge, "call_too_large"):
        t.publish_many("t", [b"x" * MIB] * 32 + [b"x"])


def test_messages_of_a_call_to_several_topics(t) -> None:
    with refused(mqueue.TooLarge, "too_many"):
        t.publish_many("t", [b""] * 6_000 + [Draft(b"", topic=U)] * 6_000)


def test_topics_of_a_call(t) -> None:
    names = [beside("t", f"t{number}") for number in range(257)]
    with refused(mqueue.Refused, "too_many_topics"):
        t.publish_many(None, [Draft(b"", topic=name) for name in names])
    with refused(mqueue.Refused, "too_many_topics"):
        t.publish_many("t", [b"", *(Draft(b"", topic=name) for name in names[:256])])
    assert t.topics() == ["t"]
    drafts = [Draft(b"", topic=name) for name in names[:256]]
    assert [receipt.topic for receipt in t.publish_many(None, drafts * 2)] == names[:256] * 2


def test_bytes_of_a_call_to_several_topics(t) -> None:
    with refused(mqueue.TooLarge, "call_too_large"):
        t.publish_many("t", [b"x" * MIB] * 20 + [Draft(b"x" * MIB, topic=U)] * 20)


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, "urgent", "5", "", 1.5, True, [0]])
def test_priority(t, priority) -> None:
    with refused(mqueue.BadPriority, "bad_priority"):
        t.publish("t", b"x", priority=priority)


def test_just_within_the_limits(q) -> None:
    q.publish("t", b"x" * MIB, key=b"k" * 1024, headers={"ž": "x" * 65_534})
    q.publish("t", b"", priority=2**31 - 1)
    q.publish("t", b"", priority=-(2**31))
    assert len(q.publish_many("t", [b""] * 10_000)) == 10_000
    assert len(q.publish_many("u", [b"x" * MIB] * 32)) == 32
    assert [len(m.payload) for m in q.receive("u", limit=100)] == [MIB] * 32


def test_limits_are_settings(make) -> None:
    q = make(
        limits=Limits(payload_bytes_max=3, key_bytes_max=2, headers_bytes_max=4, call_messages_max=2, call_bytes_max=5)
    )
    q.publish("t", b"abc", key="kk")
    for code, call in {
        "payload_too_large": lambda: q.publish("t", b"abcd"),
        "key_too_large": lambda: q.publish("t", b"", key="kkk"),
        "headers_too_large": lambda: q.publish("t", b"", headers={"ab": "ccc"}),
        "too_many": lambda: q.publish_many("t", [b"", b"", b""]),
        "call_too_large": lambda: q.publish_many("t", [b"abc", b"abc"]),
    }.items():
        with refused(mqueue.TooLarge, code):
            call()
    assert log(q, "t") == [b"abc"]


BAD_NAMES = ["", "a b", "a/b", "ž", "x" * 250, ".", "..", "a\n", None, 7]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names(q, name) -> None:
    calls = [
        lambda: q.publish(name, b"x"),
        lambda: q.publish_many("t", [Draft(b"x", topic=name or "a b")]),
        lambda: q.receive(name),
        lambda: q.receive("t", group=name),
        lambda: q.create_group("t", name),
        lambda: q.configure(name),
        lambda: q.namespace(name),
        lambda: q.peek(name),
        lambda: q.stats(name),
        lambda: q.delete_topic(name),
    ]
    for call in calls:
        with refused(mqueue.BadName, "bad_name"):
            call()


@pytest.mark.parametrize("name", ["a", "A.b_C-9", "x" * 245, "-", "..."])
def test_good_names(q, name: str) -> None:
    q.namespace(name).publish(name, b"x")
    assert len(q.namespace(name).receive(name, group=name)) == 1


def test_a_refused_call_makes_no_topic(q) -> None:
    for call in (
        lambda: q.publish("t", b"x", priority="urgent"),
        lambda: q.publish_many("t", [b"x" * (MIB + 1)]),
        lambda: q.publish_many("t", [b"x", Draft(b"y", topic=U, ttl=0)]),
        lambda: q.create_group("t", "g", start="nonsense"),
        lambda: q.receive("t", group="a b"),
        lambda: q.configure("t", partitions=0),
    ):
        with pytest.raises(mqueue.Refused):
            call()
    assert q.topics() == []


def test_topics_of_a_namespace(make) -> None:
    q, b, c = make(limits=Limits(topics_max=2)), beside("a", "b"), beside("a", "c")
    q.publish("a", b"x")
    q.receive(b)
    for call in (lambda: q.publish(c, b"x"), lambda: q.receive(c), lambda: q.configure(c)):
        with refused(mqueue.QueueFull, "topics_full"):
            call()
    q.namespace("other").publish(c, b"x")
    assert q.topics() == ["a", b]
    q.delete_topic(b)
    q.publish(c, b"x")


def test_groups_of_a_topic(make) -> None:
    q = make(limits=Limits(groups_max=1))
    q.receive("t", group="g")
    with refused(mqueue.QueueFull, "groups_full"):
        q.receive("t", group="h")
    with refused(mqueue.QueueFull, "groups_full"):
        q.create_group("t", "h")
    assert q.groups("t") == ["g"]


@pytest.mark.usefixtures("one_publisher")
def test_priorities_alive(q) -> None:
    q.publish_many("t", [Draft(b"x", priority=n) for n in range(256)])
    q.publish("t", b"x", priority=255)
    for call in (
        lambda: q.publish("t", b"x", priority=256),
        lambda: q.publish_many("t", [b"x", Draft(b"x", priority=-1)]),
    ):
        with refused(mqueue.BadPriority):
            call()
    assert len(log(q, "t")) == 257


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.0, "1", None, True])
def test_limit_of_a_receive(q, limit) -> None:
    for call in (q.receive, q.peek, q.scheduled):
        q.publish("t", b"x", delay=1)
        with refused(mqueue.Refused, "bad_limit"):
            call("t", limit=limit)


@pytest.mark.parametrize("visibility", [0, -1, "13h", "soon"])
def test_visibility_of_a_receive(q, visibility) -> None:
    with refused(mqueue.BadTime, "bad_time"):
        q.receive("t", visibility=visibility)


def test_wait_of_a_receive(q) -> None:
    for wait in ("60.001s", -1, "a while"):
        with refused(mqueue.BadTime, "bad_time"):
            q.receive("t", wait=wait)


def test_mode_of_a_receive(q) -> None:
    with refused(mqueue.BadSetting):
        q.receive("t", mode="exactly_once")


@pytest.mark.usefixtures("whole_quotas")
def test_quota(make, clock) -> None:
    q = make(quotas={"default": 60})
    q.publish_many("t", [b"x"] * 60)
    with refused(mqueue.QuotaExceeded, "quota_exceeded") as caught:
        q.publish("t", b"x")
    assert (caught.value.retryable, caught.value.retry_after) == (True, 1.0)
    clock.advance("999ms")
    with refused(mqueue.QuotaExceeded):
        q.publish("t", b"x")
    clock.advance("1ms")
    q.publish("t", b"x")
    assert len(log(q, "t")) == 61


@pytest.mark.usefixtures("whole_quotas")
def test_the_bucket_does_not_overflow(make, clock) -> None:
    q = make(quotas={"default": 3})
    clock.advance("1h")
    q.publish_many("t", [b"x"] * 3)
    with refused(mqueue.QuotaExceeded):
        q.publish("t", b"x")


@pytest.mark.usefixtures("whole_quotas")
def test_a_call_larger_than_the_quota_never_fits(make) -> None:
    q = make(quotas={"default": 3})
    with refused(mqueue.QuotaExceeded, "quota_too_small") as caught:
        q.publish_many("t", [b"x"] * 4)
    assert caught.value.retryable is False
    q.publish_many("t", [b"x"] * 3)


@pytest.mark.usefixtures("whole_quotas")
def test_a_quota_is_its_namespaces_own(make) -> None:
    q = make(quotas={"small": 1})
    q.namespace("small").publish("t", b"x")
    for _ in range(5):
        q.publish("t", b"x")
    with refused(mqueue.QuotaExceeded):
        q.namespace("small").publish_many("u", [b"x"])


def test_a_quota_of_nothing(make) -> None:
    q = make(quotas={"default": 0})
    with refused(mqueue.QuotaExceeded):
        q.publish("t", b"x")
    assert q.receive("t") == []


@pytest.mark.usefixtures("whole_quotas")
def test_a_refused_call_costs_nothing(make) -> None:
    q = make(quotas={"default": 1})
    with refused(mqueue.TooLarge):
        q.publish("t", b"x" * (MIB + 1))
    with refused(mqueue.BadPriority):
        q.publish_many("t", [Draft(b"x", priority="urgent")])
    q.configure("t", max_depth=1)
    with refused(mqueue.QueueFull):
        q.configure("full", max_depth=1)
        q.publish_many("full", [b"x", Draft(b"x", topic="full")])
    q.publish("t", b"x")
