"""Push over HTTP: how long from the call of a publish until a consumer elsewhere has the message in hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from statistics import median
from time import perf_counter

import aiohttp
import uvloop

from benchmarks.disk import scratch
from benchmarks.harness import Profile, Result
from benchmarks.http_load import Server, lines, request

RATE = 100
SECONDS = 30
FEW_SECONDS = 1
SLOW_MS = 10_000
LEASES_KEPT = 10_000
"""Nothing is settled here: the consumer may hold so many."""

Taken = Callable[[int, str, asyncio.Event], AsyncIterator[str]]
"""The payloads of a topic as they come, from a port; the event says that somebody listens."""


def push(profile: Profile) -> Iterator[Result]:
    """Messages one by one, on a schedule, to a consumer that is pushed to."""
    seconds = SECONDS if profile.name == "full" else FEW_SECONDS
    for label, taken in (("server-sent events", _events), ("WebSocket", _socket)):
        with scratch() as directory, Server(directory / "data", SLOW_MS) as server:
            spans = sorted(uvloop.run(_measured(server.port, label.split("-")[0], taken, RATE * seconds)))
        note = f"{len(spans)} messages, {RATE} a second; half of them within {1000 * median(spans):.3g} ms"
        slowest = spans[min(len(spans) - 1, len(spans) * 99 // 100)]
        yield Result(f"{label}: 99 % in hand within", 1000 * slowest, "ms", "<", 5, note=note)


async def _measured(port: int, topic: str, taken: Taken, count: int) -> list[float]:
    """Seconds from each publish to its message in hand."""
    called: dict[str, float] = {}
    spans: list[float] = []
    listening = asyncio.Event()

    async def consume() -> None:
        async for payload in taken(port, topic, listening):
            spans.append(perf_counter() - called[payload])
            if len(spans) == count:
                return

    consumer = asyncio.create_task(consume())
    await listening.wait()
    async with lines(port, 1) as [line]:
        started = perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, started + number / RATE - perf_counter()))
            body = json.dumps({"messages": [{"payload": str(number)}]}).encode()
            called[str(number)] = perf_counter()
            await line.ask(request("POST", f"/v1/topics/{topic}/messages", body))
    await consumer
    return spans


async def _events(port: int, topic: str, listening: asyncio.Event) -> AsyncIterator[str]:
    url = f"http://127.0.0.1:{port}/v1/topics/{topic}/stream?prefetch={LEASES_KEPT}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        listening.set()
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])["payload"]


async def _socket(port: int, topic: str, listening: asyncio.Event) -> AsyncIterator[str]:
    url = f"ws://127.0.0.1:{port}/v1/topics/{topic}/stream?prefetch={LEASES_KEPT}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        listening.set()
        async for said in socket:
            for message in json.loads(said.data)["messages"]:
                yield message["payload"]
