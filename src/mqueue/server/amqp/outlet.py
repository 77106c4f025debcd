"""How what clients publish gets into topics: as few calls as it takes, and what became of each message.

One call is all or none. If it is refused, its halves are tried, and so on: a message that cannot be taken costs no
other one its place. Where topics live on several servers they cannot be in one commit: then each has a call of its own,
and whoever published to several is answered when all of them have. Through a cluster the calls of all connections to
one topic are joined.

What is on its way to a queue that is deleted meanwhile goes with it: publishing it would make the topic anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from mqueue.broker.aio import AsyncBroker
from mqueue.model.errors import Error, QueueFull, Refused
from mqueue.model.limits import Limits
from mqueue.model.message import Draft
from mqueue.server.amqp.joining import Joined

LOGGER = logging.getLogger("mqueue.amqp")

_ELSEWHERE = "elsewhere"
"""The code with which a cluster refuses what cannot be one commit."""
_TOO_MANY = "quota_too_small"
"""More in one call than a minute allows: of several who share it each may be within it."""


class Item(Struct, frozen=True, gc=False):
    """One message for one topic. `draft` None: nothing but a body."""

    topic: str
    body: bytes
    draft: Draft | None = None


class Outlet:
    """`joins`: those who publish to one topic share calls. `is_gone`: whether that of a topic is a queue no more."""

    def __init__(self, broker: AsyncBroker, limits: Limits, joins: bool, is_gone: Callable[[str], bool]) -> None:
        self._broker = broker
        self._joins = joins
        self._is_gone = is_gone
        self._lines: dict[str, Joined[Item, dict[int, Error]]] = {}
        """By topic: those that somebody publishes to now."""
        self._most = limits.call_messages_max
        self._bytes_max = limits.call_bytes_max // 2
        """Half of it: headers count, too."""

    async def send(self, items: Sequence[Item]) -> dict[int, Error]:
        """Publish them; those that were not taken, by their place, and why. All others are durable on return."""
        topic = items[0].topic if items and self._joins else None
        if topic is None or any(item.topic != topic for item in items):
            return await self._send(items)
        line = self._lines.setdefault(topic, Joined(self._send))
        try:
            lost, start = await line.call(items)
        finally:
            if line.idle and self._lines.get(topic) is line:
                del self._lines[topic]
        return {place - start: error for place, error in lost.items() if start <= place < start + len(items)}

    async def _send(self, items: Sequence[Item]) -> dict[int, Error]:
        lost: dict[int, Error] = {}
        for chosen in self._calls(items):
            await self._try(items, chosen, lost)
        return lost

    def _still_wanted(self, items: Sequence[Item], chosen: Sequence[int]) -> Sequence[int]:
        gone = {topic for topic in {items[place].topic for place in chosen} if self._is_gone(topic)}
        return [place for place in chosen if items[place].topic not in gone] if gone else chosen

    def _calls(self, items: Sequence[Item]) -> Iterator[range]:
        """As much as one call takes."""
        start = size = 0
        for place, item in enumerate(items):
            if place - start >= self._most or (size and size + len(item.body) > self._bytes_max):
                yield range(start, place)
                start, size = place, 0
            size += len(item.body)
        if start < len(items):
            yield range(start, len(items))

    async def _try(self, items: Sequence[Item], chosen: Sequence[int], lost: dict[int, Error]) -> None:
        chosen = self._still_wanted(items, chosen)
        if not chosen:
            return
        try:
            await self._publish([items[place] for place in chosen])
        except Error as error:
            if error.code == _ELSEWHERE:
                await self._apart(items, chosen, lost)
            elif isinstance(error, (Refused, QueueFull)) or error.code == _TOO_MANY:
                await self._halves(items, chosen, lost, error)
            else:
                LOGGER.warning("%s messages could not be published: %s", len(chosen), error)
                lost.update(dict.fromkeys(chosen, error))

    async def _publish(self, chosen: list[Item]) -> None:
        topic = chosen[0].topic
        if all(item.topic == topic for item in chosen):
            bodies = [item.body if item.draft is None else item.draft for item in chosen]
            await self._broker.publish_many(topic, bodies)
        else:
            drafts = [Draft(item.body, topic=item.topic) if item.draft is None else item.draft for item in chosen]
            await self._broker.publish_many(None, drafts)

    async def _halves(self, items: Sequence[Item], chosen: Sequence[int], lost: dict[int, Error], error: Error) -> None:
        if len(chosen) == 1:
            lost[chosen[0]] = error
            return
        middle = len(chosen) // 2
        await self._try(items, chosen[:middle], lost)
        await self._try(items, chosen[middle:], lost)

    async def _apart(self, items: Sequence[Item], chosen: Sequence[int], lost: dict[int, Error]) -> None:
        topics: dict[str, list[int]] = {}
        for place in chosen:
            topics.setdefault(items[place].topic, []).append(place)
        await asyncio.gather(*(self._try(items, places, lost) for places in topics.values()))
