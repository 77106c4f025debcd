"""Publishing: what goes in, what is answered, all or none."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import beside, log, payloads, receive_one, refused, take


def fnv1a_32(key: bytes) -> int:
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


@pytest.mark.usefixtures("one_publisher")
def test_a_receipt_tells_where_the_message_is(q) -> None:
    first, second = q.publish("t", b"a"), q.publish("t", b"b")
    assert (first.topic, first.partition, first.offset, first.duplicate) == ("t", 0, 0, False)
    assert (second.partition, second.offset) == (0, 1)
    assert 0 < first.id < second.id < 2**63
    assert first.durability in ("memory", "os", "fsync", "wal", "shard", "quorum")


def test_what_is_published_is_received(q, clock) -> None:
    receipt = q.publish("t", b"x", key="k", headers={"a": "1"}, priority="high", ttl="1h", idempotency_key="i")
    m = receive_one(q, "t")
    assert (m.id, m.topic, m.partition, m.offset) == (receipt.id, "t", receipt.partition, receipt.offset)
    assert (m.payload, m.key, dict(m.headers), m.priority, m.attempt) == (b"x", b"k", {"a": "1"}, 25, 1)
    assert m.namespace == "default"
    assert m.published_at.timestamp() * 1000 == m.deliver_at.timestamp() * 1000 == clock.now()
    assert m.expires_at.timestamp() * 1000 == clock.now() + 3_600_000


def test_a_plain_message_has_nothing_else(q) -> None:
    q.publish("t", b"x")
    m = receive_one(q, "t")
    assert (m.key, dict(m.headers), m.priority, m.expires_at) == (None, {}, 50, None)


@pytest.mark.parametrize("payload", [b"", b"\x00\xff", bytes(range(256)), b"x" * 1_000_000])
def test_bytes_arrive_as_they_are(q, payload: bytes) -> None:
    q.publish("t", payload)
    q.publish("t", payload, key="k")
    assert take(q, "t") == [payload, payload]


@pytest.mark.parametrize("text", ["", "plain", "žluťoučký 🐎\u0000\u2028"])
def test_text_arrives_as_utf8(q, text: str) -> None:
    q.publish("t", text)
    m = receive_one(q, "t")
    assert (m.payload, m.text(), "content-type" in m.headers) == (text.encode(), text, False)


@pytest.mark.parametrize("mutable", [bytearray(b"abc"), memoryview(b"abc")])
def test_what_is_like_bytes_is_copied(q, mutable) -> None:
    q.publish("t", mutable)
    assert take(q, "t") == [b"abc"]


class Order(msgspec.Struct):
    n: int
    note: str = ""


@dataclass
class Line:
    n: int
    note: str = ""


@pytest.mark.parametrize("value", [{"n": 1}, [1, "2", None], 7, 1.5, True, None])
def test_other_values_are_json(q, value) -> None:
    q.publish("t", value)
    m = receive_one(q, "t")
    assert m.json() == value
    assert m.headers["content-type"] == "application/json"


@pytest.mark.parametrize("value", [Order(3, "ž"), Line(3, "ž")])
def test_typed_values_come_back_typed(q, value) -> None:
    q.publish("t", value)
    assert receive_one(q, "t").json(type(value)) == value


def test_a_payload_of_another_shape_is_refused_when_read(q) -> None:
    q.publish("t", {"n": "three"})
    q.publish("t", b"\xff{")
    wrong, broken = q.receive("t", limit=2)
    with refused(mqueue.Refused, "bad_payload"):
        wrong.json(Order)
    with refused(mqueue.Refused, "bad_payload"):
        broken.json()


def test_the_users_content_type_stays(q) -> None:
    q.publish("t", {"n": 1}, headers={"content-type": "application/vnd.order+json"})
    assert receive_one(q, "t").headers["content-type"] == "application/vnd.order+json"


@pytest.mark.parametrize("payload", [object(), {1, object()}, "\ud800", {"a": object()}])
def test_what_cannot_be_sent_is_refused(q, payload) -> None:
    with refused(mqueue.Refused, "bad_payload"):
        q.publish("t", payload)
    with refused(mqueue.Refused, "bad_payload"):
        q.publish_many("t", [b"fine", payload])
    assert "t" not in q.topics() or log(q, "t") == []


def test_headers_carry_text_and_bytes(q) -> None:
    headers = {"ž": "🐎", "raw": b"\xff\x00", "empty": "", "traceparent": "00-0af7-b7ad-01"}
    q.publish("t", b"x", headers=headers)
    q.publish_many("t", [b"none", Draft(b"x", headers=headers)])
    assert [dict(m.headers) for m in q.receive("t", limit=3)] == [headers, {}, headers]


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, {"a": None}, {"a": "\ud800"}, {"\ud800": "a"}])
def test_bad_headers_are_refused(q, headers) -> None:
    with refused(mqueue.Refused, "bad_header"):
        q.publish("t", b"x", headers=headers)


@pytest.mark.parametrize("key", [1, 1.5, ["k"], "\ud800"])
def test_bad_keys_are_refused(q, key) -> None:
    with refused(mqueue.Refused, "bad_key"):
        q.publish("t", b"x", key=key)


@pytest.mark.parametrize("key", ["", 7, "x" * 1025, "\ud800"])
def test_bad_idempotency_keys_are_refused(q, key) -> None:
    with refused(mqueue.Refused, "bad_key"):
        q.publish("t", b"x", idempotency_key=key)


def test_an_empty_key_is_a_key(q) -> None:
    q.publish_many("t", [Draft(b"a", key=""), Draft(b"b")])
    assert [m.key for m in q.receive("t", limit=2)] == [b"", None]


def test_many_are_answered_in_the_callers_order(q) -> None:
    drafts = [Draft(str(n).encode(), priority=-n, key=str(n % 7)) for n in range(100)]
    q.configure("t", partitions=5)
    receipts = q.publish_many("t", drafts)
    stored = {(m.partition, m.offset): (m.id, m.payload) for m in q.scan("t")}
    for number, receipt in enumerate(receipts):
        assert stored[receipt.partition, receipt.offset] == (receipt.id, str(number).encode())


def test_many_of_every_kind_in_one_call(q) -> None:
    q.publish_many("t", [b"bytes", "text", {"n": 1}, Draft(b"draft", key="k")])
    assert take(q, "t") == [b"bytes", b"text", b'{"n":1}', b"draft"]


def test_many_may_come_from_a_generator(q) -> None:
    assert len(q.publish_many("t", (b"%d" % n for n in range(5000)))) == 5000
    assert take(q, "t", limit=10_000) == [b"%d" % n for n in range(5000)]


def test_a_call_without_messages_is_refused(q) -> None:
    with refused(mqueue.Refused, "empty"):
        q.publish_many("t", [])


@pytest.mark.parametrize(
    "bad",
    [
        Draft(b"x", priority="urgent"),
        Draft(b"x", key=b"k" * 1025),
        Draft(b"x", delay="-1s"),
        Draft(b"x", ttl=0),
        Draft(b"x" * (2**20 + 1)),
    ],
)
def test_one_bad_message_and_none_is_stored(q, bad: Draft) -> None:
    q.publish("t", b"before")
    with pytest.raises(mqueue.Refused):
        q.publish_many("t", [b"a", bad, b"b"])
    assert log(q, "t") == [b"before"]


B = beside("a", "b")


def test_one_call_reaches_several_topics(q) -> None:
    receipts = q.publish_many("a", [b"1", Draft(b"2", topic=B), b"3", Draft(b"4", topic=B)])
    assert [r.topic for r in receipts] == ["a", B, "a", B]
    assert [r.offset for r in receipts] == [0, 0, 1, 1]
    assert (log(q, "a"), log(q, B)) == ([b"1", b"3"], [b"2", b"4"])


def test_drafts_may_all_name_their_topic(q) -> None:
    q.publish_many(None, [Draft(b"1", topic="a"), Draft(b"2", topic=B)])
    assert (log(q, "a"), log(q, B)) == ([b"1"], [b"2"])


def test_a_draft_that_names_no_topic_is_refused(q) -> None:
    with refused(mqueue.Refused, "no_topic"):
        q.publish_many(None, [Draft(b"1", topic="a"), b"2"])
    assert q.topics() == [] or log(q, "a") == []


def test_several_topics_are_all_or_none(q) -> None:
    q.configure(B, max_depth=1)
    with refused(mqueue.QueueFull, "queue_full"):
        q.publish_many("a", [b"1", Draft(b"2", topic=B), Draft(b"3", topic=B)])
    assert (q.topics(), log(q, B)) == ([B], []) or (log(q, "a"), log(q, B)) == ([], [])


def test_a_key_always_goes_to_the_same_partition(q) -> None:
    q.configure("t", partitions=6)
    for key in ("", "a", "foobar", "ž"):
        for receipt in (
            q.publish("t", b"x", key=key),
            *q.publish_many("t", [Draft(b"x", key=key), Draft(b"y", key=key)]),
        ):
            assert receipt.partition == fnv1a_32(key.encode()) % 6


@pytest.mark.usefixtures("one_publisher")
def test_batches_without_key_go_round(q) -> None:
    q.configure("t", partitions=3)
    parts = [{r.partition for r in q.publish_many("t", [b"a", b"b"])} for _ in range(6)]
    assert all(len(part) == 1 for part in parts)
    assert {number for part in parts for number in part} == {0, 1, 2}


def test_offsets_have_no_gaps(q) -> None:
    q.configure("t", partitions=2)
    for n in range(20):
        q.publish_many("t", [Draft(b"x", key=str(n), priority=n % 3, delay=n % 2) for _ in range(n + 1)])
    for partition in (0, 1):
        found = [m.offset for m in q.scan("t", partition=partition)]
        assert found == list(range(len(found)))


def test_ids_never_repeat(q) -> None:
    ids = [r.id for _ in range(3) for r in q.publish_many("t", [b"x"] * 5000)]
    assert len(set(ids)) == 15_000
    assert payloads(q.scan("t", start=14_999)) == [b"x"]


def test_a_published_message_cannot_be_changed_afterwards(q) -> None:
    mine, headers = bytearray(b"before"), {"a": "before"}
    q.publish("t", mine, headers=headers)
    mine[:] = b"AFTER!"
    headers["a"] = "after"
    m = receive_one(q, "t")
    assert (m.payload, dict(m.headers)) == (b"before", {"a": "before"})


def test_another_durability_than_the_stores_is_refused(q) -> None:
    reached = q.publish("t", b"x").durability
    assert q.publish("t", b"x", durability=reached).durability == reached
    with refused(mqueue.BadSetting, "bad_setting"):
        q.publish("t", b"x", durability="carved in stone")
    assert len(log(q, "t")) == 2


def test_a_call_that_needs_too_many_new_topics_makes_none(make) -> None:
    q = make(limits=mqueue.Limits(topics_max=1))
    with refused(mqueue.QueueFull, "topics_full"):
        q.publish_many(None, [Draft(b"1", topic="a"), Draft(b"2", topic=B)])
    assert q.topics() == []


@pytest.mark.usefixtures("one_publisher")
def test_topics_take_turns_apart_from_each_other(make) -> None:
    q = make(partitions=2)
    for _ in range(10):
        q.publish("a", b"x")
        q.publish("b", b"x")
    assert {receipt.partition for receipt in (q.publish("a", b"x"), q.publish("a", b"x"))} == {0, 1}
    assert len(list(q.scan("a", partition=0))) == len(list(q.scan("a", partition=1))) == 6
