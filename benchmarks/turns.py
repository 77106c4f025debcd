"""Where messages take turns: what ordering keys cost, and what a key that floods does to quiet ones.

Ordered and plain topics take turns round by round, with the same messages, workers and failures. The flood is played
with a clock that is set by hand: one message a millisecond is served, so waits are those of a steady thousand a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from time import perf_counter, process_time

from benchmarks.harness import Profile, Result, Sample, race
from benchmarks.memory_broker import BATCH, PAYLOADS, TOPIC
from mqueue import Broker, Draft, Message
from mqueue.testing import ManualClock

KEYS = 10_000
WORKERS = 16
FAILURES = 0.02
QUIET_KEYS = 99
QUIET_MESSAGES = 10


class Working:
    """16 workers, each with one message at a time: acked, or now and then released. Keys are in order or not."""

    def __init__(self, profile: Profile, ordered: bool) -> None:
        self._count = max(1, profile.singles // BATCH) * BATCH
        self._ordered = ordered
        self._broker = Broker()
        self._broker.configure(TOPIC, ordered=ordered)
        self._chance = Random(20_260_101)

    def round(self) -> dict[str, Sample]:
        keys = [f"key-{self._chance.randrange(KEYS)}" for _ in range(self._count)]
        drafts = [Draft(PAYLOADS[0], key=key) for key in keys]
        for start in range(0, self._count, BATCH):
            self._broker.publish_many(TOPIC, drafts[start : start + BATCH])
        started, used = perf_counter(), process_time()
        done = self._work()
        seconds, used = perf_counter() - started, process_time() - used
        assert len(done) == self._count, "a key is stuck"
        if self._ordered:
            last: dict[bytes, int] = {}
            for key, offset in done:
                assert last.get(key, -1) < offset, f"{key!r} is out of order"
                last[key] = offset
        return {"receive+settle": (self._count, seconds), "processor": (self._count, used)}

    def _work(self) -> list[tuple[bytes, int]]:
        done: list[tuple[bytes, int]] = []
        held: deque[Message] = deque()
        receive, chance = self._broker.receive, self._chance.random
        while True:
            got = receive(TOPIC)
            held += got
            if len(held) < WORKERS and got:
                continue
            if not held:
                return done
            message = held.popleft()
            if chance() < FAILURES:
                message.release()
            else:
                message.ack()
                done.append((message.key or b"", message.offset))


def ordered(profile: Profile) -> Iterator[Result]:
    """10,000 keys, 16 workers, one message at a time, some of them given back."""
    run = race({"ordered": Working(profile, True), "plain": Working(profile, False)}, profile.rounds)
    for label in ("plain", "ordered"):
        yield run.rates[label, "receive+settle"].result(f"{label}: receive(1)+settle")
    yield run.slowdown("plain / ordered", "ordered", "plain", "receive+settle", 2.0)
    plain, kept = (max(run.rates[label, "processor"].raw) for label in ("plain", "ordered"))
    note = f"{1e6 / kept:.1f} against {1e6 / plain:.1f} µs of a message, best rounds"
    yield Result("the same in processor time", plain / kept, "×", "<=", 2.0, note=note)


def waits(flood: int, seed: int = 1) -> list[int]:
    """How many ms each message of 99 quiet keys waits, if another one floods the topic before with so many."""
    chance = Random(seed)
    clock = ManualClock()
    broker = Broker(clock=clock)
    broker.configure(TOPIC, fairness=True)
    for start in range(0, flood, BATCH):
        broker.publish_many(TOPIC, [Draft(b"", fairness_key="flood")] * min(BATCH, flood - start))
    bursts = sorted((chance.randrange(1_000), f"quiet-{number}") for number in range(QUIET_KEYS))
    found: list[int] = []
    begun, sent = clock.now(), 0
    while len(found) < QUIET_KEYS * QUIET_MESSAGES:
        while sent < len(bursts) and bursts[sent][0] <= clock.now() - begun:
            broker.publish_many(TOPIC, [Draft(b"", fairness_key=bursts[sent][1])] * QUIET_MESSAGES)
            sent += 1
        for message in broker.receive(TOPIC):
            if message.fairness_key != "flood":
                found.append(clock.now() - int(message.published_at.timestamp() * 1000))
            message.ack()
        clock.advance("1ms")
    return sorted(found)


def flood(profile: Profile) -> Iterator[Result]:
    """One key floods, 99 send ten messages each, a thousand a second are served."""
    count = min(100_000, profile.bulk)
    calm, busy = waits(0), waits(count)
    p99 = len(calm) * 99 // 100
    yield Result("quiet keys alone: p99 wait", max(1, calm[p99]), "ms")
    yield Result(f"behind {count:,} of one key: p99 wait", max(1, busy[p99]), "ms")
    yield Result("behind / alone", max(1, busy[p99]) / max(1, calm[p99]), "×", "<=", 2.0)
