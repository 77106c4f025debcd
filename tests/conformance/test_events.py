"""Events in bulk: the trace of every message of a range at once, as record batches."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import mqueue
from mqueue import Draft
from mqueue.broker import occurrences
from tests.conformance.steps import die, kinds, receive_one, refused, take

COLUMNS = ["partition", "offset", "id", "event", "time", "group", "consumer", "attempt", "error"]
END = 1 << 40


def told(q: Any, topic: str, partition: int = 0, start: int = 0, stop: int = END) -> list[dict[str, Any]]:
    batches = list(q.events(topic, partition, start, stop))
    assert all(batch.schema == occurrences.SCHEMA for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    return rows


def test_a_life(make, clock) -> None:
    q = make(name="worker-1")
    r = q.publish("t", b"x", delay="1s")
    clock.advance("1s")
    receive_one(q, "t").nack(delay="1s", error="boom")
    clock.advance("1s")
    m = receive_one(q, "t")
    m.extend("1m")
    clock.advance("1s")
    m.ack()
    rows = told(q, "t")
    assert list(rows[0]) == COLUMNS
    assert {(row["partition"], row["offset"], row["id"]) for row in rows} == {(0, 0, r.id)}
    assert [tuple(row[name] for name in COLUMNS[5:]) for row in rows] == [
        (None, None, None, None),
        (None, None, None, None),
        ("default", "worker-1", 1, None),
        ("default", "worker-1", 1, "boom"),
        ("default", "worker-1", 2, None),
        ("default", "worker-1", 2, None),
        ("default", "worker-1", 2, None),
    ]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert [(row["event"], (row["time"] - start).total_seconds()) for row in rows] == [
        ("PUBLISHED", 0),
        ("SCHEDULED", 0),
        ("DELIVERED", 1),
        ("NACKED", 1),
        ("REDELIVERED", 2),
        ("EXTENDED", 2),
        ("ACKNOWLEDGED", 3),
    ]


def test_groups_do_not_lend_each_other_their_deliveries(make) -> None:
    q = make()
    q.publish("t", b"x")
    q.receive("t", group="a")[0].release()
    mine = q.receive("t", group="a")[0]
    theirs = q.receive("t", group="b")[0]
    mine.ack()
    theirs.reject("no")
    ends = [(row["group"], row["event"], row["attempt"]) for row in told(q, "t")][1:]
    assert ends == [
        ("a", "DELIVERED", 1),
        ("a", "RELEASED", 1),
        ("a", "DELIVERED", 1),
        ("b", "DELIVERED", 1),
        ("a", "ACKNOWLEDGED", 1),
        ("b", "DEAD", 1),
    ]


def test_only_the_range(q) -> None:
    q.configure("t", partitions=2)
    q.create_group("t", "default")
    q.publish_many("t", [Draft(b"%d" % n, key=b"%d" % n) for n in range(200)])
    held = q.receive("t", limit=200)
    q.ack(held[::3])
    q.release([m for n, m in enumerate(held) if n % 3])
    for partition in (0, 1):
        rows = told(q, "t", partition, 7, 31)
        assert {row["offset"] for row in rows} == set(range(7, 31))
        assert {row["partition"] for row in rows} == {partition}
        assert rows == [row for row in told(q, "t", partition) if 7 <= row["offset"] < 31]
    assert told(q, "t", 0, 9, 9) == told(q, "t", 0, 5, 2) == told(q, "t", 1, 10_000, 20_000) == []


def test_what_retention_dropped_is_missing(q, clock) -> None:
    q.configure("t", retention={"hours": 1})
    q.create_group("t", "default")
    q.publish_many("t", [b"old"] * 5000)
    take(q, "t", limit=5000)
    clock.advance("2h")
    q.publish("t", b"new")
    clock.advance("1s")
    q.topics()
    clock.advance("1s")
    rows = told(q, "t")
    assert [(row["offset"], row["event"]) for row in rows] == [(5000, "PUBLISHED")]


@pytest.mark.parametrize("bound", [4096, 60_000])
def test_pages_are_small_and_leave_nothing_out(q, monkeypatch, bound) -> None:
    """Also where one message alone is more than a page."""
    q.publish_many("t", [b"x"] * 300)
    for _ in range(30):
        q.release(q.receive("t", limit=2))
    q.nack(q.receive("t", limit=200), error="e" * 1000)
    whole = told(q, "t")
    monkeypatch.setattr(occurrences, "PAGE_BYTES_MAX", bound)
    batches = list(q.events("t", 0, 0, END))
    assert len(batches) > 5
    assert pa.Table.from_batches(batches).to_pylist() == whole
    assert sum(row["event"] == "NACKED" for row in whole) == 200


def test_many_windows(q) -> None:
    count = 2 * occurrences.WINDOW + 5000
    for _ in range(count // 10_000):
        q.publish_arrow("t", pa.table({"payload": pa.array([b""] * 10_000)}))
    last = q.publish("t", b"last").offset
    q.receive_arrow("t", limit=10_000).ack()
    rows = told(q, "t", 0, 9_000, last + 1)
    assert len(rows) == last + 1 - 9_000 + 2 * 1_000
    assert [row["event"] for row in rows[:3]] == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]


@pytest.mark.parametrize("seed", range(5))
def test_the_same_story_as_traces_tell(make, clock, seed) -> None:
    print(f"seed {seed}")
    q = make(name="w")
    q.configure("t", partitions=2, max_retries=2, visibility="10s")
    ids = _history(q, clock, random.Random(seed))
    rows = [row for partition in (0, 1) for row in told(q, "t", partition)]
    stories: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        stories.setdefault(row["id"], []).append(row)
    assert set(stories) == {m.id for m in q.scan("t")} >= ids
    for id, story in stories.items():
        trace = q.trace(id)
        assert [(row["time"], row["event"]) for row in story] == [(one.time, one.kind) for one in trace.events]
        for row, one in zip(story, trace.events, strict=True):
            assert (row["group"] or "") in one.detail
            assert (row["error"] or "") in one.detail
            if one.kind in ("DELIVERED", "REDELIVERED"):
                assert one.detail.startswith(f"to {row['group']} by {row['consumer']}, attempt {row['attempt']}, ")
    assert len({row["event"] for row in rows}) > 7


def _history(q: Any, clock: Any, chance: random.Random) -> set[int]:
    """Everything that can happen to messages, at random; the ids of all of them."""
    ids: set[int] = set()
    held: list[Any] = []
    for group in "ab":
        q.create_group("t", group)
    for step in range(120):
        verb = chance.choice(VERBS)
        if verb == "many":
            drafts = [Draft(b"y", key=str(n)) for n in range(chance.randrange(1, 80))]
            ids |= {receipt.id for receipt in q.publish_many("t", drafts)}
        elif verb in PUBLISHES:
            options = {name: chance.choice(values) for name, values in PUBLISHES[verb].items()}
            ids.add(q.publish("t", b"x", **options).id)
        elif verb == "receive":
            held += q.receive("t", limit=chance.randrange(1, 60), group=chance.choice("ab"))
        elif verb == "settle" and held:
            some = [held.pop(chance.randrange(len(held))) for _ in range(min(len(held), chance.randrange(1, 30)))]
            _settle(q, chance, some)
        elif verb == "time":
            clock.advance(chance.choice(["1s", "5s", "30s"]))
        else:
            _manage(q, chance, verb, step)
    return ids


VERBS = ["many", "single", "delayed", "mortal", "twice", "arrow", "cancel", "move", "redrive", "seek", "purge"]
VERBS += ["receive"] * 4 + ["settle"] * 5 + ["time"] * 2
PUBLISHES: dict[str, dict[str, list[str]]] = {
    "single": {"key": ["a", "b", "c"]},
    "delayed": {"delay": ["1s", "1m"]},
    "mortal": {"ttl": ["1s", "30s"]},
    "twice": {"idempotency_key": ["a", "b"]},
}


def _manage(q: Any, chance: random.Random, verb: str, step: int) -> None:
    if verb == "arrow":
        lease = q.receive_arrow("t", group="a", limit=chance.randrange(1, 60))
        lease.nack(error="a table") if chance.random() < 0.5 else lease.ack()
    elif verb in ("cancel", "move"):
        for m in q.scheduled("t", limit=1):
            q.cancel(m) if verb == "cancel" else q.reschedule(m, delay="2m")
    elif verb == "redrive":
        q.dlq("t").redrive()
    elif verb == "seek" and step % 4 == 0:
        q.seek("t", group="b", to="earliest")
    elif verb == "purge" and step % 8 == 0:
        q.purge("t")


def _settle(q: Any, chance: random.Random, some: list[Any]) -> None:
    verb = chance.choice(["ack", "nack", "reject", "release", "extend"])
    try:
        if verb == "extend":
            q.extend(some, "20s")
        elif verb in ("nack", "reject"):
            getattr(q, verb)(some, error=f"{verb} went wrong")
        else:
            getattr(q, verb)(some)
    except mqueue.LeaseLost:
        pass


def test_a_kind_for_every_end(q, clock) -> None:
    """What random histories may miss."""
    q.publish("t", b"expires", ttl="1s")
    clock.advance("2s")
    again = [q.publish("t", b"twice", idempotency_key="k") for _ in range(2)]
    late = q.publish("t", b"late", delay="1h")
    q.reschedule(late, delay="2h")
    q.cancel(late)
    take(q, "t")
    q.publish("t", b"dies")
    die(q, "t", "never")
    q.dlq("t").redrive()
    receive_one(q, "t")
    clock.advance("5m")
    q.purge("t")
    stories: dict[int, list[str]] = {}
    for row in told(q, "t"):
        stories.setdefault(row["offset"], []).append(row["event"])
    assert list(stories.values()) == [
        ["PUBLISHED", "EXPIRED", "CANCELLED"],
        ["PUBLISHED", "DUPLICATE", "DELIVERED", "ACKNOWLEDGED", "CANCELLED"],
        ["PUBLISHED", "SCHEDULED", "SCHEDULED", "CANCELLED", "CANCELLED"],
        ["PUBLISHED", "DELIVERED", "DEAD", "REDRIVEN", "DELIVERED", "TIMED_OUT", "CANCELLED"],
    ]
    assert kinds(q, again[0]) == stories[1]


def test_bad_input(q) -> None:
    q.publish("t", b"x")
    with refused(mqueue.NotFound):
        list(q.events("nowhere", 0, 0, 1))
    for partition in (1, -1):
        with refused(mqueue.NotFound):
            list(q.events("t", partition, 0, 1))
    for start, stop in ((-1, 1), (0, -1), ("2026-01-01", 1), (0, None), (True, 1), (0, 1.5)):
        with refused(mqueue.Refused, "bad_position"):
            list(q.events("t", 0, start, stop))
    with refused(mqueue.BadName):
        list(q.events("a b", 0, 0, 1))
