"""Groups: each gets everything, none disturbs another; a seek begins anew."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import assert_conserved, offsets, payloads, receive_one, refused, take


def test_each_group_gets_everything(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    for group in ("g", "h", "default"):
        assert take(q, "t", group=group) == [b"1", b"2"]
    assert q.groups("t") == ["default", "g", "h"]


def test_a_group_shares_the_work(q) -> None:
    q.publish_many("t", [b"%d" % n for n in range(10)])
    got = [take(q, "t", limit=3, group="g") for _ in range(4)]
    assert [x for part in got for x in part] == [b"%d" % n for n in range(10)]


def test_a_new_group_begins_at_the_earliest(q) -> None:
    q.publish("t", b"1")
    take(q, "t")
    assert take(q, "t", group="later") == [b"1"]


def test_a_group_from_the_latest(q) -> None:
    q.publish("t", b"before")
    q.create_group("t", "g", start="latest")
    q.publish("t", b"after")
    assert take(q, "t", group="g") == [b"after"]


def test_from_the_latest_means_nothing_published_before(q, clock) -> None:
    """Also not what was scheduled before and is due after."""
    q.publish("t", b"scheduled before", delay="10s", priority=0)
    q.publish("t", b"visible before")
    q.create_group("t", "g", start="latest")
    q.publish("t", b"after", delay="5s")
    clock.advance("1m")
    assert q.stats("t").groups["g"].ready == 1
    assert take(q, "t", group="g") == [b"after"]
    assert q.explain(next(q.scan("t")), group="g").code == "before_start"


def test_a_topic_whose_groups_start_at_the_latest(make) -> None:
    q = make(start="latest")
    q.publish("t", b"1")
    assert q.peek("t") == []
    assert q.receive("t") == []
    q.publish("t", b"2")
    assert take(q, "t") == [b"2"]


def test_create_twice_is_a_conflict(q) -> None:
    q.create_group("t", "g")
    with refused(mqueue.Conflict, "group_exists"):
        q.create_group("t", "g")


def test_create_makes_the_topic(q) -> None:
    q.create_group("t", "g")
    assert (q.topics(), q.groups("t")) == (["t"], ["g"])


def test_groups_of_an_unknown_topic(q) -> None:
    for call in (lambda: q.groups("t"), lambda: q.delete_group("t", "g"), lambda: q.seek("t", to="earliest")):
        with refused(mqueue.NotFound, "not_found"):
            call()
    assert q.topics() == []


def test_delete_and_begin_anew(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    take(q, "t", group="g", limit=1)
    q.delete_group("t", "g")
    assert q.groups("t") == []
    assert take(q, "t", group="g") == [b"1", b"2"]
    with refused(mqueue.NotFound):
        q.delete_group("t", "h")


def test_a_deleted_groups_retries_do_not_haunt_the_next(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    first, _ = q.receive("t", limit=2, group="g")
    first.nack(delay="1s")
    q.delete_group("t", "g")
    assert take(q, "t", group="g") == [b"1", b"2"]
    clock.advance("1h")
    assert q.receive("t", group="g") == []


def test_seek_to_the_earliest(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    for _ in range(3):
        assert take(q, "t") == [b"1", b"2"]
        q.seek("t", to="earliest")
    assert q.stats("t").ready == 2


def test_seek_to_the_latest(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    q.receive("t")
    q.seek("t", to="latest")
    assert q.receive("t") == []
    q.publish("t", b"3")
    assert take(q, "t") == [b"3"]


@pytest.mark.parametrize(("to", "left"), [(0, 5), (3, 2), (4, 1), (5, 0)])
def test_seek_to_an_offset(q, to: int, left: int) -> None:
    q.publish_many("t", [b"%d" % n for n in range(5)])
    take(q, "t")
    q.seek("t", to=to)
    assert take(q, "t") == [b"%d" % n for n in range(5 - left, 5)]


def test_seek_to_a_time(q, clock) -> None:
    for n in range(4):
        q.publish("t", b"%d" % n)
        clock.advance("1m")
    take(q, "t")
    for when, first in (
        ("2026-01-01T00:02:00Z", 2),
        ("2026-01-01T00:01:00.001Z", 2),
        ("2025-01-01", 0),
        ("2027-01-01", 4),
    ):
        q.seek("t", to=when)
        assert take(q, "t") == [b"%d" % n for n in range(first, 4)], when


def test_seek_over_several_partitions(q, clock) -> None:
    q.configure("t", partitions=3)
    for n in range(30):
        q.publish("t", b"%d" % n, key=str(n))
        clock.advance("1s")
    take(q, "t")
    q.seek("t", to="2026-01-01T00:00:20Z")
    assert take(q, "t") == [b"%d" % n for n in range(20, 30)]


def test_seek_over_priorities(q) -> None:
    q.publish_many("t", [Draft(b"%d" % n, priority=n % 3) for n in range(9)])
    take(q, "t", limit=5)
    first = payloads(q.scan("t", start=4))
    q.seek("t", to=4)
    assert sorted(take(q, "t")) == sorted(first)


@pytest.mark.parametrize("to", [-1, "somewhere", True, 1.5, None])
def test_seek_to_nowhere_is_refused(q, to) -> None:
    q.publish("t", b"1")
    take(q, "t")
    with pytest.raises(mqueue.Refused):
        q.seek("t", to=to)
    assert q.receive("t") == []


def test_seek_of_an_unknown_group(q) -> None:
    q.publish("t", b"1")
    with refused(mqueue.NotFound):
        q.seek("t", group="g", to="earliest")
    assert q.groups("t") == []


def test_seek_kills_old_tokens(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    old = q.receive("t", limit=2)
    q.seek("t", to="earliest")
    for verb in (q.ack, q.nack, q.release, q.reject):
        with refused(mqueue.LeaseLost):
            verb(old)
    new = q.receive("t", limit=2, visibility="1h")
    assert [m.attempt for m in new] == [1, 1]
    clock.advance("1m")  # when the old lease would have run out
    assert q.receive("t") == []
    assert q.ack(new).settled == 2


def test_seek_forgets_retries_and_deaths(q, clock) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    a, b, c = q.receive("t", limit=3)
    a.nack(delay="1s")
    b.reject()
    c.ack()
    q.seek("t", to="earliest")
    assert [(m.payload, m.attempt) for m in q.receive("t", limit=9)] == [(b"1", 1), (b"2", 1), (b"3", 1)]
    clock.advance("2s")
    assert q.receive("t") == []
    assert_conserved(q, "t")


def test_seek_leaves_other_groups_alone(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    held = receive_one(q, "t", group="h")
    q.create_group("t", "g")
    q.seek("t", group="g", to="latest")
    held.ack()
    assert take(q, "t", group="h") == [b"2"]


def test_seek_does_not_bring_back_what_ended(q, clock) -> None:
    q.publish("t", b"expired", ttl="1s")
    clock.advance("1s")
    q.cancel(q.publish("t", b"cancelled", delay="1s"))
    q.publish("t", b"purged")
    q.purge("t")
    q.publish("t", b"alive")
    take(q, "t")
    clock.advance("1h")
    q.seek("t", to="earliest")
    assert take(q, "t") == [b"alive"]


def test_seek_and_what_is_scheduled(q, clock) -> None:
    q.publish_many("t", [b"0", Draft(b"1", delay="10s"), b"2"])
    last = next(m.offset for m in q.scan("t") if m.payload == b"1")
    assert sorted(take(q, "t")) == [b"0", b"2"]
    q.seek("t", to=last)
    clock.advance("10s")
    assert b"1" in take(q, "t")


def test_groups_do_not_disturb_each_other(q, clock) -> None:
    for group in ("g", "h"):
        q.create_group("t", group)
    q.publish_many("t", [b"%d" % n for n in range(20)])
    held = q.receive("t", limit=20, group="g")
    q.nack(held[:5], delay="1h")
    q.reject(held[5:10])
    q.ack(held[10:15])
    assert take(q, "t", limit=99, group="h") == [b"%d" % n for n in range(20)]
    clock.advance("1h")
    assert offsets(q.receive("t", limit=99, group="g")) == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]
    for group in ("g", "h"):
        assert_conserved(q, "t", group)


def test_a_seek_beyond_the_log_is_refused_and_says_where_it_ends(q) -> None:
    q.configure("t", partitions=2)
    q.publish_many("t", [Draft(b"%d" % n, key="k") for n in range(5)])
    assert len(take(q, "t")) == 5
    for attempt in (
        lambda: q.seek("t", group="default", to=6),
        lambda: q.create_group("t", "new", start=10**12),
    ):
        with refused(mqueue.Refused, "bad_position") as caught:
            attempt()
        assert "it takes 0 to 5" in str(caught.value)
    assert q.groups("t") == ["default"]
    q.seek("t", group="default", to=5)
    assert take(q, "t") == []
    q.seek("t", group="default", to=3)
    assert take(q, "t") == [b"3", b"4"]
