"""A supply: messages taken as there is room for them, their leases kept alive."""

from __future__ import annotations

import asyncio

import mqueue
from mqueue.testing import ManualClock


def test_what_was_taken_stays_taken_until_it_is_settled_or_given_back(
    broker: mqueue.Broker, manual_clock: ManualClock
) -> None:
    broker.publish_many("orders", [b"1", b"2", b"3"])
    supply = broker.supply("orders", visibility="10s")
    first = supply.take(1)
    assert [m.payload for m in first + supply.take(5)] == [b"1", b"2", b"3"]
    manual_clock.advance("1h")
    assert not broker.receive("orders")
    first[0].ack()
    supply.give_back()
    assert [(m.payload, m.attempt) for m in broker.receive("orders", limit=5)] == [(b"2", 1), (b"3", 1)]


async def _awaited(broker: mqueue.AsyncBroker) -> list[bytes]:
    await broker.publish("orders", b"1")
    return [m.payload for m in await broker.supply("orders").take_async(5)]


def test_the_same_awaited(async_broker: mqueue.AsyncBroker) -> None:
    assert asyncio.run(_awaited(async_broker)) == [b"1"]


def test_a_nack_without_a_delay_is_ready_at_once_and_counted(broker: mqueue.Broker) -> None:
    broker.publish("orders", b"1")
    broker.receive("orders")[0].nack(delay=0)
    assert [m.attempt for m in broker.receive("orders")] == [2]
