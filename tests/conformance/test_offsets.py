"""Offsets: where each partition begins and ends, and where it stood at a time."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

import mqueue
from tests.conformance.steps import offsets, refused, take

BATCH = [b"%d" % n for n in range(100)]


def let_duties_run(q, clock) -> None:
    for _ in range(3):
        clock.advance("61s")
        q.stats("t")


def bare(told: list[mqueue.PartitionOffsets]) -> list[mqueue.PartitionOffsets]:
    """Without the time when the topic was made."""
    return [replace(each, made_at=None) for each in told]


def test_a_topic_from_its_first_offset_to_the_next(q) -> None:
    q.configure("t", partitions=3)
    assert bare(q.offsets("t")) == [mqueue.PartitionOffsets(n, 0, 0, None) for n in range(3)]
    receipts = q.publish_many("t", [mqueue.Draft(b"x", key=f"k{n}") for n in range(60)])
    ends = {receipt.partition: receipt.offset + 1 for receipt in receipts}
    assert bare(q.offsets("t")) == [mqueue.PartitionOffsets(n, 0, ends[n]) for n in range(3)]


def test_a_topic_of_the_same_name_is_another_one(q, clock) -> None:
    q.configure("t", partitions=2)
    first = {each.made_at for each in q.offsets("t")}
    q.publish("t", b"x")
    clock.advance("1s")
    assert {each.made_at for each in q.offsets("t")} == first
    assert len(first) == 1
    q.delete_topic("t")
    q.publish("t", b"y")
    assert q.offsets("t")[0].made_at == first.pop() + timedelta(seconds=1)


def test_where_it_stood_at_a_time(q, clock) -> None:
    q.publish("t", b"0")
    times = [next(q.scan("t")).published_at]
    for count in (1, 3, 1):
        clock.advance("10s")
        q.publish_many("t", BATCH[:count])
        times.append(times[-1] + timedelta(seconds=10))

    def at(time: object) -> int | None:
        [found] = q.offsets("t", time)
        assert (found.first, found.next) == (0, 6)
        return found.at

    assert [at(time) for time in times] == [0, 1, 2, 5]
    assert [at(time - timedelta(milliseconds=1)) for time in times] == [0, 1, 2, 5]
    assert [at(time + timedelta(milliseconds=1)) for time in times] == [1, 2, 5, 6]
    assert (at("1980-01-01"), at("2100-01-01T00:00:00Z")) == (0, 6)
    assert at(times[2].isoformat()) == 2


def test_many_singles_between_batches(q, clock) -> None:
    start = None
    for n in range(300):
        q.publish("t", b"%d" % n)
        start = start or next(q.scan("t")).published_at
        clock.advance("1ms")
    q.publish_many("t", BATCH)
    for n in (0, 1, 150, 299, 300):
        assert q.offsets("t", start + timedelta(milliseconds=n))[0].at == n
    assert q.offsets("t", start + timedelta(milliseconds=301))[0].at == 400


def test_what_retention_dropped_is_behind_the_first(q, clock) -> None:
    q.configure("t", retention={"on_ack": True})
    q.publish_many("t", BATCH)
    take(q, "t", limit=1000)
    clock.advance("1h")
    let_duties_run(q, clock)
    assert bare(q.offsets("t", "1980-01-01")) == [mqueue.PartitionOffsets(0, 100, 100, 100, 100)]
    q.publish("t", b"x")
    assert bare(q.offsets("t", "1980-01-01")) == [mqueue.PartitionOffsets(0, 100, 101, 100, 100)]


def test_the_first_is_the_lowest_that_is_still_there(q, clock) -> None:
    q.configure("t", retention={"hours": 1})
    q.publish_many("t", BATCH)
    q.publish("t", b"later", delay="4h")
    q.publish_many("t", BATCH)
    take(q, "t", limit=1000)
    clock.advance("2h")
    let_duties_run(q, clock)
    [found] = q.offsets("t")
    assert offsets(q.scan("t"))[0] == found.first == 100  # kept, because it is scheduled
    assert (found.floor, found.next) == (201, 201)


def test_a_topic_that_is_not_there_and_times_that_are_none(q) -> None:
    with refused(mqueue.NotFound):
        q.offsets("t")
    with refused(mqueue.BadName):
        q.offsets("a/b")
    q.publish("t", b"x")
    for bad in ("soon", "", "earliest", 7.5):
        with refused(mqueue.BadTime):
            q.offsets("t", bad)
    assert q.topics() == ["t"]


def test_a_namespace_sees_its_own(q) -> None:
    q.publish("t", b"x")
    other = q.namespace("other")
    other.publish_many("t", BATCH)
    assert (q.offsets("t")[0].next, other.offsets("t")[0].next) == (1, 100)


def test_a_thousand_partitions_in_one_call(q) -> None:
    q.configure("t", partitions=1024)
    q.publish_many("t", [mqueue.Draft(b"x", key=f"k{n}") for n in range(5000)])
    found = q.offsets("t", "1980-01-01")
    assert [each.partition for each in found] == list(range(1024))
    assert sum(each.next for each in found) == 5000
    assert {each.at for each in found} == {0}
