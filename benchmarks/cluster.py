"""A node of a cluster, over HTTP, on a real PostgreSQL: rates, how soon a message is handed out, and what stays flat.

Everything shares the machine: who asks, the node, PostgreSQL, Redis. Two databases of one server have a node each where
something is compared: one as it is after a start, the other with what might slow it down. A rate is the median of its
rounds. Beside the rates stands what a queue with a row for each message does in the same minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import psycopg
import uvloop

from benchmarks import amqp_singles
from benchmarks.disk import scratch
from benchmarks.harness import Profile, Result, short
from benchmarks.http import Turn, again, asking, published, published_arrow
from benchmarks.http_load import ARROW, Line, Server, lines, request
from benchmarks.memory_broker import PAYLOADS, TOPIC
from benchmarks.row_queue import RowQueue
from mqueue.assembly.postgres import PostgresServer
from mqueue.assembly.redis import RedisServer
from mqueue.broker.aio import AsyncBroker
from mqueue.broker.loop import LoopBroker
from mqueue.broker.twin import twin_of
from mqueue.cluster.node import Node
from mqueue.model.limits import Limits
from mqueue.model.settings import Settings
from mqueue.policy.routing import virtual_shard

TIMES_MIN = 5.0
FLAT_MIN = 0.8
"""A rate may fall by a fifth."""
SINGLES = 64
SINGLES_MIN = 5e3
_ROW_WORKERS = {1000: 4, 100: 8, 1: 16}
"""Connections to the row queue, by how many messages they have at a time."""
_FILLERS = 8


def publish(profile: Profile) -> Iterator[Result]:
    """Publishes, each committed before its answer."""
    with _cluster() as place, place.node() as node:
        yield _row(_rates(node, profile, asking(published_arrow()), 8, 1000), "Arrow, 1000 at a time", 300e3)
        yield _row(_rates(node, profile, asking(published(1000)), 8, 1000), "JSON, 1000 at a time")
        yield _row(_rates(node, profile, asking(published(100)), 8, 100), "JSON, 100 at a time")
        yield _row(_rates(node, profile, asking(published(1)), 64, 1), "64 connections, one at a time")


def cycle(profile: Profile) -> Iterator[Result]:
    """Publish, receive and ack, in turns with a queue that has a row for each message."""
    with _cluster() as place, place.node() as node:
        for size, count, least in ((1000, 4, 150e3), (100, 8, 60e3), (1, SINGLES, SINGLES_MIN)):

            def ours(seconds: float, size: int = size, count: int = count) -> float:
                return _rate(node.port, _cycling(size), count, size, seconds)

            yield from _beside_rows(place, profile, ours, size, f"{size} at a time, {count} connections", least)

        def singles(seconds: float) -> float:
            return uvloop.run(amqp_singles.rate(node.ports["amqp"], "singles", SINGLES, len(PAYLOADS[0]), seconds))

        singles(profile.pause / 2)  # to warm up
        yield from _beside_rows(
            place, profile, singles, 1, f"1 at a time over AMQP, {SINGLES} connections", SINGLES_MIN
        )


def _beside_rows(
    place: Place, profile: Profile, ours: Callable[[float], float], size: int, label: str, least: float
) -> Iterator[Result]:
    rows = RowQueue(place.database(f"rows{size}"), _ROW_WORKERS[size])
    rates, theirs = [], []
    try:
        for _ in range(profile.rounds):
            rates.append(ours(profile.pause / 2))
            theirs.append(rows.rate(PAYLOADS[:size], profile.pause / 2))
    finally:
        rows.close()
    yield _row(rates, label, least)
    times = [one / other for one, other in zip(rates, theirs, strict=True)]
    note = f"{short(median(theirs))}/s with a row for each message"
    yield Result(f"{label}: times a row queue", median(times), "×", ">=", TIMES_MIN, note=note, samples=times)


def dequeue(profile: Profile) -> Iterator[Result]:
    """One message, handed out in the process of the node, the lease committed."""
    with _cluster() as place:
        node = Node([place.database("hot")], "http://127.0.0.1:1", defaults=Settings(), limits=Limits(), poke=_nobody)
        node.start()
        try:
            taken = asyncio.run(node.estates[0].run(_dequeued(node, profile.singles)))
        finally:
            node.close()
    worst = sorted(taken)[len(taken) * 99 // 100]
    note = f"{len(taken)} of them; 99 % within {1000 * worst:.3g} ms"
    yield Result("half of single receives", 1000 * median(taken), "ms", "<", 1.0, note=note)


def flat_transaction(profile: Profile) -> Iterator[Result]:
    """The same while another connection holds a transaction open."""
    with (
        _cluster() as place,
        place.node("calm") as calm,
        place.node("held") as held,
        psycopg.connect(place.database("held")) as holder,
    ):
        holder.execute("select txid_current(), count(*) from mqueue.topics")
        yield from _compared(profile, calm, held, "while a transaction is open")


def flat_backlog(profile: Profile) -> Iterator[Result]:
    """The same on top of many messages that wait."""
    depth = 2 * profile.depth
    with _cluster() as place, place.node("calm") as calm, place.node("deep") as deep:
        uvloop.run(_fill(deep.port, depth))
        yield from _compared(profile, calm, deep, f"with {short(depth)} messages waiting")


def _compared(profile: Profile, calm: Server, other: Server, label: str) -> Iterator[Result]:
    for size, count in ((1000, 4), (100, 8)):
        rates: dict[int, list[float]] = {calm.port: [], other.port: []}
        for _ in range(profile.rounds):
            for port, found in rates.items():
                found.append(_rate(port, _cycling(size), count, size, profile.pause / 2))
        before, after = median(rates[calm.port]), median(rates[other.port])
        note = f"{short(after)}/s against {short(before)}/s"
        yield Result(f"{size} at a time, {label}", after / before, "×", ">=", FLAT_MIN, note=note)


class Place:
    """A PostgreSQL server and a Redis, on a real disk."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._postgres = stack.enter_context(PostgresServer(directory / "postgres"))
        self._redis = stack.enter_context(RedisServer(directory / "redis"))
        self._made: dict[str, str] = {}

    def database(self, name: str) -> str:
        """Its URL; it is made if need be."""
        if name not in self._made:
            self._made[name] = self._postgres.create(name)
        return self._made[name]

    @contextmanager
    def node(self, name: str = "node") -> Iterator[Server]:
        url = self.database(name)
        redis = (f"127.0.0.1:{self._redis.port}", self._redis.password)
        with Server(self._directory / name, databases=[url], redis=redis, amqp=True) as server:
            yield server


