"""Queues that come and go, by the clock."""

from __future__ import annotations

import asyncio

from mqueue import AsyncBroker
from mqueue.model.limits import Limits
from mqueue.server.amqp.numbers import Counts
from mqueue.server.amqp.outlet import Item
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


def test_an_auto_delete_queue_goes_with_the_node_of_its_last_consumer() -> None:
    asyncio.run(_goes_with_the_node())


async def _goes_with_the_node() -> None:
    """One that nobody has consumed from yet stays: it goes with its last consumer, and had none."""
    clock = ManualClock()
    async with AsyncBroker(clock=clock) as broker:
        here, killed = await entered(broker, clock, "here"), await entered(broker, clock, "killed")
        await killed.catalog.change(*(QueueMade(Queue(name, auto_delete=True)) for name in ("new", "used")))
        await killed.use("used")
        clock.advance("59s")
        await here.run_once()
        assert here.queue("used") is not None
        clock.advance("2s")
        await here.run_once()
        assert sorted(here.catalog.contents.queues) == ["new"]


def test_a_queue_that_is_used_while_another_is_dropped_stays() -> None:
    asyncio.run(_stays())


async def _stays() -> None:
    clock = ManualClock()
    async with AsyncBroker(clock=clock) as broker:
        here, there = await entered(broker, clock, "here"), await entered(broker, clock, "there")
        names = ("one", "two", "three")
        await here.catalog.change(*(QueueMade(Queue(name, arguments={"x-expires": 60_000})) for name in names))
        await there.catalog.catch_up()
        clock.advance("61s")
        drop = here.drop

        async def slow(name: str) -> None:
            await here.use("two")
            await there.use("three")
            await drop(name)

        here.drop = slow  # type: ignore[method-assign]
        await here.run_once()
        assert sorted(here.catalog.contents.queues) == ["three", "two"]


def test_what_is_on_its_way_to_a_queue_goes_with_it() -> None:
    asyncio.run(_goes_with_it())


async def _goes_with_it() -> None:
    """It does not make its topic anew. Who makes the queue anew, or a topic of that name, gets what comes then."""
    async with AsyncBroker() as broker:
        vhost = await entered(broker, ManualClock())
        for name in ("gone", "there"):
            await broker.configure(name)
            await vhost.catalog.change(QueueMade(Queue(name)))
        under_way = [Item("gone", b"1"), Item("there", b"1")]
        await vhost.drop("gone")
        assert await vhost.outlet.send(under_way) == {}
        assert await broker.topics() == [".amqp", "there"]
        assert await vhost.found("gone") is None
        await vhost.catalog.change(QueueMade(Queue("gone")))
        await vhost.outlet.send([Item("gone", b"2")])
        await vhost.drop("gone")
        await broker.publish("gone", b"3")
        assert await vhost.found("gone") is not None
        await vhost.outlet.send([Item("gone", b"4")])
        assert [message.payload for message in await broker.receive("gone", 9)] == [b"3", b"4"]


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
