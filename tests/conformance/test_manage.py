"""Topics: purged, deleted, configured."""

from __future__ import annotations

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import assert_conserved, beside, die, kinds, log, payloads, receive_one, refused, take


def test_topics_are_made_on_first_use(q) -> None:
    assert q.topics() == []
    q.publish("b", b"x")
    q.receive("a")
    q.configure("c")
    assert q.topics() == ["a", "b", "c"]


def test_purge_ends_everything(q, clock) -> None:
    q.create_group("t", "default")
    q.publish_many("t", [b"ready", b"waiting", Draft(b"scheduled", delay="1h"), Draft(b"low", priority="low")])
    q.nack(q.receive("t", limit=2)[1:], delay="1s")
    clock.advance("30s")
    assert q.purge("t") == 4
    clock.advance("2h")
    assert (q.receive("t"), q.scheduled("t"), q.stats("t").depth) == ([], [], 0)
    assert take(q, "t", group="later") == []
    assert_conserved(q, "t")


def test_purge_of_nothing(q) -> None:
    q.configure("t")
    assert q.purge("t") == 0
    q.publish("t", b"x")
    assert (q.purge("t"), q.purge("t")) == (1, 0)
    with refused(mqueue.NotFound):
        q.purge("nowhere")


def test_what_comes_after_a_purge_is_delivered(q) -> None:
    q.configure("t", partitions=2)
    for n in range(10):
        q.publish("t", b"old", key=str(n))
    q.purge("t")
    for n in range(10):
        q.publish("t", b"new", key=str(n), priority=n)
    assert take(q, "t") == [b"new"] * 10
    assert take(q, "t", group="later") == [b"new"] * 10


def test_purge_while_leased(q, clock) -> None:
    q.create_group("t", "default")
    q.publish_many("t", [b"%d" % n for n in range(5)])
    acked, nacked, released, rejected, _left = q.receive("t", limit=5)
    q.purge("t")
    acked.ack()
    nacked.nack()
    released.release()
    rejected.reject()
    clock.advance("1h")
    assert q.receive("t") == []
    stats = q.stats("t").groups["default"]
    assert (stats.acked, stats.cancelled, stats.dead) == (1, 4, 0)
    assert "t.dlq" not in q.topics()
    assert_conserved(q, "t")


def test_purge_what_is_ready_for_a_group(q, clock) -> None:
    q.create_group("t", "default")
    q.publish_many(
        "t", [b"acked", b"waiting", b"leased", b"ready", Draft(b"scheduled", delay="1h"), Draft(b"low", priority="low")]
    )
    acked, waiting, leased = q.receive("t", limit=3)
    acked.ack()
    waiting.nack(delay="1s")
    assert q.purge("t", ready_for="default") == 3
    clock.advance("2s")
    assert q.receive("t") == []
    leased.release()
    assert payloads(q.receive("t", limit=9)) == [b"leased"]
    clock.advance("1h")
    assert take(q, "t") == [b"leased", b"scheduled"]
    stats = q.stats("t").groups["default"]
    assert (stats.acked, stats.cancelled) == (3, 3)
    assert_conserved(q, "t")
    assert q.purge("t", ready_for="default") == 0


def test_what_is_purged_as_ready_for_one_group_ends_for_all(q) -> None:
    for group in ("g", "h"):
        q.create_group("t", group)
    q.configure("t", partitions=2)
    receipts = [q.publish("t", b"%d" % n, key=str(n)) for n in range(10)]
    held = q.receive("t", limit=3, group="g")
    done = {m.payload for m in q.receive("t", limit=4, group="h", mode="at_most_once")}
    kept = {m.payload for m in held}
    assert q.purge("t", ready_for="g") == 7
    assert {*take(q, "t", group="h")} == kept - done
    assert {*take(q, "t", group="later")} == kept
    q.release(held)
    assert {*take(q, "t", group="g")} == kept
    for group in ("g", "h"):
        assert_conserved(q, "t", group)
    gone = next(r for n, r in enumerate(receipts) if b"%d" % n not in kept)
    assert q.explain(gone, group="g").code == "cancelled"
    assert kinds(q, gone)[-1] == "CANCELLED"


