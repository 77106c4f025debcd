"""Replay: scan and peek touch no group, and what they show is complete and byte-identical."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import log, offsets, payloads, receive_one, refused, take


def fill(q, count: int) -> None:
    q.publish_many("t", [b"%d" % n for n in range(count)])


def test_scan_touches_no_group(q) -> None:
    fill(q, 3)
    assert log(q, "t") == log(q, "t") == [b"0", b"1", b"2"]
    assert q.groups("t") == []
    assert take(q, "t") == [b"0", b"1", b"2"]
    assert log(q, "t") == [b"0", b"1", b"2"]


def test_scan_is_complete(q, clock) -> None:
    q.publish_many("t", [b"acked", b"leased", Draft(b"scheduled", delay="1h"), Draft(b"expired", ttl="1s"), b"dead"])
    q.cancel(q.publish("t", b"cancelled", delay="1h"))
    clock.advance("1s")
    take(q, "t", limit=1)
    q.receive("t")
    receive_one(q, "t").reject()
    q.purge("t")
    everything = [b"acked", b"leased", b"dead", b"expired", b"scheduled", b"cancelled"]
    assert sorted(log(q, "t")) == sorted(everything)
    assert offsets(q.scan("t")) == list(range(6))


@pytest.mark.parametrize(
    ("start", "stop", "found"),
    [(0, None, 5), (2, None, 3), (None, 2, 2), (1, 4, 3), (5, None, 0), (10**15, None, 0), (3, 3, 0), (4, 2, 0)],
)
def test_scan_by_offset(q, start, stop, found: int) -> None:
    fill(q, 5)
    first = start or 0
    assert offsets(q.scan("t", start=start, stop=stop)) == list(range(first, first + found))


def test_scan_by_time(q, clock) -> None:
    for n in range(5):
        q.publish("t", b"%d" % n)
        clock.advance("1m")
    assert log(q, "t", start="2026-01-01T00:01:00Z", stop="2026-01-01T00:03:00Z") == [b"1", b"2"]
    assert log(q, "t", start=datetime(2026, 1, 1, 0, 3, 0, 1, tzinfo=UTC)) == [b"4"]
    assert log(q, "t", stop="2026-01-01") == []
    assert log(q, "t", start="2027-01-01") == []


def test_time_is_that_of_the_publish(q, clock) -> None:
    q.publish("t", b"x", delay="1h")
    assert log(q, "t", stop="2026-01-01T00:00:01Z") == [b"x"]


def test_scan_of_one_partition(q) -> None:
    q.configure("t", partitions=3)
    q.publish_many("t", [Draft(b"%d" % n, key=str(n)) for n in range(30)])
    parts = [list(q.scan("t", partition=number)) for number in range(3)]
    assert all({m.partition for m in part} <= {number} for number, part in enumerate(parts))
    assert sorted(p for part in parts for p in payloads(part)) == sorted(b"%d" % n for n in range(30))
    for partition in (3, -1):
        with refused(mqueue.NotFound):
            list(q.scan("t", partition=partition))


@pytest.mark.parametrize("position", [-1, "whenever", True, 1.5])
def test_scan_from_nowhere_is_refused(q, position) -> None:
    fill(q, 1)
    with pytest.raises(mqueue.Refused):
        list(q.scan("t", start=position))
    with pytest.raises(mqueue.Refused):
        list(q.scan("t", stop=position))


def test_looking_at_an_unknown_topic(q) -> None:
    for call in (lambda: list(q.scan("t")), lambda: q.peek("t"), lambda: q.scheduled("t"), lambda: q.stats("t")):
        with refused(mqueue.NotFound):
            call()
    assert q.topics() == []


def test_a_replay_is_byte_identical(q, clock) -> None:
    chance = random.Random(3)
    sent = []
    for _ in range(300):
        draft = Draft(
            chance.randbytes(chance.randrange(0, 300)),
            key=chance.choice([None, b"", chance.randbytes(3)]),
            headers=chance.choice([None, {"ž": "🐎", "b": b"\xff"}]),
            priority=chance.randrange(-3, 3),
            ttl=chance.choice([None, "1h"]),
        )
        receipt = q.publish(
            "t", draft.payload, key=draft.key, headers=draft.headers, priority=draft.priority, ttl=draft.ttl
        )
        sent.append(
            (receipt.id, receipt.offset, draft.payload, draft.key, draft.headers or {}, draft.priority, clock.now())
        )
        clock.advance("1ms")

    def seen():
        return [
            (m.id, m.offset, m.payload, m.key, dict(m.headers), m.priority, round(m.published_at.timestamp() * 1000))
            for m in q.scan("t")
        ]

    assert seen() == sent
    q.nack(q.receive("t", limit=200))
    clock.advance("1d")
    take(q, "t", limit=250)
    assert seen() == sent


def test_a_scan_ends_where_the_log_ended_when_it_began(q) -> None:
    fill(q, 3)
    scan = q.scan("t")
    assert next(scan).payload == b"0"
    q.publish("t", b"later")
    assert payloads(scan) == [b"1", b"2"]


def test_a_scan_goes_on_while_others_work(q) -> None:
    q.publish_many("t", [b"%d" % n for n in range(9000)])
    seen = []
    for m in q.scan("t"):
        seen.append(m.payload)
        if m.offset % 1000 == 0:
            take(q, "t", limit=100)
    assert seen == [b"%d" % n for n in range(9000)]


def test_peek_takes_nothing(q) -> None:
    fill(q, 3)
    for _ in range(2):
        assert payloads(q.peek("t")) == [b"0", b"1", b"2"]
    assert q.groups("t") == []
    assert take(q, "t") == [b"0", b"1", b"2"]


def test_peek_shows_what_comes_next(q, clock) -> None:
    q.publish_many("t", [b"0", b"1", b"2", b"3", Draft(b"soon", delay="5s"), Draft(b"!", priority=0)])
    take(q, "t", limit=2)
    receive_one(q, "t").nack(delay="5s")
    assert payloads(q.peek("t")) == [b"2", b"3"]
    assert payloads(q.peek("t", limit=1)) == [b"2"]
    assert payloads(q.peek("t", group="other")) == [b"!", b"0", b"1", b"2", b"3"]
    clock.advance("5s")
    assert payloads(q.peek("t")) == [b"1", b"2", b"3", b"soon"]


def test_peek_of_all_that_is_leased(q) -> None:
    fill(q, 2)
    q.receive("t", limit=2)
    assert q.peek("t") == []
