"""`Broker(path)` and `AsyncBroker(path)`: publish, receive and ack, each against a bare write of the same bytes.

A turn is what somebody waits for once: a publish, a batch, one message of each of 64 publishers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from time import perf_counter

from benchmarks.disk import BARE_MOST, STORAGE, Work, against_bare, scratch
from benchmarks.harness import Profile, Result
from benchmarks.memory_broker import BATCH, PAYLOADS, TABLES, TOPIC, fill
from mqueue import AsyncBroker, Broker
from mqueue.broker.loop import LoopBroker

CROWD = 64
THREADS = 4
PAYLOAD = PAYLOADS[0]


@contextmanager
def opened() -> Iterator[tuple[Broker, Path]]:
    """A new broker on disk with a group that is owed everything, and the directory beside it."""
    with scratch() as directory, Broker(directory / "data", storage=STORAGE) as broker:
        broker.create_group(TOPIC, "default")
        yield broker, directory


def again(do: Callable[[], object]) -> Callable[[int], float]:
    """One caller, turn after turn."""

    def turns(count: int) -> float:
        started = perf_counter()
        for _ in range(count):
            do()
        return perf_counter() - started

    return turns


def crowded(pool: ThreadPoolExecutor, threads: int, do: Callable[[], object]) -> Callable[[int], float]:
    """So many threads, each doing it once per turn; nobody waits for the others."""

    def turns(count: int) -> float:
        started = perf_counter()
        for done in [pool.submit(again(do), count) for _ in range(threads)]:
            done.result()
        return perf_counter() - started

    return turns


def tasked(runner: asyncio.Runner, tasks: int, do: Callable[[], Awaitable[object]]) -> Callable[[int], float]:
    """The same as tasks of an event loop."""

    async def one(count: int) -> None:
        for _ in range(count):
            await do()

    async def every(count: int) -> float:
        started = perf_counter()
        await asyncio.gather(*(one(count) for _ in range(tasks)))
        return perf_counter() - started

    return lambda count: runner.run(every(count))


def singles(profile: Profile) -> Iterator[Result]:
    """One publisher alone, who waits for each message to be durable."""
    with opened() as (broker, directory):
        work = Work("publish", 1, again(lambda: broker.publish(TOPIC, PAYLOAD)), ratio_most=BARE_MOST, unit="µs")
        yield from against_bare(work, broker, directory, _few(profile, 3), profile.rounds)


def weaker(profile: Profile) -> Iterator[Result]:
    """The same, answered before it is durable."""
    with opened() as (broker, directory):
        written = again(lambda: broker.publish(TOPIC, PAYLOAD, durability="os"))
        work = Work("publish, os", 1, written, sync=False)
        yield from against_bare(work, broker, directory, _few(profile, 3), profile.rounds)
        kept = again(lambda: broker.publish(TOPIC, PAYLOAD, durability="memory"))
        kept(1000)
        rates = [1000 / kept(1000) for _ in range(profile.rounds)]
        yield Result("publish, memory", max(rates), "msg/s", note="not written yet", samples=rates)


def batches(profile: Profile) -> Iterator[Result]:
    """Batches of 1000, each durable before the answer, from one caller and from four threads."""
    with opened() as (broker, directory), ThreadPoolExecutor(THREADS) as pool:
        tables = cycle(TABLES[False])
        for label, do in (
            ("publish_many", lambda: broker.publish_many(TOPIC, list(PAYLOADS))),
            ("publish_arrow", lambda: broker.publish_arrow(TOPIC, next(tables))),
        ):
            alone = Work(f"{label}, one caller", BATCH, again(do), 1e6)
            yield from against_bare(alone, broker, directory, _few(profile, 1), profile.rounds)
            many = Work(f"{label}, {THREADS} threads", THREADS * BATCH, crowded(pool, THREADS, do), 1e6)
            yield from against_bare(many, broker, directory, _few(profile, 1), profile.rounds)


def crowd(profile: Profile) -> Iterator[Result]:
    """64 publishers of single messages at once, as threads and as tasks."""
    with opened() as (broker, directory), ThreadPoolExecutor(CROWD) as pool:
        turns = crowded(pool, CROWD, lambda: broker.publish(TOPIC, PAYLOAD))
        work = Work(f"publish, {CROWD} threads", CROWD, turns, 20e3)
        yield from against_bare(work, broker, directory, _few(profile, 1), profile.rounds)
    with _in_loop() as (runner, queue, directory):
        turns = tasked(runner, CROWD, lambda: queue.publish(TOPIC, PAYLOAD))
        work = Work(f"publish, {CROWD} tasks", CROWD, turns, 50e3)
        yield from against_bare(work, behind(queue), directory, _few(profile, 1), profile.rounds)


def receive(profile: Profile) -> Iterator[Result]:
    """receive(limit=100) + ack(msgs) from one consumer and from four threads."""
    count = _few(profile, 1)
    with opened() as (broker, directory), ThreadPoolExecutor(THREADS) as pool:
        fill(broker, 100 * (THREADS + 1) * count * (profile.rounds + 2) + BATCH, False)

        def take() -> None:
            broker.ack(broker.receive(TOPIC, 100))

        work = Work("receive+ack 100, one consumer", 100, again(take), 300e3)
        yield from against_bare(work, broker, directory, count, profile.rounds)
        work = Work(f"receive+ack 100, {THREADS} threads", THREADS * 100, crowded(pool, THREADS, take), 300e3)
        yield from against_bare(work, broker, directory, count, profile.rounds)


def pipelined(profile: Profile) -> Iterator[Result]:
    """receive(1) + ack, one by one, by many tasks at once; and 64 received at once, each acked on its own."""
    count = _few(profile, 1)
    with _in_loop() as (runner, queue, directory):

        async def take() -> None:
            for message in await queue.receive(TOPIC):
                await message.ack()

        for tasks in (CROWD, 4 * CROWD):
            fill(behind(queue), tasks * count * (profile.rounds + 2) + BATCH, False)
            runner.run(asyncio.sleep(0))
            work = Work(f"receive+ack 1, {tasks} tasks", tasks, tasked(runner, tasks, take), 45e3)
            yield from against_bare(work, behind(queue), directory, count, profile.rounds)

        async def take_many() -> None:
            await asyncio.gather(*(message.ack() for message in await queue.receive(TOPIC, CROWD)))

        fill(behind(queue), THREADS * CROWD * count * (profile.rounds + 2) + BATCH, False)
        runner.run(asyncio.sleep(0))
        label = f"receive {CROWD}, acked one by one, {THREADS} tasks"
        work = Work(label, THREADS * CROWD, tasked(runner, THREADS, take_many), 45e3)
        yield from against_bare(work, behind(queue), directory, count, profile.rounds)


@contextmanager
def _in_loop() -> Iterator[tuple[asyncio.Runner, AsyncBroker, Path]]:
    with scratch() as directory, asyncio.Runner() as runner:
        queue = AsyncBroker(directory / "data", storage=STORAGE)
        runner.run(queue.create_group(TOPIC, "default"))
        yield runner, queue, directory
        runner.run(queue.close())


def behind(queue: AsyncBroker) -> LoopBroker:
    """The calls that do not wait."""
    found: LoopBroker = vars(queue)["_sync"]
    return found


def _few(profile: Profile, times: int) -> int:
    """Turns of a round: enough to see the disk, few enough for a round to be short."""
    return max(4, profile.batches * times)
