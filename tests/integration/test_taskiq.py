"""The broker for Taskiq: tasks are published, handed to workers, acked when they are done, and come back if not."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from taskiq import InMemoryBroker, SimpleRetryMiddleware
from taskiq.api import run_receiver_task
from taskiq.exceptions import SendTaskError

import mqueue
from mqueue.taskiq import MqueueBroker
from mqueue.testing.server import RunningServer

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer() as server:
        yield server


@asynccontextmanager
async def running(broker: MqueueBroker) -> AsyncIterator[None]:
    """A worker in this loop."""
    await broker.startup()
    work = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await broker.shutdown()


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def made(server: RunningServer, topic: str) -> MqueueBroker:
    return MqueueBroker(server.url, topic=topic).with_result_backend(InMemoryBroker().result_backend)


@in_loop
async def test_tasks_give_results(server: RunningServer) -> None:
    broker = made(server, "sums")

    @broker.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with running(broker):
        sent = [await add.kiq(number, 1) for number in range(20)]
        results = [await one.wait_result(timeout=PATIENCE_SECONDS) for one in sent]
    assert [result.return_value for result in results] == list(range(1, 21))
    async with mqueue.AsyncClient(server.url) as q:
        assert (await q.stats("sums")).acked == 20
        [message] = [one async for one in q.scan("sums", 0, 1)]
        assert message.headers["task-id"] == sent[0].task_id


@in_loop
async def test_what_fails_is_tried_again(server: RunningServer) -> None:
    broker = made(server, "flaky").with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
    tries: list[int] = []

    @broker.task(retry_on_error=True)
    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return len(tries)

    async with running(broker):
        result = await (await flaky.kiq()).wait_result(timeout=PATIENCE_SECONDS)
    assert (result.is_err, result.return_value) == (False, 3)


@in_loop
async def test_labels_say_how_a_task_is_published(server: RunningServer) -> None:
    broker = made(server, "labelled")

    @broker.task
    async def nothing() -> None: ...

    await broker.startup()
    await nothing.kicker().with_labels(priority="low", other="x").kiq()
    await nothing.kicker().with_labels(priority=3, key="k", ttl=60.5).kiq()
    await nothing.kicker().with_labels(delay="1h").kiq()
    await broker.shutdown()
    async with mqueue.AsyncClient(server.url) as q:
        first, second = await q.receive("labelled", 10)
        assert (first.priority, first.key, second.priority) == (3, b"k", 75)
        assert first.expires_at is not None
        assert len(await q.scheduled("labelled")) == 1


@in_loop
async def test_a_worker_that_goes_gives_back_what_it_has(server: RunningServer) -> None:
    broker, begun = made(server, "interrupted"), asyncio.Event()

    @broker.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with running(broker):
        await endless.kiq()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await begun.wait()
    async with mqueue.AsyncClient(server.url) as q:
        [message] = await q.receive("interrupted", wait="60s")
        assert message.headers["task"].endswith("endless")


@in_loop
async def test_who_was_not_started_is_told() -> None:
    broker = MqueueBroker("memory:")

    @broker.task
    async def nothing() -> None: ...

    with pytest.raises(SendTaskError) as caught:
        await nothing.kiq()
    assert isinstance(caught.value.__cause__, mqueue.Closed)
