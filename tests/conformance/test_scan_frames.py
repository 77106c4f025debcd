"""Frames: a partition by whole frames, cut to a range of offsets, with everything that was published."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import mqueue
from mqueue.wire.frame import Frame
from tests.conformance.steps import refused, take

BATCH = [b"%d" % n for n in range(100)]
END = 1 << 40


def rows(frames: Any) -> list[tuple[int, int, int, bytes]]:
    """(offset, id, time, payload) of all rows."""
    return [
        (frame.base + row, frame.id_of(row), frame.at_of(row), payload)
        for frame in frames
        for row, payload in enumerate(frame.rows.payload)
    ]


def scanned(q: Any, topic: str, **options: Any) -> list[tuple[int, int, int, bytes]]:
    return [(m.offset, m.id, round(m.published_at.timestamp() * 1000), m.payload) for m in q.scan(topic, **options)]


def let_duties_run(q, clock) -> None:
    for _ in range(3):
        clock.advance("61s")
        q.stats("t")


def test_everything_in_order(q, clock) -> None:
    q.publish("t", b"single")
    for n in range(5):
        q.publish_many("t", BATCH)
        clock.advance("10ms")
        q.publish("t", b"%d" % n)
    frames = list(q.scan_frames("t", 0, 0, END))
    assert all(isinstance(frame, Frame) and not frame.open for frame in frames)
    assert rows(frames) == scanned(q, "t")
    q.publish("t", b"more")  # what was read is closed, and goes on
    assert rows(q.scan_frames("t", 0, 0, END)) == scanned(q, "t")
    assert rows(frames) == scanned(q, "t")[:-1]


@pytest.mark.parametrize(("start", "stop"), [(0, 250), (50, 51), (99, 101), (100, 200), (149, 150), (7, 7), (250, 999)])
def test_a_range_is_cut_out(q, start, stop) -> None:
    for _ in range(2):
        q.publish_many("t", BATCH)
    for n in range(50):
        q.publish("t", b"%d" % n)
    assert rows(q.scan_frames("t", 0, start, stop)) == scanned(q, "t", start=start, stop=stop)


def test_all_columns_come_along(q) -> None:
    q.publish_many(
        "t",
        [
            mqueue.Draft(b"a", key="k", headers={"h": "1"}, priority="high", ttl="1h"),
            mqueue.Draft({"n": 1}, delay="1h", idempotency_key="once"),
            mqueue.Draft(b"c", fairness_key="f", priority=7),
        ],
    )
    messages = {m.offset: m for m in q.scan("t")}
    [frame] = q.scan_frames("t", 0, 0, END)
    for row in range(frame.count):
        message = messages[frame.base + row]
        assert frame.id_of(row) == message.id
        assert frame.rows.payload[row] == message.payload
        assert frame.number("priority", row) == message.priority
        assert (frame.rows.key or [None] * 3)[row] == message.key
        assert frame.number("expires_at", row) == (
            0 if message.expires_at is None else round(message.expires_at.timestamp() * 1000)
        )
    assert frame.batch.schema.names == ["payload", "key", "headers", "idempotency_key", "fairness_key"]


def test_each_partition_for_itself(q) -> None:
    q.configure("t", partitions=3)
    q.publish_many("t", [mqueue.Draft(b"%d" % n, key=f"k{n}") for n in range(90)])
    for each in q.offsets("t"):
        found = list(q.scan_frames("t", each.partition, each.first, each.next))
        assert {frame.partition for frame in found} == {each.partition}
        assert rows(found) == scanned(q, "t", partition=each.partition)


def test_what_retention_dropped_is_missing(q, clock) -> None:
    q.configure("t", retention={"on_ack": True})
    receipts = q.publish_many("t", [mqueue.Draft(b"%d" % n, delay="4h" if n % 10 == 3 else None) for n in range(100)])
    q.publish_many("t", BATCH)
    take(q, "t", limit=1000)
    clock.advance("1h")
    let_duties_run(q, clock)
    left = scanned(q, "t")
    assert 0 < len(left) < len(receipts)
    assert rows(q.scan_frames("t", 0, 0, END)) == left
    start, stop = left[2][0], left[5][0]
    assert rows(q.scan_frames("t", 0, start, stop)) == left[2:5]


def test_compaction_leaves_the_last_of_each_key(q, clock) -> None:
    q.configure("t", retention={"compact": True})
    for round in range(3):
        q.publish_many("t", [mqueue.Draft(b"%d" % round, key=f"k{n}") for n in range(40 - round)])
    take(q, "t", limit=1000)
    clock.advance("1h")
    let_duties_run(q, clock)
    left = scanned(q, "t")
    assert len(left) < 117
    assert rows(q.scan_frames("t", 0, 0, END)) == left


def test_many_pages(q) -> None:
    payload = bytes(100_000)
    for n in range(12):
        table = pa.table({"payload": [payload] * 15 + [b"%d" % n]})
        q.publish_arrow("t", table)
    frames = list(q.scan_frames("t", 0, 0, END))
    assert sum(frame.count for frame in frames) == 192
    assert [frame.base for frame in frames] == sorted(frame.base for frame in frames)
    assert [p for frame in frames for p in frame.rows.payload if len(p) < 9] == [b"%d" % n for n in range(12)]
    some = q.scan_frames("t", 0, 100, END)
    assert next(some).base == 100
    del some  # whoever has seen enough goes


def test_thousands_of_single_messages(q) -> None:
    q.publish_many("t", [b"first"])
    for n in range(1500):
        q.publish("t", b"%d" % n, durability=None if n % 100 == 0 else "memory")
        if n % 3 == 0:
            q.publish("other", b"x" * (n % 2000), durability="memory")
    assert rows(q.scan_frames("t", 0, 0, END)) == scanned(q, "t")
    assert rows(q.scan_frames("t", 0, 700, 901)) == scanned(q, "t", start=700, stop=901)


def test_an_empty_range_and_a_topic_that_is_not_there(q) -> None:
    q.configure("t", partitions=2)
    assert list(q.scan_frames("t", 1, 0, END)) == []
    with refused(mqueue.NotFound):
        list(q.scan_frames("u", 0, 0, END))
    with refused(mqueue.NotFound):
        list(q.scan_frames("t", 2, 0, END))
    with refused(mqueue.NotFound):
        list(q.scan_frames("t", -1, 0, END))
    with refused(mqueue.BadName):
        list(q.scan_frames("a/b", 0, 0, END))


@pytest.mark.parametrize("bad", [(0, -1, 5), (0, 0, -5), (0, "earliest", 5), (0, 0, None), ("0", 0, 5), (0, True, 5)])
def test_bad_offsets_are_refused(q, bad) -> None:
    q.publish("t", b"x")
    with refused(mqueue.Refused, "bad_position"):
        list(q.scan_frames("t", *bad))
