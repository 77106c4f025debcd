"""Things that happen to one message while something else happens to it, and everything at once."""

from __future__ import annotations

import random

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import assert_conserved, payloads, receive_one, refused, take


def test_a_neighbour_expires_while_released(q, clock) -> None:
    q.publish_many("t", [b"a", Draft(b"b", ttl="10s"), b"c"])
    q.release(q.receive("t", limit=3))
    clock.advance("10s")
    receive_one(q, "t").release()
    assert take(q, "t") == [b"a", b"c"]


def test_a_neighbour_expires_while_all_wait(q, clock) -> None:
    q.publish_many("t", [b"a", Draft(b"b", ttl="10s"), b"c"])
    q.nack(q.receive("t", limit=3), delay="20s")
    clock.advance("10s")
    assert q.stats("t").waiting == 2
    clock.advance("10s")
    assert take(q, "t") == [b"a", b"c"]


def test_the_first_of_a_waiting_batch_expires(q, clock) -> None:
    q.publish_many("t", [Draft(b"a", ttl="10s"), b"b", b"c"])
    q.nack(q.receive("t", limit=3), delay="20s")
    clock.advance("20s")
    assert payloads(q.receive("t", limit=9)) == [b"b", b"c"]


def test_extend_then_nack_then_expiry(q, clock) -> None:
    q.create_group("t", "default")
    q.publish_many("t", [Draft(b"%d" % n, ttl="1m") for n in range(4)])
    held = q.receive("t", limit=4, visibility="10s")
    held[1].extend("10m")
    held[2].nack(delay="30s")
    clock.advance("10s")
    assert payloads(q.receive("t", limit=9, visibility="5s")) == [b"0", b"3"]
    clock.advance("50s")
    assert q.receive("t", limit=9) == []
    held[1].ack()
    stats = q.stats("t").groups["default"]
    assert (stats.acked, stats.expired) == (1, 3)
    assert_conserved(q, "t")


def test_seek_while_extended_and_waiting(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(4)])
    held = q.receive("t", limit=3)
    held[0].extend("1h")
    held[1].nack(delay="1m")
    q.seek("t", to=1)
    assert take(q, "t") == [b"1", b"2", b"3"]
    clock.advance("2h")
    assert q.receive("t") == []
    with refused(mqueue.LeaseLost):
        held[0].ack()


def test_purge_between_nack_and_retry(q, clock) -> None:
    q.create_group("t", "default")
    q.publish("t", b"old")
    receive_one(q, "t").nack(delay="10s")
    q.purge("t")
    q.publish("t", b"new")
    clock.advance("10s")
    assert take(q, "t") == [b"new"]
    assert_conserved(q, "t")


def test_purge_then_the_lease_runs_out_on_its_last_attempt(q, clock) -> None:
    q.create_group("t", "default")
    q.configure("t", max_retries=0)
    q.publish("t", b"x")
    q.receive("t")
    q.purge("t")
    clock.advance("30s")
    assert "t.dlq" not in q.topics()
    assert_conserved(q, "t")


def test_cancel_at_the_very_moment(q, clock) -> None:
    r = q.publish("t", b"x", delay="10s")
    clock.advance("9.999s")
    q.cancel(r)
    clock.advance("1ms")
    assert q.receive("t") == []


def test_expiry_and_due_time_a_moment_apart(q, clock) -> None:
    q.publish("t", b"x", delay="10s", ttl="1ms")
    clock.advance("10s")
    assert len(q.peek("t")) == 1
    clock.advance("1ms")
    assert q.peek("t") == []


def test_a_clock_that_leaps(q, clock) -> None:
    q.create_group("t", "default")
    q.publish_many("t", [b"0", Draft(b"1", delay="1h"), Draft(b"2", delay="1h", ttl="1h"), Draft(b"3", ttl="30m")])
    q.receive("t", visibility="12h")
    clock.advance("6d")
    assert sorted(take(q, "t")) == [b"0", b"1"]
    assert_conserved(q, "t")


def test_redrive_while_the_rest_of_its_batch_is_leased(q) -> None:
    q.publish_many("t", [b"%d" % n for n in range(4)])
    held = q.receive("t", limit=4)
    held[1].reject()
    q.dlq("t").redrive()
    again = receive_one(q, "t")
    assert (again.payload, again.attempt) == (b"1", 1)
    q.ack([held[0], held[2], held[3], again])
    assert q.stats("t").acked == 4


def test_growth_during_everything(q, clock) -> None:
    q.create_group("t", "default")
    q.configure("t", max_retries=None)
    for partitions in (1, 2, 5, 9):
        q.configure("t", partitions=partitions)
        q.publish_many("t", [Draft(b"x", key=str(n), delay=n % 2, ttl="1h") for n in range(20)])
        held = q.receive("t", limit=5, visibility="5s")
        q.nack(held[:2], delay="1s")
        clock.advance("1s")
        assert_conserved(q, "t")
    clock.advance("1m")
    assert len(take(q, "t", limit=100)) == 80
    assert_conserved(q, "t")


