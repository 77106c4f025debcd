"""Windows of time: what was published from one time to another, to the message, wherever it lies by now."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mqueue
from mqueue import Draft
from mqueue.testing import ManualClock
from tests.conformance.steps import refused, take

START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOWS = 100
Truth = dict[bytes, int]
"""When each message was published, in milliseconds."""


def history(q: Any, clock: ManualClock, chance: random.Random, calls: int, first: int = 0) -> Truth:
    """Batches and single messages, many at the same millisecond, some of them due much later."""
    truth: Truth = {}
    for call in range(first, first + calls):
        if chance.random() < 0.6:
            clock.advance(timedelta(milliseconds=chance.choice([1, 1, 2, 7, 1000, 60_000])))
        drafts = [
            Draft(
                b"%d.%d " % (call, n) + chance.randbytes(chance.choice([0, 10, 400])),
                key=str(chance.randrange(9)),
                priority=chance.randrange(3),
                delay="30d" if chance.random() < 0.05 else None,
            )
            for n in range(chance.choice([1, 1, 2, 30]))
        ]
        q.publish_many("t", drafts)
        truth |= {draft.payload: clock.now() for draft in drafts}
    return truth


def edge(chance: random.Random, times: list[int]) -> datetime:
    """Mostly just at a message, or a millisecond beside it."""
    low, high = times[0], times[-1]
    at = chance.choice(times) + chance.choice([-1, 0, 0, 1]) if chance.random() < 0.8 else chance.randint(low, high)
    return datetime.fromtimestamp(at / 1000, UTC)


def check_windows(q: Any, truth: Truth, chance: random.Random, count: int = WINDOWS) -> None:
    there = [(m.payload, truth[m.payload]) for m in q.scan("t")]
    times = sorted(set(truth.values()))
    for number in range(count):
        start, stop = sorted((edge(chance, times), edge(chance, times)))
        low, high = start.timestamp() * 1000, stop.timestamp() * 1000
        expected = [payload for payload, at in there if low <= round(at) < high]
        assert [m.payload for m in q.scan("t", start, stop)] == expected, (number, start, stop)


def drop_old(q: Any, clock: ManualClock) -> None:
    """Retention drops what is old; what is scheduled stays."""
    take(q, "t", limit=10_000)
    q.configure("t", retention={"hours": 0.5})
    for _ in range(3):
        clock.advance("2s")
        q.stats("t")


def test_windows_are_exact(make, clock) -> None:
    chance = random.Random(11)
    q = make(partitions=3)
    truth = history(q, clock, chance, 60)
    check_windows(q, truth, chance, 40)
    clock.advance("1h")
    truth |= history(q, clock, chance, 30, first=1000)
    drop_old(q, clock)
    left = {m.payload for m in q.scan("t")}
    assert {m.payload for m in q.scheduled("t", 1000)} <= left < truth.keys()
    check_windows(q, truth, chance, 60)


def test_windows_across_segments_and_restarts(tmp_path, clock) -> None:
    chance = random.Random(12)
    storage = mqueue.Storage(reserve_bytes=0, segment_bytes=64 * 1024, checkpoint_bytes=64 * 1024, cache_bytes=0)
    truth: Truth = {}
    for life in range(3):
        with mqueue.Broker(tmp_path, clock=clock, storage=storage, partitions=3) as q:
            truth |= history(q, clock, chance, 100, first=1000 * life)
            if life == 1:
                clock.advance("1h")
                truth |= history(q, clock, chance, 20, first=5000)
                drop_old(q, clock)
            check_windows(q, truth, chance, 35)
    assert len(list(tmp_path.glob("seg-*.log"))) > 1
    with mqueue.Broker(tmp_path, clock=clock, storage=storage) as q:
        check_windows(q, truth, chance)


def test_groups_begin_at_a_time_and_disturb_nobody(make, clock) -> None:
    chance = random.Random(13)
    q = make(partitions=2)
    truth = history(q, clock, chance, 60)
    visible = {m.payload for m in q.scan("t")} - {m.payload for m in q.scheduled("t", 1000)}
    held = q.receive("t", 5, group="other")
    for number in range(5):
        at = edge(chance, sorted(set(truth.values())))
        expected = {payload for payload in visible if round(truth[payload]) >= at.timestamp() * 1000}
        q.create_group("t", f"new{number}", start=at)
        assert set(take(q, "t", limit=10_000, group=f"new{number}")) == expected, at
        q.seek("t", group="new0", to=at)
        assert set(take(q, "t", limit=10_000, group="new0")) == expected, at
    assert q.ack(held).settled == 5
    assert len(take(q, "t", limit=10_000, group="other")) == len(visible) - 5


@pytest.mark.parametrize(("start", "stop"), [("2026-01-02", "2026-01-01"), (START, START - timedelta(milliseconds=1))])
def test_a_window_that_ends_before_it_begins_is_refused(q, start, stop) -> None:
    q.publish("t", b"x")
    with refused(mqueue.BadTime, "bad_window"):
        list(q.scan("t", start, stop))
    assert [m.payload for m in q.scan("t", START, START)] == []


def test_beyond_the_log_is_its_end(q) -> None:
    q.publish("t", b"x")
    assert [m.payload for m in q.scan("t", "2030-01-01", "2031-01-01")] == []
    q.create_group("t", "future", start="2030-01-01")
    assert take(q, "t", group="future") == []
    q.publish("t", b"y")
    assert take(q, "t", group="future") == [b"y"]


def test_unknown_topics_and_groups(q) -> None:
    with refused(mqueue.NotFound, "not_found"):
        q.seek("t", group="g", to="2026-01-01")
    q.publish("t", b"x")
    with refused(mqueue.NotFound, "not_found"):
        q.seek("t", group="g", to="2026-01-01")
    assert q.groups("t") == []
