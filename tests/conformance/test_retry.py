"""Failures: backoff, the last attempt, and giving back."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mqueue
from tests.conformance.steps import payloads, receive_one, refused, take


def seconds_until_retry(q, clock, m) -> float:
    return q.explain(m).until.timestamp() - clock.now() / 1000


def test_backoff_doubles_within_its_bounds(q, clock) -> None:
    q.configure("t", max_retries=None)
    q.publish("t", b"x")
    for attempt in range(1, 12):
        m = receive_one(q, "t")
        assert m.attempt == attempt
        m.nack()
        base = min(2 ** (attempt - 1), 60)
        wait = seconds_until_retry(q, clock, m)
        assert 0.8 * base <= wait <= 1.2 * base + 0.01
        clock.advance(timedelta(seconds=wait, milliseconds=-1))
        assert q.receive("t") == []
        clock.advance("1ms")


def test_backoff_is_spread(q, clock) -> None:
    q.publish_many("t", [b"x"] * 40)
    waits = set()
    for m in q.receive("t", limit=40):
        m.nack()
        waits.add(seconds_until_retry(q, clock, m))
    assert len(waits) > 5


def test_backoff_is_a_setting(make, clock) -> None:
    q = make(backoff="10s", backoff_max="15s", max_retries=None)
    q.publish("t", b"x")
    for low, high in ((8, 12.01), (12, 18.01), (12, 18.01)):
        m = receive_one(q, "t")
        m.nack()
        assert low <= seconds_until_retry(q, clock, m) <= high
        clock.advance("19s")


def test_no_backoff_at_all(make, clock) -> None:
    q = make(backoff=0, backoff_max=0)
    q.publish("t", b"x")
    receive_one(q, "t").nack()
    clock.advance("10ms")
    assert receive_one(q, "t").attempt == 2


@pytest.mark.parametrize("delay", ["50ms", "3s", "2h"])
def test_a_delay_given_is_kept(q, clock, delay: str) -> None:
    q.publish("t", b"x")
    m = receive_one(q, "t")
    m.nack(delay=delay)
    assert q.stats("t").waiting == 1
    clock.advance(delay)
    assert receive_one(q, "t").attempt == 2


def test_no_delay_is_at_once(q, clock) -> None:
    q.publish("t", b"x")
    receive_one(q, "t").nack(delay=0)
    clock.advance("10ms")
    assert receive_one(q, "t").attempt == 2


@pytest.mark.parametrize("delay", [-1, "later", "2920000d"])
def test_a_bad_delay_changes_nothing(q, delay) -> None:
    q.publish("t", b"x")
    m = receive_one(q, "t")
    with refused(mqueue.BadTime):
        m.nack(delay=delay)
    with refused(mqueue.BadTime):
        q.nack([m], delay=delay)
    m.ack()


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_deliveries_in_all(make, clock, retries: int) -> None:
    q = make(max_retries=retries)
    q.publish("t", b"x")
    for attempt in range(1, retries + 2):
        m = receive_one(q, "t")
        assert m.attempt == attempt
        m.nack()
        clock.advance("2m")
    assert q.receive("t") == []
    assert q.stats("t").dead == 1
    assert q.explain(m).code == "dead"


def test_failures_and_timeouts_count_together(q, clock) -> None:
    q.publish("t", b"x")
    receive_one(q, "t").nack(delay="1s")
    clock.advance("1s")
    q.receive("t")
    clock.advance("30s")
    receive_one(q, "t").nack(delay="1s")
    clock.advance("1s")
    receive_one(q, "t").nack()
    assert q.stats("t").dead == 1


def test_unlimited_retries(make, clock) -> None:
    q = make(max_retries=None, backoff="1ms", backoff_max="1ms")
    q.publish("t", b"x")
    for attempt in range(1, 101):
        m = receive_one(q, "t")
        assert m.attempt == attempt
        m.nack()
        clock.advance("20ms")


def test_a_changed_max_retries_holds_for_what_is_there(q, clock) -> None:
    q.publish("t", b"x")
    receive_one(q, "t").nack(delay=1)
    q.configure("t", max_retries=1)
    clock.advance(1)
    receive_one(q, "t").nack()
    assert q.stats("t").dead == 1


def test_a_batch_that_fails_in_part(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(6)])
    held = q.receive("t", limit=6)
    q.nack(held[::2], delay="5s")
    q.ack(held[1::2])
    assert q.stats("t").waiting == 3
    clock.advance("5s")
    assert payloads(q.receive("t", limit=9)) == [b"0", b"2", b"4"]


def test_attempts_are_per_message(q, clock) -> None:
    q.publish_many("t", [b"0", b"1", b"2"])
    for _ in range(2):
        first = receive_one(q, "t")
        first.nack(delay=1)
        clock.advance(1)
    assert [m.attempt for m in q.receive("t", limit=3)] == [3, 1, 1]


def test_attempts_are_per_group(q, clock) -> None:
    q.publish("t", b"x")
    receive_one(q, "t", group="g").nack(delay=1)
    clock.advance(1)
    assert receive_one(q, "t", group="g").attempt == 2
    assert receive_one(q, "t", group="h").attempt == 1


def test_reject_is_dead_at_once(q) -> None:
    q.publish("t", b"x")
    receive_one(q, "t").reject("never again")
    assert q.receive("t") == []
    [dead] = q.dlq("t").messages()
    assert (dead.reason, dead.error, dead.attempts) == ("rejected", "never again", 1)


def test_reject_even_with_unlimited_retries(make) -> None:
    q = make(max_retries=None)
    q.publish("t", b"x")
    receive_one(q, "t").reject()
    assert q.stats("t").dead == 1


def test_release_is_ready_at_once_and_not_counted(q) -> None:
    q.publish("t", b"x")
    for _ in range(10):
        m = receive_one(q, "t")
        assert m.attempt == 1
        m.release()
    assert q.stats("t").ready == 1
    assert take(q, "t") == [b"x"]


def test_release_after_a_failure_keeps_the_count(q, clock) -> None:
    q.publish("t", b"x")
    receive_one(q, "t").nack(delay=1)
    clock.advance(1)
    receive_one(q, "t").release()
    assert receive_one(q, "t").attempt == 2


def test_groups_fail_on_their_own(q, clock) -> None:
    q.publish("t", b"x")
    receive_one(q, "t", group="g").reject()
    assert take(q, "t", group="h") == [b"x"]
    stats = q.stats("t").groups
    assert (stats["g"].dead, stats["h"].acked, stats["h"].dead) == (1, 1, 0)


def test_a_nack_without_a_delay_is_ready_at_once(q, clock) -> None:
    clock.advance("3ms")  # between two ticks
    q.publish("t", b"x")
    q.receive("t")[0].nack(delay=0)
    [message] = q.receive("t")
    assert message.attempt == 2
