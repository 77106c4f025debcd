"""Counts all topics again and again, and keeps what they added up to for half an hour: the charts begin there.

Every other second while somebody watches, else now and then; never more than a small part of one processor. Whoever
watches waits here for the next count. Lives in the loop of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from heapq import nsmallest
from operator import attrgetter
from time import perf_counter

from mqueue.broker.broker import Broker
from mqueue.broker.tallies import Tally, tallies
from mqueue.model.clock import Clock
from mqueue.model.errors import Unavailable
from mqueue.server.overview.rows import Rows, Sums, added, sums

LOGGER = logging.getLogger("mqueue.server")

WATCHED_SECONDS = 2.0
ALONE_SECONDS = 10.0
"""Between two counts while nobody watches."""
_LOAD_MAX = 0.04
"""Of one processor."""
POINTS_MAX = 180
"""Of the past, one for each `ALONE_SECONDS`."""
SPACES_MAX = 50
"""Namespaces whose past is kept, those that came first."""
TOPICS_MAX = 200
"""Topics whose past is kept: those of most interest at each time, and no more than twice as many in all."""
TOPICS_AT_ONCE = 128

Count = Callable[[], AsyncIterator[tuple[Sequence[Tally], float]]]
"""Some topics at a time, and how many seconds of the processor it took to count them."""


class Past(deque[tuple[int, Sums]]):
    """What some topics added up to, and when."""

    def __init__(self) -> None:
        super().__init__(maxlen=POINTS_MAX)


class Sampler:
    """`count` counts all topics there are here."""

    def __init__(self, count: Count, clock: Clock) -> None:
        self.count = count
        self._clock = clock
        self.rows = Rows()
        self.at = 0
        """When it was counted last."""
        self.cost_seconds = 0.0
        """What the last count took of the processor."""
        self.sums = Sums()
        self.past: dict[str | None, Past] = {None: Past()}
        """By namespace; None: all of them together."""
        self.by_topic: dict[tuple[str, str], Past] = {}
        self.by_space: dict[str, Sums] = {}
        self._began_at = self._ended_at = 0.0
        """The last count, by the clock of the loop."""
        self._kept_at = 0.0
        self._watchers = 0
        self._news = asyncio.Event()
        self._stir = asyncio.Event()
        self._over = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Count by itself from now on. Where nobody has said so it begins with the first who watches."""
        if self._task is None and not self._over.is_set():
            self._task = asyncio.ensure_future(self._walk())

    async def close(self) -> None:
        """A count that is under way comes to its end; whoever waits for the next one is let go."""
        self._over.set()
        self._stir.set()
        self._news.set()
        if self._task is not None:
            await self._task

    async def fresh(self) -> None:
        """Count, unless it is too soon for another one: whoever looks has what those who watch have."""
        async with self._turn:
            if not self.at or self._rest_seconds() <= 0:
                await self._count()
        self._news.set()

    async def following(self, number: int) -> int | None:
        """Wait for a count after this one; its number. None: there are no more."""
        self._watchers += 1
        self.start()
        try:
            self._stir.set()
            while self.rows.number <= number and not self._over.is_set():
                self._news.clear()
                await self._news.wait()
        finally:
            self._watchers -= 1
        return None if self._over.is_set() else self.rows.number

    async def run_once(self) -> None:
        async with self._turn:
            await self._count()
        self._news.set()

    async def _count(self) -> None:
        began, now = asyncio.get_running_loop().time(), self._clock.now()
        seconds = max(began - self._began_at, 0.001)
        cost, count = 0.0, 0
        self.rows.begin(now)
        async for some, took in self.count():
            begun = perf_counter()
            self.rows.count(some, seconds)
            count += len(some)
            cost += took + perf_counter() - begun
        begun = perf_counter()
        self.rows.end(count)
        self._add_up(now, began)
        self.cost_seconds = cost + perf_counter() - begun
        self.at, self._began_at = now, began
        self._ended_at = asyncio.get_running_loop().time()

    def _rest_seconds(self) -> float:
        """How long to wait for the next count, so that the load stays low however many look."""
        least = max(WATCHED_SECONDS, self.cost_seconds / _LOAD_MAX)
        return self._ended_at + least - asyncio.get_running_loop().time()

    def _add_up(self, now: int, began: float) -> None:
        self.by_space = {name: sums(rows) for name, rows in self.rows.spaces.items()}
        self.sums = added(self.by_space.values())
        if began - self._kept_at < ALONE_SECONDS * 0.9 and self._kept_at:
            return
        self._kept_at = began
        self.past[None].append((now, self.sums))
        for name, one in self.by_space.items():
            if name in self.past or len(self.past) <= SPACES_MAX:
                self.past.setdefault(name, Past()).append((now, one))
        for name in [name for name in self.past if name is not None and name not in self.by_space]:
            del self.past[name]
        self._keep_topics(now)

    def _keep_topics(self, now: int) -> None:
        """Those that were kept longest ago go first, once there are too many."""
        for row in nsmallest(TOPICS_MAX, self.rows.all, key=attrgetter("interest")):
            past = self.by_topic.pop((row.namespace, row.topic), None) or Past()
            past.append((now, sums([row])))
            self.by_topic[row.namespace, row.topic] = past
        while len(self.by_topic) > 2 * TOPICS_MAX:
            del self.by_topic[next(iter(self.by_topic))]

    async def _walk(self) -> None:
        while not self._over.is_set():
            try:
                await self.fresh()
            except Unavailable:  # nothing can be counted now: what was known last is shown, and that it is old
                self._news.set()
            except Exception:
                LOGGER.exception("a count of all topics failed")
            await self._rest()

    async def _rest(self) -> None:
        """Somebody who comes to watch ends a long rest, but not the rest that keeps the load low."""
        least = self._rest_seconds()
        if least <= 0:  # it could not be counted
            least = WATCHED_SECONDS
        await _within(self._over, least)
        self._stir.clear()
        if not self._watchers and not self._over.is_set():
            await _within(self._stir, max(0.0, ALONE_SECONDS - least))


def counts_of(broker: Broker) -> Count:
    """The topics of a broker, some at a time, so that no call has to wait for a count."""

    async def count() -> AsyncIterator[tuple[Sequence[Tally], float]]:
        begun = perf_counter()
        for some in tallies(broker, TOPICS_AT_ONCE):
            yield some, perf_counter() - begun
            await asyncio.sleep(0)
            begun = perf_counter()

    return count


async def _within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
