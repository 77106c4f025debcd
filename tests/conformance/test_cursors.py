"""Cursors: named places that retention does not pass, until they expire."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mqueue
from tests.conformance.steps import log, offsets, refused, take

BATCH = [b"%d" % n for n in range(100)]


def let_duties_run(q, clock, count: int = 3) -> None:
    for _ in range(count):
        clock.advance("61s")
        q.stats("t")


def wear(q, clock) -> None:
    """All of it is read and acked, and an hour passes."""
    take(q, "t", limit=10_000)
    clock.advance("1h")
    let_duties_run(q, clock)


RULES = [{"hours": 0.5}, {"bytes": 1}, {"on_ack": True}, {"on_ack": True, "compact": True}]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_lies_behind_a_cursor_stays(q, clock, rule) -> None:
    q.configure("t", retention=rule)
    q.publish_many("t", BATCH)
    q.publish_many("t", BATCH)
    q.set_cursor("t", "archive", {0: 100})
    wear(q, clock)
    assert offsets(q.scan("t")) == list(range(100, 200))
    q.delete_cursor("t", "archive")
    let_duties_run(q, clock)
    assert log(q, "t") == []


def test_compaction_waits_for_a_cursor(q, clock) -> None:
    q.configure("t", retention={"compact": True})
    for round in range(3):
        q.publish_many("t", [mqueue.Draft(b"%d" % round, key=f"k{n}") for n in range(50)])
    q.set_cursor("t", "archive", {0: 50})
    wear(q, clock)
    assert offsets(q.scan("t")) == list(range(150))  # what would take the place of the first ones is not looked at yet
    q.set_cursor("t", "archive", {0: 150})
    let_duties_run(q, clock)
    assert offsets(q.scan("t")) == list(range(100, 150))


def test_what_is_kept_below_the_floor_stays_for_a_cursor_too(q, clock) -> None:
    q.configure("t", retention={"hours": 1})
    q.publish("t", b"later", delay="4h")
    q.publish_many("t", BATCH)
    take(q, "t", limit=1000)
    clock.advance("2h")
    let_duties_run(q, clock)
    assert offsets(q.scan("t")) == [0]  # kept, because it is scheduled
    assert q.set_cursor("t", "archive").offsets == {0: 0}
    clock.advance("2h")
    assert take(q, "t") == [b"later"]
    clock.advance("2h")
    let_duties_run(q, clock)
    assert offsets(q.scan("t")) == [0]
    q.delete_cursor("t", "archive")
    let_duties_run(q, clock)
    assert log(q, "t") == []


def test_a_cursor_begins_at_the_earliest_that_is_retained(q, clock) -> None:
    q.configure("t", retention={"on_ack": True})
    q.publish_many("t", BATCH)
    assert q.set_cursor("t", "early").offsets == {0: 0}
    q.delete_cursor("t", "early")
    wear(q, clock)
    q.publish_many("t", BATCH)
    cursor = q.set_cursor("t", "late", ttl="1h")
    assert (cursor.name, cursor.topic, cursor.offsets) == ("late", "t", {0: 100})
    assert cursor.expires_at - cursor.made_at == timedelta(hours=1)
    assert q.cursors("t") == [cursor]


def test_the_same_call_once_more_gives_the_same_place_and_keeps_it_alive(q, clock) -> None:
    q.publish_many("t", BATCH)
    first = q.set_cursor("t", "c", {0: 40}, ttl="1h")
    assert q.set_cursor("t", "c", ttl="1h") == first
    clock.advance("50m")
    again = q.set_cursor("t", "c", ttl="1h")
    assert (again.offsets, again.made_at) == (first.offsets, first.made_at)
    assert again.set_at > first.set_at == first.made_at
    assert again.expires_at - first.expires_at == timedelta(minutes=50)
    clock.advance("50m")
    assert q.cursors("t") == [again]


def test_a_cursor_moves_forward_and_back(q, clock) -> None:
    q.configure("t", retention={"on_ack": True})
    q.publish_many("t", BATCH)
    q.set_cursor("t", "c", {0: 90})
    assert q.set_cursor("t", "c", {0: 20}).offsets == {0: 20}
    assert q.set_cursor("t", "c", {0: 100}).offsets == {0: 100}
    wear(q, clock)
    assert log(q, "t") == []
    with refused(mqueue.NotFound, "offset_gone"):
        q.set_cursor("t", "c", {0: 99})
    assert q.cursors("t")[0].offsets == {0: 100}


def test_partitions_that_are_not_named_stay_where_they_are(q) -> None:
    q.configure("t", partitions=3)
    q.publish_many("t", [mqueue.Draft(b"x", key=f"k{n}") for n in range(60)])
    ends = {m.partition: m.offset + 1 for m in q.scan("t")}
    assert set(ends) == {0, 1, 2}
    assert q.set_cursor("t", "c", {1: ends[1]}).offsets == {0: 0, 1: ends[1], 2: 0}
    assert q.set_cursor("t", "c", {2: 1}).offsets == {0: 0, 1: ends[1], 2: 1}
    q.configure("t", partitions=4)
    assert q.cursors("t")[0].offsets == {0: 0, 1: ends[1], 2: 1, 3: 0}


def test_each_partition_is_held_at_its_own_place(q, clock) -> None:
    q.configure("t", partitions=2, retention={"on_ack": True})
    q.publish_many("t", [mqueue.Draft(b"x", key=f"k{n}") for n in range(60)])
    ends = {m.partition: m.offset + 1 for m in q.scan("t")}
    q.set_cursor("t", "a", {0: ends[0]})
    q.set_cursor("t", "b", {0: ends[0], 1: 3})
    wear(q, clock)
    assert {m.partition for m in q.scan("t")} == {1}
    assert offsets(q.scan("t")) == list(range(ends[1]))
    q.delete_cursor("t", "a")
    q.publish_many("t", [mqueue.Draft(b"x", key=f"k{n}") for n in range(60)])
    let_duties_run(q, clock)
    assert offsets(q.scan("t", partition=1))[-1] > ends[1]


def test_an_expired_cursor_is_gone(q, clock) -> None:
    q.configure("t", retention={"on_ack": True})
    q.publish_many("t", BATCH)
    made = q.set_cursor("t", "c", ttl="1h")
    take(q, "t", limit=1000)
    clock.advance("59m")
    let_duties_run(q, clock, 1)
    assert q.cursors("t") == []
    with refused(mqueue.NotFound):
        q.delete_cursor("t", "c")
    let_duties_run(q, clock)
    assert log(q, "t") == []
    again = q.set_cursor("t", "c")
    assert again.offsets == {0: 100}
    assert again.made_at > made.made_at


def test_a_purge_is_not_held_back(q) -> None:
    q.publish_many("t", BATCH)
    q.set_cursor("t", "c")
    assert q.purge("t") == 100
    assert take(q, "t") == []


def test_cursors_go_with_their_topic(q) -> None:
    q.publish("t", b"x")
    q.set_cursor("t", "c")
    q.delete_topic("t")
    with refused(mqueue.NotFound):
        q.cursors("t")
    q.publish("t", b"x")
    assert q.cursors("t") == []


def test_a_cursor_makes_its_topic(q) -> None:
    assert q.set_cursor("t", "c").offsets == {0: 0}
    assert q.topics() == ["t"]


def test_cursors_belong_to_their_namespace(q) -> None:
    q.set_cursor("t", "c")
    other = q.namespace("other")
    other.publish("t", b"x")
    assert other.cursors("t") == []


def test_cursors_come_by_name(q) -> None:
    for name in ("b", "c", "a"):
        q.set_cursor("t", name)
    assert [cursor.name for cursor in q.cursors("t")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "given", [{1: 0}, {-1: 0}, {0: -1}, {0: 101}, {0: True}, {True: 0}, {"0": 1}, {0: "1"}, {0: 1.0}, [0], 7], ids=str
)
def test_bad_places_are_refused(q, given) -> None:
    q.publish_many("t", BATCH)
    with refused(mqueue.Refused, "bad_position"):
        q.set_cursor("t", "c", given)
    assert q.cursors("t") == []


def test_bad_names_and_times_are_refused(q) -> None:
    for name in ("", "a/b", "x" * 250):
        with refused(mqueue.BadName):
            q.set_cursor("t", name)
    for ttl in (0, "soon", -1):
        with refused(mqueue.BadTime):
            q.set_cursor("t", "c", ttl=ttl)
    with refused(mqueue.BadName):
        q.set_cursor("/", "c")
    assert q.topics() == []


def test_there_is_a_limit(make, clock) -> None:
    q = make(limits=mqueue.Limits(cursors_max=2))
    q.set_cursor("t", "a", ttl="1h")
    q.set_cursor("t", "b")
    q.set_cursor("t", "a", ttl="1h")
    with refused(mqueue.QueueFull, "cursors_full"):
        q.set_cursor("t", "c")
    clock.advance("2h")
    q.set_cursor("t", "c")
    assert [cursor.name for cursor in q.cursors("t")] == ["b", "c"]
