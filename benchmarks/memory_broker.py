"""The broker in memory, through its public calls: rates, the same with ten priorities, and the same on a deep queue.

Every case keeps the shape of its queue from round to round: it takes out as many messages as it puts in, of the kind
that it put in. Payloads have 100 bytes; batches have 1000 messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from random import Random
from time import perf_counter

import pyarrow as pa

from benchmarks.harness import Case, Profile, Result, Sample, race
from mqueue import Broker, Draft

TOPIC = "bench"
BATCH = 1000
GROUPS = 10
PRIORITIES = range(10, 20)

_chance = Random(20_260_101)
PAYLOADS = [_chance.randbytes(100) for _ in range(BATCH)]
DRAFTS = [Draft(payload, priority=PRIORITIES[row % 10]) for row, payload in enumerate(PAYLOADS)]


def _table(mixed: bool) -> pa.RecordBatch:
    columns = {"payload": pa.array([_chance.randbytes(100) for _ in range(BATCH)], pa.binary())}
    if mixed:
        columns["priority"] = pa.array([PRIORITIES[row % 10] for row in range(BATCH)], pa.int32())
    return pa.RecordBatch.from_pydict(columns)


TABLES = {mixed: [_table(mixed) for _ in range(64)] for mixed in (False, True)}
"""Uniform and mixed. Many, because a publish copies no table: one alone would never leave the processor's cache."""


def deep_broker(depth: int, mixed: bool, groups: Sequence[str] = ("default",)) -> Broker:
    """A broker with so many messages queued.

    The groups are made first: retention holds only what a group is owed, and would make the deep queue a shallow one.
    """
    broker = Broker()
    for group in groups:
        broker.create_group(TOPIC, group)
    fill(broker, depth, mixed)
    assert broker.stats(TOPIC).depth == depth // BATCH * BATCH
    return broker


