"""Two namespaces at one server: how long one that publishes a little waits while another one floods.

The quiet one publishes single messages on a schedule that waits for nobody; the other publishes as much as it can, in
calls of many. It is measured in turns: the quiet one alone, and both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from statistics import median
from time import perf_counter

import uvloop

from benchmarks.disk import scratch
from benchmarks.harness import Profile, Result
from benchmarks.http import TEXTS
from benchmarks.http_load import Line, Server, lines, request
from benchmarks.memory_broker import TOPIC

_PAUSE = 0.1
_FLOODERS = 8
_FLOOD_CALL = 1000
_AGREED_MS = 100.0


def _published(namespace: str, count: int) -> bytes:
    body = {"messages": [{"payload": text} for text in TEXTS[:count]]}
    return request("POST", f"/v1/topics/{TOPIC}/messages?namespace={namespace}", json.dumps(body).encode())


def neighbours(profile: Profile) -> Iterator[Result]:
    """A namespace that publishes a little, alone and beside one that floods."""
    seconds = max(0.3, profile.pause)
    alone: list[float] = []
    beside: list[float] = []
    flooded = 0
    with scratch() as directory, Server(directory / "data") as server:
        for _ in range(profile.rounds):
            alone += uvloop.run(_quietly(server.port, seconds, 0))[0]
            more, calls = uvloop.run(_quietly(server.port, seconds, _FLOODERS))
            beside += more
            flooded += calls * _FLOOD_CALL
    rate = flooded / (seconds * profile.rounds)
    for label, taken in (("alone", alone), ("beside a flood", beside)):
        note = f"half of {len(taken)} calls within {1000 * median(taken):.3g} ms"
        yield Result(f"{label}: 99 % of publishes", 1000 * _p99(taken), "ms", note=note)
    note = f"the other publishes {rate / 1000:.0f}k msg/s over {_FLOODERS} connections"
    yield Result("what the flood adds at 99 %", 1000 * (_p99(beside) - _p99(alone)), "ms", "<=", _AGREED_MS, note=note)
    yield Result("median beside / alone", median(beside) / median(alone), "×")


def _p99(taken: list[float]) -> float:
    return sorted(taken)[len(taken) * 99 // 100]


async def _quietly(port: int, seconds: float, flooders: int) -> tuple[list[float], int]:
    """How long after its time each publish of the quiet namespace was answered; how many calls the other one made."""
    taken: list[float] = []
    async with lines(port, 1) as [line], lines(port, flooders) as others:
        started = perf_counter()
        asked, flood = _published("quiet", 1), _published("loud", _FLOOD_CALL)

        async def pour(other: Line) -> int:
            calls = 0
            while perf_counter() - started < seconds:
                await other.ask(flood)
                calls += 1
            return calls

        pouring = asyncio.gather(*map(pour, others))
        due = started
        while due < started + seconds:
            await asyncio.sleep(max(0.0, due - perf_counter()))
            await line.ask(asked)
            taken.append(perf_counter() - due)
            due += _PAUSE
        return taken, sum(await pouring)