def test_purge_what_is_ready_for_a_group_that_is_to_come(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    with refused(mqueue.BadName):
        q.purge("t", ready_for="a b")
    assert q.purge("t", ready_for="default") == 2
    q.publish("t", b"3")
    assert take(q, "t") == [b"3"]
    with refused(mqueue.NotFound):
        q.purge("nowhere", ready_for="default")


def test_a_purged_message_is_explained(q) -> None:
    r = q.publish("t", b"x")
    q.purge("t")
    assert q.explain(r).code == "cancelled"
    assert kinds(q, r) == ["PUBLISHED", "CANCELLED"]


def test_trace_after_a_purge_and_growth(q) -> None:
    q.publish("t", b"x")
    q.purge("t")
    q.configure("t", partitions=4)
    for receipt in [q.publish("t", b"x") for _ in range(4)]:
        assert kinds(q, receipt) == ["PUBLISHED"]


def test_delete_topic(q) -> None:
    r = q.publish("t", b"x", idempotency_key="k")
    q.create_group("t", "g")
    q.delete_topic("t")
    assert q.topics() == []
    with refused(mqueue.NotFound):
        q.trace(r)
    with refused(mqueue.NotFound):
        q.delete_topic("t")


def test_a_topic_made_again_is_a_new_one(q, clock) -> None:
    q.configure("t", partitions=3, max_retries=7)
    q.publish_many("t", [Draft(b"old", delay="1s"), Draft(b"old", ttl="2s"), b"old"])
    held = receive_one(q, "t")
    receive_one(q, "t").nack(delay="1s")
    q.delete_topic("t")
    q.publish("t", b"new", idempotency_key="k")
    clock.advance("1h")
    assert (q.settings("t")["partitions"], q.settings("t")["max_retries"]) == (1, 3)
    assert take(q, "t") == [b"new"]
    assert log(q, "t") == [b"new"]
    with refused(mqueue.LeaseLost):
        held.ack()


def test_a_topic_deleted_and_made_again_with_a_view_at_hand(q) -> None:
    other = q.namespace("default")
    q.publish("t", b"old")
    assert len(other.receive("t")) == 1
    q.delete_topic("t")
    q.publish("t", b"new")
    assert take(other, "t") == [b"new"]


def test_a_deleted_topic_leaves_its_dead(q) -> None:
    q.publish("t", b"x")
    die(q, "t")
    q.delete_topic("t")
    assert take(q, "t.dlq") == [b"x"]


def test_defaults(q) -> None:
    settings = q.configure("t")
    assert settings == q.settings("t")
    wanted = {
        "partitions": 1,
        "max_retries": 3,
        "backoff": 1,
        "backoff_max": 60,
        "visibility": 30,
        "default_ttl": None,
        "max_depth": None,
        "overflow": "refuse",
        "dlq": True,
        "dedup": "window",
        "dedup_window": 86_400,
        "start": "earliest",
        "in_flight_max": 100_000,
    }
    assert {name: settings[name] for name in wanted} == wanted


def test_only_what_is_named_changes(q) -> None:
    q.configure("t", max_retries=9, visibility="1m")
    before = q.settings("t")
    q.configure("t", backoff="5s")
    assert q.settings("t") == {**before, "backoff": 5.0}


def test_what_is_shown_can_be_given(q) -> None:
    graveyard = beside("a", "graveyard")
    shown = q.configure("a", visibility="1m", default_ttl="1h", dlq=graveyard, max_retries=None)
    assert {**q.configure(beside("a", "b"), **shown)} == shown


def test_settings_of_the_broker_are_defaults(make) -> None:
    q = make(partitions=3, max_retries=1)
    q.publish("t", b"x")
    q.configure("t", max_retries=2)
    assert (q.settings("t")["partitions"], q.settings("t")["max_retries"]) == (3, 2)
    assert q.configure("u")["max_retries"] == 1


def test_an_unknown_setting_is_refused_with_the_allowed_ones(q, make) -> None:
    with refused(mqueue.BadSetting, "bad_setting") as caught:
        q.configure("t", max_retrys=3)
    assert "max_retrys" in str(caught.value)
    assert "max_retries" in str(caught.value)
    assert q.topics() == []
    with refused(mqueue.BadSetting):
        make(colour="blue")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitions", 0),
        ("partitions", 1025),
        ("partitions", True),
        ("partitions", "3"),
        ("max_retries", -1),
        ("max_retries", 1.5),
        ("backoff", -1),
        ("backoff", "2m"),
        ("backoff_max", "1ms"),
        ("visibility", 0),
        ("visibility", "13h"),
        ("default_ttl", 0),
        ("max_depth", 0),
        ("overflow", "explode"),
        ("in_flight_max", 0),
        ("dlq", "a b"),
        ("dlq", 7),
        ("dedup", "sometimes"),
        ("dedup_window", -1),
        ("start", "middle"),
        ("retention", 5),
        ("retention", {"days": 1}),
        ("retention", {"hours": -1}),
    ],
)
def test_bad_values_are_refused(q, name: str, value) -> None:
    before = q.configure("t")
    with refused(mqueue.BadSetting, "bad_setting") as caught:
        q.configure("t", **{"hold": "1d", name: value})
    assert name in str(caught.value)
    assert q.settings("t") == before