def fill(broker: Broker, count: int, mixed: bool) -> None:
    """Publish so many messages, in batches of 1000."""
    for table in islice(cycle(TABLES[mixed]), count // BATCH):
        broker.publish_arrow(TOPIC, table)


class Singles:
    """publish; receive(limit=1) + m.ack() of what was published so."""

    def __init__(self, profile: Profile, mixed: bool) -> None:
        self._broker = Broker()
        self._count = profile.singles
        self._mixed = mixed

    def round(self) -> dict[str, Sample]:
        published = publish_singles(self._broker, self._count, self._mixed)
        received = receive_singles(self._broker, self._count)
        return {"publish": (self._count, published), "receive+ack": (self._count, received)}


class DeepPublish:
    """publish behind a queue of a given depth. As many are taken out in front, not timed."""

    def __init__(self, profile: Profile, mixed: bool, depth: int = 0) -> None:
        self._count = max(1, min(profile.singles, depth) // BATCH) * BATCH
        self._mixed = mixed
        self._broker = deep_broker(depth, mixed)

    def round(self) -> dict[str, Sample]:
        published = publish_singles(self._broker, self._count, self._mixed)
        for _ in range(self._count // BATCH):
            self._broker.receive_arrow(TOPIC, BATCH).ack()
        return {"publish": (self._count, published)}


class DeepReceive:
    """receive(limit=1) + m.ack() from a queue of a given depth. As many are put in behind, not timed.

    They are put in as batches, as the queue was filled: a shallow queue must not change its kind while a deep one
    keeps it. Single messages that alternate in priority are a worst case of their own.
    """

    def __init__(self, profile: Profile, mixed: bool, depth: int = 0) -> None:
        self._count = max(1, min(profile.singles, depth) // BATCH) * BATCH
        self._mixed = mixed
        self._broker = deep_broker(depth, mixed)

    def round(self) -> dict[str, Sample]:
        received = receive_singles(self._broker, self._count)
        fill(self._broker, self._count, self._mixed)
        return {"receive+ack": (self._count, received)}


def publish_singles(broker: Broker, count: int, mixed: bool) -> float:
    """The seconds it took."""
    publish, payload = broker.publish, PAYLOADS[0]
    if mixed:
        urgencies = [PRIORITIES[number % 10] for number in range(count)]
        started = perf_counter()
        for priority in urgencies:
            publish(TOPIC, payload, priority=priority)
        return perf_counter() - started
    started = perf_counter()
    for _ in range(count):
        publish(TOPIC, payload)
    return perf_counter() - started


def receive_singles(broker: Broker, count: int) -> float:
    """The seconds it took."""
    receive = broker.receive
    started = perf_counter()
    for _ in range(count):
        for message in receive(TOPIC):
            message.ack()
    return perf_counter() - started


class Batches:
    """publish_many; receive(limit=1000); ack(msgs): all three together.

    Several batches are published before the first is received. So with mixed priorities a receive gets its messages
    out of several frames, on a shallow queue as on a deep one.
    """

    def __init__(self, profile: Profile, mixed: bool, depth: int = 0) -> None:
        self._broker = deep_broker(0, mixed)
        self._batches = profile.batches
        self._batch = DRAFTS if mixed else PAYLOADS
        for _ in range(depth // BATCH):
            self._broker.publish_many(TOPIC, list(self._batch))

    def round(self) -> dict[str, Sample]:
        broker, batch = self._broker, self._batch
        started = perf_counter()
        for _ in range(self._batches):
            broker.publish_many(TOPIC, list(batch))
        published = perf_counter()
        for _ in range(self._batches):
            broker.ack(broker.receive(TOPIC, BATCH))
        ended = perf_counter()
        count = self._batches * BATCH
        return {
            "batches": (count, ended - started),
            "publish_many": (count, published - started),
            "receive+ack(msgs)": (count, ended - published),
        }


class Arrow:
    """publish_arrow; receive_arrow, its table looked at; lease.ack(): all together."""

    def __init__(self, profile: Profile, mixed: bool, depth: int = 0) -> None:
        self._batches = profile.batches
        self._mixed = mixed
        self._broker = deep_broker(depth, mixed)

    def round(self) -> dict[str, Sample]:
        broker = self._broker
        started = perf_counter()
        fill(broker, self._batches * BATCH, self._mixed)
        published = perf_counter()
        for _ in range(self._batches):
            lease = broker.receive_arrow(TOPIC, BATCH)
            assert lease.table.num_rows == BATCH
            lease.ack()
        ended = perf_counter()
        count = self._batches * BATCH
        return {
            "arrow": (count, ended - started),
            "publish_arrow": (count, published - started),
            "receive_arrow+ack": (count, ended - published),
        }


class Fanout:
    """publish_arrow, and each of many groups receives and acks everything: deliveries, the publish included."""

    def __init__(self, profile: Profile, mixed: bool, depth: int = 0, groups: int = GROUPS) -> None:
        self._batches = max(1, profile.batches // 2)
        self._mixed = mixed
        self._groups = [f"group-{number}" for number in range(groups)]
        self._broker = deep_broker(depth, mixed, self._groups)

    def round(self) -> dict[str, Sample]:
        broker = self._broker
        started = perf_counter()
        fill(broker, self._batches * BATCH, self._mixed)
        for group in self._groups:
            for _ in range(self._batches):
                lease = broker.receive_arrow(TOPIC, BATCH, group=group)
                assert lease.table.num_rows == BATCH
                lease.ack()
        return {"fan-out": (self._batches * BATCH * len(self._groups), perf_counter() - started)}


Kind = Callable[[Profile, bool], Case]
DeepKind = Callable[[Profile, bool, int], Case]

TARGETS = {
    "publish": 500e3,
    "receive+ack": 300e3,
    "batches": 1e6,
    "arrow": 3e6,
    "fan-out": 5e6,
}
"""The rows with a target; the others show where the time goes."""

MIXED_MOST = 3.0
DEEP_MOST = 1.5


def rates(kind: Kind) -> Callable[[Profile], Iterator[Result]]:
    """The rate of a kind of call, and what ten mixed priorities do to it."""

    def run(profile: Profile) -> Iterator[Result]:
        found = race({"uniform": kind(profile, False), "mixed": kind(profile, True)}, profile.rounds)
        for name in found.names:
            target = TARGETS.get(name)
            yield found.rates["uniform", name].result(name, ">=" if target else "", target)
            yield found.rates["mixed", name].result(f"{name}, 10 priorities")
            if target:
                yield found.slowdown(f"{name}, 10 priorities / 1", "mixed", "uniform", name, MIXED_MOST)

    return run


def flat(kind: DeepKind) -> Callable[[Profile], Iterator[Result]]:
    """How much slower a kind of call is on a deep queue."""

    def run(profile: Profile) -> Iterator[Result]:
        for mixed in (False, True):
            found = race(
                {"shallow": kind(profile, mixed, profile.shallow), "deep": kind(profile, mixed, profile.depth)},
                profile.rounds,
            )
            for name in found.names:
                if name in TARGETS:
                    label = f"{name}{', 10 priorities' if mixed else ''}, deep / shallow"
                    yield found.slowdown(label, "deep", "shallow", name, DEEP_MOST)

    return run
