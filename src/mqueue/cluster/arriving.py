"""What was appended to a server, by whom ever: whoever delivers it here takes it in.

Lives in the loop of the estate. Nothing depends on being told: what nobody told us of is found when we look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mqueue.cluster.holding import Holding
from mqueue.cluster.problems import reason
from mqueue.log.postgres import catalog, frames
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced
from mqueue.model.errors import Error, Unavailable

LOGGER = logging.getLogger("mqueue.cluster")
_TAIL_FRAMES = 1_000
_CLOSER_SECONDS = 5.0
"""How often what is no news is looked for, for those who wait: it was long on its way, in the log of a node mostly."""


class Arriving:
    """`holdings` are the virtual shards that are delivered here, `homes` those of the topics that we heard of. `errand`
    does something in a thread; `passed` is told of times at which something was appended."""

    def __init__(
        self,
        holdings: Mapping[int, Holding],
        homes: dict[int, int],
        link: Link,
        errand: Callable[..., Awaitable[Any]],
        passed: Callable[[int], None],
    ) -> None:
        self._holdings = holdings
        self._homes = homes
        self._link = link
        self._errand = errand
        self._passed = passed
        self._closer_at = 0.0

    def take(self, arrivals: list[Arrival]) -> None:
        """Frames are there: whoever delivers them takes them in. What does not follow is missed."""
        by_holding: dict[int, list[Arrival]] = {}
        for arrival in arrivals:
            self._passed(arrival.at)
            by_holding.setdefault(self._homes.get(arrival.topic, -1), []).append(arrival)
        for vshard, theirs in by_holding.items():
            holding = self._holdings.get(vshard)
            if holding is not None:
                self._hand(holding, theirs)

    def _hand(self, holding: Holding, arrivals: list[Arrival]) -> None:
        """What cannot be taken in now, because the server has to be asked and does not answer, is missed: whoever reads
        looks for it, and so does the next look."""
        try:
            self._introduce(holding, arrivals)
            holding.arrived(arrivals)
        except Error as problem:
            holding.missed += 1
            LOGGER.warning("virtual shard %d looks later for what is new: %s", holding.vshard, problem)

    def _introduce(self, holding: Holding, arrivals: list[Arrival]) -> None:
        """A topic may be new to whoever delivers it."""
        unknown = {arrival.topic for arrival in arrivals} - holding.store.state.topics.keys()
        if unknown:
            with holding.gate.inside:
                for row in catalog.rows_of(self._link, sorted(unknown)):
                    holding.store.learn(catalog.known_as(row))

    async def follow(self, news: list[tuple[int, int, int]]) -> None:
        """Take in what others have appended and nobody told us of."""
        unheard = {topic for topic, _, _ in news} - self._homes.keys()
        if unheard:
            for row in await self._errand(catalog.rows_of, self._link, sorted(unheard)):
                self._homes[row.id] = row.vshard
        behind = []
        for topic, partition, end in news:
            holding = self._holdings.get(self._homes.get(topic, -1))
            if holding is not None and (start := holding.log.next(topic, partition)) < end:
                behind.append((topic, partition, start))
        await self._tail(behind)

    async def look(self, news: list[tuple[int, int, int]], others: bool) -> None:
        """The same now and then, with what is no news any more for those who wait. `others`: whether there are any."""
        await self.follow(news)
        now = time.monotonic()
        if others and now >= self._closer_at:
            self._closer_at = now + _CLOSER_SECONDS
            places = [place for holding in self._holdings.values() for place in _awaited(holding)]
            ends = await self._errand(frames.ends, self._link, places) if places else []
            await self.follow([(*place, end) for place, end in zip(places, ends, strict=True)])

    async def catch_up(self, holding: Holding) -> None:
        """All that was appended to the topics of a virtual shard by now. Raises Unavailable if it is not ours: others
        may have appended elsewhere; or if it could not be taken in."""
        missed, places = holding.missed, _places(holding)
        owned = (holding.vshard, holding.epoch)
        try:
            ends = await self._errand(frames.ends, self._link, places, owned) if places else []
        except Fenced as problem:
            raise reason(problem) from None
        tried: list[tuple[int, int, int]] = []
        while behind := _behind(holding, places, ends):  # a step for each thousand frames
            if behind == tried:
                raise Unavailable(
                    f"virtual shard {holding.vshard} could not take in what was appended to it; try again",
                    code="shard_slow",
                    retry_after=1,
                )
            await self._tail(behind)
            tried = behind
        holding.made_good = max(missed, holding.made_good)

    async def _tail(self, places: list[tuple[int, int, int]]) -> None:
        if places:
            rows = await self._errand(frames.tails, self._link, places, _TAIL_FRAMES, False)
            self.take([Arrival(*row) for row in rows])


def _behind(holding: Holding, places: list[tuple[int, int]], ends: list[int]) -> list[tuple[int, int, int]]:
    """Of these partitions, where to go on in those that end later than is known here. Topics may be gone by now."""
    topics = holding.store.state.topics
    known = [holding.log.next(*place) for place in places]
    return [
        (*place, next)
        for place, end, next in zip(places, ends, known, strict=True)
        if next < end and place[0] in topics
    ]


def _places(holding: Holding) -> list[tuple[int, int]]:
    topics = holding.store.state.topics.values()
    return [(topic.id, partition.number) for topic in topics for partition in topic.partitions]


def _awaited(holding: Holding) -> list[tuple[int, int]]:
    """The partitions that somebody waits for."""
    with holding.gate.inside:
        waited = holding.engine.waiters.keys() & holding.store.state.topics.keys()
    return [place for place in _places(holding) if place[0] in waited]
