"""Retention: ack does not delete, age does; what a group is owed is held back, but not for ever."""

from __future__ import annotations

import pyarrow as pa

import mqueue
from tests.conformance.steps import assert_conserved, die, kinds, log, receive_one, refused, take

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


# What is kept below the floor


def test_a_message_for_2046_pins_nothing(make, clock) -> None:
    q = make(retention={"hours": 24})
    far = q.publish("t", b"far", deliver_at="2046-01-01T00:00:00Z")
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    before = q.stats("t")
    clock.advance("25h")
    let_duties_run(q, clock)
    after = q.stats("t")
    assert log(q, "t") == [b"far"]
    assert (after.retained, after.scheduled) == (1, 1)
    assert after.bytes < before.bytes / 100
    assert [m.id for m in q.scheduled("t")] == [far.id]
    q.create_group("t", "later")
    clock.advance("7304d")  # it is the first of January 2046, and nobody was heard of for twenty years
    let_duties_run(q, clock)
    for group in ("default", "later", "newest"):
        m = receive_one(q, "t", group=group)
        assert (m.payload, m.id, m.offset, m.attempt) == (b"far", far.id, 0, 1)
        m.ack()
    clock.advance("1d")
    let_duties_run(q, clock)
    assert log(q, "t") == []


def test_age_counts_from_when_a_message_is_visible(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.publish("t", b"late", delay="3h")
    q.publish_many("t", BATCH[:10])
    clock.advance("2h")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"late"]
    clock.advance("1h")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"late"]
    assert [m.payload for m in q.peek("t")] == [b"late"]
    clock.advance("1h")
    let_duties_run(q, clock)
    assert log(q, "t") == []


def test_a_kept_message_can_be_cancelled_and_moved(make, clock) -> None:
    q = make(retention={"hours": 1})
    moved, ended = q.publish("t", b"moved", delay="300d"), q.publish("t", b"ended", delay="300d")
    q.publish_many("t", BATCH)
    take(q, "t", limit=10_000)
    clock.advance("2h")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"moved", b"ended"]
    q.cancel(ended)
    q.reschedule(moved, delay="1h")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"moved"]
    clock.advance("1h")
    assert take(q, "t") == [b"moved"]
    assert q.stats("t").cancelled == 1


def test_what_is_leased_or_waits_is_kept_and_the_rest_goes(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.publish_many("t", BATCH)
    leased, waiting = q.receive("t", limit=2, visibility="12h")
    waiting.nack(delay="10h", error="not yet")
    take(q, "t", limit=10_000)
    clock.advance("2h")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"0", b"1"]
    assert q.explain(waiting).code == "waiting"
    assert kinds(q, waiting)[:3] == ["PUBLISHED", "DELIVERED", "NACKED"]
    leased.extend("12h")
    clock.advance("8h")
    m = receive_one(q, "t")
    assert (m.payload, m.id, m.attempt) == (b"1", waiting.id, 2)
    q.ack([m, leased])
    let_duties_run(q, clock)
    assert log(q, "t") == []
    assert_conserved(q, "t")


def test_a_lease_of_what_is_kept_may_still_run_out(make, clock) -> None:
    q = make(retention={"hours": 1}, visibility="3h")
    q.publish_many("t", BATCH)
    receive_one(q, "t")
    take(q, "t", limit=10_000)
    clock.advance("2h")
    let_duties_run(q, clock)
    assert q.receive("t") == []
    clock.advance("1h")
    assert [(m.payload, m.attempt) for m in q.receive("t", limit=10)] == [(b"0", 2)]


def test_if_too_much_would_be_kept_nothing_is_dropped(q, clock) -> None:
    q.configure("t", retention={"hours": 1})
    q.publish_many("t", BATCH[:100])
    held = q.receive("t", limit=30, visibility="12h")
    take(q, "t")
    clock.advance("2h")
    let_duties_run(q, clock)
    assert len(log(q, "t")) == 100
    q.ack(held[25:])
    let_duties_run(q, clock)
    assert log(q, "t") == BATCH[:25]


def test_retention_goes_as_far_as_little_has_to_be_kept(q, clock) -> None:
    q.configure("t", retention={"hours": 1})
    q.publish_many("t", BATCH[:100])
    take(q, "t")
    q.publish_many("t", BATCH[100:200])
    q.receive("t", limit=60, visibility="12h")
    take(q, "t")
    clock.advance("2h")
    let_duties_run(q, clock)
    assert log(q, "t") == BATCH[100:200]
    q.publish_many("t", BATCH[200:400])
    take(q, "t")
    clock.advance("2h")
    let_duties_run(q, clock)
    assert log(q, "t") == BATCH[100:160]


def test_a_slow_group_holds_back_what_it_has_not_read(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.create_group("t", "slow")
    q.publish_many("t", BATCH[:100])
    q.publish_many("t", BATCH[100:200])
    take(q, "t")
    clock.advance("2h")
    let_duties_run(q, clock)
    assert len(log(q, "t")) == 200
    assert len(take(q, "t", limit=150, group="slow")) == 150
    let_duties_run(q, clock)
    assert log(q, "t") == BATCH[100:200]
    assert take(q, "t", group="slow") == BATCH[150:200]


def test_what_is_kept_can_be_sought_scanned_and_peeked_at(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.publish_many("t", BATCH[:100])
    held = q.receive("t", limit=10, visibility="12h")
    take(q, "t")
    clock.advance("2h")
    q.publish("t", b"new")
    let_duties_run(q, clock)
    kept = BATCH[:10]
    assert log(q, "t") == log(q, "t", start="earliest") == [*kept, b"new"]
    assert log(q, "t", start=5, stop=50) == kept[5:]
    assert b"".join(p.as_py() for batch in q.scan_arrow("t") for p in batch["payload"]) == b"".join([*kept, b"new"])
    assert [m.payload for m in q.peek("t", 100, group="nobody")] == [*kept, b"new"]
    q.create_group("t", "late", start=5)
    assert take(q, "t", group="late") == [*kept[5:], b"new"]
    q.seek("t", group="late", to="earliest")
    assert take(q, "t", group="late") == [*kept, b"new"]
    q.ack(held)
    let_duties_run(q, clock)
    assert log(q, "t") == [b"new"]
    q.seek("t", group="late", to="earliest")
    assert take(q, "t", group="late") == [b"new"]


def test_purge_reaches_what_is_kept(make, clock) -> None:
    q = make(retention={"hours": 1})
    q.publish("t", b"far", delay="300d")
    q.publish_many("t", BATCH)
    held = receive_one(q, "t", visibility="12h")
    take(q, "t", limit=10_000)
    clock.advance("2h")
    let_duties_run(q, clock)
    assert len(log(q, "t")) == 2
    assert q.purge("t") == 2
    let_duties_run(q, clock)
    assert log(q, "t") == [held.payload]
    held.release()
    assert q.receive("t") == []
    let_duties_run(q, clock)
    assert log(q, "t") == []
    assert_conserved(q, "t")


def test_a_group_that_polls_in_vain_keeps_its_hold(make, clock) -> None:
    q = make(retention={"hours": 1}, hold="3h")
    q.create_group("t", "gone")
    for _ in range(10):
        assert q.receive("t", group="polls") == []
        clock.advance("1h")
    q.publish_many("t", BATCH[:100])
    clock.advance("90m")
    let_duties_run(q, clock)
    assert q.stats("t").groups["gone"].lapsed == 0
    assert len(take(q, "t", group="polls")) == 100
    let_duties_run(q, clock)
    assert (q.stats("t").groups["gone"].lapsed, log(q, "t")) == (100, [])
