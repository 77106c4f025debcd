"""Workers as members of assigned groups: each has partitions of its own, and what one leaves behind another gets."""

from __future__ import annotations

import asyncio

import pytest

import mqueue
from tests.unit.workers import Bench, run

KEYS = [str(number) for number in range(24)]


def test_workers_share_partitions() -> None:
    async def main(bench: Bench) -> None:
        await bench.q.configure("orders", partitions=4)
        seen: dict[str, set[int]] = {"one": set(), "two": set()}
        other = mqueue.Worker(queue=bench.q, clock=bench.clock, assigned=True, member="two")
        bench.app.handler("orders", concurrency=1)(_handler(seen["one"]))
        other.handler("orders", concurrency=1)(_handler(seen["two"]))
        async with bench.working():
            beside = asyncio.create_task(other.serve())
            await _members(bench, 2)
            await bench.q.publish_many("orders", [mqueue.Draft(key, key=key) for key in KEYS])
            await bench.until("orders", "acked", len(KEYS))
            assert len(seen["one"]) == len(seen["two"]) == 2
            assert seen["one"] | seen["two"] == {0, 1, 2, 3}
            other.stop()
            await beside
            [one, two] = (await bench.q.members("orders")).members
            assert (two.member, two.partitions) == ("two", tuple(sorted(seen["two"])))  # an id of its own stays
            await _passes(bench, one.member)
            await bench.q.publish_many("orders", [mqueue.Draft(key, key=key) for key in KEYS])
            await bench.until("orders", "acked", 2 * len(KEYS))
            assert seen["one"] == {0, 1, 2, 3}
        assert (await bench.q.members("orders")).members == []  # one without an id leaves

    run(main, assigned=True)


def test_who_is_replaced_ends() -> None:
    async def main(bench: Bench) -> None:
        bench.app.handler("orders")(_handler(set()))
        working = asyncio.create_task(bench.app.serve())
        await _members(bench, 1)
        await bench.q.join("orders", member="me")
        with pytest.raises(mqueue.Conflict) as caught:
            await working
        assert caught.value.code == "stale_generation"

    run(main, assigned=True, member="me")


def test_a_member_takes_one_topic() -> None:
    app = mqueue.Worker(assigned=True)
    with pytest.raises(mqueue.BadSetting):
        app.handler(["a", "b"])(_handler(set()))
    app.handler(["a", "b"], assigned=False)(_handler(set()))
    with pytest.raises(mqueue.BadName):
        mqueue.Worker(assigned=True, member="a b")


def _handler(seen: set[int]):
    async def handle(m: mqueue.AsyncMessage) -> None:
        seen.add(m.partition)

    return handle


async def _members(bench: Bench, count: int) -> None:
    while True:
        try:
            if len((await bench.q.members("orders")).members) == count:
                return
        except mqueue.NotFound:
            pass
        await asyncio.sleep(0.001)


async def _passes(bench: Bench, left: str) -> None:
    """Let time pass, slowly enough for heartbeats, until one member is left."""
    while [member.member for member in (await bench.q.members("orders")).members] != [left]:
        bench.clock.advance("1s")
        for _ in range(200):
            await asyncio.sleep(0)
