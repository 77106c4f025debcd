"""A server over HTTP, on disk: rates, latency under a steady load, and what connections cost that do nothing good.

The server has a process of its own; the load comes from this one, on the same machine. A rate is the best of its
rounds, as for everything that waits for a disk; the median stands beside it, and how much of a processor the server
took for a call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import pyarrow as pa
import uvloop

from benchmarks.disk import scratch
from benchmarks.harness import Profile, Result, short
from benchmarks.http_load import ARROW, Line, Server, lines, many_files, request
from benchmarks.memory_broker import PAYLOADS, TOPIC
from mqueue.wire.stream import write_table

TEXTS = [payload.hex()[:100] for payload in PAYLOADS]
MESSAGES = f"/v1/topics/{TOPIC}/messages"
HEALTH = request("GET", "/health")
STEADY_RATE = 25_000
STEADY_BATCH = 100
STEADY_LINES = 16
CONNECTION_BYTES_MAX = 8 * 1024
SLOW_MS = 10_000

Turn = Callable[[Line], Awaitable[object]]


def published(count: int) -> bytes:
    body = {"messages": [{"payload": text} for text in TEXTS[:count]]}
    return request("POST", MESSAGES, json.dumps(body).encode())


def published_arrow() -> bytes:
    return request("POST", MESSAGES, write_table(pa.table({"payload": PAYLOADS})), ARROW, ARROW)


def batches(profile: Profile) -> Iterator[Result]:
    """Publishes of many messages, each durable before its answer."""
    with _serving() as server:
        yield from rate(server, profile, "JSON, 1000 at a time", asking(published(1000)), 8, 1000, 400e3)
        yield from rate(server, profile, "JSON, 100 at a time", asking(published(100)), 8, 100, 150e3)
        yield from rate(server, profile, "Arrow, 1000 at a time", asking(published_arrow()), 8, 1000, 1.5e6)


def singles(profile: Profile) -> Iterator[Result]:
    """Publishes of one message."""
    with _serving() as server:
        yield from rate(server, profile, "64 connections", asking(published(1)), 64, 1, 10e3)
        yield from rate(server, profile, "one connection", asking(published(1)), 1, 1, 1500)


def cycle(profile: Profile) -> Iterator[Result]:
    """Publish 100, receive 100, ack them."""
    publish = published(100)
    receive = request("POST", f"/v1/topics/{TOPIC}/receive", b'{"limit":100,"wait":"10s"}')

    async def turn(line: Line) -> None:
        await line.ask(publish)
        answer = await line.ask(receive)
        start = answer.index(b'"lease":"') + 9
        await line.ask(request("POST", f"/v1/leases/{answer[start : start + 32].decode()}/ack"))

    with _serving() as server:
        yield from rate(server, profile, "publish, receive and ack, 100 at a time", turn, 4, 100, 100e3)


def latency(profile: Profile) -> Iterator[Result]:
    """Publishes on a schedule that waits for nobody: how long after its time each is answered."""
    seconds = 60.0 if profile.name == "full" else profile.pause
    with _serving() as server:
        taken = sorted(uvloop.run(_steadily(server.port, seconds)))
    note = f"{len(taken)} calls of {STEADY_BATCH}; half of them within {1000 * median(taken):.3g} ms"
    slowest = taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    yield Result(f"99 % of calls at {short(STEADY_RATE)} msg/s", 1000 * slowest, "ms", "<", 20, note=note)


def connections(profile: Profile) -> Iterator[Result]:
    """What a connection costs that is only open, and how long one lasts whose headers never end."""
    full = profile.name == "full"
    with many_files():
        with _serving() as server:
            idle = 5_000 if full else 200
            cost = uvloop.run(_idle(server, idle))
            yield Result("an idle connection", cost, "B", "<=", CONNECTION_BYTES_MAX, note=f"{idle} of them")
        patience = SLOW_MS if full else 1000
        with _serving(patience) as server:
            slow = 2_000 if full else 100
            lasting, answered = uvloop.run(_slow(server.port, slow))
            note = f"{slow} at once; meanwhile others were answered within {1000 * max(answered):.3g} ms"
            yield Result("until slow headers are cut off", lasting, "s", "<=", patience / 1000, note=note)


@contextmanager
def _serving(headers_timeout_ms: int = SLOW_MS) -> Iterator[Server]:
    with scratch() as directory, Server(directory / "data", headers_timeout_ms) as server:
        yield server


def asking(asked: bytes) -> Turn:
    return lambda line: line.ask(asked)


def rate(
    server: Server, profile: Profile, label: str, turn: Turn, count: int, messages: int, target: float
) -> Iterator[Result]:
    """Connections that do something again and again, for a while."""
    seconds = profile.pause / 2
    rates, costs = [], []
    for _ in range(profile.rounds):
        before, _ = server.usage()
        turns, taken = uvloop.run(again(server.port, turn, count, seconds))
        rates.append(turns * messages / taken)
        costs.append((server.usage()[0] - before) / turns)
    note = f"median {short(median(rates))}/s; {1e6 * min(costs):.0f} µs of the server's processor for each"
    yield Result(label, max(rates), "msg/s", ">=", target, note=note, samples=rates)


async def again(port: int, turn: Turn, count: int, seconds: float) -> tuple[int, float]:
    """How many turns were done in how many seconds; each connection does at least one."""
    async with lines(port, count) as opened:
        started = perf_counter()

        async def one(line: Line) -> int:
            turns = 0
            while not turns or perf_counter() - started < seconds:
                await turn(line)
                turns += 1
            return turns

        done = await asyncio.gather(*map(one, opened))
        return sum(done), perf_counter() - started


async def _steadily(port: int, seconds: float) -> list[float]:
    """Seconds from when a call was to be made until it was answered."""
    asked = published(STEADY_BATCH)
    pause = STEADY_BATCH * STEADY_LINES / STEADY_RATE
    taken: list[float] = []
    async with lines(port, STEADY_LINES) as opened:
        started = perf_counter()

        async def one(number: int, line: Line) -> None:
            due = started + pause * number / STEADY_LINES
            while due < started + seconds:
                await asyncio.sleep(max(0.0, due - perf_counter()))
                await line.ask(asked)
                taken.append(perf_counter() - due)
                due += pause

        await asyncio.gather(*(one(number, line) for number, line in enumerate(opened)))
    return taken


async def _idle(server: Server, count: int) -> float:
    """Bytes of the server for each connection that asked something once."""
    async with lines(server.port, 1) as [first]:
        await first.ask(HEALTH)
        _, before = server.usage()
        async with lines(server.port, count) as opened:
            for line in opened:
                await line.ask(HEALTH)
            return max(1.0, (server.usage()[1] - before) / count)


async def _slow(port: int, count: int) -> tuple[float, list[float]]:
    """The longest that a connection with endless headers lasts; how long others waited for an answer meanwhile."""
    answered: list[float] = []
    ended: list[float] = []

    async def watch(line: Line, begun: float) -> None:
        await line.lost.wait()
        ended.append(perf_counter() - begun)

    async with lines(port, count) as opened, lines(port, 1) as [other]:
        await other.ask(HEALTH)  # or the server would take it for one of the slow
        begun = perf_counter()
        for line in opened:
            line.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        watching = asyncio.gather(*(watch(line, begun) for line in opened))
        while not watching.done():
            asked = perf_counter()
            await other.ask(HEALTH)
            answered.append(perf_counter() - asked)
            await asyncio.sleep(0.01)
        await watching
    return max(ended), answered