class Mill:
    """Does random things to a topic and two groups, and knows what it has a right to expect."""

    def __init__(self, q, clock, seed: int) -> None:
        self.q, self.clock, self.chance = q, clock, random.Random(seed)
        self.groups = ("g", "h")
        self.held: dict[str, list] = {group: [] for group in self.groups}
        self.done: dict[str, set[int]] = {group: set() for group in self.groups}
        self.ended: set[int] = set()
        self.ended_before = dict.fromkeys(self.groups, 0)

    def publish(self) -> None:
        drafts = [
            Draft(
                b"x",
                key=self.chance.choice([None, "a", "b", "c"]),
                priority=self.chance.randrange(3),
                delay=self.chance.choice([None, None, "5s", "70s"]),
                ttl=self.chance.choice([None, None, "20s", "2h"]),
            )
            for _ in range(self.chance.randrange(1, 12))
        ]
        self.q.publish_many("t", drafts)

    def receive(self) -> None:
        group = self.chance.choice(self.groups)
        for m in self.q.receive("t", limit=self.chance.randrange(1, 9), group=group, visibility="30s"):
            assert m.id not in self.done[group], "delivered after it was settled for good"
            assert m.id not in self.ended, "delivered after it was cancelled"
            assert m.expires_at is None or m.expires_at.timestamp() * 1000 > self.clock.now(), "delivered expired"
            assert m.deliver_at.timestamp() * 1000 <= self.clock.now(), "delivered early"
            self.held[group].append(m)

    def settle(self) -> None:
        group = self.chance.choice(self.groups)
        self.chance.shuffle(self.held[group])
        chosen, self.held[group] = self.held[group][:4], self.held[group][4:]
        if not chosen:
            return
        verb = self.chance.choice(["ack", "ack", "nack", "release", "reject", "extend"])
        try:
            lost = set(getattr(self.q, verb)(chosen, *(["40s"] if verb == "extend" else [])).lost)
        except mqueue.LeaseLost as error:
            lost = set(error.lost)
        kept = [m for m in chosen if m.id not in lost]
        if verb == "ack":
            self.done[group].update(m.id for m in kept)
        elif verb == "extend":
            self.held[group] += kept

    def meddle(self) -> None:
        what = self.chance.choice(["cancel", "reschedule", "purge", "seek", "redrive", "grow"])
        if what in ("cancel", "reschedule"):
            for m in self.q.scheduled("t")[:2]:
                if what == "cancel":
                    self.q.cancel(m)
                    self.ended.add(m.id)
                elif m.expires_at is None:
                    self.q.reschedule(m, delay=self.chance.choice(["5s", "70s"]))
        elif what == "purge" and self.chance.random() < 0.2:
            self.q.purge("t")
            self.ended.update(m.id for m in self.q.scan("t"))
        elif what == "seek" and self.chance.random() < 0.3:
            group = self.chance.choice(self.groups)
            self.q.seek("t", group=group, to="earliest")
            self.done[group].clear()
            self.held[group].clear()
            codes = [self.q.explain(m, group=group).code for m in self.q.scan("t")]
            self.ended_before[group] = codes.count("expired") + codes.count("cancelled")
        elif what == "redrive":
            for m in self.q.dlq("t").messages(filter="group = g", limit=10_000):
                self.done["g"].discard(int(m.headers["x-origin-id"]))  # a seek may have brought it back before
            self.q.dlq("t").redrive(filter="group = g")
        elif what == "grow":
            self.q.configure("t", partitions=min(4, self.q.settings("t")["partitions"] + 1))

    def check(self) -> None:
        for group in self.groups:
            assert_conserved(self.q, "t", group, self.ended_before[group])
        stats = self.q.stats("t")
        assert len(self.q.scheduled("t", limit=10_000)) == stats.scheduled
        for group in self.groups:
            assert len(self.q.peek("t", limit=10_000, group=group)) == stats.groups[group].ready


@pytest.mark.parametrize("seed", range(10))
def test_everything_at_once(q, clock, seed: int, backend) -> None:
    for group in ("g", "h"):
        q.create_group("t", group)
    mill = Mill(q, clock, seed)
    acts = [mill.publish, mill.receive, mill.receive, mill.settle, mill.settle, mill.meddle]
    for _ in range(250 if backend.embedded else 50):  # from afar each step is a request
        mill.chance.choice(acts)()
        clock.advance(mill.chance.choice(["0s", "1ms", "1s", "7s", "31s"]))
        mill.check()
