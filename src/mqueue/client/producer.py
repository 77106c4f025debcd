"""Publishing one by one, sent in batches: what was handed in waits a moment for company, then goes out together.

Of one topic there is one batch under way at a time, so its order is kept; several topics go side by side. A batch that
is refused is sent again in halves, so that only the message that is wrong fails.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Mapping
from contextvars import Context
from types import TracebackType
from typing import Any, TypeAlias

from msgspec import Struct

from mqueue.client import outgoing
from mqueue.client.home import Home
from mqueue.client.publish import publish_many
from mqueue.model.errors import BadSetting, Closed, Error, Refused
from mqueue.model.limits import RECEIVE_LIMIT_MAX
from mqueue.model.message import Draft, Receipt
from mqueue.model.names import check_name
from mqueue.model.times import Duration, Instant, duration_ms

Told: TypeAlias = asyncio.Future[Receipt] | concurrent.futures.Future[Receipt]
"""Awaited in loops, waited for in threads."""

_MANY = 10_000_000


class Waiting(Struct, eq=False):
    """A message on its way, and who is to be told."""

    topic: str
    draft: Draft
    size: int
    told: Told


class AsyncProducer:
    """`await publish(…)` waits for room, not for the server: what it gives is awaited for the receipt."""

    def __init__(
        self,
        home: Home,
        topic: str | None,
        linger: Duration,
        batch: int,
        batch_bytes: int,
        in_flight: int,
        buffer: int,
    ) -> None:
        self._home = home
        self._topic = None if topic is None else check_name(topic, "topic")
        self._linger_ms = duration_ms(linger, "linger")
        self._batch = _count("batch", batch, RECEIVE_LIMIT_MAX)
        self._batch_bytes = _count("batch_bytes", batch_bytes, 2**30)
        self._in_flight = _count("in_flight", in_flight, 1024)
        self._buffer = _count("buffer", buffer, _MANY)
        self._queues: dict[str, deque[Waiting]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(self._in_flight)
        self._hurry = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._moved = asyncio.Event()
        self._out: set[Waiting] = set()
        self._closed = False

    async def publish(
        self,
        payload: Any,
        *,
        topic: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | str | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        ttl: Duration | None = None,
        idempotency_key: str | None = None,
        fairness_key: str | None = None,
    ) -> asyncio.Future[Receipt]:
        """Hand in a message. Waits while the buffer is full; await what it gives for the receipt, or the failure."""
        draft = Draft(payload, key, headers, priority, delay, deliver_at, ttl, idempotency_key, fairness_key, topic)
        told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        waiting = self._checked(draft, told)
        while len(self._out) >= self._buffer and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            raise Closed("this producer is closed")
        self._hand_in(waiting)
        return told

    def _checked(self, draft: Draft, told: Told) -> Waiting:
        name = self._topic if draft.topic is None else check_name(draft.topic, "topic")
        if name is None:
            raise Refused("no topic is named, neither for the producer nor for the message", code="no_topic")
        spans = self._home.window.spans
        if spans is not None:
            draft = spans.stamped(draft)
        return Waiting(name, draft, outgoing.rows([draft]).size, told)

    def _hand_in(self, waiting: Waiting) -> None:
        name = waiting.topic
        self._out.add(waiting)
        queue = self._queues.setdefault(name, deque())
        queue.append(waiting)
        if name not in self._senders:
            sending = self._send_all(name, queue)  # for everybody, so it belongs to nobody's trace
            self._senders[name] = asyncio.get_running_loop().create_task(sending, context=Context())
        elif len(queue) >= self._batch:
            self._hurry.set()

    async def flush(self) -> None:
        """Send what was handed in so far, and wait until it is answered."""
        mine = set(self._out)
        while not mine.isdisjoint(self._out):
            self._hurry.set()
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Take no more, send what is left, and wait until it is answered."""
        self._closed = True
        self._room.set()
        await self.flush()
        if self._senders:
            await asyncio.wait(self._senders.values())

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Sending

    async def _send_all(self, name: str, queue: deque[Waiting]) -> None:
        """The batches of one topic, one after the other, until none is left."""
        try:
            while queue:
                await self._linger(queue)
                async with self._slots:
                    await self._send(name, self._next(queue))
        finally:
            del self._senders[name]
            del self._queues[name]
            for waiting in queue:  # only if it was cancelled
                self._tell(waiting, Closed("this producer was cancelled"))

    async def _linger(self, queue: deque[Waiting]) -> None:
        """Wait for company, unless there is enough of it or somebody is in a hurry."""
        if not self._linger_ms or len(queue) >= self._batch or self._closed:
            return
        try:
            async with asyncio.timeout(self._linger_ms / 1000):
                await self._hurry.wait()
                self._hurry.clear()
        except TimeoutError:
            pass

    def _next(self, queue: deque[Waiting]) -> list[Waiting]:
        """The next batch: so many messages, so many bytes, but at least one."""
        chosen: list[Waiting] = []
        size = 0
        while queue and len(chosen) < self._batch and (not chosen or size + queue[0].size <= self._batch_bytes):
            size += queue[0].size
            chosen.append(queue.popleft())
        return chosen

    async def _send(self, name: str, chosen: list[Waiting]) -> None:
        try:
            receipts = await publish_many(self._home.window, name, [waiting.draft for waiting in chosen], None)
        except Error as error:
            if len(chosen) > 1 and error.applied is False and not error.retryable and not isinstance(error, Closed):
                middle = len(chosen) // 2
                await self._send(name, chosen[:middle])
                await self._send(name, chosen[middle:])
                return
            for waiting in chosen:
                self._tell(waiting, error)
        except BaseException:
            for waiting in chosen:
                self._tell(waiting, Closed("this producer was cancelled", applied=None))
            raise
        else:
            for waiting, receipt in zip(chosen, receipts, strict=True):
                self._tell(waiting, receipt)

    def _tell(self, waiting: Waiting, news: Receipt | Error) -> None:
        self._out.discard(waiting)
        self._room.set()
        self._moved.set()
        if waiting.told.done():  # whoever waited was cancelled
            return
        if isinstance(news, Receipt):
            waiting.told.set_result(news)
        else:
            waiting.told.set_exception(news)
            waiting.told.exception()  # who does not ask is not told twice, by a warning


def _count(name: str, value: Any, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise BadSetting(f"{name} {value!r:.80}; it takes a whole number from 1 to {most}")
    return value
