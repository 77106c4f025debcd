"""Worst cases of keeping deliveries as runs: each is measured, and it is shown that its cost does not grow.

A bound of 1.5 × stands where the cost of a message must not depend on how many came before it or lie beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.calibration import speed
from benchmarks.footprint import Weight
from benchmarks.harness import Profile, Rates, Result, race
from benchmarks.memory_broker import BATCH, DEEP_MOST, PAYLOADS, TOPIC, Fanout, deep_broker, fill
from mqueue import Broker, Message

PAYLOAD = PAYLOADS[0]
PIECES = 8
BUDGET_SECONDS = 20.0
"""A case that turns out to be hopeless is given up after so long; what it did until then is reported."""


def timed(label: str, work: Sequence[Any], do: Callable[[Any], object]) -> Iterator[Result]:
    """Do something with each of many things: how many per second, and how much slower the end is than the start.

    Start and end cannot take turns; so each is held against how fast the machine was just then.
    """
    size = max(1, len(work) // PIECES)
    rates = Rates()
    began = perf_counter()
    for start in range(0, size * PIECES, size):
        piece = work[start : start + size]
        before = speed()
        started = perf_counter()
        for thing in piece:
            do(thing)
        ended = perf_counter()
        rates.add(len(piece), ended - started, (before + speed()) / 2)
        if ended - began > BUDGET_SECONDS:
            break
    yield rates.result(label, note=f"{len(rates.raw) * size:,} of {len(work):,}")
    growth = median(rates.calm[:3]) / median(rates.calm[-3:])
    yield Result(f"{label}: end / start", growth, "×", "<=", DEEP_MOST)


def alternating(profile: Profile) -> Iterator[Result]:
    """Single messages that alternate between two priorities: no two neighbours are in one lane."""
    broker = deep_broker(0, False)
    count = profile.bulk // 5
    urgencies = list(islice(cycle((10, 90)), count))
    yield from timed("alternating: publish", urgencies, lambda urgent: broker.publish(TOPIC, PAYLOAD, priority=urgent))
    weight = Weight(broker).bookkeeping / broker.stats(TOPIC).published
    yield Result("alternating: bookkeeping", weight, "B/msg", "<=", 64)
    yield from timed("alternating: receive+ack", range(count), lambda _: _take(broker, TOPIC))


def random_acks(profile: Profile) -> Iterator[Result]:
    """A million messages in one run, leased in thousands, acked one by one in random order."""
    broker = deep_broker(0, False)
    broker.configure(TOPIC, in_flight_max=profile.bulk, visibility="1h")
    messages: list[Message] = []
    for _ in range(profile.bulk // BATCH):
        broker.publish_many(TOPIC, list(PAYLOADS))
    while batch := broker.receive(TOPIC, BATCH):
        messages += batch
    before = Weight(broker).bookkeeping
    Random(3).shuffle(messages)
    yield from timed("random acks", messages, Message.ack)
    note = "bookkeeping with everything leased"
    yield Result("random acks: bookkeeping", before / len(messages), "B/msg", "<=", 4, note=note)


def given_back(profile: Profile) -> Iterator[Result]:
    """Everything leased, every second message given back on its own: as many runs as there can be."""
    broker = deep_broker(0, False)
    broker.configure(TOPIC, visibility="1h")
    count = min(100_000, profile.bulk)
    messages: list[Message] = []
    for _ in range(count // BATCH):
        broker.publish_many(TOPIC, list(PAYLOADS))
        messages += broker.receive(TOPIC, BATCH)
    before = Weight(broker).bookkeeping
    half = messages[::2]
    yield from timed("given back singly", half, Message.release)
    added = (Weight(broker).bookkeeping - before) / len(half)
    yield Result("given back singly: bookkeeping", added, "B/msg", "<=", 512)
    yield from timed("given back: lease again", range(len(half)), lambda _: broker.receive(TOPIC))


def many_groups(profile: Profile) -> Iterator[Result]:
    """A hundred groups on one topic against ten: a delivery costs the same."""
    few = Fanout(profile, mixed=False, groups=10)
    many = Fanout(replace(profile, batches=2), mixed=False, groups=100)
    found = race({"10": few, "100": many}, profile.rounds)
    yield found.rates["100", "fan-out"].result("fan-out to 100 groups")
    yield found.slowdown("100 groups / 10", "100", "10", "fan-out", DEEP_MOST)


def new_group(profile: Profile) -> Iterator[Result]:
    """How long a group that nobody heard of waits for its first message on a deep queue."""
    yield from _new_groups("uniform", False, profile)
    yield from _new_groups("10 priorities", True, profile)


def _new_groups(label: str, mixed: bool, profile: Profile) -> Iterator[Result]:
    broker = deep_broker(profile.depth, mixed)
    names = [f"group-{number}" for number in range(profile.rounds)]
    yield _milliseconds(f"new group, {label}", names, lambda name: _clocked(lambda: broker.receive(TOPIC, group=name)))
    late = [f"late-{number}" for number in range(profile.rounds)]
    yield _milliseconds(
        f"new group at the end, {label}",
        late,
        lambda name: _clocked(lambda: broker.create_group(TOPIC, name, start="latest")),
    )


def _milliseconds(label: str, things: Iterable[Any], taken: Callable[[Any], float]) -> Result:
    """Something that takes so many milliseconds, again and again."""
    raw, calm = [], []
    for thing in things:
        fast = speed()
        raw.append(taken(thing))
        calm.append(raw[-1] * fast)
    return Result(label, median(raw), "ms", "<", 10, median(calm), f"slowest {max(raw):.3g} ms", raw)


def _clocked(do: Callable[[], object]) -> float:
    started = perf_counter()
    do()
    return (perf_counter() - started) * 1000


def pauses(profile: Profile) -> Iterator[Result]:
    """The longest single call while a queue is at work: what is done now and then must not stop everybody."""
    yield _pause("shallow", profile.shallow, profile)
    yield _pause("deep", profile.depth, profile)


def _pause(label: str, depth: int, profile: Profile) -> Result:
    broker = deep_broker(depth, mixed=True)
    windows = range(min(5, profile.rounds))
    return _milliseconds(f"longest pause, {label}", windows, lambda _: _longest(broker, profile.pause))


def _longest(broker: Broker, seconds: float) -> float:
    """The longest of many calls, in milliseconds."""
    longest = 0.0
    now = began = perf_counter()
    while now - began < seconds:
        broker.publish(TOPIC, PAYLOAD)
        then, now = now, perf_counter()
        longest = max(longest, now - then)
        _take(broker, TOPIC)
        then, now = now, perf_counter()
        longest = max(longest, now - then)
    return longest * 1000


def drop_oldest(profile: Profile) -> Iterator[Result]:
    """Publishing to a full queue that drops its oldest message for each new one, read by a group or by none."""
    for label, groups in (("one group", ["default"]), ("no group", [])):
        shallow, *more = _dropping(f"drop_oldest, {label}, shallow", profile, profile.shallow, groups)
        yield from (shallow, *more)
        deep, *more = _dropping(f"drop_oldest, {label}, deep", profile, profile.bulk, groups)
        yield from (deep, *more)
        ratio = shallow.value / deep.value
        yield Result(
            f"drop_oldest, {label}, deep / shallow", ratio, "×", "<=", DEEP_MOST, note=f"{profile.bulk:,} deep"
        )


def _dropping(label: str, profile: Profile, depth: int, groups: list[str]) -> Iterator[Result]:
    # Without a limit in bytes, because retention would empty a queue that no group reads.
    broker = Broker(max_depth=depth, overflow="drop_oldest", retention={"hours": 168})
    for group in groups:
        broker.create_group(TOPIC, group)
    fill(broker, depth, mixed=False)
    yield from timed(label, range(min(profile.singles * 2, depth)), lambda _: broker.publish(TOPIC, PAYLOAD))


def many_topics(profile: Profile) -> Iterator[Result]:
    """Ten thousand topics, each with a few messages: made, published to and read in turn."""
    broker = Broker()
    names = [f"topic-{number}" for number in range(profile.topics)]
    yield from timed("topics made by a publish", names, lambda name: broker.publish(name, PAYLOAD))
    yield from timed("publish to topics in turn", names, lambda name: broker.publish(name, PAYLOAD))
    yield from timed("receive from topics in turn", names, lambda name: _take(broker, name))


def _take(broker: Broker, topic: str) -> None:
    for message in broker.receive(topic):
        message.ack()