def test_partitions_grow(q) -> None:
    q.create_group("t", "g")
    q.publish("t", b"0")
    q.configure("t", partitions=4)
    used = {q.publish("t", b"%d" % n, key=str(n)).partition for n in range(1, 40)}
    assert used == {0, 1, 2, 3}
    for group in ("g", "later"):
        assert sorted(take(q, "t", group=group), key=int) == [b"%d" % n for n in range(40)]
    assert q.stats("t").partitions == 4


def test_partitions_do_not_shrink(q) -> None:
    q.configure("t", partitions=3)
    with refused(mqueue.BadSetting):
        q.configure("t", partitions=2, max_retries=9)
    assert (q.settings("t")["partitions"], q.settings("t")["max_retries"]) == (3, 3)


def test_growth_while_leased_and_waiting(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(4)])
    a, b, *_ = q.receive("t", limit=3, visibility="10s")
    b.nack(delay="5s")
    q.configure("t", partitions=8)
    a.ack()
    clock.advance("10s")
    assert payloads(q.receive("t", limit=9)) == [b"1", b"2", b"3"]


def test_settings_of_an_unknown_topic(q) -> None:
    with refused(mqueue.NotFound):
        q.settings("t")


def test_labels_are_kept_and_change_by_name(q) -> None:
    assert q.configure("t")["labels"] == {}
    assert q.configure("t", labels={"team": "shop", "tier": "gold"})["labels"] == {"team": "shop", "tier": "gold"}
    assert q.configure("t", labels={"tier": None, "cost": ""})["labels"] == {"cost": "", "team": "shop"}
    assert q.configure("t", partitions=2)["labels"] == q.settings("t")["labels"] == {"cost": "", "team": "shop"}
    for bad in ("team", {"": "x"}, {"n" * 257: "x"}, {"team": 7}, {"team": "x" * 2049}, {"team": "\ud800"}):
        with refused(mqueue.BadSetting):
            q.configure("t", labels=bad)
    with refused(mqueue.BadSetting):
        q.configure("t", labels={f"label-{n}": "x" for n in range(255)})
    assert q.settings("t")["labels"] == {"cost": "", "team": "shop"}
