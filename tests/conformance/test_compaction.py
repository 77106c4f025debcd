"""Compaction: of messages with a key only the last of each key stays, and nobody misses one that he has yet to get."""

from __future__ import annotations

import mqueue
from mqueue import Draft
from tests.conformance.steps import log, offsets, payloads, receive_one, refused, take

COMPACT = {"compact": True}


def let_duties_run(q, clock) -> None:
    for _ in range(4):
        clock.advance("1m")
        q.stats("t")


def values(*texts: str, **options) -> list[Draft]:
    """`k1`: value 1 of key k; a text that begins with a dash has no key."""
    return [Draft(text.encode(), key=None if text[0] == "-" else text[0], **options) for text in texts]


def publish(q, *texts: str, **options) -> list[mqueue.Receipt]:
    return q.publish_many("t", values(*texts, **options))


def test_only_the_last_of_each_key_stays(make, clock) -> None:
    q = make(retention=COMPACT)
    receipts = publish(q, "a1", "b1", "a2", "c1", "b2", "a3")
    before = {m.id: (m.offset, m.published_at, m.payload, m.key) for m in q.scan("t")}
    take(q, "t")
    let_duties_run(q, clock)
    seen = list(q.scan("t"))
    assert payloads(seen) == [b"c1", b"b2", b"a3"]
    assert [m.id for m in seen] == [receipts[n].id for n in (3, 4, 5)]
    assert all((m.offset, m.published_at, m.payload, m.key) == before[m.id] for m in seen)
    assert q.stats("t").retained == 3
    assert take(q, "t", group="new") == [b"c1", b"b2", b"a3"]
    with refused(mqueue.NotFound):
        q.trace(receipts[0])


def test_it_goes_on_where_it_stopped(make, clock) -> None:
    q = make(retention=COMPACT)
    for number in range(5):
        publish(q, f"a{number}", f"b{number}")
        q.publish("t", b"c%d" % number, key="c")
        take(q, "t")
        let_duties_run(q, clock)
        assert log(q, "t") == [f"{key}{number}".encode() for key in "abc"]
    publish(q, "b5")
    assert q.receive("t", limit=10)[0].offset == 15


def test_many_messages_of_few_keys(make, clock) -> None:
    q = make(retention=COMPACT, partitions=3)
    keys = [f"key-{n}" for n in range(50)]
    for round in range(4):
        q.publish_many("t", [Draft(b"%d" % n, key=keys[n * 7 % 50]) for n in range(round, 10_000 + round)])
    last = {m.key: (m.id, m.payload) for m in q.scan("t")}
    before = q.stats("t").bytes
    while q.stats("t").groups == {} or q.stats("t").ready:
        take(q, "t", limit=10_000)
    let_duties_run(q, clock)
    let_duties_run(q, clock)
    seen = list(q.scan("t"))
    assert len(seen) == 50
    assert {m.key: (m.id, m.payload) for m in seen} == last
    assert {m.key: (m.id, m.payload) for m in q.receive("t", limit=1000, group="new")} == last
    assert q.stats("t").bytes < before


def test_never_above_what_a_group_has_read(make, clock) -> None:
    q = make(retention=COMPACT)
    q.create_group("t", "slow")
    publish(q, "a1", "a2")
    publish(q, "a3")
    take(q, "t")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a1", b"a2", b"a3"]
    assert take(q, "t", limit=1, group="slow") == [b"a1"]
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a1", b"a2", b"a3"]
    assert take(q, "t", limit=1, group="slow") == [b"a2"]
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a2", b"a3"]
    assert take(q, "t", group="slow") == [b"a3"]
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a3"]


def test_a_group_that_reads_what_is_kept_is_not_overtaken(make, clock) -> None:
    q = make(retention=COMPACT)
    publish(q, "a1", "b1")
    take(q, "t")
    let_duties_run(q, clock)
    q.create_group("t", "new")
    publish(q, "a2", "b2")
    take(q, "t")
    let_duties_run(q, clock)
    assert take(q, "t", limit=3, group="new") == [b"a1", b"b1", b"a2"]
    let_duties_run(q, clock)
    assert take(q, "t", group="new") == [b"b2"]
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a2", b"b2"]


