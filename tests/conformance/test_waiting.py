"""Waiting: a receive comes back at the first message; consumers and subscriptions keep what they work on."""

from __future__ import annotations

import logging
import threading

import pytest

import mqueue
from tests.conformance.steps import DEADLINE_SECONDS, Background, beside, die, payloads, receive_one, refused, take


def test_nothing_there_and_no_wait(q) -> None:
    assert q.receive("t") == []
    assert q.receive("t", wait=0) == []


def test_what_is_there_is_not_waited_for(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    assert payloads(q.receive("t", limit=10, wait="60s")) == [b"1", b"2"]


def test_woken_by_a_publish(q) -> None:
    waiting = Background(lambda: q.receive("t", limit=10, wait="60s"))
    waiting.assert_waiting()
    q.publish("t", b"1")
    assert payloads(waiting.result()) == [b"1"]


@pytest.mark.parametrize("how", ["publish_many", "draft", "arrow", "other namespace does not"])
def test_woken_by_every_way_to_publish(q, how: str) -> None:
    waiting = Background(lambda: q.receive("t", wait="60s"))
    waiting.assert_waiting()
    q.namespace("other").publish("t", b"theirs")
    waiting.assert_waiting()
    if how == "arrow":
        pa = pytest.importorskip("pyarrow")
        q.publish_arrow("t", pa.table({"payload": [b"1"]}))
    elif how == "draft":
        q.publish("t", b"1", key="k", priority=1)
    else:
        q.publish_many("t", [b"1"])
    assert payloads(waiting.result()) == [b"1"]


def test_woken_by_the_clock(q, clock) -> None:
    q.publish("t", b"1", delay="10s")
    waiting = Background(lambda: q.receive("t", wait="60s"))
    waiting.assert_waiting()
    clock.advance("9s")
    waiting.assert_waiting()
    clock.advance("1s")
    assert payloads(waiting.result()) == [b"1"]


def test_the_wait_ends(q, clock) -> None:
    waiting = Background(lambda: q.receive("t", wait="5s"))
    assert clock.asleep.wait(DEADLINE_SECONDS)
    waiting.assert_waiting()
    clock.advance("4.999s")
    waiting.assert_waiting()
    clock.advance("1ms")
    assert waiting.result() == []


def test_woken_when_a_lease_runs_out(q, clock) -> None:
    q.publish("t", b"1")
    q.receive("t", visibility="5s")
    waiting = Background(lambda: q.receive("t", wait="60s"))
    waiting.assert_waiting()
    clock.advance("5s")
    assert waiting.result()[0].attempt == 2


def test_woken_when_a_message_is_given_back(q) -> None:
    q.publish("t", b"1")
    m = receive_one(q, "t")
    waiting = Background(lambda: q.receive("t", wait="60s"))
    waiting.assert_waiting()
    m.release()
    assert payloads(waiting.result()) == [b"1"]


def test_woken_when_an_ack_makes_room(make) -> None:
    q = make(in_flight_max=1)
    q.publish_many("t", [b"1", b"2", b"3"])
    m = receive_one(q, "t")
    waiting = Background(lambda: receive_one(q, "t", wait="60s"))
    waiting.assert_waiting()
    m.ack()
    second = waiting.result()
    waiting = Background(lambda: receive_one(q, "t", wait="60s"))
    waiting.assert_waiting()
    q.ack([second])
    assert waiting.result().payload == b"3"


@pytest.mark.parametrize("how", ["seek", "redrive", "reschedule", "configure"])
def test_woken_by_what_makes_a_message_ready(q, clock, how: str) -> None:
    q.configure("t", in_flight_max=1)
    r = q.publish("t", b"1", delay="1h" if how == "reschedule" else None)
    if how == "seek":
        take(q, "t")
    elif how == "redrive":
        die(q, "t")
    elif how == "configure":
        q.publish("t", b"2")
        q.receive("t")
    waiting = Background(lambda: q.receive("t", wait="60s"))
    waiting.assert_waiting()
    if how == "seek":
        q.seek("t", to="earliest")
    elif how == "redrive":
        q.dlq("t").redrive()
    elif how == "configure":
        q.configure("t", in_flight_max=2)
    else:
        q.reschedule(r, delay="1s")
        clock.advance("1s")
    assert len(waiting.result()) == 1


def test_woken_at_the_queue_of_the_dead(q) -> None:
    q.publish("t", b"1")
    m = receive_one(q, "t")
    waiting = Background(lambda: q.receive("t.dlq", wait="60s"))
    waiting.assert_waiting()
    m.reject()
    assert payloads(waiting.result()) == [b"1"]


def test_woken_by_what_follows_an_ack(q) -> None:
    out = beside("in", "out")
    q.publish("in", b"1")
    waiting = Background(lambda: q.receive(out, wait="60s"))
    waiting.assert_waiting()
    q.ack(q.receive("in"), publish=[mqueue.Draft(b"2", topic=out)])
    assert payloads(waiting.result()) == [b"2"]


def test_waiting_for_several_topics(q) -> None:
    waiting = Background(lambda: q.receive(["a", "b", "c"], wait="60s"))
    waiting.assert_waiting()
    q.publish("b", b"1")
    assert payloads(waiting.result()) == [b"1"]


def test_a_topic_deleted_and_made_again_while_waited_for(q, clock) -> None:
    waiting = Background(lambda: q.receive("t", wait="60s"))
    assert clock.asleep.wait(DEADLINE_SECONDS)
    q.delete_topic("t")
    waiting.assert_waiting()
    q.publish("t", b"new")
    assert payloads(waiting.result()) == [b"new"]


def test_many_wait_and_each_message_goes_to_one(q) -> None:
    waiting = [Background(lambda: q.receive("t", limit=1, wait="60s")) for _ in range(8)]
    for one in waiting:
        one.assert_waiting()
    q.publish_many("t", [b"%d" % n for n in range(8)])
    assert sorted(m.payload for one in waiting for m in one.result()) == [b"%d" % n for n in range(8)]


def test_many_threads_at_once(q) -> None:
    q.configure("t", visibility="12h")
    done: list[bytes] = []

    def work() -> None:
        stopped = False
        while not stopped:
            messages = q.receive("t", limit=7, wait="60s")
            q.ack(messages)
            done.extend(payload for payload in payloads(messages) if payload != b"stop")
            stopped = b"stop" in payloads(messages)

    workers = [Background(work) for _ in range(4)]
    publishers = [
        Background(lambda s=s: [q.publish("t", b"%d" % (s + n)) for n in range(250)]) for s in range(0, 1000, 250)
    ]
    for publisher in publishers:
        publisher.result()
    for _ in workers:
        q.publish_many("t", [mqueue.Draft(b"stop", priority="low")] * 7)
    for worker in workers:
        worker.result()
    assert sorted(done, key=int) == [b"%d" % n for n in range(1000)]


def test_a_close_ends_the_wait(make) -> None:
    q = make()
    waiting = Background(lambda: q.receive("t", wait="60s"))
    waiting.assert_waiting()
    q.close()
    with refused(mqueue.Closed):
        waiting.result()


def test_consume(q) -> None:
    q.publish_many("t", [b"%d" % n for n in range(5)])
    seen = []
    for m in q.consume("t", prefetch=2):
        with m:
            seen.append(m.payload)
        if len(seen) == 5:
            break
    assert seen == [b"%d" % n for n in range(5)]
    assert q.stats("t").acked == 5


def test_consume_waits_for_more(q) -> None:
    messages = q.consume("t")
    waiting = Background(lambda: next(messages))
    waiting.assert_waiting()
    q.publish("t", b"1")
    waiting.result().ack()


def test_consume_goes_on_after_a_long_wait(q, clock) -> None:
    messages = q.consume("t")
    waiting = Background(lambda: next(messages))
    for _ in range(3):
        waiting.assert_waiting()
        clock.advance("61s")
    waiting.assert_waiting()
    q.publish("t", b"1")
    assert waiting.result().payload == b"1"


@pytest.mark.usefixtures("embedded")  # from afar leases are extended by the time of the world
def test_consume_keeps_its_leases_alive(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    messages = q.consume("t", visibility="10s")
    first = next(messages)
    for _ in range(20):
        clock.advance("9s")
        assert q.receive("t") == []
    clock.advance("1h")
    assert q.receive("t") == []
    first.ack()
    second = next(messages)
    assert (second.payload, second.attempt) == (b"2", 1)
    second.ack()


def test_consume_gives_back_what_is_left(q) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    messages = q.consume("t", prefetch=3)
    next(messages).ack()
    next(messages)
    assert q.receive("t") == []
    messages.close()
    assert [(m.payload, m.attempt) for m in q.receive("t", limit=9)] == [(b"2", 1), (b"3", 1)]


def test_consume_gives_back_after_an_error(q) -> None:
    q.publish_many("t", [b"1", b"2"])

    def run() -> None:
        for m in q.consume("t", prefetch=2):
            with m:
                raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        run()
    stats = q.stats("t").groups["default"]
    assert (stats.waiting, stats.leased + stats.ready) == (1, 1)


def test_consume_from_several_topics_and_a_group(q) -> None:
    q.publish("a", b"1")
    q.publish("b", b"2")
    messages = q.consume(["a", "b"], group="g")
    assert sorted([next(messages).payload, next(messages).payload]) == [b"1", b"2"]
    assert q.groups("a") == ["g"]


@pytest.mark.parametrize("prefetch", [0, -1, 10_001])
def test_consume_with_a_bad_prefetch(q, prefetch: int) -> None:
    with refused(mqueue.Refused, "bad_limit"):
        q.consume("t", prefetch=prefetch)


def test_consume_ends_with_the_broker(make) -> None:
    q = make()
    waiting = Background(lambda: list(q.consume("t")))
    waiting.assert_waiting()
    q.close()
    assert waiting.result() == []


class Collector:
    """A handler that remembers, and lets a test wait until it has seen so many."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self._changed = threading.Condition()

    def __call__(self, m) -> None:
        with self._changed:
            self.seen.append(m.payload)
            self._changed.notify_all()
        if m.payload == b"bad":
            raise ValueError("cannot do this")

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, DEADLINE_SECONDS), self.seen


def test_subscribe(q) -> None:
    handler = Collector()
    subscription = q.subscribe("t", handler, concurrency=3)
    q.publish_many("t", [b"%d" % n for n in range(20)])
    handler.wait_for(20)
    subscription.close()
    assert sorted(handler.seen, key=int) == [b"%d" % n for n in range(20)]
    assert q.stats("t").acked == 20


def test_a_handler_that_raises(q, clock, caplog) -> None:
    handler = Collector()
    with caplog.at_level(logging.CRITICAL, "mqueue"), q.subscribe("t", handler) as subscription:
        q.publish_many("t", [b"bad", b"good"])
        handler.wait_for(2)
        subscription.close()
    stats = q.stats("t").groups["default"]
    assert (stats.acked, stats.waiting) == (1, 1)
    clock.advance("2s")
    assert receive_one(q, "t").attempt == 2


def test_unsubscribe_drains(q) -> None:
    started, go_on = threading.Event(), threading.Event()

    def handler(m) -> None:
        started.set()
        assert go_on.wait(DEADLINE_SECONDS)

    subscription = q.subscribe("t", handler)
    q.publish_many("t", [b"1", b"2"])
    assert started.wait(DEADLINE_SECONDS)
    closing = Background(subscription.close)
    while not subscription._source.stopped:
        closing.assert_waiting()
    go_on.set()
    closing.result()
    stats = q.stats("t").groups["default"]
    assert (stats.acked, stats.leased, stats.ready) == (1, 0, 1)
    q.publish("t", b"3")
    assert take(q, "t") == [b"2", b"3"]


def test_a_handler_may_settle_itself(q) -> None:
    handled = threading.Event()

    def handler(m) -> None:
        m.reject("no")
        handled.set()

    with q.subscribe("t", handler):
        q.publish("t", b"1")
        assert handled.wait(DEADLINE_SECONDS)
    assert q.stats("t").dead == 1


@pytest.mark.usefixtures("embedded")  # from afar leases are extended by the time of the world
def test_a_slow_handler_keeps_its_message(q, clock) -> None:
    started, go_on = threading.Event(), threading.Event()

    def handler(m) -> None:
        started.set()
        assert go_on.wait(DEADLINE_SECONDS)

    with q.subscribe("t", handler, visibility="1s"):
        q.publish("t", b"1")
        assert started.wait(DEADLINE_SECONDS)
        clock.advance("1h")
        assert q.receive("t") == []
        go_on.set()
    assert q.stats("t").acked == 1


@pytest.mark.parametrize("concurrency", [0, -1, 1025, 1.5])
def test_a_bad_concurrency(q, concurrency) -> None:
    with refused(mqueue.Refused, "bad_concurrency"):
        q.subscribe("t", print, concurrency=concurrency)
