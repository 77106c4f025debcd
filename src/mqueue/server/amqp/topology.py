"""What clients make and take away: exchanges, queues, bindings. Each call checks, then changes the catalog once."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from mqueue.broker.aio import AsyncBroker
from mqueue.model.errors import Conflict, NotFound
from mqueue.server.amqp.arguments import (
    check_exchange,
    check_match,
    check_queue,
    check_same,
    check_same_exchange,
    plain,
    settings_of,
)
from mqueue.server.amqp.errors import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED, Fault
from mqueue.server.amqp.exchanges import DEFAULT, Binding, Exchange, Kind
from mqueue.server.amqp.names import GROUP, REPLY_TO, topic_of
from mqueue.server.amqp.records import Bound, ExchangeGone, ExchangeMade, Queue, QueueMade, Unbound
from mqueue.server.amqp.rights import Rights
from mqueue.server.amqp.vhost import Vhost

_RESERVED = "amq."


class Topology:
    """The calls of one connection: what it owns, what it may do."""

    def __init__(self, vhost: Vhost, rights: Rights, connection: str) -> None:
        self._vhost = vhost
        self._rights = rights
        self._connection = connection

    # Queues

    async def declare(
        self, name: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: dict[str, Any]
    ) -> Queue:
        """A queue, made if it is not there. Raises Fault."""
        vhost = self._vhost
        if not name:
            name = f"{_RESERVED}gen-{secrets.token_urlsafe(16)}"
        elif name.startswith(_RESERVED) and vhost.queue(name) is None:
            raise Fault(ACCESS_REFUSED, f"queue name {name!r:.100} contains reserved prefix 'amq.*'")
        wanted = Queue(name, durable, auto_delete, self._connection if exclusive else "", check_queue(arguments))
        self._may_make(wanted)
        async with vhost.lock(name):
            await vhost.catalog.catch_up()
            if vhost.queue(name) is None:
                await self._make(wanted)
        queue = await self.known(name)
        if bool(queue.owner) != exclusive:
            raise _locked(name)
        check_same(queue, wanted)
        if exclusive:
            vhost.owned[name] = self._connection
        if queue.temporary:
            await (vhost.use(name) if exclusive else vhost.touch(name))
        vhost.undertaker.look()
        return queue

    def _may_make(self, queue: Queue) -> None:
        """Who publishes to a queue or receives from it may make it. Where its dead go, they have to be let in, too."""
        self._rights.demand_any(("publish", "receive"), topic_of(queue.name))
        if queue.dead_exchange is not None:
            self._may_reach(queue.dead_exchange, queue.dead_key)

    def _may_reach(self, exchange: str, key: str | None) -> None:
        """Whether messages may be sent on to an exchange; from the default one, with any key, to every queue."""
        if exchange != DEFAULT:
            self._rights.demand("publish", topic_of(exchange))
        elif key is not None:
            self._rights.demand("publish", topic_of(key))
        else:
            self._rights.demand("publish", None)

    async def _make(self, queue: Queue) -> None:
        """The topic first: a queue that is in the catalog has one."""
        topic, broker = topic_of(queue.name), self._vhost.broker
        fresh = await _is_new(broker, topic)
        settings = settings_of(queue, fresh)
        if not fresh and (settings or queue.temporary):  # somebody else's topic would change, or go
            self._rights.demand("manage", topic)
        if settings:
            await broker.configure(topic, **settings)
        with suppress(Conflict):  # the group is there
            await broker.create_group(topic, GROUP)
        await self._vhost.catalog.change(QueueMade(queue))

    async def make_reply_queue(self) -> str:
        """A queue for the answers to one channel: it goes with its consumer."""
        queue = Queue(f"{REPLY_TO}.{secrets.token_urlsafe(16)}", False, True, self._connection)
        await self._make(queue)
        self._vhost.owned[queue.name] = self._connection
        return queue.name

    async def known(self, name: str) -> Queue:
        """A queue that has to be there: declared by somebody, or a topic. Raises Fault."""
        queue = self._vhost.queue(name)
        if queue is None:
            await self._vhost.catalog.catch_up()
            queue = self._vhost.queue(name)
        if queue is None:
            if not name or not await self._vhost.has_topic(name):
                raise Fault(NOT_FOUND, f"no queue {name!r:.100} in vhost {self._vhost.namespace!r}")
            return Queue(name)
        if queue.owner and queue.owner != self._connection:
            raise _locked(name)
        return queue

    async def delete(self, name: str, if_unused: bool, if_empty: bool) -> int:
        """How many messages went with it. Raises Fault; one that is not there is no error."""
        try:
            queue = await self.known(name)
        except Fault as fault:
            if fault.code == NOT_FOUND:
                return 0
            raise
        if not queue.owner:
            self._rights.demand("manage", topic_of(name))
        if if_unused and self._vhost.consumers(name):
            raise Fault(PRECONDITION_FAILED, f"queue {name!r:.100} in use")
        depth = await self._vhost.depth(name)
        if if_empty and depth:
            raise Fault(PRECONDITION_FAILED, f"queue {name!r:.100} not empty: it has {depth} messages")
        await self._vhost.drop(name)
        return depth

    async def purge(self, name: str) -> int:
        """How many messages went: those that are ready. What somebody has stays, and what is delayed."""
        queue = await self.known(name)
        if not queue.owner:
            self._rights.demand("manage", topic_of(name))
        try:
            return await self._vhost.broker.purge(topic_of(name), ready_for=GROUP)
        except NotFound:
            return 0

    # Exchanges

    async def declare_exchange(self, wanted: Exchange) -> None:
        await self._vhost.catalog.catch_up()
        exchanges = self._vhost.catalog.contents.exchanges
        if wanted.name not in exchanges:
            if wanted.name.startswith(_RESERVED):
                raise Fault(ACCESS_REFUSED, f"exchange name {wanted.name!r:.100} contains reserved prefix 'amq.*'")
            check_exchange(wanted)
            self._rights.demand_any(("publish", "receive"), topic_of(wanted.name))
            if wanted.alternate is not None:
                self._may_reach(wanted.alternate, None)
            await self._vhost.catalog.change(ExchangeMade(wanted))
        check_same_exchange(await self.known_exchange(wanted.name), wanted)

    async def known_exchange(self, name: str) -> Exchange:
        found = self._vhost.catalog.contents.exchanges.get(name)
        if found is None:
            await self._vhost.catalog.catch_up()
            found = self._vhost.catalog.contents.exchanges.get(name)
        if found is None:
            raise Fault(NOT_FOUND, f"no exchange {name!r:.100} in vhost {self._vhost.namespace!r}")
        return found

    async def delete_exchange(self, name: str, if_unused: bool) -> None:
        if name == DEFAULT or name.startswith(_RESERVED):
            raise Fault(ACCESS_REFUSED, f"exchange {name!r} is there for good")
        try:
            await self.known_exchange(name)
        except Fault:
            return
        self._rights.demand("manage", topic_of(name))
        if if_unused and self._vhost.catalog.contents.is_bound_from(name):
            raise Fault(PRECONDITION_FAILED, f"exchange {name!r:.100} in use")
        await self._vhost.catalog.change(ExchangeGone(name))

    # Bindings

    async def bind(self, source: str, kind: Kind, target: str, key: str, arguments: dict[str, Any]) -> None:
        binding = await self._binding(source, kind, target, key, arguments)
        if binding.identity not in self._vhost.catalog.contents.bindings:
            await self._vhost.catalog.change(Bound(binding))

    async def unbind(self, source: str, kind: Kind, target: str, key: str, arguments: dict[str, Any]) -> None:
        binding = await self._binding(source, kind, target, key, arguments)
        if binding.identity in self._vhost.catalog.contents.bindings:
            await self._vhost.catalog.change(Unbound(binding))

    async def _binding(self, source: str, kind: Kind, target: str, key: str, arguments: dict[str, Any]) -> Binding:
        if DEFAULT in (source, target):
            raise Fault(ACCESS_REFUSED, "nothing is bound to the default exchange, or taken from it, but by its name")
        exchange = await self.known_exchange(source)
        self._rights.demand("receive", topic_of(source))
        if exchange.routes_as == "headers":
            check_match(arguments)
        if kind == "exchange":
            await self.known_exchange(target)
            self._rights.demand("publish", topic_of(target))
        else:
            queue = await self.known(target)
            if not queue.owner:
                self._rights.demand("publish", topic_of(target))
            if self._vhost.queue(target) is None:  # a topic that nobody has declared as a queue yet
                await self._vhost.catalog.change(QueueMade(queue))
        return Binding(source, kind, target, key, plain(arguments))


def _locked(name: str) -> Fault:
    return Fault(
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked queue {name!r:.100}: another connection has it, or it was declared "
        "with another value of 'exclusive'",
    )


async def _is_new(broker: AsyncBroker, topic: str) -> bool:
    try:
        await broker.settings(topic)
    except NotFound:
        return True
    return False
