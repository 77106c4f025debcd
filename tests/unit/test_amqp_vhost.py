"""Queues that come and go, by the clock."""

from __future__ import annotations

import asyncio

from mqueue import AsyncBroker
from mqueue.model.limits import Limits
from mqueue.server.amqp.numbers import Counts
from mqueue.server.amqp.records import Queue, QueueGone, QueueMade, Used
from mqueue.server.amqp.vhost import Vhost
from mqueue.testing import ManualClock


async def entered(broker: AsyncBroker, clock: ManualClock, node: str = "node") -> Vhost:
    vhost = Vhost("default", broker, clock, Limits(), node, Counts())
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


def test_who_was_cut_off_reads_the_catalog_anew() -> None:
    asyncio.run(_was_cut_off())


async def _was_cut_off() -> None:
    """What it has not read yet is gone by then: a snapshot stands for it."""
    clock = ManualClock()
    async with AsyncBroker(clock=clock) as broker:
        here, there = await entered(broker, clock, "here"), await entered(broker, clock, "there")
        await here.catalog.change(QueueMade(Queue("first")))
        await there.catalog.catch_up()
        await here.catalog.change(QueueMade(Queue("second")), QueueGone("first"))
        (before,) = await broker.offsets(".amqp")
        while (await broker.offsets(".amqp"))[0].first <= before.next:
            await here.catalog.change(*[Used("second", "here")] * 600)
            clock.advance("1m")
        assert there.queue("first") is not None
        await there.catalog.catch_up()
        assert there.catalog.contents.queues == here.catalog.contents.queues == {"second": Queue("second")}
