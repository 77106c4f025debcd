"""A namespace as the connections of this node share it: its catalog, its queues at work, its calls.

Everything belongs to the loop of the server. What a queue is used for here is told to other nodes by the catalog:
a queue that goes by itself goes when nobody uses it anywhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.message import AsyncMessage
from mqueue.model.clock import Clock
from mqueue.model.errors import Conflict, LeaseLost, NotFound
from mqueue.model.limits import Limits
from mqueue.model.names import dlq_name
from mqueue.server.amqp.burying import Undertaker
from mqueue.server.amqp.catalog import Catalog
from mqueue.server.amqp.consuming import Dispatcher
from mqueue.server.amqp.debts import Debts
from mqueue.server.amqp.joining import Joined
from mqueue.server.amqp.names import GROUP, topic_of
from mqueue.server.amqp.numbers import Counts
from mqueue.server.amqp.outlet import Outlet
from mqueue.server.amqp.records import USE_LASTS_MS, Queue, QueueGone, Record, Unused, Used

LOGGER = logging.getLogger("mqueue.amqp")

GOT_LASTS_SECONDS = 60
"""A message that somebody got is kept for so long, and again while they are there."""
_TOUCH_MS = USE_LASTS_MS // 3
_KNOWN_SECONDS = 1.0
_KNOWN_MAX = 10_000
_LOOK_SECONDS = 0.1
"""Messages for queues that are not there make nobody look more often than that."""
_RETURNED_MAX = 10_000


class Vhost:
    def __init__(
        self, namespace: str, broker: AsyncBroker, clock: Clock, limits: Limits, node: str, counts: Counts
    ) -> None:
        self.namespace = namespace
        self.broker = broker
        self.clock = clock
        self.limits = limits
        self.node = node
        self.counts = counts
        self.in_order = isinstance(broker, AsyncBroker)
        """Whether calls take effect in the order in which they are made, though nobody waits for one before the next:
        those of a broker in this process do."""
        self.catalog = Catalog(broker, self._gone)
        self.outlet = Outlet(broker, limits, not self.in_order, self._is_gone)
        self._acks: Joined[AsyncMessage, None] = Joined(self._ack)
        self.dispatchers: dict[str, Dispatcher] = {}
        """By queue: those that somebody here consumes from."""
        self.undertaker = Undertaker(self)
        self.debts = Debts()
        self.owned: dict[str, str] = {}
        """Exclusive queues whose connection is here, and which it is."""
        self.gotten: dict[int, AsyncMessage] = {}
        """What was got one by one and is not settled, by id."""
        self.returned: dict[int, None] = {}
        """Ids of messages that came back and whose topic does not count that."""
        self._topics: dict[str, float] = {}
        """Topics that are no queues and are there, and until when that is believed."""
        self._departed: dict[str, tuple[str, int]] = {}
        """Topics of queues that are gone, with their names, and since when: something may still be on its way there."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._touched: dict[str, int] = {}
        """Queues that are used here, and when that was written down."""
        self._last_used: dict[str, int] = {}
        self._look_at = 0.0
        self._began_at = clock.now()
        """What was not used while nobody was here is not old for that."""

    # What there is

    @property
    def idle(self) -> bool:
        """Whether there is nothing to be done while nobody is here."""
        return not (self.catalog.contents.queues or self.gotten or self.debts or self.owned or self.dispatchers)

    def queue(self, name: str) -> Queue | None:
        return self.catalog.contents.queues.get(name)

    async def has_topic(self, name: str) -> bool:
        """Whether a topic is there that nobody declared as a queue."""
        now = time.monotonic()
        if self._topics.get(name, 0) > now:
            return True
        try:
            await self.broker.settings(topic_of(name))
        except NotFound:
            return False
        if len(self._topics) >= _KNOWN_MAX:
            self._topics.clear()
        self._topics[name] = now + _KNOWN_SECONDS
        self._departed.pop(topic_of(name), None)
        return True

    def _is_gone(self, topic: str) -> bool:
        name, _ = self._departed.get(topic, (None, 0))
        return name is not None and self.queue(name) is None

    async def found(self, name: str) -> Queue | None:
        """A queue that is not known: another node has made it just now, or it is a topic; None: it is not there."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            await self.catalog.catch_up()
        queue = self.queue(name)
        return queue if queue is not None or not await self.has_topic(name) else Queue(name)

    async def depth(self, name: str) -> int:
        """How many messages of a queue are ready."""
        try:
            stats = await self.broker.stats(topic_of(name))
        except NotFound:
            return 0
        group = stats.groups.get(GROUP)
        return stats.ready if group is None else group.ready + group.waiting

    def consumers(self, name: str) -> int:
        dispatcher = self.dispatchers.get(name)
        return 0 if dispatcher is None else len(dispatcher.consumers)

    # Settle

    async def ack(self, messages: Sequence[AsyncMessage]) -> None:
        self._let_go(messages)
        await (self._ack(messages) if self.in_order else self._acks.call(messages))

    async def _ack(self, messages: Sequence[AsyncMessage]) -> None:
        with suppress(LeaseLost):  # it comes again: whoever acked it took too long, or the node was away
            await self.broker.ack(messages)

    async def reject(self, messages: Sequence[AsyncMessage]) -> None:
        self._let_go(messages)
        with suppress(LeaseLost):
            await self.broker.reject(messages, error="rejected")

    async def requeue(self, name: str, messages: Sequence[AsyncMessage]) -> None:
        """Back to their places, at once, or as soon as that can be. A queue counts that, so that the next one sees that
        it is not the first; a topic that is none may have a limit, which who was only cut off must not use up."""
        self._let_go(messages)
        if self.queue(name) is not None:
            await self.debts.settle(partial(self._requeue, messages))
            return
        for message in messages:
            self.returned[message.id] = None
        while len(self.returned) > _RETURNED_MAX:
            del self.returned[next(iter(self.returned))]
        await self.release(messages)

    async def _requeue(self, messages: Sequence[AsyncMessage]) -> None:
        with suppress(LeaseLost):
            await self.broker.nack(messages, delay=0)

    async def release(self, messages: Sequence[AsyncMessage]) -> None:
        """Back to their places, as if nobody had had them."""
        await self.debts.settle(partial(self._release, messages))

    async def _release(self, messages: Sequence[AsyncMessage]) -> None:
        with suppress(LeaseLost):
            await self.broker.release(messages)

    async def give_back(self, messages: Sequence[AsyncMessage]) -> None:
        """Requeue messages of any queues."""
        names = {topic_of(name): name for name in self.catalog.contents.queues}
        topics: dict[str, list[AsyncMessage]] = {}
        for message in messages:
            topics.setdefault(message.topic, []).append(message)
        for topic, some in topics.items():
            await self.requeue(names.get(topic, ""), some)

    def is_again(self, message: AsyncMessage) -> bool:
        """Whether somebody had it before."""
        return message.attempt > 1 or (bool(self.returned) and message.id in self.returned)

    def _let_go(self, messages: Sequence[AsyncMessage]) -> None:
        if self.gotten:
            for message in messages:
                self.gotten.pop(message.id, None)

    # Queues that come and go

    def lock(self, name: str) -> asyncio.Lock:
        """Who makes a queue or drops it has this: what one does with its topic is not undone by the other."""
        return self._locks.setdefault(name, asyncio.Lock())

    def dispatcher(self, name: str) -> Dispatcher:
        found = self.dispatchers.get(name)
        if found is None:
            found = self.dispatchers[name] = Dispatcher(self, name)
        return found

    async def use(self, name: str) -> None:
        """Somebody here consumes from a queue, or owns it."""
        queue = self.queue(name)
        self._last_used[name] = self.clock.now()
        if queue is not None and queue.temporary and name not in self._touched:
            self._touched[name] = self.clock.now()
            await self.catalog.change(Used(name, self.node))

    async def touch(self, name: str) -> None:
        """Somebody asked for a queue: it is not forgotten. Other nodes are told now and then."""
        queue, now = self.queue(name), self.clock.now()
        before, self._last_used[name] = self._last_used.get(name, 0), now
        if queue is not None and queue.expires_ms is not None and before + queue.expires_ms // 3 < now:
            await self.catalog.change(Used(name, self.node))

    async def leave(self, name: str) -> None:
        """Nobody here may use a queue any more: it goes, if it was to go with its last consumer."""
        queue = self.queue(name)
        if self.consumers(name) or (name in self.owned and (queue is None or not queue.auto_delete)):
            return
        self._last_used[name] = self.clock.now()
        if queue is not None and self._touched.pop(name, None) is not None:
            await self.debts.settle(partial(self._leave, queue))

    async def _leave(self, queue: Queue) -> None:
        if queue.name in self._touched or self.queue(queue.name) != queue:  # somebody came again, or it is gone
            return
        await self.catalog.change(Unused(queue.name, self.node))
        if queue.auto_delete and not self._used_elsewhere(queue.name, self.clock.now()):
            await self.drop(queue.name)

    async def disown(self, connection: str) -> None:
        """A connection is gone: the queues that were its own go with it."""
        for name in [name for name, owner in self.owned.items() if owner == connection]:
            del self.owned[name]
            self._touched.pop(name, None)
            await self.debts.settle(partial(self._drop_of, name, connection))

    async def _drop_of(self, name: str, connection: str) -> None:
        queue = self.queue(name)
        if queue is not None and queue.owner == connection:
            await self.drop(name)

    def _used_elsewhere(self, name: str, now: int) -> bool:
        uses = self.catalog.contents.uses.get(name, {})
        return any(node != self.node and at + USE_LASTS_MS > now for node, at in uses.items())

    async def drop(self, name: str) -> None:
        """Delete a queue: its consumers are told, its topic goes. What died in it before goes where it belongs."""
        queue = self.queue(name)
        async with self.lock(name):
            await self.catalog.change(QueueGone(name))
            await self.debts.settle(partial(self._delete_topic, name, topic_of(name)))
        if queue is None or queue.dead_exchange is None or await self.undertaker.finish(queue):
            await self.debts.settle(partial(self._delete_topic, name, dlq_name(topic_of(name))))

    async def _delete_topic(self, name: str, topic: str) -> None:
        """That of a queue that is gone; unless somebody has made it anew."""
        if self.queue(name) is None:
            with suppress(NotFound):
                await self.broker.delete_topic(topic)

    def _gone(self, name: str) -> None:
        """A queue is there no more, whoever deleted it."""
        self._departed[topic_of(name)] = name, self.clock.now()
        self._topics.pop(name, None)
        self.owned.pop(name, None)
        self._touched.pop(name, None)
        self._last_used.pop(name, None)
        dispatcher = self.dispatchers.pop(name, None)
        if dispatcher is not None:
            dispatcher.dissolve()
        self.undertaker.look()

    # Now and then

    async def run_once(self) -> None:
        """What has to be done though nobody calls: follow the catalog, be heard of, clear away."""
        await self.debts.run_once()
        await self.catalog.catch_up()
        self.undertaker.look()
        now = self.clock.now()
        self._departed = {topic: gone for topic, gone in self._departed.items() if gone[1] + USE_LASTS_MS > now}
        due = [name for name, at in self._touched.items() if at + _TOUCH_MS <= now]
        if due:
            self._touched.update(dict.fromkeys(due, now))
            records: list[Record] = [Used(name, self.node) for name in due]
            await self.catalog.change(*records)
        for queue in [queue for queue in self.catalog.contents.queues.values() if self._is_stale(queue, now)]:
            await self.catalog.catch_up()  # dropping another one takes its time
            if self.queue(queue.name) == queue and self._is_stale(queue, self.clock.now()):
                LOGGER.info("queue %r is used by nobody any more", queue.name)
                await self.drop(queue.name)

    def _is_stale(self, queue: Queue, now: int) -> bool:
        """Whether the time of a queue is over."""
        name, stays_ms = queue.name, queue.expires_ms
        if queue.auto_delete and name in self.catalog.contents.uses:  # with its last consumer went the node of that
            stays_ms = USE_LASTS_MS if stays_ms is None else min(stays_ms, USE_LASTS_MS)
        if stays_ms is None or name in self._touched or self._used_elsewhere(name, now):
            return False
        return self._seen_at(name) + stays_ms < now

    def _seen_at(self, name: str) -> int:
        """When a queue was used last, as far as is known here."""
        contents = self.catalog.contents
        used = (self._last_used.get(name, 0), *contents.uses.get(name, {}).values())
        return max(self._began_at, contents.made_at[name], *used)

    async def keep_gotten(self) -> None:
        """Whoever got messages one by one keeps them."""
        if self.gotten:
            with suppress(LeaseLost, Conflict):
                await self.broker.extend(list(self.gotten.values()), GOT_LASTS_SECONDS)

    async def close(self) -> None:
        for dispatcher in list(self.dispatchers.values()):
            await dispatcher.close()
        await self.undertaker.close()
