"""What a connection published in one go: routed, published with as few calls as it takes, and confirmed.

A channel that confirms is told when its messages are durable, mostly of many at once. A message that no queue wants is
confirmed as well; who asked for it gets it back before. One that was refused is told so, to a channel that does not
confirm by the end of it: nothing that counts is dropped without a word. What a full queue refuses is its own rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from mqueue.model.errors import Error, QueueFull
from mqueue.server.amqp import frames
from mqueue.server.amqp.channel import Channel
from mqueue.server.amqp.content import address_of
from mqueue.server.amqp.drafting import Publication, addressed, items_of, keys_of, without_blind
from mqueue.server.amqp.errors import ACCESS_REFUSED, NO_ROUTE, PRECONDITION_FAILED, Fault, fault_of
from mqueue.server.amqp.exchanges import DEFAULT
from mqueue.server.amqp.names import topic_of
from mqueue.server.amqp.outlet import Item
from mqueue.server.amqp.properties import PERSISTENT
from mqueue.server.amqp.records import Queue
from mqueue.server.amqp.rights import Rights
from mqueue.server.amqp.topology import Topology
from mqueue.server.amqp.vhost import Vhost

Published = tuple[Channel, Publication]


class _Post(Struct, frozen=True, gc=False):
    """Where the items of one message are. `tag` 0: nobody waits for a confirm."""

    channel: Channel
    tag: int
    start: int
    stop: int


class Routed(Struct, frozen=True):
    """Messages on their way to topics. `faults`: which channels end by them, and why."""

    items: list[Item]
    posts: list[_Post]
    faults: list[tuple[Channel, Fault]]


class Publisher:
    """Of one connection."""

    def __init__(self, vhost: Vhost, rights: Rights, topology: Topology) -> None:
        self._vhost = vhost
        self._rights = rights
        self._topology = topology

    async def publish(self, published: Iterable[Published]) -> list[tuple[Channel, Fault]]:
        """What a transaction published: durable on return. Which channels end by it, and why."""
        routed = await self.route(published)
        lost = await self._vhost.outlet.send(routed.items)
        faults = routed.faults + self.confirm(routed, lost)
        if lost and not faults:  # by a queue that is full: without a word it would be as if all were there
            error = next(iter(lost.values()))
            faults = [(routed.posts[0].channel, Fault(PRECONDITION_FAILED, f"partial tx completion: {error.message}"))]
        return faults

    async def route(self, published: Iterable[Published]) -> Routed:
        """What is to be sent for messages, in their order. Who asked for them gets back those that nobody wants."""
        items: list[Item] = []
        posts: list[_Post] = []
        faults: list[tuple[Channel, Fault]] = []
        ended: set[Channel] = set()
        straight: dict[str, str] = {}
        """Topics of queues that are there, and may be published to: found once for all messages."""
        for channel, publication in published:
            if channel.closing or channel.closed or channel in ended:
                continue
            tag = channel.published = channel.published + 1 if channel.confirming else 0
            start = len(items)
            plain = publication.raw == PERSISTENT and not publication.exchange
            topic = straight.get(publication.key) if plain else None
            if topic is not None:
                items.append(Item(topic, publication.body))
                posts.append(_Post(channel, tag, start, start + 1))
                continue
            try:
                await self._route(addressed(publication, channel.reply_queue), items)
            except (Fault, Error) as error:
                fault = fault_of(error)
                fault.method = frames.PUBLISH
                faults.append((channel, fault))
                ended.add(channel)
                continue
            if plain and len(items) > start:
                straight[publication.key] = items[start].topic
            if len(items) == start:
                self._vhost.counts.unrouted += 1
                if publication.mandatory:
                    self._give_back(channel, publication)
            posts.append(_Post(channel, tag, start, len(items)))
        return Routed(items, posts, faults)

    def confirm(self, routed: Routed, lost: dict[int, Error]) -> list[tuple[Channel, Fault]]:
        """Tell what became of what was sent. Which channels end by it, and why."""
        counts = self._vhost.counts
        counts.published += len(routed.items) - len(lost)
        counts.refused += len(lost)
        for channel, told in _by_channel(routed.posts).items():
            if not (channel.closing or channel.closed):  # its number may be that of a new one by now
                channel.connection.out.append(_confirms(channel, told, lost))
                channel.connection.flush()
        return self._judge(routed.posts, lost) if lost else []

    async def _route(self, publication: Publication, items: list[Item]) -> None:
        """The items for all queues that want a message. Raises Fault or Error."""
        contents = self._vhost.catalog.contents
        name = publication.exchange
        if name == DEFAULT:
            await self._straight(publication, items)
            return
        exchange = contents.exchanges.get(name) or await self._topology.known_exchange(name)
        self._rights.demand("publish", topic_of(name))
        if exchange.internal:
            raise Fault(ACCESS_REFUSED, f"cannot publish to internal exchange {name!r:.100}")
        values = publication.values()
        contents = self._vhost.catalog.contents
        headers = values.get("headers") or {}
        queues = [
            queue for key in keys_of(publication.key, values) for queue in contents.router.route(name, key, headers)
        ]
        wanted = {queue: contents.queues[queue] for queue in queues if queue in contents.queues}
        items += items_of(without_blind(publication, values), values, exchange, wanted)

    async def _straight(self, publication: Publication, items: list[Item]) -> None:
        """To the queue of that name, and those that get a copy."""
        if publication.raw == PERSISTENT:
            wanted = await self._named([publication.key])
            items += [Item(topic_of(name), publication.body) for name in wanted]
            return
        values = publication.values()
        wanted = await self._named(keys_of(publication.key, values))
        exchange = self._vhost.catalog.contents.exchanges[DEFAULT]
        items += items_of(without_blind(publication, values), values, exchange, wanted)

    async def _named(self, names: list[str]) -> dict[str, Queue]:
        """Those of these queues that there are. Raises Error unless all of them may be published to."""
        wanted: dict[str, Queue] = {}
        for name in filter(None, names):
            self._rights.demand("publish", topic_of(name))
            queue = self._vhost.queue(name) or await self._vhost.found(name)
            if queue is not None:
                wanted[name] = queue
        return wanted

    def _give_back(self, channel: Channel, publication: Publication) -> None:
        address = address_of(publication.exchange, publication.key)
        connection = channel.connection
        connection.out.append(frames.returned(channel.number, NO_ROUTE, "NO_ROUTE", address))
        connection.out.append(frames.content(channel.number, publication.raw, publication.body, connection.frame_max))

    def _judge(self, posts: list[_Post], lost: dict[int, Error]) -> list[tuple[Channel, Fault]]:
        """Who does not confirm and lost something has to be told otherwise."""
        faults: dict[Channel, Fault] = {}
        for post in posts:
            if not post.tag and post.channel not in faults:
                errors = (lost[place] for place in range(post.start, post.stop) if place in lost)
                error = next((error for error in errors if not isinstance(error, QueueFull)), None)
                if error is not None:
                    faults[post.channel] = fault_of(error)
        return list(faults.items())


def _by_channel(posts: list[_Post]) -> dict[Channel, list[_Post]]:
    found: dict[Channel, list[_Post]] = {}
    for post in posts:
        if post.tag:
            found.setdefault(post.channel, []).append(post)
    return found


def _confirms(channel: Channel, posts: list[_Post], lost: dict[int, Error]) -> bytes:
    """One frame for all, if all were taken. Tags come in order: what is before one that failed is confirmed first."""
    number, parts, run = channel.number, list[bytes](), 0
    for post in posts:
        if lost and any(place in lost for place in range(post.start, post.stop)):
            if run:
                parts.append(frames.confirmed(number, post.tag - 1, run > 1))
            parts.append(frames.refused(number, post.tag))
            run = 0
        else:
            run += 1
    if run:
        parts.append(frames.confirmed(number, posts[-1].tag, run > 1))
    return b"".join(parts)
