"""A node alone, whose calls are made from a test, and which is stopped and started again there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any
from uuid import UUID

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.loop import LoopBroker
from mqueue.broker.twin import twin_of
from mqueue.cluster import upkeep
from mqueue.cluster.estate import Estate
from mqueue.cluster.holding import Holding
from mqueue.cluster.plan import SESSION_MS, Plan, Seat
from mqueue.log.postgres import days, migrate
from mqueue.log.postgres.link import Link
from mqueue.model.ident import IdSource
from mqueue.model.limits import Limits
from mqueue.model.settings import Settings
from mqueue.policy.quota import Quotas
from mqueue.policy.routing import virtual_shard
from mqueue.testing import ManualClock

VSHARD = virtual_shard("default", "t")


class Alone:
    """A node with one server, whose calls are made from a test. It can be stopped and started again."""

    def __init__(self, url: str, clock: ManualClock, session_ms: int = SESSION_MS) -> None:
        self.clock = clock
        self._session_ms = session_ms
        self._url = url
        self.link = Link(url, "test")
        migrate.migrate(self.link)
        migrate.assign(self.link, 0, 1, UUID(int=7))
        self.start()

    def start(self) -> None:
        seat = Seat(1, "http://here", self._session_ms)
        plan = Plan(seat, Settings(), Limits(), Quotas(None), IdSource(1), self.clock)
        self.estate = Estate(self._url, "only", plan, _nobody, _anything)
        self.estate.start()

    def stop(self) -> None:
        """It hands over and is gone: nothing changes any more until it is started again."""
        self.estate.close()

    def again(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.estate.close()
        self.link.close()

    def ask(self, work: Callable[[AsyncBroker, AsyncBroker], Awaitable[Any]]) -> Any:
        """`work(publishes, delivers)`: calls on both brokers, in the loop of the estate."""

        async def inside() -> Any:
            holding = await self.estate.holding(VSHARD)
            await self.estate.refresh(holding)
            engines = (self.estate.mouth.engine, holding.engine)
            return await work(*(twin_of(LoopBroker._over(engine, "default", "")) for engine in engines))

        return asyncio.run_coroutine_threadsafe(inside(), self.estate.loop).result(120)

    def save(self) -> None:
        """A checkpoint, now."""

        async def inside() -> tuple[Holding, upkeep.Point]:
            holding = await self.estate.holding(VSHARD)
            await self.estate.refresh(holding)
            await holding.settled()  # as `upkeep.due` asks for: time that passed may have handed in something
            return holding, upkeep.take(holding, self.clock.now())

        holding, point = asyncio.run_coroutine_threadsafe(inside(), self.estate.loop).result(120)
        upkeep.keep(self.link, self.estate._tenure.owner, point)
        self.estate.loop.call_soon_threadsafe(upkeep.kept, holding, point)

    def tidy(self) -> list[date]:
        """Drop old days; the days that are left. The node does the same by itself, perhaps in this moment."""
        upkeep.tidy(self.link, self.clock.now())
        return days.days(self.link)


def _anything(link: Link) -> None:
    """Whatever the server is, it belongs here."""


def _nobody(address: str, namespace: str, topic: str) -> None:
    raise AssertionError("there is no other node")
