"""What an estate tells the atlas of its server, and short looks at where virtual shards are, for those who wait.

Lives in the loop of the estate. A whole look takes many questions; who publishes to what has moved waits for two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from mqueue.cluster import survey
from mqueue.cluster.atlas import Atlas
from mqueue.cluster.survey import Owner
from mqueue.cluster.tenure import REST_SECONDS, Tenure
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.moving import Row
from mqueue.model.errors import Error


class Glances:
    """`place`: of the server. `errand` does something in a thread, with `link`."""

    def __init__(
        self, atlas: Atlas, place: int, tenure: Tenure, link: Link, errand: Callable[..., Awaitable[Any]]
    ) -> None:
        self._atlas = atlas
        self._place = place
        self._tenure = tenure
        self._link = link
        self._errand = errand
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        """Something is not where it was."""
        self._stirred.set()

    def believe(self, owners: dict[int, Owner], away: list[Row], begun: float) -> None:
        """Take away what another server has by now, whatever is said here."""
        epochs = {vshard: owner.map_epoch for vshard, owner in owners.items()}
        for vshard in self._atlas.tell(self._place, epochs, away, begun):
            owners.pop(vshard, None)
        self._atlas.complain()

    async def walk(self) -> None:
        """For ever, whenever somebody stirs."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            with suppress(Error):  # there is a look every second
                begun, owners, away = await self._errand(survey.glance, self._link)
                self.believe(owners, away, begun)
                if owners.keys() != self._tenure.owners.keys():  # something to be owned, or to be forgotten
                    self._tenure.look_soon()
                self._tenure.see(owners, begun)
            await asyncio.sleep(REST_SECONDS)