@contextmanager
def _cluster() -> Iterator[Place]:
    with scratch() as directory, ExitStack() as stack:
        directory.chmod(0o711)  # a server that runs as another user has to get through
        yield Place(directory, stack)


def _rate(port: int, turn: Turn, count: int, messages: int, seconds: float) -> float:
    turns, taken = uvloop.run(again(port, turn, count, seconds))
    return turns * messages / taken


def _rates(node: Server, profile: Profile, turn: Turn, count: int, messages: int) -> list[float]:
    _rate(node.port, turn, count, messages, profile.pause / 2)  # to warm up
    return [_rate(node.port, turn, count, messages, profile.pause / 2) for _ in range(profile.rounds)]


def _row(rates: list[float], label: str, least: float | None = None) -> Result:
    note = f"best {short(max(rates))}/s"
    return Result(label, median(rates), "msg/s", "" if least is None else ">=", least, note=note, samples=rates)


def _cycling(size: int) -> Turn:
    """Publish, receive, ack: as Arrow where there are many."""
    if size == 1000:
        return _cycling_arrow()
    publish = published(size)
    receive = request("POST", f"/v1/topics/{TOPIC}/receive", b'{"limit":%d,"wait":"10s"}' % size)

    async def turn(line: Line) -> None:
        await line.ask(publish)
        answer = await line.ask(receive)
        start = answer.index(b'"lease":"') + 9
        await line.ask(request("POST", f"/v1/leases/{answer[start : start + 32].decode()}/ack"))

    return turn


def _cycling_arrow() -> Turn:
    publish = published_arrow()
    receive = request("POST", f"/v1/topics/{TOPIC}/receive", b'{"limit":1000,"wait":"10s"}', accept=ARROW)

    async def turn(line: Line) -> None:
        await line.ask(publish)
        await line.ask(receive)
        start = line.headers.index(b"x-mqueue-lease: ") + 16
        token = line.headers[start : line.headers.index(b"\r", start)].decode()
        await line.ask(request("POST", f"/v1/leases/{token}/ack"))

    return turn


async def _fill(port: int, count: int) -> None:
    asked = published_arrow()

    async def publish(line: Line) -> None:
        for _ in range(max(1, count // 1000 // _FILLERS)):
            await line.ask(asked)

    async with lines(port, _FILLERS) as opened:
        await asyncio.gather(*map(publish, opened))


async def _dequeued(node: Node, count: int) -> list[float]:
    """In the loop of the estate: seconds of each receive."""
    holding = await node.estates[0].holding(virtual_shard("default", TOPIC))
    broker: AsyncBroker = twin_of(LoopBroker._over(holding.engine, "default", ""))
    taken = []
    for _ in range(max(1, count // 1000)):
        await broker.publish_many(TOPIC, PAYLOADS)
        for _ in PAYLOADS[: min(count, 1000)]:
            started = perf_counter()
            [message] = await broker.receive(TOPIC)
            taken.append(perf_counter() - started)
            await broker.ack([message])
    return taken


def _nobody(address: str, namespace: str, topic: str) -> None:
    """There is no other node."""
