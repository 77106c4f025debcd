"""What a node does about logs that has none of its own: it brings to the shard what others left in Redis.

Lives in the loop of the estate; statements run in a thread. While the shard is in trouble everything stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mqueue.cluster.breaker import Breaker
from mqueue.cluster.errands import Errands
from mqueue.cluster.meters import Meters
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.drain import Drain
from mqueue.cluster.wal.flush import Flush
from mqueue.cluster.wal.flusher import LOOK_SECONDS
from mqueue.log.postgres.batch import Arrival
from mqueue.model.errors import Error

LOGGER = logging.getLogger("mqueue.cluster")


class Following:
    """`told_late` is awaited with what was appended, and its topics."""

    intake = None
    """Nothing is handed in here."""

    def __init__(
        self,
        copies: Copies,
        flush: Flush,
        breaker: Breaker,
        meters: Meters,
        told_late: Callable[[list[Arrival], set[int]], Awaitable[None]],
    ) -> None:
        self._flush = flush
        self._drain = Drain(flush, copies, None, None, meters)
        self._breaker = breaker
        self._meters = meters
        self._told_late = told_late
        self._errand = Errands("follow")
        self._trouble = ""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.run_once()

    async def run_once(self) -> None:
        """All that is left of nodes that are gone. Nobody waits for it: others try whether the shard is well."""
        try:
            if self._breaker.closed:
                await self._errand(self._drain.look)
            while self._breaker.closed and (found := await self._errand(self._drain.run_once)) is not None:
                if found:
                    await self._told_late(found, {arrival.topic for arrival in found})
        except Exception as problem:
            self._failed(problem)
        else:
            self._trouble = ""

    def _failed(self, problem: Exception) -> None:
        self._meters.flush_failures += 1
        said = str(problem) or type(problem).__name__
        if said != self._trouble:
            known = isinstance(problem, Error)
            LOGGER.warning("what others left in Redis waits: %s", said, exc_info=None if known else problem)
        self._trouble = said

    async def close(self) -> None:
        self._errand.close()
        self._drain.close()
        self._flush.close()
