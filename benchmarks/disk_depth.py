"""Whether the cost of a call on disk depends on how much is queued: the same batches on queues of different depths.

All queues are there at once and take turns; each keeps its depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from statistics import median
from time import perf_counter

from benchmarks.disk import STORAGE, scratch
from benchmarks.harness import Profile, Result, short
from benchmarks.memory_broker import BATCH, DEEP_MOST, TABLES, TOPIC
from mqueue import Broker

STEPS = (10_000, 100_000, 1_000_000, 10_000_000)
TURNS = 8
_SYNC_EVERY = 64


def fill_fast(broker: Broker, count: int) -> None:
    """Publish batches of 1000, made durable now and then."""
    tables = islice(cycle(TABLES[False]), count // BATCH)
    for number, table in enumerate(tables, 1):
        broker.publish_arrow(TOPIC, table, durability=None if number % _SYNC_EVERY == 0 else "memory")


def depths(profile: Profile) -> Iterator[Result]:
    """publish_arrow of 1000, and receive + ack of 1000, at each depth; how much slower than at the first."""
    steps = sorted({profile.shallow, profile.depth, *(s for s in STEPS if profile.shallow < s < profile.depth)})
    with ExitStack() as stack:
        brokers = {depth: _filled(stack, depth) for depth in steps}
        rounds = [{depth: _round(broker) for depth, broker in brokers.items()} for _ in range(profile.rounds + 1)]
    for number, label in enumerate(("publish_arrow", "receive+ack 1000")):
        for depth in steps:
            yield _rate(f"{label}, {short(depth)} deep", [found[depth][number] for found in rounds[1:]])
        for depth in steps[1:]:
            ratios = [found[depth][number] / found[steps[0]][number] for found in rounds[1:]]
            name = f"{label}, {short(depth)} / {short(steps[0])}"
            yield Result(name, median(ratios), "×", "<=", DEEP_MOST, samples=ratios)


def _filled(stack: ExitStack, depth: int) -> Broker:
    directory = stack.enter_context(scratch())
    broker = stack.enter_context(Broker(directory / "data", storage=STORAGE))
    broker.create_group(TOPIC, "default")
    fill_fast(broker, depth)
    return broker


def _round(broker: Broker) -> tuple[float, float]:
    """Seconds per batch: put in behind, taken out in front."""
    started = perf_counter()
    for table in TABLES[False][:TURNS]:
        broker.publish_arrow(TOPIC, table)
    published = perf_counter()
    for _ in range(TURNS):
        broker.ack(broker.receive(TOPIC, BATCH))
    return (published - started) / TURNS, (perf_counter() - published) / TURNS


def _rate(label: str, seconds: list[float]) -> Result:
    rates = [BATCH / taken for taken in seconds]
    return Result(label, max(rates), "msg/s", note=f"median {short(median(rates))}/s", samples=rates)
