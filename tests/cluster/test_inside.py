"""What the faces of a node ask of it: answered in its process, or from there at the node that it belongs to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

import mqueue
from mqueue.assembly.inside import Inside
from mqueue.assembly.server import Serving
from mqueue.broker.aio import AsyncBroker
from mqueue.client.line import Request
from mqueue.config import Address, Cluster, Config, Metrics, Secret, Server

TOPICS = [f"topic-{number}" for number in range(6)]


@asynccontextmanager
async def node(database: str) -> AsyncIterator[Serving]:
    http = Server(http=Address("127.0.0.1", 0))
    serving = Serving(Config(server=http, metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),))))
    await serving.start()
    try:
        yield serving
    finally:
        await serving.stop()


def calls_of(serving: Serving) -> AsyncBroker:
    return serving._footing().broker("default")


def test_calls_go_where_they_belong(database: str) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            one, other = [calls_of(await stack.enter_async_context(node(database))) for _ in range(2)]
            for topic in TOPICS:
                await one.publish_many(topic, [b"1", b"2", b"3"])
                messages = await other.receive(topic, 2, wait="20s")
                assert [message.payload for message in messages] == [b"1", b"2"]
                await other.ack(messages)
                assert [message.payload async for message in one.scan(topic)] == [b"1", b"2", b"3"]

    asyncio.run(work())


def test_no_connection_is_made_and_refusals_are_what_they_are(database: str) -> None:
    async def work() -> None:
        async with node(database) as serving:
            calls = calls_of(serving)
            await calls.publish("t", b"1")
            [message] = await calls.receive("t", visibility="1s")
            with pytest.raises(mqueue.TooLarge, match="payload"):
                await calls.publish("t", bytes(2 << 20))
            with pytest.raises(mqueue.NotFound):
                await calls.settings("none")
            await message.release()
            with pytest.raises(mqueue.LeaseLost):
                await calls.ack([message])
            assert serving._listener is not None
            assert len(serving._listener.connections) == 0

    asyncio.run(work())


def test_who_stops_waiting_takes_nothing_along(database: str) -> None:
    """Whenever that is: what was on its way to him is there for the next."""

    async def work() -> None:
        chance = random.Random(0)
        async with node(database) as serving:
            calls = calls_of(serving)
            found: list[bytes] = []
            for number in range(100):
                waiting = asyncio.create_task(calls.receive("t", wait="20s", visibility="10m"))
                await asyncio.sleep(0)
                published = asyncio.create_task(calls.publish("t", str(number).encode()))
                await asyncio.sleep(chance.random() / 100)
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    found += [message.payload for message in await waiting]
                await published
            while len(found) < 100 and (messages := await calls.receive("t", 100, wait="5s")):
                found += [message.payload for message in messages]
            assert sorted(map(int, found)) == list(range(100))

    asyncio.run(work())


def test_who_gets_no_answer_is_told_that_nobody_knows(database: str) -> None:
    async def work() -> None:
        async with node(database) as serving:
            assert serving._listener is not None
            await calls_of(serving).publish("t", b"1")
            ask = Inside(serving._listener.connections.app)
            waits = Request("POST", "/v1/topics/t/receive", b'{"group":"g","limit":2,"wait":"20s"}')
            assert b'"lease"' in (await ask(waits, "http://here", 10)).body
            with pytest.raises(mqueue.Unavailable, match="did not answer within") as told:
                await ask(waits, "http://here", 0.1)
            assert (told.value.code, told.value.applied) == ("line_broken", None)

    asyncio.run(work())
