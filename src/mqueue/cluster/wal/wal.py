"""The log of a node at one server, put together: where it lies, who writes, who copies, who flushes.

Lives in the loop of the estate. The estate says who we are there and tells others of what was appended.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from mqueue.cluster.breaker import Breaker
from mqueue.cluster.buffer import Buffer
from mqueue.cluster.meters import Meters
from mqueue.cluster.redis.line import Away
from mqueue.cluster.tickets import Ticket
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.drain import Drain
from mqueue.cluster.wal.flush import Flush
from mqueue.cluster.wal.flusher import Flusher
from mqueue.cluster.wal.following import Following
from mqueue.cluster.wal.intake import Intake
from mqueue.cluster.wal.nodelog import Place
from mqueue.log.postgres import flushing
from mqueue.log.postgres.appends import Sheet
from mqueue.log.postgres.batch import Arrival, Promise
from mqueue.model.errors import ShardDown

LOGGER = logging.getLogger("mqueue.cluster")

_CLOSING_SECONDS = 5.0
_END = 1 << 62


class Publisher(Protocol):
    """Where everything goes that the log cannot take. What waits there and what lies in the log are counted together,
    and so are failures."""

    buffer: Buffer
    breaker: Breaker

    def sheet(self, promise: Promise) -> Sheet: ...

    def adopt(self, promises: list[Promise], tickets: list[Ticket]) -> None: ...


class Wal:
    """`path`: the directory of the logs, for this node and server alone."""

    def __init__(
        self,
        path: str,
        copies: Copies,
        flush: Flush,
        publisher: Publisher,
        meters: Meters,
        now: Callable[[], int],
        owner: Callable[[], UUID],
        told: Callable[[list[Arrival]], Awaitable[None]],
        told_late: Callable[[list[Arrival], set[int]], Awaitable[None]],
    ) -> None:
        self._place = Place(path)
        try:
            self._log = self._place.begin()
        except BaseException:
            self._place.close()
            raise
        self._copies = copies
        self._flush = flush
        self._flusher = Flusher(
            self._log,
            flush,
            Drain(flush, copies, self._place, self._log.uuid, meters),
            publisher.buffer,
            publisher.breaker,
            meters,
            now,
            told,
            told_late,
            lambda positions: self.intake.settled(positions),
        )
        self.intake = Intake(self._log, copies, self._flusher, owner, publisher.sheet, publisher.adopt)

    async def run(self) -> None:
        await self._flusher.run()

    async def close(self) -> None:
        """Flush what can be flushed. A log that has nothing left goes; else it waits, here and in Redis."""
        await self.intake.close()
        await self._flusher.close(_CLOSING_SECONDS)
        self.intake.end()
        self._log.close()
        if self._flusher.idle:
            self._forget()
        else:
            LOGGER.warning("some of the log %s is not flushed: it waits for the next start", self._log.uuid.hex)
        self._flusher.end()
        self._place.close()

    def _forget(self) -> None:
        """Nobody will ever ask for this log again."""
        uuid = self._log.uuid
        with suppress(Away, ShardDown):
            self._copies.drop_before(uuid, _END)
            self._place.remove(uuid)
            flushing.forget(self._flush.link, uuid)


Logs = Wal | Following
"""What a node does about logs at one server."""


def opened(
    path: str | None,
    copies: Copies,
    flush: Flush,
    publisher: Publisher,
    meters: Meters,
    now: Callable[[], int],
    owner: Callable[[], UUID],
    told: Callable[[list[Arrival]], Awaitable[None]],
    told_late: Callable[[list[Arrival], set[int]], Awaitable[None]],
) -> Logs:
    """With a log of its own if there is a directory for it; else for those of others alone."""
    if path is None:
        return Following(copies, flush, publisher.breaker, meters, told_late)
    return Wal(path, copies, flush, publisher, meters, now, owner, told, told_late)
