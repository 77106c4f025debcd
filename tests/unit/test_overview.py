"""All topics at a glance: rates, what is stuck, windows, rights, what has changed, and several nodes as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import mqueue
from mqueue.broker.tallies import Tally, tallies
from mqueue.server.http.v1.overview import changes
from mqueue.server.overview.rows import STUCK_MS, Row, Rows, added, sums
from mqueue.server.overview.sampler import Sampler, counts_of
from mqueue.server.overview.window import Asked, see, shown
from mqueue.server.placing.glancing import joined
from mqueue.server.security.principal import Principal, parse_grants
from mqueue.testing import ManualClock
from mqueue.wire.json_overview import NamespaceSumsOut, OverviewOut, PointOut, RowOut, SumsOut

EVERYBODY = Principal("ann", parse_grants(["admin:*"]))


def tally(topic: str, namespace: str = "default", made_at: int = 1, **numbers: int) -> Tally:
    names = [name for name in Tally.__struct_fields__ if name not in ("namespace", "topic", "made_at", "by_group")]
    told = {name: numbers.get(name, 0) for name in names}
    by_group = (("default", told["acked"], told["oldest_at"]),) if told["groups"] else ()
    return Tally(namespace, topic, made_at, **told, by_group=by_group)


def counted(rows: Rows, now: int, *found: Tally, seconds: float = 2.0) -> None:
    rows.begin(now)
    rows.count(found, seconds)
    rows.end(len(found))


def test_a_topic_in_numbers(manual_clock: ManualClock) -> None:
    with mqueue.Broker(clock=manual_clock, max_retries=0) as q:
        q.publish_many("t", [b"1", b"2", b"3", b"4"])
        q.publish("t", b"5", delay="1h")
        began = int(manual_clock.now())
        manual_clock.advance("7s")
        q.publish("t", b"6")
        q.receive("t", group="a")[0].reject("no")
        [kept] = q.receive("t", group="a")
        q.publish("unread", b"x")
        q.set_cursor("unread", "archive")
        by_name = {one.topic: one for some in tallies(q, 2) for one in some}
        seen = by_name["t"]
        assert (seen.published, seen.scheduled, seen.groups, seen.dead, seen.leased) == (6, 1, 1, 1, 1)
        assert (seen.ready, seen.oldest_at) == (3, began)
        assert (by_name["unread"].ready, by_name["unread"].oldest_at) == (1, int(manual_clock.now()))
        assert (by_name["unread"].groups, by_name["unread"].cursors) == (0, 1)
        assert by_name["t.dlq"].ready == 1
        kept.ack()


def test_what_expired_does_not_age(manual_clock: ManualClock) -> None:
    with mqueue.Broker(clock=manual_clock) as q:
        q.publish("t", b"gone", ttl="1s")
        manual_clock.advance("5s")
        q.publish("t", b"here")
        q.peek("t")
        [[one]] = list(tallies(q, 10))
        assert (one.ready, one.oldest_at) == (1, int(manual_clock.now()))


def test_rates_are_calm_and_come_to_rest() -> None:
    rows = Rows()
    counted(rows, 1000, tally("t", published=100, acked=50))
    assert rows.all[0].in_per_second == 0
    counted(rows, 3000, tally("t", published=120, acked=50))
    assert (rows.all[0].in_per_second, rows.all[0].out_per_second) == (5.0, 0.0)
    counted(rows, 5000, tally("t", published=140, acked=10))
    assert (rows.all[0].in_per_second, rows.all[0].out_per_second) == (7.5, 0.0)
    for now in range(7000, 40_000, 2000):
        counted(rows, now, tally("t", published=140, acked=10))
    assert rows.all[0].in_per_second == 0


def test_a_topic_that_is_new_began_with_nothing() -> None:
    """One that was taken over from another node did not: what it counts was not published in these two seconds."""
    rows = Rows()
    counted(rows, 1000, tally("old"))
    taken = tally("taken", made_at=5, published=10**6)
    counted(rows, 3000, tally("old"), tally("new", made_at=2000, published=8), taken)
    assert {row.topic: row.in_per_second for row in rows.all} == {"new": 2.0, "old": 0.0, "taken": 0.0}


def test_stuck_is_what_is_ready_for_a_minute_while_nothing_is_acked() -> None:
    rows = Rows()
    held, unread = tally("held", ready=1, groups=1, oldest_at=1000), tally("unread", ready=1, oldest_at=1000)
    counted(rows, 1000 + STUCK_MS - 1, held, unread)
    assert not any(row.stuck for row in rows.all)
    counted(rows, 1000 + STUCK_MS, held, unread)
    assert {row.topic: row.stuck for row in rows.all} == {"held": True, "unread": False}
    counted(rows, 3000 + STUCK_MS, tally("held", ready=1, groups=1, oldest_at=1000, acked=9), unread)
    assert not any(row.stuck for row in rows.all)


def test_a_group_that_is_stuck_is_not_hidden_by_one_that_is_not(manual_clock: ManualClock) -> None:
    rows = Rows()

    def look() -> Row:
        manual_clock.advance("2s")
        counted(rows, int(manual_clock.now()), *(one for some in tallies(q, 2) for one in some))
        return next(row for row in rows.all if row.topic == "orders")

    with mqueue.Broker(clock=manual_clock, max_retries=0) as q:
        q.create_group("orders", "billing")
        q.create_group("orders", "mail")
        q.publish("orders", b"x")
        looked = []
        for _ in range(STUCK_MS // 2000 - 1):
            looked.append(look().stuck)
            q.publish("orders", b"x")
            q.ack(q.receive("orders", group="billing"))
        assert not any(looked)
        assert look().stuck
        q.ack(q.receive("orders", group="mail"))
        assert not look().stuck


def test_what_waits_for_its_retry_is_of_all_groups() -> None:
    with mqueue.Broker() as q:
        q.create_group("orders", "billing")
        q.create_group("orders", "mail")
        q.publish_many("orders", [b"x"] * 9)
        q.nack(q.receive("orders", group="billing", limit=3), delay="1h")
        q.ack(q.receive("orders", group="billing", limit=9))
        [[one]] = list(tallies(q, 10))
        assert (one.ready, one.waiting) == (9, 3)


def test_an_update_is_small() -> None:
    """However many topics there are, and if all of a window have changed."""
    sampler = Sampler(counts_of(mqueue.Broker()), ManualClock())
    numbers = dict.fromkeys(("published", "acked", "ready", "waiting", "leased", "scheduled", "dead"), 123_456_789)
    topics = [f"a-topic-with-a-long-name.{n:05}" for n in range(10_000)]
    counted(sampler.rows, 1000, *(tally(topic, groups=3, oldest_at=1, **numbers) for topic in topics))
    sampler._add_up(1000, 1.0)
    whole = shown(sampler, see(sampler, Asked(), EVERYBODY, 0))
    assert len(whole.rows) == 100
    assert len(msgspec.json.encode(whole)) < 100_000
    assert len(msgspec.json.encode(changes(msgspec.structs.replace(whole, rows=[]), whole))) < 100_000


def test_topics_that_are_gone_are_not_shown() -> None:
    rows = Rows()
    counted(rows, 1000, tally("a", ready=1), tally("b", "other", ready=2))
    assert (sums(rows.all).ready, set(rows.spaces)) == (3, {"default", "other"})
    counted(rows, 3000, tally("c", ready=4))
    assert [row.topic for row in rows.all] == ["c"]
    assert added(sums(found) for found in rows.spaces.values()) == sums(rows.all)


@pytest.fixture
def sampler(manual_clock: ManualClock) -> Sampler:
    found = Sampler(counts_of(mqueue.Broker()), manual_clock)
    found.rows = Rows()
    topics = [tally(f"t{n}", "a" if n % 2 else "b", ready=n, dead=9 - n, oldest_at=100 - n) for n in range(10)]
    counted(found.rows, 1000, *topics)
    found._add_up(1000, 1.0)
    return found


def names(sampler: Sampler, principal: Principal = EVERYBODY, **asked: Any) -> list[str]:
    wanted = Asked(**asked).check()
    return [row.topic for row in see(sampler, wanted, principal, wanted.skip).rows]


class Slow:
    """Counts that take `wall` seconds by a clock of their own, and `cost` seconds of the processor."""

    def __init__(self, wall: float, cost: float) -> None:
        self.wall, self.cost = wall, cost
        self.now = 1000.0
        self.ended: list[float] = []
        self.rests: list[float] = []

    async def count(self) -> AsyncIterator[tuple[list[Tally], float]]:
        if self.ended:
            self.rests.append(self.now - self.ended[-1])
        self.now += self.wall
        yield [], self.cost
        self.ended.append(self.now)


@pytest.mark.parametrize(("wall", "cost", "rest"), [(2.2, 1.0, 25.0), (0.1, 1.0, 25.0), (2.2, 0.0, 2.0)])
def test_there_is_a_rest_between_two_counts_however_often_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, wall: float, cost: float, rest: float
) -> None:
    slow = Slow(wall, cost)

    async def look() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: slow.now)
        sampler = Sampler(slow.count, ManualClock())
        while len(slow.rests) < 3:
            await sampler.fresh()
            slow.now += 0.5

    asyncio.run(look())
    assert all(rest <= each < rest + 1.0 for each in slow.rests)


def test_who_watches_is_no_reason_to_count_again() -> None:
    async def watch() -> int:
        slow = Slow(0.0, 3600.0)
        sampler = Sampler(slow.count, ManualClock())
        number = await sampler.following(0)
        for _ in range(5):
            await sampler.fresh()
        await sampler.close()
        assert number == 1
        return len(slow.ended)

    assert asyncio.run(watch()) == 1


def test_windows(sampler: Sampler) -> None:
    assert names(sampler, sort="name", limit=3) == ["t1", "t3", "t5"]
    assert names(sampler, sort="ready", limit=3) == ["t9", "t8", "t7"]
    assert names(sampler, sort="ready", skip=8, limit=5) == ["t1", "t0"]
    assert names(sampler, sort="depth", nonzero=True, skip=7) == ["t2", "t1"]
    assert names(sampler, sort="ready", nonzero=True, skip=8) == ["t1"]
    assert names(sampler, sort="dead", namespace="a", limit=2) == ["t1", "t3"]
    assert names(sampler, sort="age", limit=2) == ["t9", "t8"]
    assert names(sampler, search="T7") == ["t7"]
    assert names(sampler, topic="t7") == ["t7"]
    assert names(sampler, topic="t") == []
    assert names(sampler, namespace="nowhere") == []


def test_the_past_of_a_topic_is_told_to_who_looks_at_it(sampler: Sampler) -> None:
    past = see(sampler, Asked("a", topic="t7"), EVERYBODY, 0).past
    assert past is not None
    assert [(at, one.ready) for at, one in past] == [(1000, 7)]
    assert see(sampler, Asked(topic="nowhere"), EVERYBODY, 0).past is None
    little = Principal("bob", parse_grants(["read:a/t3"]))
    assert see(sampler, Asked(topic="t7"), little, 0).past is None
    for number in range(3):
        counted(sampler.rows, 3000, *(tally(f"n{number}-{each}") for each in range(250)))
        sampler._keep_topics(3000)
    assert len(sampler.by_topic) == 400


def test_bad_windows_are_refused() -> None:
    for bad in ({"sort": "colour"}, {"limit": 0}, {"limit": 201}, {"skip": -1}, {"skip": 100_001}):
        with pytest.raises(mqueue.Refused) as told:
            Asked(**bad).check()
        assert str(next(iter(bad.values()))) in told.value.message


def test_one_sees_what_one_may_read(sampler: Sampler) -> None:
    little = Principal("bob", parse_grants(["read:a/t3", "write:b"]))
    seen = see(sampler, Asked(sort="name"), little, 0)
    assert [row.topic for row in seen.rows] == ["t3"]
    assert (seen.topics, seen.sums.ready, seen.spaces, seen.past) == (1, 3, {}, None)
    space = Principal("eve", parse_grants(["read:a"]))
    assert names(sampler, space, sort="name") == ["t1", "t3", "t5", "t7", "t9"]
    whole = see(sampler, Asked("a"), space, 0)
    assert (whole.sums.ready, set(whole.spaces), len(whole.past or ())) == (25, {"a"}, 1)
    assert see(sampler, Asked("b"), space, 0).topics == 0


def test_only_what_changed_is_told(sampler: Sampler) -> None:
    was = shown(sampler, see(sampler, Asked(sort="name"), EVERYBODY, 0))
    topics = [tally(f"t{n}", "a" if n % 2 else "b", ready=n, dead=9 - n, oldest_at=100 - n) for n in range(10)]
    counted(sampler.rows, 3000, *topics)
    now = shown(sampler, see(sampler, Asked(sort="name"), EVERYBODY, 0))
    still = changes(was, now)
    assert (still.rows, still.order, still.namespaces) == ([], None, [])
    counted(sampler.rows, 5000, *topics[:9], tally("t10", "a"))
    other = changes(now, shown(sampler, see(sampler, Asked(sort="name"), EVERYBODY, 0)))
    assert [row.topic for row in other.rows] == ["t10"]
    assert other.order is not None
    assert (other.order[1], len(other.order)) == ("a/t10", 10)


def part(at: int, *rows: RowOut, past: list[PointOut] | None = None) -> OverviewOut:
    ready = sum(row.ready for row in rows)
    oldest = min((row.oldest_at for row in rows if row.oldest_at), default=None)
    spaces = [NamespaceSumsOut(namespace="a", topics=len(rows), ready=ready)]
    totals = SumsOut(len(rows), ready=ready, oldest_at=oldest)
    return OverviewOut(str(at), len(rows), totals, list(rows), spaces, past or [])


def test_nodes_are_shown_as_one() -> None:
    own = part(1, RowOut("a", "x", ready=1), RowOut("a", "y", ready=7, oldest_at="2026-01-02"),
               past=[PointOut(10_000, 1.0, 1.0, 5, 0, 0, 0, 0), PointOut(90_000, 1.0, 1.0, 8, 0, 0, 0, 0)])  # fmt: skip
    other = part(2, RowOut("a", "z", ready=3, oldest_at="2026-01-01"), past=[PointOut(8_000, 2.0, 0.5, 3, 0, 0, 0, 1)])
    whole = joined([own, other], Asked(sort="ready", limit=2), ["10.0.0.9:80"])
    assert [row.topic for row in whole.rows] == ["y", "z"]
    assert (whole.topics, whole.totals.topics, whole.totals.ready, whole.totals.oldest_at) == (3, 3, 11, "2026-01-01")
    assert [(one.namespace, one.topics) for one in whole.namespaces] == [("a", 3)]
    assert whole.missing == ["10.0.0.9:80"]
    assert [(point.in_per_second, point.ready, point.dead) for point in whole.past] == [(3.0, 8, 1), (1.0, 8, 0)]
    assert [row.topic for row in joined([own, other], Asked(sort="name", skip=1, limit=2), []).rows] == ["y", "z"]
    assert [row.topic for row in joined([own, other], Asked(sort="age"), []).rows] == ["z", "y", "x"]
    assert [row.topic for row in joined([own, other], Asked(sort="depth"), []).rows] == ["y", "z", "x"]


def test_servers_that_no_node_reaches_are_named() -> None:
    def part(*away: str) -> OverviewOut:
        return OverviewOut("2026-01-02", 0, SumsOut(), [], away=list(away))

    assert joined([part("shard1", "shard2"), part("shard2")], Asked(), []).away == ["shard2"]
    assert joined([part("shard1")], Asked(), []).away == ["shard1"]
    assert joined([part("shard1"), part()], Asked(), []).away == []
