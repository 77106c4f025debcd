"""Delivering: one dispatcher for each queue that somebody here consumes from.

It takes as many messages as its consumers have room for, and hands them out in turn (`turns`). Room is what is left of
the prefetch of a consumer and of its channel, while its connection takes what is sent: a slow reader gets no more than
its buffer holds. Leases are kept alive while a consumer has the message.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from mqueue.broker.consume import Supply
from mqueue.broker.message import AsyncMessage
from mqueue.model.errors import Closed, Error
from mqueue.model.limits import MIB
from mqueue.server.amqp.content import Reader
from mqueue.server.amqp.frames import Deliveries
from mqueue.server.amqp.names import GROUP, topic_of
from mqueue.server.amqp.turns import Turns

if TYPE_CHECKING:
    from mqueue.server.amqp.channel import Channel
    from mqueue.server.amqp.connection import Connection
    from mqueue.server.amqp.vhost import Vhost

LOGGER = logging.getLogger("mqueue.amqp")

TAKE_MAX = 1_000
"""Messages that are taken at a time."""
_TAKE_BYTES = 4 * MIB
"""About how many bytes that are, as far as the last ones tell."""
_BEGIN_WITH = 64
_BOUNDLESS = 1 << 30
_PAUSE_SECONDS = 1.0


class Consumer:
    """Somebody who consumes, on a channel. `prefetch` 0: as much as there is."""

    def __init__(
        self, channel: Channel, tag: str, no_ack: bool, prefetch: int, exclusive: bool, queue: str, priority: int
    ) -> None:
        self.channel = channel
        self.tag = tag
        self.deliveries = Deliveries(channel.number, tag, channel.connection.frame_max)
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.exclusive = exclusive
        self.queue = queue
        self.priority = priority
        self.held = 0
        """So many messages it has that are not settled."""

    @property
    def room(self) -> int:
        channel = self.channel
        if not channel.open_for_delivery:
            return 0
        if self.no_ack:
            return _BOUNDLESS
        own = self.prefetch - self.held if self.prefetch else _BOUNDLESS
        shared = channel.shared_room if channel.prefetch else _BOUNDLESS
        return max(min(own, shared), 0)


class Dispatcher:
    def __init__(self, vhost: Vhost, queue: str) -> None:
        self.vhost = vhost
        self.queue = queue
        self.consumers: list[Consumer] = []
        self._reader = Reader(queue)
        self._turns = Turns()
        self._bell = asyncio.Event()
        self._supply: Supply[AsyncMessage] | None = None
        self._task: asyncio.Task[None] | None = None
        self._average = _TAKE_BYTES // _BEGIN_WITH

    # Who consumes

    def join(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self._turns.join(consumer)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="mqueue-amqp-dispatcher")
        self._bell.set()

    async def part(self, consumer: Consumer) -> None:
        """One consumer less."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self._turns.part(consumer)
        if not self.consumers:
            self.vhost.dispatchers.pop(self.queue, None)
            await self.close()

    def ring(self) -> None:
        """There may be room again."""
        self._bell.set()

    def dissolve(self) -> None:
        """The queue is gone: whoever consumes from it is told."""
        for consumer in self.consumers:
            consumer.channel.cancelled(consumer)
        self.consumers, self._turns = [], Turns()
        self._stop()

    async def close(self) -> None:
        self._stop()
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    def _stop(self) -> None:
        if self._supply is not None:
            self._supply.stop()
        self._bell.set()

    # What they get

    async def _run(self) -> None:
        supply = self._supply = self.vhost.broker.supply(topic_of(self.queue), group=GROUP)
        while self.consumers:
            try:
                await self._step(supply)
            except Closed:
                return
            except Error as error:
                LOGGER.warning("queue %r cannot be delivered for now: %s", self.queue, error)
                await asyncio.sleep(_PAUSE_SECONDS)
            except Exception:
                LOGGER.exception("queue %r cannot be delivered for now", self.queue)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _step(self, supply: Supply[AsyncMessage]) -> None:
        self._bell.clear()
        room = sum(consumer.room for consumer in self.consumers)
        if not room:
            await self._bell.wait()
            return
        most = max(_TAKE_BYTES // self._average, 1)
        found = await supply.take_async(min(room, TAKE_MAX, most))
        if found:
            await self._hand_out(found)
        await asyncio.sleep(0)  # where there is always something, nobody else would get a turn

    async def _hand_out(self, found: list[AsyncMessage]) -> None:
        done: list[AsyncMessage] = []
        touched: dict[Connection, None] = {}
        read, again = self._reader.read, self.vhost.is_again
        turns = self._turns.take(len(found))
        size = 0
        for consumer, message in zip(turns, found, strict=False):
            address, raw = read(message)
            channel = consumer.channel
            channel.deliver(consumer, self.queue, message, again(message), address, raw)
            touched[channel.connection] = None
            size += len(message.payload) + len(raw)
            if consumer.no_ack:
                done.append(message)
        left = found[len(turns) :]  # somebody went, or stopped reading, while they were taken
        for connection in touched:
            connection.flush()
        self.vhost.counts.delivered += len(turns)
        self._average = max(size // len(turns), 1) if turns else self._average
        if left:
            await self.vhost.release(left)
        if done:
            await self.vhost.debts.settle(partial(self.vhost.ack, done))
