"""Virtual shards of an estate that are being taken over, one after the other, in the background, or could not be.

Lives in the loop of the estate. Whoever asks for one that is not there yet waits for that one alone; it is begun beside
those in the background. One that cannot be read holds up no other: it is tried again later, and whoever asks meanwhile
is told why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from mqueue.cluster.holding import Holding
from mqueue.heart.state import State
from mqueue.log.postgres.log import PostgresLog
from mqueue.model.errors import Corrupt, Error, Unavailable
from mqueue.store.recover import MISFITS, recover

LOGGER = logging.getLogger("mqueue.cluster")
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 1.0, 60.0
"""Between two attempts on one that cannot be read."""


class Failure(Struct):
    why: Error
    pause: float
    """0: whoever asks may try at once."""
    until: float


class Takeovers:
    """`mine`: the virtual shards that are ours, with their epochs. `load` takes one over."""

    def __init__(
        self,
        name: str,
        holdings: Mapping[int, Holding],
        mine: Mapping[int, int],
        load: Callable[[int, int], Awaitable[Holding]],
    ) -> None:
        self._name = name
        self._holdings = holdings
        self._mine = mine
        self._load = load
        self._wanted: dict[int, None] = {}
        """In the order in which they are begun."""
        self._under_way: dict[tuple[int, int], asyncio.Future[Holding]] = {}
        """By virtual shard and epoch: one that was owned anew meanwhile is not the same."""
        self._failures: dict[int, Failure] = {}
        self._worker: asyncio.Future[None] | None = None

    def want(self, vshards: Iterable[int]) -> None:
        """Take these over, in the background."""
        self._wanted.update(dict.fromkeys(vshards))
        if self._wanted and self._worker is None:
            self._worker = asyncio.ensure_future(self._work())

    def again(self) -> None:
        """Try those once more that failed, if they have rested for long enough."""
        for vshard in [one for one in self._failures if one not in self._mine or one in self._holdings]:
            del self._failures[vshard]
        now = time.monotonic()
        self.want([vshard for vshard, failure in self._failures.items() if failure.until <= now])

    async def get(self, vshard: int) -> Holding:
        """A virtual shard that is ours, taken over if need be. Raises Unavailable if it is not, or cannot be read."""
        found = self._holdings.get(vshard)
        if found is not None:
            return found
        epoch = self._mine.get(vshard)
        if epoch is None:
            raise Unavailable(f"this node does not deliver from virtual shard {vshard}", code="not_owner")
        failure = self._failures.get(vshard)
        if failure is not None and time.monotonic() < failure.until:
            raise Unavailable(failure.why.message, code=failure.why.code)
        begun = self._under_way.get((vshard, epoch))
        if begun is None:
            begun = self._under_way[vshard, epoch] = asyncio.ensure_future(self._try(vshard, epoch))
            begun.add_done_callback(lambda done: self._over(vshard, epoch, done))
        return await asyncio.shield(begun)

    async def quiet(self, seconds: float) -> None:
        """Until nothing is wanted in the background, or so long."""
        if self._worker is not None:
            await asyncio.wait([self._worker], timeout=seconds)

    async def close(self) -> None:
        tasks: list[asyncio.Future[Any]] = [*self._under_way.values()]
        if self._worker is not None:
            tasks.append(self._worker)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._wanted:
                vshard = next(iter(self._wanted))
                del self._wanted[vshard]
                if vshard in self._mine:
                    with suppress(Error):  # it was said, and is tried again
                        await self.get(vshard)
        finally:
            self._worker = None

    async def _try(self, vshard: int, epoch: int) -> Holding:
        try:
            holding = await self._load(vshard, epoch)
        except Exception as problem:
            raise self._failed(vshard, epoch, problem) from problem
        self._failures.pop(vshard, None)
        return holding

    def _failed(self, vshard: int, epoch: int, problem: Exception) -> Error:
        """What callers are told. What a server did not answer may be asked again at once; what cannot be read, not."""
        passing = isinstance(problem, Error) and not isinstance(problem, Corrupt)
        why = problem if isinstance(problem, Error) and passing else _unreadable(vshard, problem)
        before = self._failures.get(vshard)
        if before is None or before.why.message != why.message:
            cause = None if passing else problem
            LOGGER.warning("%s: virtual shard %d is not taken over: %s", self._name, vshard, why, exc_info=cause)
        pause = 0.0 if passing else _PAUSE_SECONDS_MIN
        if before is not None and before.pause and pause:
            pause = min(_PAUSE_SECONDS_MAX, 2 * before.pause)
        if self._mine.get(vshard) == epoch:
            self._failures[vshard] = Failure(why, pause, time.monotonic() + pause)
        return why

    def _over(self, vshard: int, epoch: int, done: asyncio.Future[Holding]) -> None:
        del self._under_way[vshard, epoch]
        if not done.cancelled():
            done.exception()  # whoever asked knows it, and it was said


def recovered(log: PostgresLog) -> State:
    """As `recover`. Not everything that it raises would get out of a thread: a StopIteration never arrives."""
    try:
        return recover(log)
    except MISFITS as problem:
        raise Corrupt(f"what is there does not fit together ({type(problem).__name__}: {problem})") from problem


def _unreadable(vshard: int, problem: Exception) -> Unavailable:
    told = str(problem) or type(problem).__name__
    return Unavailable(f"virtual shard {vshard} cannot be read: {told}; it is tried again", code="unreadable")
