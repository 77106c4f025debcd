"""What the tests of the worker share: a broker whose time stands still, and a worker on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import mqueue
from mqueue.testing import ManualClock

DEADLINE_SECONDS = 120


class Bench:
    """A broker, its clock and a worker on them."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.q = mqueue.AsyncBroker(clock=self.clock, name="tester")
        self.app = mqueue.Worker(queue=self.q, clock=self.clock, **options)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[asyncio.Task[None]]:
        """While the block runs, the worker does too; it has drained at its end."""
        task = asyncio.create_task(self.app.serve())
        await until(lambda: self.app.consumers() or task.done())
        try:
            yield task
        finally:
            self.app.stop()
            await task

    async def count(self, topic: str, state: str, group: str = "default") -> int:
        groups = (await self.q.stats(topic)).groups
        return getattr(groups[group], state) if group in groups else 0

    async def until(self, topic: str, state: str, count: int = 1) -> None:
        """Until so many messages of a topic are in a state."""
        while await self.count(topic, state) != count:
            await asyncio.sleep(0.001)

    async def dead(self, topic: str) -> list[tuple[str, str, str]]:
        return [(dead.text(), dead.reason, dead.error) for dead in await self.q.dlq(topic).messages()]


def run(main: Callable[[Bench], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            bench = Bench(**options)
            async with bench.q:
                await main(bench)

    asyncio.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.001)
