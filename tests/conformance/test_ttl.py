"""Time to live: what has run out is never delivered."""

from __future__ import annotations

from datetime import UTC, datetime

import mqueue
from mqueue import Draft
from tests.conformance.steps import assert_conserved, log, payloads, receive_one, refused, take


def test_an_expired_message_is_never_delivered(q, clock) -> None:
    q.publish_many("t", [Draft(b"a", ttl="10s"), Draft(b"b"), Draft(b"c", ttl="20s")])
    clock.advance("9.999s")
    assert payloads(q.peek("t")) == [b"a", b"b", b"c"]
    clock.advance("1ms")
    assert payloads(q.peek("t")) == [b"b", b"c"]
    clock.advance("10s")
    assert take(q, "t") == [b"b"]


def test_it_stays_in_the_log(q, clock) -> None:
    q.publish("t", b"a", ttl="1s")
    clock.advance("2s")
    assert take(q, "t") == []
    assert log(q, "t") == [b"a"]


def test_it_counts_from_the_delivery_time(q, clock) -> None:
    q.publish("t", b"a", delay="1h", ttl="10s")
    clock.advance("1h")
    m = receive_one(q, "t")
    assert m.expires_at == datetime(2026, 1, 1, 1, 0, 10, tzinfo=UTC)


def test_a_delivery_time_in_the_past_counts_from_now(q, clock) -> None:
    q.publish("t", b"a", deliver_at="2020-01-01", ttl="10s")
    assert len(q.peek("t")) == 1
    clock.advance("10s")
    assert q.peek("t") == []


def test_no_ttl_at_all_is_refused(q) -> None:
    for ttl in (0, "0s", -1, "never"):
        with refused(mqueue.BadTime):
            q.publish("t", b"a", ttl=ttl)


def test_a_default_for_the_topic(make, clock) -> None:
    q = make(default_ttl="10s")
    q.publish("t", b"plain")
    q.publish_many("t", [b"many", Draft(b"own", ttl="1h"), Draft(b"late", delay="5s")])
    q.publish_many("t", [b"bytes", b"only"])
    clock.advance("10s")
    assert sorted(payloads(q.peek("t"))) == [b"late", b"own"]
    clock.advance("5s")
    assert take(q, "t") == [b"own"]


def test_a_changed_default_is_for_new_messages(q, clock) -> None:
    q.publish("t", b"old")
    q.configure("t", default_ttl="1s")
    q.publish("t", b"new")
    q.configure("t", default_ttl=None)
    q.publish("t", b"newest")
    clock.advance("1s")
    assert take(q, "t") == [b"old", b"newest"]


def test_expired_while_leased_may_still_be_acked(q, clock) -> None:
    q.publish("t", b"a", ttl="10s")
    m = receive_one(q, "t", visibility="1m")
    clock.advance("20s")
    m.ack()
    stats = q.stats("t").groups["default"]
    assert (stats.acked, stats.expired) == (1, 0)


def test_expired_while_leased_and_given_back_ends_expired(q, clock) -> None:
    q.create_group("t", "default")
    q.configure("t", max_retries=0)
    for settle in ("nack", "reject", "release"):
        q.publish("t", b"a", ttl="10s")
        m = receive_one(q, "t", visibility="1m")
        clock.advance("20s")
        getattr(m, settle)()
        clock.advance("1h")
        assert take(q, "t") == [], settle
    assert q.stats("t").groups["default"].expired == 3
    assert q.stats("t").groups["default"].dead == 0
    assert "t.dlq" not in q.topics()
    assert_conserved(q, "t")


def test_a_nack_that_ended_expired_can_be_repeated(q, clock) -> None:
    q.publish("t", b"a", ttl="10s")
    m = receive_one(q, "t", visibility="1m")
    clock.advance("20s")
    m.nack()
    m.nack()


def test_a_lease_that_ends_after_the_message(q, clock) -> None:
    q.publish("t", b"a", ttl="10s")
    m = receive_one(q, "t", visibility="15s")
    clock.advance("15s")
    assert q.receive("t") == []
    with refused(mqueue.LeaseLost):
        m.ack()
    assert q.explain(m).code == "expired"


def test_expired_while_it_waits_for_its_retry(q, clock) -> None:
    q.create_group("t", "default")
    q.publish("t", b"a", ttl="10s")
    receive_one(q, "t").nack(delay="20s")
    clock.advance("10s")
    assert q.stats("t").groups["default"].waiting == 0
    clock.advance("10s")
    assert take(q, "t") == []
    assert_conserved(q, "t")


def test_later_groups_do_not_get_it(q, clock) -> None:
    q.publish_many("t", [Draft(b"a", ttl="1s"), b"b"])
    clock.advance("1s")
    assert take(q, "t", group="later") == [b"b"]
    q.seek("t", group="later", to="earliest")
    assert take(q, "t", group="later") == [b"b"]


def test_what_expired_to_the_dead_letter_queue(make, clock) -> None:
    q = make(dlq_expired=True)
    q.publish_many("t", [Draft(b"a", ttl="1s", key="k", headers={"h": "1"}), b"b"])
    clock.advance("1s")
    [dead] = q.dlq("t").messages()
    assert (dead.payload, dead.key, dead.reason, dead.attempts) == (b"a", b"k", "expired", 0)
    assert (dead.headers["h"], dead.headers["x-group"]) == ("1", "")
    clock.advance("1h")
    assert len(q.dlq("t")) == 1


def test_only_what_somebody_still_owed_is_dead(make, clock) -> None:
    q = make(dlq_expired=True)
    q.publish_many("t", [Draft(b"a", ttl="10s"), Draft(b"b", ttl="10s")])
    assert take(q, "t", limit=1) == [b"a"]
    clock.advance("10s")
    assert payloads(q.dlq("t").messages()) == [b"b"]


def test_once_for_all_groups(make, clock) -> None:
    q = make(dlq_expired=True)
    for group in ("g", "h"):
        q.create_group("t", group)
    q.publish("t", b"a", ttl="10s")
    clock.advance("10s")
    assert len(q.dlq("t")) == 1


def test_cancelled_before_it_expired(make, clock) -> None:
    q = make(dlq_expired=True)
    q.cancel(q.publish("t", b"a", delay="1s", ttl="1s"))
    q.publish("t", b"b", ttl="1s")
    q.purge("t")
    clock.advance("1h")
    assert "t.dlq" not in q.topics() or len(q.dlq("t")) == 0


def test_many_with_many_lives(q, clock) -> None:
    q.configure("t", partitions=2)
    q.publish_many("t", [Draft(b"%d" % n, ttl=1 + n % 5, key=str(n), priority=n % 3) for n in range(200)])
    for second in range(1, 6):
        clock.advance("1s")
        assert q.stats("t").depth == 40 * (5 - second)
    assert q.stats("t").expired == 200
