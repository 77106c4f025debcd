"""What a client does once it is let in: its channels, and the work it gives us, done in the order in which it came.

Frames are sorted as they come; a task that lives as long as there is work does it, piece by piece. When the client is
gone, what it held goes back, and what was its own goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from pamqp import commands

from mqueue.model.errors import Error
from mqueue.model.limits import MIB
from mqueue.server.amqp import frames
from mqueue.server.amqp.channel import Channel, Settling
from mqueue.server.amqp.errors import CHANNEL_ERROR, NOT_ALLOWED, UNEXPECTED_FRAME, Fault, fault_of
from mqueue.server.amqp.frames import ACK, BODY, HEADER, METHOD, NACK, PUBLISH, REJECT
from mqueue.server.amqp.methods import Methods
from mqueue.server.amqp.pipeline import Pipeline
from mqueue.server.amqp.publishing import Publisher, Routed
from mqueue.server.amqp.rights import Rights
from mqueue.server.amqp.settling import Batch
from mqueue.server.amqp.topology import Topology
from mqueue.server.amqp.vhost import Vhost
from mqueue.server.amqp.work import Bulk, Work

if TYPE_CHECKING:
    from mqueue.server.amqp.connection import Connection

LOGGER = logging.getLogger("mqueue.amqp")

WAITING_BYTES_MAX = 16 * MIB
WAITING_MAX = 20_000
"""If more than this waits to be done nothing more is read."""
_PUBLISH = PUBLISH.to_bytes(4, "big")
_SETTLEMENTS = frozenset(method.to_bytes(4, "big") for method in (ACK, NACK, REJECT))


class Session:
    def __init__(self, connection: Connection, vhost: Vhost, rights: Rights, channels_max: int) -> None:
        self._connection = connection
        self.vhost = vhost
        self._channels_max = channels_max
        self._channels: dict[int, Channel] = {}
        topology = Topology(vhost, rights, connection.name)
        self._publisher = Publisher(vhost, rights, topology)
        self._methods = Methods(vhost, rights, topology, self._publisher)
        self._work = Work()
        self._pipeline = Pipeline(vhost.in_order, self._broken)
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    # In

    def take(self, incoming: Iterable[tuple[int, int, bytes]]) -> None:
        """Frames as they came. Raises Fault where the connection has to end."""
        channels, bytes_max, publish = self._channels, self.vhost.limits.payload_bytes_max, self._work.publish
        settlings: list[Settling] = []
        for kind, number, payload in incoming:
            channel = channels.get(number)
            if channel is None:
                self._work.settle(settlings)
                self._connection.frame(kind, number, payload)
            elif channel.closing:
                self._await_end(channel, kind, payload)
            else:
                try:
                    if kind == BODY:
                        whole = channel.body(payload)
                    elif kind == HEADER:
                        whole = channel.header(payload, bytes_max)
                    elif kind == METHOD and payload[:4] in _SETTLEMENTS:
                        channel.check_whole("a settlement")
                        settlings.append(Settling(channel, *frames.read_settle(payload)))
                        continue
                    else:
                        self._work.settle(settlings)
                        self._sort(channel, kind, payload)
                        continue
                except Fault as fault:
                    if fault.hard:
                        raise
                    self._end_channel(channel, fault)
                else:
                    if whole is not None:
                        publish(channel, whole)
        self._work.settle(settlings)

    def begin(self, number: int, kind: int, payload: bytes) -> None:
        if kind != METHOD or frames.index_of(payload) != commands.Channel.Open.index:
            raise Fault(CHANNEL_ERROR, f"expected 'channel.open' on channel {number}")
        if number > self._channels_max:
            raise Fault(NOT_ALLOWED, f"channel {number}; channel_max is {self._channels_max}, as agreed upon")
        self._channels[number] = Channel(self._connection, number)
        self._connection.say(number, commands.Channel.OpenOk())

    def _await_end(self, channel: Channel, kind: int, payload: bytes) -> None:
        """What comes until the client knows that a channel is closed is dropped."""
        if kind == METHOD:
            index = frames.index_of(payload)
            if index == commands.Channel.Close.index:
                self._connection.say(channel.number, commands.Channel.CloseOk())
            if index in (commands.Channel.Close.index, commands.Channel.CloseOk.index):
                self._channels.pop(channel.number, None)

    def _sort(self, channel: Channel, kind: int, payload: bytes) -> None:
        """Methods."""
        if kind != METHOD:
            raise Fault(UNEXPECTED_FRAME, f"a frame of type {kind}, which there is not")
        if payload[:4] == _PUBLISH:
            channel.begin(payload)
        else:
            channel.check_whole("a method")
            self._work.call(channel, payload)

    # Work

    def go_on(self) -> None:
        """Do what came, if nobody is at it."""
        if self._work and self._task is None and not self._ended:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="mqueue-amqp-work")
        self._mind_the_heap()

    def _mind_the_heap(self) -> None:
        """Read no more while there is so much to do."""
        work = self._work
        full = work.size > WAITING_BYTES_MAX or work.count > WAITING_MAX
        self._connection.pause(full or self._connection.choked)

    async def _run(self) -> None:
        """Until there is nothing left to do."""
        try:
            while self._work:
                if self._connection.choked:
                    await self._connection.relieved()
                    continue
                piece = self._work.take()
                if isinstance(piece, Bulk):
                    await self._run_bulk(piece)
                elif not (piece[0].closing or piece[0].closed):
                    await self._pipeline.empty()
                    await self._run_method(*piece)
                self._mind_the_heap()
        except Fault as fault:
            self._connection.fail(fault)
        except Exception as error:
            LOGGER.exception("a connection ends")
            self._connection.fail(fault_of(error))
        finally:
            self._task = None

    async def _run_bulk(self, bulk: Bulk) -> None:
        settlings, published = bulk.settlings, bulk.published
        if any(channel.transaction is not None for channel in self._channels.values()):
            settlings = [one for one in settlings if not one.channel.puts_aside(settling=one)]
            published = [one for one in published if not one[0].puts_aside(publication=one[1])]
        batch = Batch()
        full = not self._connection.takes_more
        faults = batch.take(settlings) if settlings else []
        if batch:
            self.ring() if full else batch.ring(self.vhost)
            self._pipeline.begin(batch.settle(self.vhost))
        if published:
            routed = await self._publisher.route(published)
            self._connection.flush()  # what comes back, though nobody waits for a confirm
            faults += routed.faults
            self._pipeline.begin(self.vhost.outlet.send(routed.items), partial(self._confirm, routed))
        for channel, fault in faults:
            self._end_by(channel, fault)
        await self._pipeline.room()

    def _confirm(self, routed: Routed, lost: dict[int, Error]) -> None:
        for channel, fault in self._publisher.confirm(routed, lost):
            self._end_by(channel, fault)

    def _broken(self, error: Exception) -> None:
        """Something could not be done that nobody waits for: the client is told by the end of the connection."""
        self._connection.fail(fault_of(error))

    async def _run_method(self, channel: Channel, payload: bytes) -> None:
        try:
            told = frames.method_of(payload)
            if isinstance(told, commands.Channel.Close):
                await self._close_channel(channel)
                return
            answer = await self._methods.run(channel, told)
        except (Fault, Error) as error:
            fault = fault_of(error)
            fault.method = frames.index_of(payload)
            self._end_by(channel, fault)
            return
        if channel.closing:  # by a frame that came meanwhile: what it was given is given back, too
            await self._let_go(channel)
        elif answer is not None:
            self._connection.send(answer if isinstance(answer, bytes) else frames.method(channel.number, answer))

    def ring(self) -> None:
        """The client reads again: there is room for its consumers."""
        for channel in self._channels.values():
            for consumer in channel.consumers.values():
                dispatcher = self.vhost.dispatchers.get(consumer.queue)
                if dispatcher is not None:
                    dispatcher.ring()

    # The end

    def _end_by(self, channel: Channel, fault: Fault) -> None:
        if fault.hard:
            self._connection.fail(fault)
        else:
            self._end_channel(channel, fault)

    def _end_channel(self, channel: Channel, fault: Fault) -> None:
        if not (channel.closing or channel.closed or self._ended):
            channel.closing = True
            self.vhost.counts.faults += 1
            channel.drop_partial()
            told = commands.Channel.Close(fault.code, "", fault.method >> 16, fault.method & 0xFFFF)
            told.reply_text = fault.text
            self._connection.say(channel.number, told)
            self._connection.later(self._let_go(channel))

    async def _close_channel(self, channel: Channel) -> None:
        channel.closed = True
        channel.drop_partial()
        await self._let_go(channel)
        self._channels.pop(channel.number, None)
        self._connection.say(channel.number, commands.Channel.CloseOk())

    async def _let_go(self, channel: Channel) -> None:
        """Give back what a channel holds; its consumers go."""
        consumers, channel.consumers = list(channel.consumers.values()), {}
        batch = Batch()
        batch.give_back(channel.settled(0, True))
        for consumer in consumers:
            await self._methods.part(consumer)
        batch.ring(self.vhost)
        await batch.settle(self.vhost)

    async def finish(self) -> None:
        """Do what has come so far."""
        while self._task is not None:
            await asyncio.wait([self._task])
        await self._pipeline.empty()

    def end(self, drop: bool) -> None:
        """The client is gone, or has to go. `drop`: what it sent and is not done yet is not done any more."""
        if not self._ended:
            self._ended = True
            if drop:
                self._work.clear()
                self._close_channels()
            self._connection.later(self._leave())

    def _close_channels(self) -> None:
        for channel in self._channels.values():
            channel.closed = True

    async def _leave(self) -> None:
        await self.finish()
        self._close_channels()
        for channel in list(self._channels.values()):
            await self._let_go(channel)
        await self.vhost.disown(self._connection.name)
