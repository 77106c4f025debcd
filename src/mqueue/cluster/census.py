"""All virtual shards that an estate owns, at one moment, for who counts what they have.

Lives in the loop of the estate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from mqueue.cluster.holding import Holding
from mqueue.log.postgres.catalog import TopicRow
from mqueue.model.errors import Unavailable


async def everything(
    mine: Mapping[int, int],
    holdings: Mapping[int, Holding],
    topics_of: Callable[[list[int]], Awaitable[dict[int, list[TopicRow]]]],
    take_over: Callable[[int], Awaitable[Holding]],
    catch_up: Callable[[], Awaitable[None]],
    tick: Callable[[Holding], int],
) -> dict[int, Holding | None]:
    """Those that are ours, with what other nodes have appended by now; None: no topic is there. Those that cannot be
    taken over just now are left out."""
    bare = [vshard for vshard in mine if vshard not in holdings]
    topics = await topics_of(bare) if bare else {}
    for vshard in [vshard for vshard, rows in topics.items() if rows]:
        with suppress(Unavailable):
            await take_over(vshard)
    await catch_up()
    for holding in list(holdings.values()):
        tick(holding)
    waits = [holding.settled() for holding in holdings.values()]
    await asyncio.gather(*waits, return_exceptions=True)  # one that is lost is not there any more
    return {vshard: holdings.get(vshard) for vshard in mine if vshard in holdings or topics.get(vshard) == []}
