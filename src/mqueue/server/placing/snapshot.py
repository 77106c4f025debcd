"""A node at one moment, as far as metrics tell of it: the topics that it delivers, at all servers.

They are counted in the loops of the estates, a few at a time, so that no call has to wait for a scrape. An estate that
does not get to it in time is left out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from mqueue.broker.loop import LoopBroker
from mqueue.cluster.estate import Estate
from mqueue.model.errors import Unavailable
from mqueue.policy.quota import Quotas
from mqueue.server.metrics.snapshot import Gathered, Snapshot
from mqueue.server.placing.waking import waken

_PATIENCE_SECONDS = 3.0


class Node(Protocol):
    """`mqueue.cluster.node.Node` is one."""

    estates: list[Estate]

    @property
    def quotas(self) -> Quotas: ...


async def take(node: Node, topics_max: int) -> Snapshot:
    estates = node.estates
    taken = await asyncio.gather(*(_within(estate, topics_max) for estate in estates))
    gathered = Gathered.joined(topics_max, [found for found, _ in taken])
    return Snapshot(
        gathered.rows,
        gathered.count,
        sum(leases for _, leases in taken),
        node.quotas.refused,
        None,
        any(estate.takes for estate in estates),
    )


async def _within(estate: Estate, topics_max: int) -> tuple[Gathered, int]:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await estate.run(_count(estate, topics_max))
    except (TimeoutError, Unavailable):
        return Gathered(topics_max), 0


async def _count(estate: Estate, topics_max: int) -> tuple[Gathered, int]:
    """In the loop of the estate: the topics, and the leases on their messages."""
    await waken(estate)
    gathered, leases = Gathered(topics_max), 0
    for vshard in sorted(estate.holdings):
        holding = estate.holdings.get(vshard)
        if holding is not None:
            with suppress(Unavailable):  # it went to another node meanwhile
                await gathered.add_all(LoopBroker._over(holding.engine, "default", ""))
                leases += len(holding.store.state.leases)
    return gathered, leases
