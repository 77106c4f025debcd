"""Checkpoints, floors and days: a shard stays small, and who takes over finds what is owed and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.loop import LoopBroker
from mqueue.broker.twin import twin_of
from mqueue.cluster import upkeep
from mqueue.cluster.estate import Estate
from mqueue.cluster.holding import Holding
from mqueue.cluster.plan import Plan, Seat
from mqueue.log.postgres import days, migrate
from mqueue.log.postgres.link import Link
from mqueue.model.ident import IdSource
from mqueue.model.limits import Limits
from mqueue.model.settings import Settings
from mqueue.policy.quota import Quotas
from mqueue.policy.routing import virtual_shard
from mqueue.testing import ManualClock

VSHARD = virtual_shard("default", "t")


class Alone:
    """A node with one server, whose calls are made from a test. It can be stopped and started again."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock = clock
        self._url = url
        self.link = Link(url, "test")
        migrate.migrate(self.link)
        migrate.assign(self.link, 0, 1, UUID(int=7))
        self._start()

    def _start(self) -> None:
        plan = Plan(Seat(1, "http://here"), Settings(), Limits(), Quotas(None), IdSource(1), self.clock)
        self.estate = Estate(self._url, "only", plan, _nobody, _anything)
        self.estate.start()

    def again(self) -> None:
        self.estate.close()
        self._start()

    def close(self) -> None:
        self.estate.close()
        self.link.close()

    def ask(self, work: Callable[[AsyncBroker, AsyncBroker], Awaitable[Any]]) -> Any:
        """`work(publishes, delivers)`: calls on both brokers, in the loop of the estate."""

        async def inside() -> Any:
            holding = await self.estate.holding(VSHARD)
            await self.estate.refresh(holding)
            engines = (self.estate.mouth.engine, holding.engine)
            return await work(*(twin_of(LoopBroker._over(engine, "default", "")) for engine in engines))

        return asyncio.run_coroutine_threadsafe(inside(), self.estate.loop).result(120)

    def save(self) -> None:
        """A checkpoint, now."""

        async def inside() -> tuple[Holding, upkeep.Point]:
            holding = await self.estate.holding(VSHARD)
            await self.estate.refresh(holding)
            await holding.settled()  # as `upkeep.due` asks for: time that passed may have handed in something
            return holding, upkeep.take(holding, self.clock.now())

        holding, point = asyncio.run_coroutine_threadsafe(inside(), self.estate.loop).result(120)
        upkeep.keep(self.link, self.estate._tenure.owner, point)
        self.estate.loop.call_soon_threadsafe(upkeep.kept, holding, point)

    def tidy(self) -> list[date]:
        """Drop old days; the days that are left. The node does the same by itself, perhaps in this moment."""
        upkeep.tidy(self.link, self.clock.now())
        return days.days(self.link)


def _anything(link: Link) -> None:
    """Whatever the server is, it belongs here."""


def _nobody(address: str, namespace: str, topic: str) -> None:
    raise AssertionError("there is no other node")


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    node = Alone(database, ManualClock())
    yield node
    node.close()


def wait_until(condition: Callable[[], bool]) -> None:
    """Two who drop days at the same time leave each other alone: so it may take a second look."""
    for _ in range(600):
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it did not come to pass")


def today(node: Alone) -> date:
    return datetime.fromtimestamp(node.clock.now() / 1000, UTC).date()


def depth(node: Alone) -> tuple[int, ...]:
    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> tuple[int, ...]:
        stats = await owner.stats("t")
        return stats.published, stats.retained, stats.depth, stats.acked, stats.leased

    found: tuple[int, ...] = node.ask(work)
    return found


def taken(node: Alone, limit: int, ack: bool = True) -> list[bytes]:
    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> list[bytes]:
        messages = await owner.receive("t", limit=limit, visibility="12h")
        if ack and messages:
            await owner.ack(messages)
        return [message.payload for message in messages]

    found: list[bytes] = node.ask(work)
    return found


def publish(node: Alone, first: int, count: int) -> list[int]:
    payloads = [b"%d" % number for number in range(first, first + count)]
    receipts = node.ask(lambda mouth, owner: mouth.publish_many("t", payloads))
    return [receipt.offset for receipt in receipts]


def test_a_checkpoint_stands_for_the_journal(node: Alone) -> None:
    publish(node, 0, 100)
    assert len(taken(node, 30)) == 30
    assert len(taken(node, 5, ack=False)) == 5
    before = depth(node)
    node.save()
    publish(node, 100, 10)
    taken(node, 7)
    after = depth(node)
    node.link.call("delete from mqueue.journal where vshard = %b and seq <= %b", (VSHARD, _saved(node)))
    node.again()
    assert before != after == depth(node)
    assert taken(node, 3) == [b"42", b"43", b"44"]


def _saved(node: Alone) -> int:
    return int(node.link.call("select max(seq) from mqueue.checkpoints where vshard = %b", (VSHARD,))[0][0])


def test_days_go_and_what_is_owed_stays(node: Alone) -> None:
    node.ask(lambda mouth, owner: owner.configure("t", retention={"on_ack": True}))
    publish(node, 0, 100)
    later = node.ask(lambda mouth, owner: mouth.publish("t", b"later", delay="10d"))
    assert taken(node, 50) == [b"%d" % number for number in range(50)]
    held = taken(node, 1, ack=False)
    assert taken(node, 60) == [b"%d" % number for number in range(51, 100)]
    for _ in range(3):
        node.clock.advance("4h")
        depth(node)  # time passes when somebody looks
    node.save()
    node.clock.advance("2d")
    assert publish(node, 200, 2) == [101, 102], "offsets go on"
    depth(node)
    node.save()
    wait_until(lambda: node.tidy()[0] == today(node))
    node.again()
    assert taken(node, 10) == [*held, b"200", b"201"]
    for _ in range(2):
        assert taken(node, 10) == [], "the group is heard of: what it is owed stays"
        node.clock.advance("4d")
    [found] = node.ask(lambda mouth, owner: owner.receive("t"))
    assert (found.id, found.offset, found.payload) == (later.id, later.offset, b"later")


def test_offsets_go_on_though_nothing_is_left(node: Alone) -> None:
    node.ask(lambda mouth, owner: owner.configure("t", retention={"on_ack": True}))
    publish(node, 0, 10)
    taken(node, 10)
    for _ in range(3):
        node.clock.advance("1d")
        depth(node)
        node.save()
        node.tidy()
    wait_until(lambda: node.tidy()[0] == today(node))
    assert node.link.call("select count(*) from mqueue.frames")[0][0] == 0
    node.again()
    assert publish(node, 10, 1) == [10]
    assert taken(node, 5) == [b"10"]