def test_without_groups_too_but_not_what_is_fresh(make, clock) -> None:
    q = make(retention=COMPACT)
    publish(q, "a1", "a2")
    q.publish("t", b"a3", key="a")
    clock.advance("30s")
    q.stats("t")
    assert len(log(q, "t")) == 3
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a3"]
    assert take(q, "t") == [b"a3"]


def test_a_leased_old_value_is_kept_until_it_is_settled(make, clock) -> None:
    q = make(retention=COMPACT)
    publish(q, "a1", "a2", "b1")
    old = receive_one(q, "t", visibility="12h")
    waiting = receive_one(q, "t", visibility="12h")
    waiting.nack(delay="1h")
    publish(q, "a3")
    take(q, "t")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a1", b"a2", b"b1", b"a3"]
    old.release()
    again = receive_one(q, "t")
    assert (again.payload, again.id) == (b"a1", old.id)
    again.ack()
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a2", b"b1", b"a3"]
    clock.advance("1h")
    assert take(q, "t") == [b"a2"]
    let_duties_run(q, clock)
    assert log(q, "t") == [b"b1", b"a3"]


def test_what_is_scheduled_is_kept_and_counts_from_when_it_is_visible(make, clock) -> None:
    q = make(retention=COMPACT)
    publish(q, "a1")
    publish(q, "a2", delay="30d")
    publish(q, "a3")
    take(q, "t")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a2", b"a3"]
    assert take(q, "t", group="new") == [b"a3"]
    clock.advance("30d")
    assert take(q, "t") == take(q, "t", group="new") == [b"a2"]
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a2"]


def test_what_was_cancelled_or_expired_is_no_value(make, clock) -> None:
    q = make(retention=COMPACT)
    publish(q, "a1", "b1")
    [cancelled] = publish(q, "a2", delay="30d")
    publish(q, "b2", ttl="30s")
    take(q, "t")
    q.cancel(cancelled)
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a1", b"b1"]


def test_what_ends_after_it_was_kept_goes(make, clock) -> None:
    q = make(retention=COMPACT)
    publish(q, "a1", "b1")
    publish(q, "a2", ttl="1h")
    take(q, "t")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"b1", b"a2"]
    clock.advance("1h")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"b1"]
    publish(q, "a3")
    take(q, "t")
    q.purge("t")
    let_duties_run(q, clock)
    assert log(q, "t") == []


def test_what_has_no_key_stays_or_follows_the_other_rules(make, clock) -> None:
    q = make(retention=COMPACT)
    publish(q, "-1", "a1", "-2", "a2")
    take(q, "t")
    clock.advance("30d")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"-1", b"-2", b"a2"]
    q.configure("t", retention={"compact": True, "hours": 24})
    publish(q, "-3", "a3")
    take(q, "t")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"-3", b"a3"]
    clock.advance("25h")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a3"]


def test_an_empty_payload_is_a_value(make, clock) -> None:
    q = make(retention=COMPACT)
    q.publish_many("t", [Draft(b"1", key="a"), Draft(b"", key="a")])
    take(q, "t")
    let_duties_run(q, clock)
    assert log(q, "t") == [b""]


def test_it_can_be_switched_on_and_off(q, clock) -> None:
    publish(q, "a1", "a2", "-1")
    take(q, "t")
    let_duties_run(q, clock)
    assert len(log(q, "t")) == 3
    assert q.configure("t", retention=COMPACT)["retention"] == {"compact": True}
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a2", b"-1"]
    q.configure("t", retention={})
    publish(q, "a3")
    take(q, "t")
    let_duties_run(q, clock)
    assert log(q, "t") == [b"a2", b"-1", b"a3"]
    q.configure("t", retention=COMPACT)
    let_duties_run(q, clock)
    assert offsets(q.scan("t")) == [2, 3]
    with refused(mqueue.BadSetting):
        q.configure("t", retention={"compact": 1})
