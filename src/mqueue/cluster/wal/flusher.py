"""The duty that brings what lies in the log of a node to its shard, and what others left behind.

Lives in the loop of the estate; statements run in a thread. While the shard is in trouble everything stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import force_setattr

from mqueue.cluster.breaker import Breaker
from mqueue.cluster.buffer import Buffer
from mqueue.cluster.meters import Meters
from mqueue.cluster.problems import reason
from mqueue.cluster.wal.abroad import arrival_of
from mqueue.cluster.wal.drain import Drain
from mqueue.cluster.wal.flush import GONE, Flush, affordable
from mqueue.cluster.wal.nodelog import NodeLog
from mqueue.cluster.wal.records import Stretch
from mqueue.log.postgres import flushing, frames
from mqueue.log.postgres.appends import Appended
from mqueue.log.postgres.batch import Arrival, Promise
from mqueue.log.postgres.problems import NoTopic
from mqueue.model.errors import Error, ShardDown

T = TypeVar("T")
LOGGER = logging.getLogger("mqueue.cluster")

IDLE_SECONDS = 1.0
LOOK_SECONDS = 5.0
"""How often logs are looked for whose nodes are gone."""
_TIDY_FLUSHES = 256


class Kept(Stretch):
    """A commit of our own log that is not in the shard yet. `at`: when it was written."""

    promises: Sequence[Promise]
    at: int


class Flusher:
    """`told` is awaited with what was appended; `told_late` with what others would not look for any more, because it is
    old, and with topics that got something which we do not know. `settled` is called with the positions of commits
    that are in the shard."""

    def __init__(
        self,
        log: NodeLog,
        flush: Flush,
        drain: Drain,
        buffer: Buffer,
        breaker: Breaker,
        meters: Meters,
        now: Callable[[], int],
        told: Callable[[list[Arrival]], Awaitable[None]],
        told_late: Callable[[list[Arrival], set[int]], Awaitable[None]],
        settled: Callable[[list[int]], None],
    ) -> None:
        self._log = log
        self._flush = flush
        self._drain = drain
        self._buffer = buffer
        self._breaker = breaker
        self._meters = meters
        self._now = now
        self._told = told
        self._told_late = told_late
        self._settled = settled
        self._kept: deque[Kept] = deque()
        self._kick = asyncio.Event()
        self._look_at = 0.0
        self._draining = False
        """Whether somebody may have left more behind."""
        self._flushes = 0
        self._flushed = 0
        """The position up to which the shard had our log."""
        self._generation = flush.link.seen.generation
        """Of the servers of the shard, when that was known."""
        self._trouble = ""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mqueue-flush")

    def add(self, kept: Sequence[Kept]) -> None:
        """These are durable in the log."""
        self._kept += kept
        self._measure()
        self._kick.set()

    @property
    def idle(self) -> bool:
        return not self._kept

    @property
    def all(self) -> list[Kept]:
        """What is in our log and not in the shard yet, in order."""
        return list(self._kept)

    @property
    def last(self) -> int | None:
        """Where the last of these begins."""
        return self._kept[-1].start if self._kept else None

    async def run(self) -> None:
        while True:
            if await self.run_once():
                continue
            if self._trouble:
                await asyncio.sleep(IDLE_SECONDS)
                continue
            self._kick.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._kick.wait()

    async def run_once(self) -> bool:
        """One statement: for what lies in our log, else for what others left. Whether there may be more to do."""
        self._measure()
        changed = self._flushed > 0 and self._generation != self._flush.link.seen.generation
        if not changed and not self._kept and not self._draining and time.monotonic() < self._look_at:
            return False
        try:
            self._breaker.admit(time.monotonic())
        except ShardDown as refusal:
            self._trouble = refusal.message
            return False
        try:
            if changed:
                await self._bring_again()
            worked = await (self._flush_own() if self._kept else self._flush_remains())
        except Exception as problem:
            self._failed(problem)
            return False
        self._trouble = ""
        if worked:
            self._breaker.worked()
        else:
            self._breaker.gave_up()
        return worked

    def _failed(self, problem: Exception) -> None:
        self._meters.flush_failures += 1
        if isinstance(problem, ShardDown):
            self._breaker.failed(time.monotonic())
        else:
            self._breaker.gave_up()
        said = str(problem) or type(problem).__name__
        if said != self._trouble:
            known = isinstance(problem, Error)
            LOGGER.warning("the log of the node waits: %s", said, exc_info=None if known else problem)
        self._trouble = said

    async def close(self, seconds: float) -> None:
        """Flush what can be flushed within a time."""
        until = time.monotonic() + seconds
        while self._kept and time.monotonic() < until and await self.run_once():
            pass

    def end(self) -> None:
        """Nothing is flushed any more."""
        self._thread.shutdown(wait=True)
        self._drain.close()
        self._flush.close()

    # Our own

    async def _flush_own(self) -> bool:
        part = affordable(self._kept)
        places = await self._errand(lambda: self._flush.append(self._log.uuid, part, once=False))
        if places is None:
            await self._skip()
        else:
            await self._land([self._kept.popleft() for _ in part], places)
        await self._tidy()
        return True

    async def _bring_again(self) -> None:
        """Another server is the primary, or the same one has started again: maybe without what was flushed."""
        while (found := await self._errand(self._sent_again)) is not None:
            await self._told_late(found, {arrival.topic for arrival in found})
        self._generation = self._flush.link.seen.generation

    def _sent_again(self) -> list[Arrival] | None:
        """In the thread: some of what the shard has not got, or has forgotten, read back from the disk as far as it is
        there. None: it has all."""
        link, log = self._flush.link, self._log
        done = flushing.flushed(link, log.uuid)
        if done >= self._flushed:
            return None
        part = affordable(log.stretches(done, self._flushed))
        sheets = [sheet for stretch in part for sheet in stretch.sheets]
        tell = LOGGER.warning if sheets else LOGGER.error
        tell("%s has not got our log from position %d on: %d frames of it go again", link.server, done, len(sheets))
        places = self._flush.append(log.uuid, part, once=True)
        if places is None:
            return []
        return [arrival_of(*one) for one in zip(sheets, places, strict=True) if one[1].base >= 0]

    async def _land(self, part: list[Kept], places: list[Appended]) -> None:
        promises = [promise for kept in part for promise in kept.promises]
        arrivals = []
        for promise, place in zip(promises, places, strict=True):
            if place is GONE:
                promise.failed = reason(NoTopic())
            else:
                arrivals.append(promise.land(place.base, place.at))
        self._meters.flushed += sum(arrival.count for arrival in arrivals)
        self._done(part)
        await self._told(arrivals)

    async def _skip(self) -> None:
        """The log is flushed up to another place: what we were not told of was done, by us or for us."""
        done = await self._errand(lambda: flushing.flushed(self._flush.link, self._log.uuid))
        part = []
        while self._kept and self._kept[0].stop <= done:
            part.append(self._kept.popleft())
        if part:
            promises = [promise for kept in part for promise in kept.promises]
            found = await self._errand(lambda: [frames.find(self._flush.link, promise.id) for promise in promises])
            for promise, place in zip(promises, found, strict=True):
                _landed_unseen(promise, -1 if place is None else place[2])
            self._done(part)
            await self._told_late([], {promise.frame.topic for promise in promises})
        elif self._kept and self._kept[0].start > done:
            self._flushed, self._generation = self._kept[0].start, -1  # it goes again with the next step

    def _done(self, part: list[Kept]) -> None:
        self._flushed = part[-1].stop
        self._buffer.release(promise for kept in part for promise in kept.promises)
        self._measure()
        self._settled([kept.start for kept in part])

    def _measure(self) -> None:
        self._meters.flush_lag_ms = max(0, self._now() - self._kept[0].at) if self._kept else 0

    async def _tidy(self) -> None:
        """What is in the shard goes from the disk: once it was read back from there."""
        self._flushes += 1
        if self._flushes % _TIDY_FLUSHES == 0:
            await self._errand(lambda: flushing.forget_older(self._flush.link, self._log.uuid))
        flushed = self._kept[0].start if self._kept else 1 << 62
        if self._log.may_trim(flushed):
            done = await self._errand(lambda: flushing.flushed(self._flush.link, self._log.uuid))
            await self._errand(lambda: self._log.trim(done))

    # Others'

    async def _flush_remains(self) -> bool:
        """Whether anything was done."""
        if not self._draining:
            self._look_at = time.monotonic() + LOOK_SECONDS
            await self._errand(self._drain.look)
        found = await self._errand(self._drain.run_once)
        self._draining = found is not None
        if found:
            await self._told_late(found, {arrival.topic for arrival in found})
        return self._draining

    async def _errand(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _landed_unseen(promise: Promise, base: int) -> None:
    """It is in the shard, and we were not told where."""
    promise.landed = True
    for row, receipt in promise.receipts:
        force_setattr(receipt, "offset", -1 if base < 0 else base + row)
