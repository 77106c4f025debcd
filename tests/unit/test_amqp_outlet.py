"""What clients publish shares calls: a rule that one of them breaks, or all together, costs nobody else his place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mqueue
from mqueue.model.errors import Error
from mqueue.model.limits import Limits
from mqueue.server.amqp.outlet import Item, Outlet
from mqueue.testing import ManualClock

LOST = dict[int, Error]


def sent(work: Callable[[Outlet], Awaitable[list[LOST]]], **settings: Any) -> tuple[list[LOST], list[bytes]]:
    """What each was told, and what is there then."""

    async def inside() -> tuple[list[LOST], list[bytes]]:
        async with mqueue.AsyncBroker(clock=ManualClock(), **settings) as broker:
            told = await work(Outlet(broker, Limits(), joins=True, is_gone=lambda topic: False))
            return told, [message.payload async for message in broker.scan("t")]

    return asyncio.run(inside())


def one_by_one(count: int) -> Callable[[Outlet], Awaitable[list[LOST]]]:
    return lambda outlet: asyncio.gather(*(outlet.send([Item("t", b"%d" % number)]) for number in range(count)))


def test_each_is_told_of_his_own() -> None:
    told, there = sent(one_by_one(5), limits=Limits(payload_bytes_max=1))
    assert told == [{}] * 5
    assert there == [b"0", b"1", b"2", b"3", b"4"]
    told, there = sent(one_by_one(12), limits=Limits(payload_bytes_max=1))
    assert [sorted(lost) for lost in told] == [[]] * 10 + [[0]] * 2, "of two bytes"
    assert len(there) == 10


def test_more_queues_than_one_call_goes_to() -> None:
    """A fan-out to a thousand of them."""
    names = [f"q{number}" for number in range(1_000)]

    async def work() -> tuple[LOST, list[str]]:
        async with mqueue.AsyncBroker(clock=ManualClock()) as broker:
            outlet = Outlet(broker, Limits(), joins=True, is_gone=lambda topic: False)
            told = await outlet.send([Item(name, b"x") for name in names])
            return told, await broker.topics()

    assert asyncio.run(work()) == ({}, sorted(names))


def test_together_they_are_more_than_a_minute_allows() -> None:
    """Each alone is not."""
    told, there = sent(one_by_one(6), quotas={"default": 4})
    assert [len(lost) for lost in told] == [0, 0, 0, 1, 1, 1]
    assert {error.code for lost in told for error in lost.values()} == {"quota_exceeded"}
    assert there == [b"0", b"1", b"2"]
