"""What is done with the virtual shards of an estate though nobody calls: time passes, checkpoints are taken, days go.

Lives in the loop of the estate; what waits for the server is done by a thread. A checkpoint is taken at once and
written down later: what is handed in meanwhile is not part of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from mqueue.cluster import upkeep
from mqueue.cluster.holding import Holding
from mqueue.cluster.problems import reason
from mqueue.heart.far import FAR_MS
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced, NoTopic
from mqueue.model.clock import Clock
from mqueue.model.errors import Error

LOGGER = logging.getLogger("mqueue.cluster")
_TICK_SECONDS = 0.1
_FRAMES_AHEAD = 4
"""So many frames are loaded in a round whose hour is near: some 10 ms if they have a thousand messages each. In that
hour it makes 140,000; if there are more, the rest is loaded when it is due."""
_TIDY_MS = 600_000
"""So often days are made and dropped."""
_AGAIN_MS = 10_000
"""After so long a checkpoint that could not be taken is tried again."""


class Rounds:
    """`errand` does something in a thread; `lost` is told of holdings that have to be taken over anew."""

    def __init__(
        self,
        name: str,
        holdings: Mapping[int, Holding],
        clock: Clock,
        link: Link,
        errand: Callable[..., Awaitable[Any]],
        ask: Callable[[Holding], None],
        lost: Callable[[list[Holding]], None],
    ) -> None:
        self._name = name
        self._holdings = holdings
        self._clock = clock
        self._link = link
        self._errand = errand
        self._ask = ask
        self._lost = lost
        self._keeping: asyncio.Future[None] | None = None
        self._tidy_at = 0
        self._told: dict[str, str] = {}
        """What has failed, and how: said once."""
        self._again_at: dict[int, int] = {}
        """When a checkpoint that could not be taken is tried again, by virtual shard."""

    async def walk(self, owner: Callable[[], UUID]) -> None:
        """For ever, whatever fails. `owner`: who we are just now."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            frames = _FRAMES_AHEAD
            for holding in list(self._holdings.values()):
                frames -= self.tick(holding, frames)
                self._save(holding, owner())
            if self._clock.now() >= self._tidy_at:
                await self._tidy()

    def _save(self, holding: Holding, owner: UUID) -> None:
        """Take a checkpoint, if it is time. One that cannot be taken holds up no other."""
        now = self._clock.now()
        if self._keeping or holding.lost is not None or holding.leaving or self._again_at.get(holding.vshard, 0) > now:
            return
        about = f"no checkpoint of virtual shard {holding.vshard}"
        try:
            if upkeep.due(holding, now):
                point = upkeep.take(holding, now)
                self._keeping = asyncio.ensure_future(self._keep(holding, point, owner))
                self._keeping.add_done_callback(self._kept)
                self._again_at.pop(holding.vshard, None)
                self._told.pop(about, None)
        except Exception as problem:
            self._again_at[holding.vshard] = now + _AGAIN_MS
            self._tell(about, problem)

    def _tell(self, about: str, problem: Exception) -> None:
        if self._told.get(about) != str(problem):
            self._told[about] = str(problem)
            surprise = None if isinstance(problem, Error) else problem
            LOGGER.warning("%s: %s: %s", self._name, about, problem, exc_info=surprise)

    def tick(self, holding: Holding, frames: int = 0) -> int:
        """Let time pass, and load at most so many frames that will be due soon; how many were.

        Who stumbles over that is taken over anew: what he remembers cannot be right.
        """
        loaded = 0
        if holding.lost is not None or holding.leaving:
            return loaded
        try:
            with holding.gate.inside:
                holding.log.wants = False
                now = holding.engine.tick()
                loaded = holding.store.ahead.load(now + FAR_MS, frames)
            if holding.log.batch:
                self._ask(holding)
            if self._told:
                self._told.pop(_standing(holding), None)
        except Error as problem:
            self._tell(_standing(holding), problem)
        except Exception as problem:
            LOGGER.exception("%s: virtual shard %d is taken over anew", self._name, holding.vshard)
            holding.lose(reason(problem))
            self._lost([holding])
        return loaded

    async def _keep(self, holding: Holding, point: upkeep.Point, owner: UUID) -> None:
        """Write down a checkpoint. Who has lost the virtual shard meanwhile learns of it when he commits."""
        holding.point_at = point.at  # also if it fails: not at once again
        try:
            await self._errand(upkeep.keep, self._link, owner, point)
        except (Error, Fenced, NoTopic) as problem:
            LOGGER.warning("%s: no checkpoint of virtual shard %d: %s", self._name, holding.vshard, problem)
        else:
            upkeep.kept(holding, point)

    def _kept(self, done: asyncio.Future[None]) -> None:
        self._keeping = None
        if not done.cancelled() and done.exception() is not None:
            LOGGER.error("%s: a checkpoint failed", self._name, exc_info=done.exception())

    async def _tidy(self) -> None:
        self._tidy_at = self._clock.now() + _TIDY_MS
        try:
            await self._errand(upkeep.tidy, self._link, self._clock.now())
        except Exception as problem:
            self._tell("old days could not be dropped", problem)
        else:
            self._told.pop("old days could not be dropped", None)


def _standing(holding: Holding) -> str:
    return f"time does not pass in virtual shard {holding.vshard}"
