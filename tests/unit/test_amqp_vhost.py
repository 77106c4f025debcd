"""Queues that come and go, by the clock."""

from __future__ import annotations

import asyncio

from mqueue import AsyncBroker
from mqueue.model.limits import Limits
from mqueue.server.amqp.numbers import Counts
from mqueue.server.amqp.records import Queue, QueueMade
from mqueue.server.amqp.vhost import Vhost
from mqueue.testing import ManualClock


async def entered(broker: AsyncBroker, clock: ManualClock) -> Vhost:
    vhost = Vhost("default", broker, clock, Limits(), "node", Counts())
    await vhost.catalog.catch_up()
    return vhost


def test_the_time_of_a_queue_begins_anew_with_the_server() -> None:
    asyncio.run(_begins_anew())


async def _begins_anew() -> None:
    """While nobody was there nobody could use it."""
    clock = ManualClock()
    async with AsyncBroker(clock=clock) as broker:
        before = await entered(broker, clock)
        await before.catalog.change(QueueMade(Queue("brief", arguments={"x-expires": 60_000})))
        clock.advance("10m")
        after = await entered(broker, clock)
        await after.run_once()
        assert after.queue("brief") is not None
        clock.advance("59s")
        await after.touch("brief")
        clock.advance("59s")
        await after.run_once()
        assert after.queue("brief") is not None
        clock.advance("2s")
        await after.run_once()
        assert after.queue("brief") is None
