"""Dead letters: what dies in a queue that names an exchange for it is published there.

The dead lie in the topic beside the queue's (`<topic>.dlq`), put there in the commit in which they died. From there one
task for each such queue hands them on. They are settled when they lie where they belong: in the same commit where that
can be, else after it, so that a crash in between may double one and loses none.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from mqueue.broker.message import AsyncMessage
from mqueue.model.errors import Closed, Error, LeaseLost, NotFound, QueueFull, Refused
from mqueue.model.message import Draft
from mqueue.model.names import dlq_name
from mqueue.server.amqp import properties
from mqueue.server.amqp.content import Reader, headers_of, texts
from mqueue.server.amqp.deaths import REASONS, after_death, goes_round
from mqueue.server.amqp.drafting import item_for, keys_of
from mqueue.server.amqp.errors import Fault
from mqueue.server.amqp.names import topic_of
from mqueue.server.amqp.outlet import Item
from mqueue.server.amqp.records import Queue
from mqueue.wire.story import STORY

if TYPE_CHECKING:
    from mqueue.server.amqp.vhost import Vhost

LOGGER = logging.getLogger("mqueue.amqp")

Place = tuple[int, str]
"""The id of a dead message, and a topic that it belongs in."""

_SETTINGS = {"retention": {"on_ack": True}}
"""Of the topic in which the dead wait: what was handed on is there no more."""
_AT_ONCE = 100
_PAUSE_SECONDS = 1.0
_TOLD = frozenset(STORY)
"""Headers that a broker adds to the dead; they are not those of the message."""


class Undertaker:
    """`look` begins and ends what has to be done, as the catalog says."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        """Whose queue is gone: they let go of what they hold."""

    def look(self) -> None:
        queues = self._vhost.catalog.contents.queues
        wanted = {name for name, queue in queues.items() if queue.dead_exchange is not None}
        for name in wanted - self._at_work.keys():
            self._at_work[name] = asyncio.create_task(self._run(name), name="mqueue-amqp-undertaker")
        for name in self._at_work.keys() - wanted:
            task = self._at_work.pop(name)
            task.cancel()
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def finish(self, queue: Queue) -> bool:
        """Of a queue that is gone: hand on what died in it before. Whether that is all of it."""
        if self._leaving:
            await asyncio.wait(self._leaving)
        broker, graves = self._vhost.broker, dlq_name(topic_of(queue.name))
        try:
            while found := await broker.receive(graves, _AT_ONCE):
                await self._bury(queue, found, set())
        except NotFound:
            pass
        except Error as error:
            LOGGER.warning("queue %r is gone, and what died in it stays in %r: %s", queue.name, graves, error)
            return False
        return True

    async def close(self) -> None:
        tasks, self._at_work = [*self._at_work.values(), *self._leaving], {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, name: str) -> None:
        """Those at hand are tried until they are where they belong, and only then the next: what is held here is held
        for good, and nobody else would do it."""
        graves = dlq_name(topic_of(name))
        supply = self._vhost.broker.supply(graves)
        dead: list[AsyncMessage] = []
        reached: set[Place] = set()
        told = tidy = False
        try:
            while True:
                try:
                    if not dead:
                        dead, reached, told = await supply.take_async(_AT_ONCE), set(), False
                    queue = self._vhost.queue(name)
                    if dead and not tidy:
                        await self._vhost.broker.configure(graves, **_SETTINGS)
                        tidy = True
                    if dead and queue is not None:
                        await self._bury(queue, dead, reached)
                    dead = []
                except Closed:
                    return
                except LeaseLost as error:
                    dead = [message for message in dead if error.lost and message.id not in error.lost]
                except Error as error:
                    if not told:
                        LOGGER.warning("the dead of queue %r stay where they are for now: %s", name, error)
                    told = True
                    await asyncio.sleep(_PAUSE_SECONDS)
                except Exception:
                    LOGGER.exception("the dead of queue %r stay where they are for now", name)
                    await asyncio.sleep(_PAUSE_SECONDS)
                await asyncio.sleep(0)
        finally:
            supply.give_back()

    async def _bury(self, queue: Queue, dead: list[AsyncMessage], reached: set[Place]) -> None:
        """All of them in one commit, if that can be. `reached`: where some of them are already."""
        broker = self._vhost.broker
        found = [(message.id, item) for message in dead for item in self._items(queue, message)]
        places = [(id, item.topic) for id, item in found if (id, item.topic) not in reached]
        items = [item for id, item in found if (id, item.topic) not in reached]
        if not items:
            await broker.ack(dead)
            return
        if not reached:
            try:
                await broker.ack(dead, publish=[_draft(item) for item in items])
                return
            except (Refused, QueueFull):
                pass  # elsewhere, or one of them cannot be taken
        lost = await self._vhost.outlet.send(items)
        later = {row: error for row, error in lost.items() if error.retryable}
        reached |= {place for row, place in enumerate(places) if row not in later}
        for error in [error for error in lost.values() if not error.retryable][:1]:
            LOGGER.warning("%s of the dead of queue %r are lost: %s", len(lost) - len(later), queue.name, error)
        for error in later.values():
            raise error
        await broker.ack(dead)

    def _items(self, queue: Queue, message: AsyncMessage) -> list[Item]:
        """The dead message for each queue that it is routed to."""
        told = message.headers
        reason = REASONS.get(str(told.get("x-reason", "")), "delivery_limit")
        own = {name: value for name, value in told.items() if name not in _TOLD}
        address, raw = Reader(queue.name).read_headers(own)
        try:
            came_by, key = texts(address)
            values = properties.read(raw)
        except ValueError:  # somebody else's header, that looks like ours
            came_by, key, values = "", queue.name, {}
        keys = _keys(key, values)
        after = after_death(values, queue.name, reason, came_by, keys, self._vhost.clock.now() // 1000)
        contents = self._vhost.catalog.contents
        exchange = queue.dead_exchange or ""
        if queue.dead_key is not None:
            key, keys = queue.dead_key, [queue.dead_key]
            after["headers"].pop("CC", None)
        if exchange not in contents.exchanges:
            return []
        headers = headers_of(exchange, key, properties.write(after), after)
        routed = (contents.router.route(exchange, one, after["headers"]) for one in keys)
        targets = dict.fromkeys(target for found in routed for target in found)
        level = after.get("priority", 0)
        return [
            item_for(topic_of(name), contents.queues[name], message.payload, headers, None, None, level)
            for name in targets
            if reason == "rejected" or not goes_round(after["headers"], name)
        ]


def _keys(key: str, values: dict[str, Any]) -> list[str]:
    try:
        return keys_of(key, values)
    except Fault:  # it came another way, and means something else by that header
        return [key]


def _draft(item: Item) -> Any:
    return Draft(item.body, topic=item.topic) if item.draft is None else item.draft
