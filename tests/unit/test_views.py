"""The brokers over one engine: the same for the same namespace, and never many."""

from __future__ import annotations

import asyncio

import mqueue
from mqueue.broker import views
from mqueue.broker.twin import behind
from mqueue.broker.views import Views


def test_a_namespace_has_one_view() -> None:
    async def work() -> None:
        async with mqueue.AsyncBroker() as broker:
            found = Views(behind(broker)._engine)
            one, other = found.of("default"), found.of("other")
            await one.publish("orders", b"1")
            assert found.of("default") is one
            assert await other.receive("orders") == []
            assert [message.payload for message in await broker.receive("orders")] == [b"1"]

    asyncio.run(work())


def test_views_are_few_whatever_callers_name() -> None:
    async def work() -> None:
        async with mqueue.AsyncBroker() as broker:
            found = Views(behind(broker)._engine)
            for number in range(3 * views._VIEWS_MAX):
                found.of(f"tenant-{number}")
                assert len(found._views) <= views._VIEWS_MAX

    asyncio.run(work())
