"""What a connection has to do, in the order in which it came. Publishes and settlements that follow each other are one
piece of work: they become few calls, and are durable together."""

from __future__ import annotations

from collections import deque

from mqueue.server.amqp.channel import Channel, Settling
from mqueue.server.amqp.drafting import Publication
from mqueue.server.amqp.publishing import Published


class Bulk:
    """Publishes and settlements."""

    __slots__ = ("published", "settlings", "size")

    def __init__(self) -> None:
        self.published: list[Published] = []
        self.settlings: list[Settling] = []
        self.size = 0
        """Bytes of what was published."""


class Work:
    """A queue of bulks and methods. `size` and `count`: of what is in it."""

    def __init__(self) -> None:
        self._ahead: deque[Bulk | tuple[Channel, bytes]] = deque()
        self.size = 0
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._ahead)

    def publish(self, channel: Channel, publication: Publication) -> None:
        bulk = self._bulk()
        bulk.published.append((channel, publication))
        size = publication.size
        bulk.size += size
        self.size += size
        self.count += 1

    def settle(self, settlings: list[Settling]) -> None:
        """All of these; the list is empty after that."""
        if settlings:
            self._bulk().settlings.extend(settlings)
            self.count += len(settlings)
            settlings.clear()

    def call(self, channel: Channel, payload: bytes) -> None:
        """A method, as it came."""
        self._ahead.append((channel, payload))
        self.size += len(payload)
        self.count += 1

    def take(self) -> Bulk | tuple[Channel, bytes]:
        """The next."""
        found = self._ahead.popleft()
        if isinstance(found, Bulk):
            self.size -= found.size
            self.count -= len(found.published) + len(found.settlings)
        else:
            self.size -= len(found[1])
            self.count -= 1
        return found

    def clear(self) -> None:
        self._ahead.clear()
        self.size = self.count = 0

    def _bulk(self) -> Bulk:
        last = self._ahead[-1] if self._ahead else None
        if not isinstance(last, Bulk):
            last = Bulk()
            self._ahead.append(last)
        return last
