"""The methods of channels: one function for each, called in the order in which they came.

Those that a client waits for are answered; `nowait` says that it does not.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from mqueue.model.errors import LeaseLost
from mqueue.server.amqp import frames
from mqueue.server.amqp.arguments import plain, priority_of
from mqueue.server.amqp.channel import Channel
from mqueue.server.amqp.consuming import Consumer
from mqueue.server.amqp.content import Reader
from mqueue.server.amqp.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Fault,
)
from mqueue.server.amqp.exchanges import DEFAULT, Exchange
from mqueue.server.amqp.names import GROUP, REPLY_TO, topic_of
from mqueue.server.amqp.publishing import Publisher
from mqueue.server.amqp.rights import Rights
from mqueue.server.amqp.settling import Batch
from mqueue.server.amqp.tables import short_text
from mqueue.server.amqp.topology import Topology
from mqueue.server.amqp.vhost import GOT_LASTS_SECONDS, Vhost

CONSUMERS_MAX = 1_000
"""Of one channel."""


class Methods:
    """Of one connection."""

    def __init__(self, vhost: Vhost, rights: Rights, topology: Topology, publisher: Publisher) -> None:
        self._vhost = vhost
        self._rights = rights
        self._topology = topology
        self._publisher = publisher

    async def run(self, channel: Channel, method: Any) -> Frame | bytes | None:
        """The answer, if there is one. Raises Fault or Error."""
        call = _CALLS.get(type(method))
        if isinstance(method, commands.Channel.Open):
            raise Fault(CHANNEL_ERROR, f"second 'channel.open' seen on channel {channel.number}", method.index)
        if call is None:
            raise Fault(COMMAND_INVALID, f"{method.name} is not for servers, or not for channels", method.index)
        return await call(self, channel, method)

    # Channels

    async def _flow(self, channel: Channel, told: commands.Channel.Flow) -> Frame:
        channel.flowing = bool(told.active)
        self._ring(channel)
        return commands.Channel.FlowOk(channel.flowing)

    async def _qos(self, channel: Channel, told: commands.Basic.Qos) -> Frame:
        if told.prefetch_size:
            raise Fault(NOT_IMPLEMENTED, f"prefetch_size {told.prefetch_size}; prefetch counts messages, not bytes")
        if told.global_:
            channel.prefetch = told.prefetch_count
            self._ring(channel)
        else:
            channel.consumer_prefetch = told.prefetch_count
        return commands.Basic.QosOk()

    def _ring(self, channel: Channel) -> None:
        for dispatcher in self._vhost.dispatchers.values():
            if any(consumer.channel is channel for consumer in dispatcher.consumers):
                dispatcher.ring()

    async def _confirm(self, channel: Channel, told: commands.Confirm.Select) -> Frame | None:
        if channel.transaction is not None:
            raise Fault(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        channel.confirming = True
        return None if told.nowait else commands.Confirm.SelectOk()

    # Exchanges and queues

    async def _exchange_declare(self, channel: Channel, told: commands.Exchange.Declare) -> Frame | None:
        arguments = plain(told.arguments)
        name = told.exchange
        if name == DEFAULT:
            raise Fault(ACCESS_REFUSED, "operation not permitted on the default exchange: it is there, for good")
        if told.passive:
            await self._topology.known_exchange(name)
        else:
            made = Exchange(name, told.exchange_type, told.durable, told.auto_delete, told.internal, arguments)
            await self._topology.declare_exchange(made)
        return None if told.nowait else commands.Exchange.DeclareOk()

    async def _exchange_delete(self, channel: Channel, told: commands.Exchange.Delete) -> Frame | None:
        await self._topology.delete_exchange(told.exchange, told.if_unused)
        self._rights.changed("delete_exchange", told.exchange)
        return None if told.nowait else commands.Exchange.DeleteOk()

    async def _exchange_bind(self, channel: Channel, told: commands.Exchange.Bind) -> Frame | None:
        arguments = told.arguments or {}
        await self._topology.bind(told.source, "exchange", told.destination, told.routing_key, arguments)
        return None if told.nowait else commands.Exchange.BindOk()

    async def _exchange_unbind(self, channel: Channel, told: commands.Exchange.Unbind) -> Frame | None:
        arguments = told.arguments or {}
        await self._topology.unbind(told.source, "exchange", told.destination, told.routing_key, arguments)
        return None if told.nowait else commands.Exchange.UnbindOk()

    async def _queue_declare(self, channel: Channel, told: commands.Queue.Declare) -> bytes | None:
        if told.queue == REPLY_TO:
            return None if told.nowait else frames.declared(channel.number, REPLY_TO, 0, 0)
        if told.passive:
            name = self._queue_of(channel, told.queue)
            self._rights.demand_any(("publish", "receive"), topic_of(name))
            await self._topology.known(name)
            await self._vhost.touch(name)
        else:
            queue = await self._topology.declare(
                told.queue, told.durable, told.exclusive, told.auto_delete, plain(told.arguments)
            )
            name = queue.name
        channel.last_queue = name
        if told.nowait:
            return None
        return frames.declared(channel.number, name, await self._vhost.depth(name), self._vhost.consumers(name))

    async def _queue_bind(self, channel: Channel, told: commands.Queue.Bind) -> Frame | None:
        queue, arguments = self._queue_of(channel, told.queue), told.arguments or {}
        await self._topology.bind(told.exchange, "queue", queue, _key_of(told, queue), arguments)
        return None if told.nowait else commands.Queue.BindOk()

    async def _queue_unbind(self, channel: Channel, told: commands.Queue.Unbind) -> Frame:
        queue, arguments = self._queue_of(channel, told.queue), told.arguments or {}
        await self._topology.unbind(told.exchange, "queue", queue, _key_of(told, queue), arguments)
        return commands.Queue.UnbindOk()

    async def _queue_purge(self, channel: Channel, told: commands.Queue.Purge) -> Frame | None:
        queue = self._queue_of(channel, told.queue)
        count = await self._topology.purge(queue)
        self._rights.changed("purge", topic_of(queue))
        return None if told.nowait else commands.Queue.PurgeOk(count)

    async def _queue_delete(self, channel: Channel, told: commands.Queue.Delete) -> Frame | None:
        queue = self._queue_of(channel, told.queue)
        count = await self._topology.delete(queue, told.if_unused, told.if_empty)
        self._rights.changed("delete", topic_of(queue))
        return None if told.nowait else commands.Queue.DeleteOk(count)

    def _queue_of(self, channel: Channel, name: str) -> str:
        """No name: the last that was declared on the channel."""
        found = name or channel.last_queue
        if not found:
            raise Fault(NOT_FOUND, "no queue is named, and none was declared on this channel")
        return found

    # Consume

    async def _consume(self, channel: Channel, told: commands.Basic.Consume) -> bytes | None:
        name = self._queue_of(channel, told.queue)
        tag = told.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
        priority = priority_of(told.arguments)
        if tag in channel.consumers:
            raise Fault(NOT_ALLOWED, f"attempt to reuse consumer tag {tag!r:.100}")
        if len(channel.consumers) >= CONSUMERS_MAX:
            raise Fault(NOT_ALLOWED, f"{CONSUMERS_MAX} consumers on one channel are enough")
        if name == REPLY_TO:
            name = channel.reply_queue = await self._reply_queue(channel, told)
        else:
            await self._topology.known(name)
            self._rights.demand("receive", topic_of(name))
        others = self._vhost.dispatchers[name].consumers if name in self._vhost.dispatchers else []
        if others and (told.exclusive or any(other.exclusive for other in others)):
            raise Fault(ACCESS_REFUSED, f"queue {name!r:.100} in exclusive use")
        await self._vhost.use(name)
        prefetch = channel.consumer_prefetch
        consumer = Consumer(channel, tag, told.no_ack, prefetch, told.exclusive, name, priority)
        channel.consumers[tag] = consumer
        if not told.nowait:
            channel.connection.send(frames.named(channel.number, frames.CONSUME_OK, short_text(tag)))
        self._vhost.dispatcher(name).join(consumer)
        return None

    async def _reply_queue(self, channel: Channel, told: commands.Basic.Consume) -> str:
        if not told.no_ack:
            raise Fault(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if channel.reply_queue:
            raise Fault(PRECONDITION_FAILED, "reply consumer already set")
        return await self._topology.make_reply_queue()

    async def _cancel(self, channel: Channel, told: commands.Basic.Cancel) -> bytes | None:
        tag = told.consumer_tag or ""
        consumer = channel.consumers.pop(tag, None)
        if consumer is not None:
            if consumer.queue == channel.reply_queue:
                channel.reply_queue = ""
            await self.part(consumer)
        if told.nowait:
            return None
        return frames.named(channel.number, frames.CANCEL_OK, short_text(tag))

    async def part(self, consumer: Consumer) -> None:
        """A consumer goes. Its queue may go with it."""
        dispatcher = self._vhost.dispatchers.get(consumer.queue)
        if dispatcher is not None:
            await dispatcher.part(consumer)
        await self._vhost.leave(consumer.queue)

    async def _get(self, channel: Channel, told: commands.Basic.Get) -> bytes | Frame:
        name = self._queue_of(channel, told.queue)
        await self._topology.known(name)
        topic = topic_of(name)
        self._rights.demand("receive", topic)
        await self._vhost.touch(name)
        if channel.connection.laden and not told.no_ack:
            raise Fault(PRECONDITION_FAILED, f"{channel.connection.handed} bytes of messages are not settled yet")
        found = await self._vhost.broker.receive(topic, 1, group=GROUP, visibility=GOT_LASTS_SECONDS)
        if not found:
            return commands.Basic.GetEmpty()
        message = found[0]
        address, raw = Reader(name).read(message)
        tag = channel.got(name, message, told.no_ack, raw)
        if told.no_ack:
            await self._vhost.ack(found)
        else:
            self._vhost.gotten[message.id] = message
        left = await self._vhost.depth(name)
        head = frames.got(channel.number, tag, self._vhost.is_again(message), address, left)
        return head + frames.content(channel.number, raw, message.payload, channel.connection.frame_max)

    async def _recover(self, channel: Channel, told: Frame) -> Frame | None:
        if not told["requeue"]:
            raise Fault(NOT_IMPLEMENTED, "recover without requeue: messages go back to their queue, and come again")
        batch = Batch()
        batch.give_back(channel.settled(0, True))
        batch.ring(self._vhost)
        await batch.settle(self._vhost)
        return commands.Basic.RecoverOk() if isinstance(told, commands.Basic.Recover) else None

    # Transactions

    async def _tx_select(self, channel: Channel, told: commands.Tx.Select) -> Frame:
        if channel.confirming:
            raise Fault(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        channel.transaction = channel.transaction or ([], [])
        return commands.Tx.SelectOk()

    async def _tx_commit(self, channel: Channel, told: commands.Tx.Commit) -> Frame:
        """What was published first: if that fails nothing is settled."""
        published, settlings = channel.taken_aside()
        faults = await self._publisher.publish((channel, one) for one in published)
        batch = Batch()
        faults = faults or batch.take(settlings)
        if faults:
            raise faults[0][1]
        batch.ring(self._vhost)
        try:
            await batch.settle(self._vhost)
        except LeaseLost as error:
            raise Fault(PRECONDITION_FAILED, error.message) from error
        return commands.Tx.CommitOk()

    async def _tx_rollback(self, channel: Channel, told: commands.Tx.Rollback) -> Frame:
        channel.taken_aside()
        return commands.Tx.RollbackOk()


def _key_of(told: commands.Queue.Bind | commands.Queue.Unbind, queue: str) -> str:
    """Neither queue nor key: the key is the name of the last queue, too."""
    return queue if not told.queue and not told.routing_key else told.routing_key


_CALLS: dict[type, Callable[[Methods, Channel, Any], Awaitable[Frame | bytes | None]]] = {
    commands.Channel.Flow: Methods._flow,
    commands.Basic.Qos: Methods._qos,
    commands.Confirm.Select: Methods._confirm,
    commands.Exchange.Declare: Methods._exchange_declare,
    commands.Exchange.Delete: Methods._exchange_delete,
    commands.Exchange.Bind: Methods._exchange_bind,
    commands.Exchange.Unbind: Methods._exchange_unbind,
    commands.Queue.Declare: Methods._queue_declare,
    commands.Queue.Bind: Methods._queue_bind,
    commands.Queue.Unbind: Methods._queue_unbind,
    commands.Queue.Purge: Methods._queue_purge,
    commands.Queue.Delete: Methods._queue_delete,
    commands.Basic.Consume: Methods._consume,
    commands.Basic.Cancel: Methods._cancel,
    commands.Basic.Get: Methods._get,
    commands.Basic.Recover: Methods._recover,
    commands.Basic.RecoverAsync: Methods._recover,
    commands.Tx.Select: Methods._tx_select,
    commands.Tx.Commit: Methods._tx_commit,
    commands.Tx.Rollback: Methods._tx_rollback,
}
