"""The worker on a server: the same application, another address. How it ends is what a network makes hard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import mqueue
from mqueue.testing.server import RunningServer

DEADLINE_SECONDS = 120


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await main()

    asyncio.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


async def groups(q: mqueue.AsyncClient, topic: str) -> Any:
    return (await q.stats(topic)).groups["default"]


def test_messages_are_worked_off_over_http(server: RunningServer) -> None:
    async def main() -> None:
        app = mqueue.Worker(server.url)
        done: list[tuple[str, int]] = []

        @app.handler("orders", retries=3, backoff="1ms")
        async def handle(m: mqueue.AsyncMessage) -> None:
            done.append((m.text(), m.attempt))
            if m.text() == "never":
                raise mqueue.Reject("no good")
            if m.text() == "later" and m.attempt == 1:
                raise ValueError("not yet")

        async with mqueue.AsyncClient(server.url) as q:
            await q.publish_many("orders", ["at once", "never", "later"])
            work = asyncio.create_task(app.serve())
            await until(lambda: len(done) == 4)
            app.stop()
            await work
            assert sorted(done) == [("at once", 1), ("later", 1), ("later", 2), ("never", 1)]
            found = await groups(q, "orders")
            assert (found.ready, found.leased, found.acked, found.dead) == (0, 0, 2, 1)
            assert [dead.error for dead in await q.dlq("orders").messages()] == ["no good"]

    run(main)


def test_what_a_worker_gives_up_is_at_once_there_for_others(server: RunningServer) -> None:
    """A second stop gives back what handlers hold, while the worker's own long poll is being given up, too: what is
    given back must not be leased for a poll that nobody waits for."""

    async def main() -> None:
        async with mqueue.AsyncClient(server.url) as q:
            for number in range(40):
                topic, begun = f"orders{number}", asyncio.Event()
                app = mqueue.Worker(server.url)

                @app.handler(topic, visibility="10m", timeout=None, concurrency=2)
                async def handle(m: mqueue.AsyncMessage, begun: asyncio.Event = begun) -> None:
                    begun.set()
                    await asyncio.Event().wait()

                await q.publish(topic, "long")
                work = asyncio.create_task(app.serve())
                await begun.wait()
                app.stop()
                app.stop()
                await work
                found = await groups(q, topic)
                assert (number, found.ready, found.leased) == (number, 1, 0)
                [message] = await q.receive(topic)
                assert message.attempt == 1

    run(main)
