"""Trace and explain: what became of a message, and why it is not being delivered now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import mqueue
from mqueue import Draft
from tests.conformance.steps import die, kinds, receive_one, refused, take

START = datetime(2026, 1, 1, tzinfo=UTC)


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
    trace = q.trace(r)
    assert [(event.kind, event.time - START) for event in trace.events] == [
        ("PUBLISHED", timedelta(seconds=0)),
        ("SCHEDULED", timedelta(seconds=0)),
        ("DELIVERED", timedelta(seconds=1)),
        ("NACKED", timedelta(seconds=1)),
        ("REDELIVERED", timedelta(seconds=2)),
        ("EXTENDED", timedelta(seconds=2)),
        ("ACKNOWLEDGED", timedelta(seconds=3)),
    ]
    assert (trace.id, trace.topic, trace.attempts, trace.latency) == (r.id, "t", 2, timedelta(seconds=3))
    shown = str(trace)
    assert all(word in shown for word in (str(r.id), "boom", "worker-1", "ACKNOWLEDGED"))


def test_other_ends(q, clock) -> None:
    released = q.publish("t", b"released")
    receive_one(q, "t").release()
    assert kinds(q, released) == ["PUBLISHED", "DELIVERED", "RELEASED"]
    take(q, "t")
    timed_out = q.publish("t", b"timed out")
    q.receive("t")
    clock.advance("30s")
    assert kinds(q, timed_out) == ["PUBLISHED", "DELIVERED", "TIMED_OUT"]
    take(q, "t")
    expired = q.publish("t", b"expired", ttl="1s")
    clock.advance("1s")
    assert kinds(q, expired) == ["PUBLISHED", "EXPIRED"]
    cancelled = q.publish("t", b"cancelled", delay="1h")
    q.cancel(cancelled)
    assert kinds(q, cancelled) == ["PUBLISHED", "SCHEDULED", "CANCELLED"]


def test_death_and_return(q) -> None:
    r = q.publish("t", b"x")
    die(q, "t", "never")
    q.dlq("t").redrive()
    take(q, "t")
    assert kinds(q, r) == ["PUBLISHED", "DELIVERED", "DEAD", "REDRIVEN", "DELIVERED", "ACKNOWLEDGED"]
    assert "never" in str(q.trace(r))


def test_a_reschedule(q) -> None:
    r = q.publish("t", b"x", delay="1h")
    q.reschedule(r, deliver_at="2026-02-03")
    assert kinds(q, r) == ["PUBLISHED", "SCHEDULED", "SCHEDULED"]
    assert "2026-02-03" in str(q.trace(r))


def test_of_two_groups(q) -> None:
    r = q.publish("t", b"x")
    take(q, "t", group="g")
    take(q, "t", group="h")
    trace = q.trace(r)
    assert kinds(q, r) == ["PUBLISHED", *["DELIVERED", "ACKNOWLEDGED"] * 2]
    assert trace.attempts == 2
    assert ["g" in event.detail for event in trace.events[1:]] == [True, True, False, False]


def test_only_its_own_events(q) -> None:
    receipts = q.publish_many("t", [b"%d" % n for n in range(10)])
    held = q.receive("t", limit=10)
    q.ack(held[::2])
    q.release(held[1::2])
    for n, receipt in enumerate(receipts):
        assert kinds(q, receipt)[1:] == ["DELIVERED", "RELEASED" if n % 2 else "ACKNOWLEDGED"]


def test_no_latency_before_the_ack(q) -> None:
    assert q.trace(q.publish("t", b"x")).latency is None


def test_trace_of_a_busy_topic(q) -> None:
    first = q.publish("t", b"first")
    for _ in range(600):
        q.publish("t", b"x")
        take(q, "t", limit=1)
    assert kinds(q, first) == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]


def test_explain_scheduled(q) -> None:
    why = q.explain(q.publish("t", b"x", delay="1h"))
    assert (why.code, why.until) == ("scheduled", START + timedelta(hours=1))
    assert "2026-01-01T01:00:00" in str(why)


def test_explain_no_consumer(q) -> None:
    r = q.publish("t", b"x")
    assert q.explain(r).code == "no_consumer"
    q.receive("u")
    assert q.explain(r, group="g").code == "no_consumer"


def test_explain_leased(make, clock) -> None:
    q = make(name="worker-1")
    r = q.publish("t", b"x")
    m = receive_one(q, "t", visibility="1m")
    why = q.explain(r)
    assert (why.code, why.until, why.by) == ("leased", START + timedelta(minutes=1), "worker-1")
    m.extend("2m")
    assert q.explain(r).until == START + timedelta(minutes=2)


def test_explain_waiting(q) -> None:
    r = q.publish("t", b"x")
    receive_one(q, "t").nack(delay="10s")
    why = q.explain(r)
    assert (why.code, why.until) == ("waiting", START + timedelta(seconds=10))


def test_explain_behind(q, clock) -> None:
    q.configure("t", partitions=2)
    q.create_group("t", "default")
    for n in range(10):
        q.publish("t", b"x", key=str(n), priority=1 + n % 2)
        clock.advance("1ms")
    last = q.publish("t", b"y", priority=2)
    q.publish("t", b"z", priority=3)
    why = q.explain(last)
    assert (why.code, why.ahead) == ("behind", 10)
    take(q, "t", limit=4)
    assert q.explain(last).ahead == 6
    take(q, "t", limit=6)
    assert q.explain(last).code == "ready"


def test_explain_settled(q) -> None:
    r = q.publish("t", b"x")
    take(q, "t")
    assert q.explain(r).code == "settled"
    q.seek("t", to="earliest")
    assert q.explain(r).code == "ready"


def test_explain_dead(q) -> None:
    r = q.publish("t", b"x")
    q.create_group("t", "other")
    receive_one(q, "t").reject("no such address")
    why = q.explain(r)
    assert why.code == "dead"
    assert str(why) == "group 'default' has given it up: rejected, no such address; the dead go to 't.dlq'"
    assert q.explain(r, group="other").code == "ready"
    q.dlq("t").redrive()
    assert q.explain(r).code == "ready"
    take(q, "t")
    assert q.explain(r).code == "settled"


def test_explain_dead_that_go_nowhere(make) -> None:
    q = make(dlq=False, max_retries=0)
    r = q.publish("t", b"x")
    receive_one(q, "t").nack(error="boom")
    assert str(q.explain(r)) == "group 'default' has given it up: max_retries, boom"


def test_explain_what_ended(q, clock) -> None:
    expired, cancelled = q.publish("t", b"x", ttl="1s"), q.publish("t", b"x", delay="1h")
    q.cancel(cancelled)
    clock.advance("1s")
    assert (q.explain(expired).code, q.explain(cancelled).code) == ("expired", "cancelled")


def test_explain_in_flight_max(make) -> None:
    q = make(in_flight_max=1)
    q.publish("t", b"1")
    r = q.publish("t", b"2")
    q.receive("t")
    assert q.explain(r).code == "in_flight_max"


def test_explain_before_the_start(q) -> None:
    r = q.publish("t", b"1")
    q.create_group("t", "g", start="latest")
    assert q.explain(r, group="g").code == "before_start"


def test_what_is_not_there(q) -> None:
    q.publish("t", b"x")
    for call in (q.trace, q.explain):
        with refused(mqueue.NotFound, "not_found"):
            call(12345)


def test_headers_of_a_trace_context_are_carried(q) -> None:
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    q.publish_many("t", [Draft(b"x", headers=headers)])
    assert dict(receive_one(q, "t").headers) == headers


def test_a_topic_that_is_not_traced_tells_only_of_the_publish(q, clock) -> None:
    """Everything else is as ever: attempts are counted, duplicates known, the dead buried with their story."""
    q.configure("t", trace=False, max_retries=1)
    r = q.publish("t", b"x", idempotency_key="k")
    assert q.publish("t", b"x", idempotency_key="k").duplicate
    receive_one(q, "t").nack(delay="1s", error="boom")
    clock.advance("1s")
    m = receive_one(q, "t")
    assert m.attempt == 2
    m.nack(error="boom")
    assert kinds(q, r) == ["PUBLISHED"]
    assert [row for batch in q.events("t", 0, 0, 10) for row in batch["event"].to_pylist()] == ["PUBLISHED"]
    assert q.explain(r).code == "settled"
    assert q.stats("t").groups["default"].dead == 1
    [dead] = q.dlq("t").messages()
    assert (dead.error, dead.attempts) == ("boom", 2)


def test_tracing_can_be_turned_on_and_off(q) -> None:
    first = q.publish("t", b"1")
    receive_one(q, "t").ack()
    q.configure("t", trace=False)
    assert kinds(q, first) == ["PUBLISHED"]
    q.configure("t", trace=True)
    second = q.publish("t", b"2")
    receive_one(q, "t").ack()
    assert kinds(q, second) == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]
