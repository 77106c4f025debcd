"""The overview of a server that is alone."""

from __future__ import annotations

from mqueue.server.http.call import Call
from mqueue.server.overview.sampler import Sampler
from mqueue.server.overview.window import Asked, see, shown
from mqueue.wire.json_overview import OverviewOut


class LocalOverview:
    """Of what one sampler counts."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    async def look(self, call: Call, asked: Asked) -> OverviewOut:
        await self._sampler.fresh()
        return shown(self._sampler, see(self._sampler, asked, call.principal, asked.skip))

    async def following(self, number: int) -> int | None:
        return await self._sampler.following(number)
