"""Order: (priority, due, offset), fixed when appended; nothing is skipped."""

from __future__ import annotations

import random

import pytest

from mqueue import Draft
from tests.conformance.steps import payloads, receive_one, take


def test_first_in_first_out(q, clock) -> None:
    for n in range(30):
        q.publish("t", b"%d" % n)
        clock.advance(n % 2)
    assert take(q, "t") == [b"%d" % n for n in range(30)]


def test_lower_goes_first(q) -> None:
    for priority in (3, -5, 2**31 - 1, 0, -(2**31), 3):
        q.publish("t", str(priority), priority=priority)
    assert take(q, "t") == [b"-2147483648", b"-5", b"0", b"3", b"3", b"2147483647"]


def test_the_named_lanes(q) -> None:
    for lane in ("background", "low", "normal", "high", "critical"):
        q.publish("t", lane, priority=lane)
    q.publish("t", b"none")
    messages = q.receive("t", limit=10)
    assert [m.priority for m in messages] == [0, 25, 50, 50, 75, 100]
    assert payloads(messages) == [b"critical", b"high", b"normal", b"none", b"low", b"background"]


def test_low_low_critical_in_one_call(q) -> None:
    q.publish_many("t", [Draft(b"1", priority="low"), Draft(b"2", priority="low"), Draft(b"3", priority="critical")])
    assert [take(q, "t", limit=1) for _ in range(4)] == [[b"3"], [b"1"], [b"2"], []]


def test_a_critical_message_overtakes_what_is_ready(q) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    assert take(q, "t", limit=1) == [b"1"]
    q.publish("t", b"!", priority="critical")
    assert take(q, "t") == [b"!", b"2", b"3"]


def test_a_delivery_time_in_the_past_jumps_no_queue(q, clock) -> None:
    q.publish("t", b"1")
    clock.advance("1s")
    q.publish("t", b"2", deliver_at="2001-01-01")
    q.publish_many("t", [b"3", Draft(b"4", deliver_at="2001-01-01")])
    assert take(q, "t") == [b"1", b"2", b"3", b"4"]


def test_a_due_message_takes_its_place_by_time(q, clock) -> None:
    q.publish("t", b"delayed", delay="5s")
    for n in range(10):
        q.publish("t", b"%d" % n)
        clock.advance("1s")
    assert take(q, "t") == [b"0", b"1", b"2", b"3", b"4", b"delayed", b"5", b"6", b"7", b"8", b"9"]


def test_priority_goes_before_time(q, clock) -> None:
    q.publish("t", b"old", priority=1)
    q.publish("t", b"urgent", priority=0, delay="1s")
    assert payloads(q.peek("t")) == [b"old"]
    clock.advance("1s")
    assert take(q, "t") == [b"urgent", b"old"]


def test_due_at_the_same_time_in_the_order_of_offsets(q, clock) -> None:
    q.publish("t", b"1", delay="2s")
    clock.advance("1s")
    q.publish_many("t", [Draft(b"2", delay="1s"), Draft(b"3", delay="1s")])
    clock.advance("1s")
    q.publish("t", b"4")
    assert take(q, "t") == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("back", ["nack", "release", "expire"])
def test_what_comes_back_keeps_its_place(q, clock, back: str) -> None:
    for n in range(4):
        q.publish("t", b"%d" % n)
        clock.advance("1ms")
    first, second = q.receive("t", limit=2, visibility="5s")
    second.ack()
    if back == "nack":
        first.nack(delay="5s")
    elif back == "release":
        first.release()
    clock.advance("5.01s")
    q.publish("t", b"4")
    assert take(q, "t") == [b"0", b"2", b"3", b"4"]


def test_what_comes_back_keeps_its_priority(q, clock) -> None:
    q.publish_many("t", [Draft(b"low", priority="low"), b"normal"])
    receive_one(q, "t").nack(delay="1s")
    low = receive_one(q, "t")
    low.release()
    clock.advance("1s")
    assert take(q, "t") == [b"normal", b"low"]


def test_a_hidden_retry_does_not_hold_up_the_rest(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    receive_one(q, "t").nack(delay="1h")
    assert take(q, "t") == [b"2"]
    clock.advance("1h")
    assert take(q, "t") == [b"1"]


def test_pieces_of_a_batch_come_back_in_between(q) -> None:
    q.publish_many("t", [b"%d" % n for n in range(10)])
    held = q.receive("t", limit=8)
    q.release([held[6], held[1], held[4]])
    assert take(q, "t", limit=2) == [b"1", b"4"]
    assert take(q, "t") == [b"6", b"8", b"9"]


def test_over_several_partitions_the_order_holds(q, clock) -> None:
    q.configure("t", partitions=4)
    chance = random.Random(7)
    sent = []
    for n in range(200):
        priority = chance.randrange(4)
        q.publish("t", b"%d" % n, key=str(chance.random()), priority=priority)
        sent.append((priority, clock.now(), b"%d" % n))
        clock.advance("1ms")
    got = []
    while batch := take(q, "t", limit=chance.randrange(1, 9)):
        got += batch
    assert got == [payload for _, _, payload in sorted(sent, key=lambda entry: entry[:2])]


def test_strict_whatever_is_published_in_between(q, clock) -> None:
    q.configure("t", partitions=3)
    chance = random.Random(11)
    ready: list[tuple[int, int, int]] = []
    for n in range(400):
        if chance.random() < 0.6:
            priority = chance.randrange(-2, 3)
            r = q.publish("t", str(n), priority=priority, key=str(n))
            ready.append((priority, clock.now(), r.id))
        elif ready:
            m = receive_one(q, "t")
            ready.sort()
            best = ready[0][:2]
            assert (m.priority, m.published_at.timestamp() * 1000) == best
            ready.remove((*best, m.id))
            m.ack()
        clock.advance("1ms")


def test_nothing_is_skipped(q, clock) -> None:
    q.configure("t", partitions=3)
    chance = random.Random(13)
    sent = 0
    got: list[bytes] = []
    for _ in range(60):
        drafts = [
            Draft(b"%d" % (sent + n), priority=chance.randrange(3), delay=chance.choice([None, 1, 70]), key=str(n % 5))
            for n in range(chance.randrange(1, 40))
        ]
        q.publish_many("t", drafts)
        sent += len(drafts)
        got += take(q, "t", limit=chance.randrange(1, 60))
        clock.advance(chance.choice(["0.5s", "1s", "1m"]))
    clock.advance("2m")
    got += take(q, "t", limit=10_000)
    assert sorted(got, key=int) == [b"%d" % n for n in range(sent)]


def test_a_long_queue_in_small_bites(q) -> None:
    for start in range(0, 20_000, 10_000):
        q.publish_many("t", [b"%d" % n for n in range(start, start + 10_000)])
    got: list[bytes] = []
    while batch := take(q, "t", limit=777):
        got += batch
    assert got == [b"%d" % n for n in range(20_000)]


def test_peek_shows_the_order_of_delivery(q, clock) -> None:
    q.configure("t", partitions=2)
    chance = random.Random(17)
    for n in range(60):
        q.publish("t", b"%d" % n, priority=chance.randrange(3), key=str(n))
        clock.advance("1ms")
    q.release(q.receive("t", limit=20)[::2])
    shown = payloads(q.peek("t", limit=100))
    assert take(q, "t") == shown
    assert len(shown) == 50
