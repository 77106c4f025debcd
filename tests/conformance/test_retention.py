"""Retention: ack does not delete, age does; what a group is owed is held back, but not for ever."""

from __future__ import annotations

import pyarrow as pa

import mqueue
from tests.conformance.steps import die, log, receive_one, refused, take

BATCH = [b"%d" % n for n in range(5000)]


def let_duties_run(q, clock, count: int = 10) -> None:
    """Retention is looked after now and then, whoever calls."""
    for _ in range(count):
        clock.advance("1m")
        q.topics()
        q.stats("t")


def test_ack_does_not_delete(q, clock) -> None:
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    let_duties_run(q, clock)
    assert log(q, "t") == BATCH


def test_age_does(make, clock) -> None:
    q = make(retention={"hours": 24})
    old = q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    clock.advance("25h")
    q.publish_many("t", BATCH)
    let_duties_run(q, clock)
    assert q.stats("t").retained == 5000
    assert next(q.scan("t")).offset == 5000
    assert len(log(q, "t", start=0)) == 5000
    with refused(mqueue.NotFound):
        q.trace(old[0])
    assert len(take(q, "t", group="later", limit=10_000)) == 5000


def test_what_is_owed_is_held_back(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.publish_many("t", BATCH)
    held = receive_one(q, "t", visibility="12h")
    q.ack(q.receive("t", limit=10_000))
    clock.advance("6h")
    let_duties_run(q, clock)
    held.ack()
    q.publish("t", b"owed")
    q.create_group("t", "slow")
    clock.advance("6d")
    let_duties_run(q, clock)
    assert b"owed" in take(q, "t", group="slow", limit=10_000)


def test_a_group_not_heard_of_loses_its_hold_visibly(make, clock) -> None:
    q = make(retention={"hours": 1}, hold="2d")
    q.create_group("t", "gone")
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    clock.advance("3d")
    q.publish_many("t", [b"new", b"newer"])
    let_duties_run(q, clock)
    stats = q.stats("t").groups["gone"]
    assert (stats.lapsed, stats.ready) == (5000, 2)
    assert take(q, "t", group="gone", limit=10_000) == [b"new", b"newer"]


def test_what_is_scheduled_is_held_back(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.publish("t", b"x", delay="30d")
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    for _ in range(30):
        assert q.receive("t") == []
        clock.advance("1d")
    let_duties_run(q, clock)
    assert take(q, "t") == [b"x"]


def test_redrive_after_retention_took_the_original(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.configure("t.dlq", retention={"hours": 1000})
    q.publish("t", b"x", key="k")
    die(q, "t")
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    clock.advance("2d")
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    let_duties_run(q, clock)
    assert next(q.scan("t")).offset > 0
    assert q.dlq("t").redrive().redriven == 1
    m = receive_one(q, "t")
    assert (m.payload, m.key, m.attempt) == (b"x", b"k", 1)


def test_offsets_go_on_behind_what_was_dropped(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    clock.advance("2h")
    q.publish_many("t", BATCH)
    let_duties_run(q, clock)
    assert q.publish("t", b"next").offset == 10_000


def test_what_is_leased_is_never_dropped(q, clock) -> None:
    q.configure("t", hold="1s", retention={"on_ack": True}, visibility="5m")
    q.publish_many("t", [b"1", b"2"])
    [m] = q.receive("t")
    let_duties_run(q, clock, 2)
    m.release()
    assert [again.payload for again in q.receive("t", limit=10)][:1] == [b"1"]


def test_age_reaches_single_messages_too(q, clock) -> None:
    q.configure("t", retention={"hours": 1})
    q.publish("t", b"alone")
    clock.advance("2h")
    let_duties_run(q, clock)
    assert log(q, "t") == []


def test_a_part_of_a_table_weighs_what_it_is(make) -> None:
    q = make()
    table = pa.table({"payload": [b"x" * 1000] * 10_000})
    for start in range(0, 500, 10):
        q.publish_arrow("t", table.slice(start, 10))
    assert q.stats("t").bytes < 2 * 500 * 1064


def test_on_ack_keeps_what_nobody_has_read(q, clock) -> None:
    q.configure("t", retention={"on_ack": True})
    q.publish_many("t", [b"1", b"2"])
    let_duties_run(q, clock)
    assert [m.payload for m in q.receive("t", limit=10)] == [b"1", b"2"]
