"""The exchanges, queues and bindings of a namespace, kept durably in its topic `.amqp`, the same at every node.

A change is a publish; it holds once it was read back. So each node follows the topic: before it decides something, and
a few times a second besides. What was written and holds no more goes when a snapshot has been written: a group whose
place is the snapshot lets retention drop what is before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from mqueue.broker.aio import AsyncBroker
from mqueue.model.errors import Conflict, Error, NotFound, Unavailable
from mqueue.model.times import instant
from mqueue.server.amqp.names import CATALOG
from mqueue.server.amqp.records import Contents, QueueGone, Record, fold, read, write

LOGGER = logging.getLogger("mqueue.amqp")

GROUP = "amqp"
_SETTINGS = {"partitions": 1, "retention": {"on_ack": True}, "hold": "36500d", "max_retries": None, "dlq": False}
_RECORDS_MIN = 1_000
"""A snapshot is written after so many records, or as many as there are things, whichever is more."""
_TRIES = 100
_PAUSE_SECONDS = 0.05


class Catalog:
    """`gone` is told of each queue that is there no more."""

    def __init__(self, broker: AsyncBroker, gone: Callable[[str], None]) -> None:
        self._broker = broker
        self._gone = gone
        self._lock = asyncio.Lock()
        self._next: int | None = None
        """The offset to read on from; None: there is no catalog yet."""
        self._since = 0
        """So many records were read since the last snapshot."""
        self.contents = Contents()

    async def catch_up(self) -> None:
        """Know all that was written by now."""
        async with self._lock:
            await self._catch_up()

    async def change(self, *records: Record) -> None:
        """Write these down, in one commit; they hold on return, as far as nobody was first."""
        async with self._lock:
            await self._catch_up()
            if self._next is None:
                await self._found()
            receipts = await self._broker.publish_many(CATALOG, [write(record) for record in records])
            await self._read_to(receipts[-1].offset)
            if self._since > max(_RECORDS_MIN, len(self.contents)):
                await self._snapshot()

    async def _found(self) -> None:
        """The topic, and the group that holds what is needed."""
        await self._broker.configure(CATALOG, **_SETTINGS)
        with suppress(Conflict):  # somebody else was first
            await self._broker.create_group(CATALOG, GROUP)
        self._next = 0

    async def _read_to(self, offset: int) -> None:
        """Until what we wrote was read back. Another node may have to see it first."""
        for _ in range(_TRIES):
            await self._catch_up()
            if self._next is not None and self._next > offset:
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        raise Unavailable("what was written to the catalog cannot be read yet; whether it holds is not known")

    async def _catch_up(self) -> None:
        try:
            (place,) = await self._broker.offsets(CATALOG)
        except NotFound:
            self._forget()
            return
        if self._next is None or not place.first <= self._next <= place.next:  # begun anew, or read on too late
            await self._load()
            self._next = max(self._next or 0, place.next)
        elif place.next > self._next:
            for offset, at, record in await self._read(self._next):
                before = self.contents.queues.keys() & {record.name} if isinstance(record, QueueGone) else ()
                self.contents.apply(record, at)
                self._next = offset + 1
                self._since += 1
                for name in before:
                    self._gone(name)
            self._next = max(self._next, place.next)  # what could not be read is passed over

    async def _load(self) -> None:
        listed = await self._read(0)
        before = self.contents.queues
        self.contents = fold(listed)
        self._next = listed[-1][0] + 1 if listed else 0
        self._since = len(listed)
        for name in before.keys() - self.contents.queues.keys():
            self._gone(name)

    def _forget(self) -> None:
        """Somebody has deleted it, or there never was one."""
        if self._next is not None:
            before, self.contents, self._next = self.contents.queues, Contents(), None
            for name in before:
                self._gone(name)

    async def _read(self, start: int) -> list[tuple[int, int, Record]]:
        found = []
        async for message in self._broker.scan(CATALOG, start=start):
            record = read(message.payload)
            if record is not None:
                found.append((message.offset, instant(message.published_at), record))
        return found

    async def _snapshot(self) -> None:
        """Nobody waits for it: what is not written now is written after the next change."""
        assert self._next is not None
        upto = self._next
        try:
            await self._broker.publish_many(CATALOG, [write(part) for part in self.contents.snapshot(upto)])
            await self._broker.seek(CATALOG, group=GROUP, to=upto)
        except Error as error:
            LOGGER.warning("no snapshot of the catalog could be written: %s", error)
            return
        self._since = 0
