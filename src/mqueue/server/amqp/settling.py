"""From acks, nacks and rejects, as they come, to calls: those of one kind together."""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.broker.message import AsyncMessage
from mqueue.model.errors import Error
from mqueue.server.amqp.channel import Channel, Delivered, Settling
from mqueue.server.amqp.errors import Fault
from mqueue.server.amqp.frames import ACK, NACK
from mqueue.server.amqp.vhost import Vhost

_MULTIPLE, _REQUEUE = 1, 2


class Batch:
    """What is to be settled with the next calls."""

    def __init__(self) -> None:
        self._acked: list[AsyncMessage] = []
        self._dead: list[AsyncMessage] = []
        self._back: dict[str, list[AsyncMessage]] = {}
        self.queues: set[str] = set()
        """Whose consumers have room again."""

    def __bool__(self) -> bool:
        return bool(self._acked or self._dead or self._back)

    def take(self, settlings: Iterable[Settling]) -> list[tuple[Channel, Fault]]:
        """Sort them. Those that name what is not there end their channel."""
        faults = []
        queues, acked = self.queues, self._acked
        for told in settlings:
            channel = told.channel
            if channel.closed or channel.closing:
                continue
            if told.method == ACK and not told.bits and (delivered := channel.taken(told.tag)) is not None:
                queues.add(delivered.queue)
                acked.append(delivered.message)
                continue
            multiple = bool(told.bits & _MULTIPLE) and told.method in (ACK, NACK)
            requeue = bool(told.bits & (_REQUEUE if told.method == NACK else 1)) and told.method != ACK
            try:
                for delivered in channel.settled(told.tag, multiple):
                    self._add(delivered, told.method == ACK, requeue)
            except Fault as fault:
                fault.method = told.method
                faults.append((channel, fault))
        return faults

    def give_back(self, delivered: Iterable[Delivered]) -> None:
        for one in delivered:
            self._add(one, False, True)

    def _add(self, delivered: Delivered, acked: bool, requeue: bool) -> None:
        self.queues.add(delivered.queue)
        if acked:
            self._acked.append(delivered.message)
        elif requeue:
            self._back.setdefault(delivered.queue, []).append(delivered.message)
        else:
            self._dead.append(delivered.message)

    def ring(self, vhost: Vhost) -> None:
        """Room comes before the disk has heard of it."""
        for queue in self.queues:
            dispatcher = vhost.dispatchers.get(queue)
            if dispatcher is not None:
                dispatcher.ring()

    async def settle(self, vhost: Vhost) -> None:
        """Durable on return. Raises Error; then all of it comes again."""
        try:
            if self._acked:
                await vhost.ack(self._acked)
            if self._dead:
                await vhost.reject(self._dead)
        except Error:
            await vhost.give_back([*self._acked, *self._dead])
            raise
        finally:
            for queue, messages in self._back.items():
                await vhost.requeue(queue, messages)
