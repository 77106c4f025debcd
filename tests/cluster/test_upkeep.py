"""Checkpoints, floors and days: a shard stays small, and who takes over finds what is owed and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest

from mqueue.broker.aio import AsyncBroker
from mqueue.log.postgres import days
from mqueue.model.message import Draft
from mqueue.testing import ManualClock
from tests.cluster.alone import VSHARD, Alone
from tests.cluster.patience import wait_until


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    node = Alone(database, ManualClock())
    yield node
    node.close()


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


def test_what_is_kept_is_cut_again(node: Alone) -> None:
    node.ask(lambda mouth, owner: owner.configure("t", retention={"on_ack": True}))
    publish(node, 0, 100)
    later = node.ask(lambda m, o: m.publish_many("t", [Draft(b"%d" % row, delay="20d") for row in range(6)]))
    assert len(taken(node, 100)) == 100
    for ids in (later[:2], later[2:4], later[5:]):
        for receipt in ids:
            node.ask(lambda mouth, owner, id=receipt.id: owner.cancel(id))
        for _ in range(2):
            node.clock.advance("1d")
            depth(node)
        node.save()
        wait_until(lambda: node.tidy()[0] == today(node))
        node.estate._cache._frames.clear()
    for _ in range(3):
        assert taken(node, 10) == []
        node.clock.advance("5d")
    assert taken(node, 10) == [b"4"]


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


def test_a_trace_is_kept_as_long_as_its_message(node: Alone) -> None:
    """Days go by, checkpoints are newer than what happened, and somebody tidies up."""
    [receipt] = node.ask(lambda mouth, owner: mouth.publish_many("t", [b"x"]))

    async def failed(mouth: AsyncBroker, owner: AsyncBroker) -> None:
        [message] = await owner.receive("t")
        await message.nack(error="boom")

    async def story(mouth: AsyncBroker, owner: AsyncBroker) -> list[str]:
        return [event.kind for event in (await owner.trace(receipt.id)).events]

    node.ask(failed)
    before = node.ask(story)
    assert len(before) >= 3
    for number in range(3):
        node.clock.advance("1d")
        publish(node, number, 1)
        taken(node, 1)
        node.save()
        node.tidy()
    assert node.ask(story)[: len(before)] == before
    node.ask(lambda mouth, owner: owner.configure("t", retention={"on_ack": True}))
    while taken(node, 10):
        pass
    for number in range(3):
        node.clock.advance("1d")
        publish(node, number, 1)
        taken(node, 1)
        depth(node)
        node.save()
    wait_until(lambda: [node.tidy(), days.journal_days(node.link)[0] >= today(node) - timedelta(days=1)][-1])
