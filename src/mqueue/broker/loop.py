"""Broker calls inside an event loop: the sync broker, where what waits gives back something to await.

`aio` puts the awaited names in front of it. Here is all that is different from threads; the calls themselves are those
of `Broker`, which complete at once under a lock held for microseconds.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from mqueue.broker import deliver
from mqueue.broker.broker import Broker
from mqueue.broker.commits import DONE, Deferred, committed, settled
from mqueue.broker.consume import LOGGER, Supply, check_concurrency
from mqueue.broker.dlq import Dlq
from mqueue.broker.engine import Engine, Place
from mqueue.broker.envelope import AsyncEmbeddedDeadMessage, AsyncEmbeddedMessage
from mqueue.broker.frames import walk_in_loop
from mqueue.broker.message import AsyncMessage, DeadMessage
from mqueue.broker.redrive import Act, Filter, Redriving
from mqueue.broker.transact import Transaction, commit_step
from mqueue.broker.waiting import never, wait_in_loop
from mqueue.model.errors import Closed, LeaseLost
from mqueue.model.limits import REDRIVE_STEP_MESSAGES
from mqueue.model.times import Duration
from mqueue.store.redrive import redrive

T = TypeVar("T")
R = TypeVar("R")


async def consume_in_loop(source: Supply[AsyncMessage], prefetch: int) -> AsyncIterator[AsyncMessage]:
    """Messages one by one, `prefetch` of them held at a time."""
    try:
        while True:
            await asyncio.sleep(0)  # a full queue never makes anybody wait: the other tasks need their turn
            for message in await source.take_async(prefetch):
                yield message
    except Closed:
        return
    finally:
        source.give_back()


class AsyncSubscription:
    """A handler at work in background tasks of the running loop."""

    def __init__(self, source: Supply[AsyncMessage], handler: Callable[[AsyncMessage], Any], concurrency: int) -> None:
        check_concurrency(concurrency)
        self._source = source
        self._handler = handler
        self._task = asyncio.create_task(self._run(concurrency), name="mqueue-subscription")

    async def close(self, timeout: float | None = None) -> None:
        """Take no more messages and wait until those at hand are done; after `timeout` seconds they are cancelled."""
        self._source.stop()
        await asyncio.wait([self._task], timeout=timeout)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        self._source.give_back()
        if not self._task.cancelled():
            self._task.result()

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, concurrency: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(concurrency):
                group.create_task(self._work(), name=f"mqueue-subscription-{number}")

    async def _work(self) -> None:
        try:
            while not self._source.stopped:
                for message in await self._source.take_async(1):
                    await self._handle(message)
                await asyncio.sleep(0)  # with a handler that never waits, nobody else would get a turn
        except Closed:
            return

    async def _handle(self, message: AsyncMessage) -> None:
        try:
            async with message:
                await self._call(message)
        except LeaseLost as error:
            LOGGER.warning("message %s of %s was no longer ours: %s", message.id, message.topic, error)
        except Closed:
            raise
        except Exception:
            LOGGER.exception(
                "handler failed on message %s of %s, attempt %s", message.id, message.topic, message.attempt
            )

    async def _call(self, message: AsyncMessage) -> None:
        try:
            answer = self._handler(message)
            if inspect.isawaitable(answer):
                await answer
        except asyncio.CancelledError:
            if not message._settled:  # it was stopped, it did not fail: the attempt does not count
                await message.release()
            raise


async def commit_in_loop(engine: Engine, namespace: str, transaction: str, parts: list[str] | None) -> Transaction:
    """Step by step, so that other tasks get their turn. A step is made ready while the one before becomes durable."""
    before: Awaitable[None] = DONE
    while True:
        try:
            done = commit_step(engine, namespace, transaction, parts)
        except BaseException:
            await settled()
            await _quietly(before)
            raise
        this = committed()
        try:
            await before
        except BaseException:
            await _quietly(this)
            raise
        if done is not None:
            await this
            return done
        before = this
        await asyncio.sleep(0)


async def _quietly(ticket: Awaitable[None]) -> None:
    """Wait for it. Something else went wrong, and is what the caller is told."""
    with suppress(Exception):
        await ticket


class LoopDlq(Dlq):
    """The dead-letter queue behind an `AsyncDlq`."""

    _message_type = AsyncEmbeddedDeadMessage  # type: ignore[assignment]

    async def _walk(self, redriving: Redriving, give: Callable[[], T]) -> T:  # type: ignore[override]
        """Step by step to the end; other tasks get their turn in between."""
        while await self.redrive_step(redriving):
            await self.pause(redriving)
        return give()

    def begin(
        self, filter: Filter, limit: int | None, dry_run: bool, rate: float | None = None, act: Act = redrive
    ) -> Redriving:
        """A redrive, or what else is done to the dead, for somebody who may stop it between two steps."""
        return Redriving(self._yard, filter, limit, dry_run, rate, act=act)

    async def listed(self, filter: str | None, limit: int) -> tuple[list[DeadMessage], int]:
        """The first of the dead that match, and how many there are; step by step, as they may be very many."""
        redriving = Redriving(self._yard, filter, None, dry_run=True, keep=limit)
        return redriving.kept, await self._walk(redriving, lambda: redriving.counted[0])

    async def redrive_step(self, redriving: Redriving, limit: int = REDRIVE_STEP_MESSAGES) -> bool:
        """One step, durable on return; whether there may be more to do."""
        try:
            more = redriving.step(limit)
        except BaseException:
            await settled()
            raise
        await committed()
        return more

    async def pause(self, redriving: Redriving) -> bool:
        """Until the next step may begin; True, as it was waited for to the end."""
        engine = self._engine
        await asyncio.sleep(0)
        while pause_ms := redriving.pause_ms(engine.clock.now()):
            await wait_in_loop(engine, lambda now: redriving.topics, lambda now: [], pause_ms, never)
        return True


class LoopBroker(Broker):
    """The broker behind an `AsyncBroker`. What it hands out is awaited, so it is no `Broker` for users' eyes."""

    _message_type = AsyncEmbeddedMessage  # type: ignore[assignment]
    _dlq_type = LoopDlq
    _subscription_type = AsyncSubscription  # type: ignore[assignment]
    _consume = staticmethod(consume_in_loop)  # type: ignore[assignment]
    _commit = staticmethod(commit_in_loop)  # type: ignore[assignment]
    _walk = staticmethod(walk_in_loop)  # type: ignore[assignment]
    _gate_type = Deferred

    async def close_keeping_leases(self) -> None:
        """Close, but what consumers elsewhere hold stays theirs: they settle it when the broker is open again."""
        self._engine.close(keep_leases=True)
        await committed()

    async def _wait(  # type: ignore[override]
        self,
        places: Callable[[int], Sequence[Place]],
        wait: Duration | None,
        look: Callable[[int], list[T]],
        pick: Callable[[list[T]], R],
    ) -> R:
        return pick(await wait_in_loop(self._engine, places, look, deliver.wait_ms(wait), never))
