"""What is scheduled far ahead is loaded late: a take-over does not read it, and nobody can tell but by that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mqueue.broker.aio import AsyncBroker
from mqueue.heart.partition import Partition
from mqueue.log.postgres import frames
from mqueue.model.errors import Conflict
from mqueue.model.message import Draft, Receipt
from mqueue.store import dues
from mqueue.testing import ManualClock
from tests.cluster.alone import VSHARD, Alone
from tests.cluster.patience import wait_until

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    node = Alone(database, ManualClock())
    yield node
    node.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bases of the frames whose bodies were read."""
    bases: list[int] = []
    bodies = frames.bodies

    def counting(link: Any, topic: int, partition: int, wanted: Any, since: int = 0) -> Any:
        bases.extend(wanted)
        return bodies(link, topic, partition, wanted, since)

    monkeypatch.setattr(frames, "bodies", counting)
    return bases


def publish(node: Alone, *delays: int, **more: Any) -> list[Receipt]:
    """A frame of messages that are due so many milliseconds from now; their payloads say so."""
    drafts = [Draft(b"%d" % delay, delay=f"{delay}ms", **more) for delay in delays]
    receipts: list[Receipt] = node.ask(lambda mouth, owner: mouth.publish_many("t", drafts))
    return receipts


def received(node: Alone) -> list[int]:
    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> list[int]:
        messages = await owner.receive("t", limit=100)
        if messages:
            await owner.ack(messages)
        return [int(message.payload) for message in messages]

    found: list[int] = node.ask(work)
    return found


def listed(node: Alone, limit: int = 100) -> list[int]:
    found = node.ask(lambda mouth, owner: owner.scheduled("t", limit))
    return [int(message.payload) for message in found]


def scheduled(node: Alone) -> int:
    return int(node.ask(lambda mouth, owner: owner.stats("t")).scheduled)


def partition(node: Alone) -> Partition:
    [topic] = node.estate.holdings[VSHARD].store.state.topics.values()
    return topic.partitions[0]


def test_a_take_over_reads_nothing_of_them(node: Alone, read: list[int]) -> None:
    for day in (1, 2, 3):
        publish(node, *(day * DAY + number for number in range(10)))
    assert scheduled(node) == 30
    assert len(partition(node).far.near(1 << 60)) == 3, "as they arrive they are not loaded, either"
    node.again()
    assert scheduled(node) == 30
    assert received(node) == []
    assert not partition(node).schedule
    node.clock.advance(f"{DAY - HOUR - 1}ms")
    assert received(node) == []
    assert read == []


def test_they_are_loaded_in_time(node: Alone, read: list[int]) -> None:
    publish(node, *range(2 * DAY, 2 * DAY + 10))
    publish(node, *range(DAY, DAY + 10))
    node.again()
    assert scheduled(node) == 20
    node.clock.advance(f"{DAY - HOUR}ms")
    wait_until(lambda: read == [10])
    node.clock.advance(f"{HOUR - 1}ms")
    assert received(node) == []
    node.clock.advance("1ms")
    assert received(node) == [DAY]
    node.clock.advance("4ms")
    assert received(node) == [DAY + 1, DAY + 2, DAY + 3, DAY + 4]
    node.clock.advance("3d")
    assert received(node) == [*range(DAY + 5, DAY + 10), *range(2 * DAY, 2 * DAY + 10)]
    assert scheduled(node) == 0


def test_what_is_published_when_they_are_due_comes_behind_them(node: Alone) -> None:
    publish(node, DAY, DAY + 1)
    node.again()

    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> None:
        node.clock.advance("2d")
        await mouth.publish("t", b"0")  # it arrives before anybody has let time pass

    node.ask(work)
    assert received(node) == [DAY, DAY + 1, 0]


def test_a_few_are_loaded_at_a_time(node: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        publish(node, DAY + 100 - number, DAY + 200)
    node.again()
    scheduled(node)
    store = node.estate.holdings[VSHARD].store
    loaded: list[list[int]] = []
    load = type(store.ahead)._stretches

    def noting(ahead: Any, topic: Any, partition: Any, told: Any) -> Any:
        loaded[-1].append(told[3] - told_at)
        return load(ahead, topic, partition, told)

    monkeypatch.setattr(type(store.ahead), "_stretches", noting)
    told_at = node.clock.now() + DAY
    with node.estate.holdings[VSHARD].gate.inside:
        for _ in range(4):
            loaded.append([])
            store.ahead.load(node.clock.now() + DAY + 100, 6)
    assert loaded == [[*range(81, 87)], [*range(87, 93)], [*range(93, 99)], [99, 100]]


def test_one_priority_is_told_and_several_are_read(node: Alone, read: list[int]) -> None:
    publish(node, DAY, DAY + 1, priority=7)
    node.ask(
        lambda mouth, owner: mouth.publish_many(
            "t", [Draft(b"%d" % p, priority=p, delay=f"{DAY + p}ms") for p in (1, 2)]
        )
    )
    node.again()
    assert scheduled(node) == 4
    assert partition(node).order == [1, 2, 7]
    assert read == [2]


def test_a_list_reads_as_far_as_it_goes(node: Alone, read: list[int]) -> None:
    for day in (3, 1, 2):
        publish(node, *(day * DAY + number for number in range(10)))
    node.again()
    assert listed(node, 5) == [*range(DAY, DAY + 5)]
    assert read == [10]
    assert listed(node) == [day * DAY + number for day in (1, 2, 3) for number in range(10)]
    assert not partition(node).schedule, "a list loads nothing"


def test_pages_read_a_frame_once(node: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(3):
        publish(node, *(DAY + 10 * number + first for number in range(10)))
    node.again()
    decoded: list[int] = []
    stretches_in = dues.stretches_in

    def counted(log: Any, topic: int, partition: int, start: int, stop: int) -> Any:
        decoded.append(start)
        return stretches_in(log, topic, partition, start, stop)

    monkeypatch.setattr(dues, "stretches_in", counted)

    async def leaf(mouth: AsyncBroker, owner: AsyncBroker) -> list[int]:
        found: list[int] = []
        page: list[Any] = []
        while page := await owner.scheduled("t", 4, after=page[-1] if page else None):
            found += [int(message.payload) for message in page]
            if len(found) == 8:
                await owner.cancel(page[-1])
                await owner.reschedule(page[-2], delay="2d")
        return found

    due = [DAY + 10 * number + first for number in range(10) for first in range(3)]
    assert node.ask(leaf) == [*due, due[6]]
    assert decoded == [0, 10, 20]


def test_due_times_are_forgotten_where_they_are_too_many(node: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dues, "LISTED_DUES_MAX", 15)
    for day in (1, 2, 3):
        publish(node, *(day * DAY + number for number in range(10)))
    node.again()
    for _ in range(2):
        assert listed(node) == [day * DAY + number for day in (1, 2, 3) for number in range(10)]
    remembered = node.estate.holdings[VSHARD].engine.dues._known
    assert len(remembered) == 1


def test_cancelled_and_moved_though_not_loaded(node: Alone) -> None:
    receipts = publish(node, *range(2 * DAY, 2 * DAY + 8))
    node.again()
    first, second, third, fourth, fifth = (receipt.id for receipt in receipts[:5])

    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> None:
        await owner.cancel(first)
        await owner.reschedule(second, delay="1m")
        await owner.reschedule(third, delay="3d")
        await owner.reschedule(fourth, delay="3d")
        await owner.reschedule(fourth, delay=f"{2 * DAY + 3}ms")
        with pytest.raises(Conflict):
            await owner.cancel(first)
        assert (await owner.explain(fifth)).code == "scheduled"

    def check() -> None:
        assert scheduled(node) == 7
        assert listed(node) == [2 * DAY + row for row in (1, 3, 4, 5, 6, 7, 2)]
        assert partition(node).far

    node.ask(work)
    check()
    node.again()
    check()
    node.save()
    node.again()
    check()
    node.clock.advance("1m")
    assert received(node) == [2 * DAY + 1]
    node.clock.advance("1d")
    node.again()
    node.clock.advance(f"{DAY - 60_000}ms")
    assert received(node) == []
    node.clock.advance("3ms")
    assert received(node) == [2 * DAY + 3]
    node.clock.advance("4d")
    assert received(node) == [2 * DAY + row for row in (4, 5, 6, 7, 2)]


@pytest.mark.parametrize("saved", [False, True])
def test_purged_though_not_loaded(node: Alone, read: list[int], saved: bool) -> None:
    assert received_or_new(node) == []
    publish(node, *range(DAY, DAY + 10))
    node.again()
    assert node.ask(lambda mouth, owner: owner.purge("t")) == 10
    publish(node, *range(2 * DAY, 2 * DAY + 3))
    for _ in range(2):
        stats = node.ask(lambda mouth, owner: owner.stats("t"))
        assert (stats.scheduled, stats.cancelled, stats.groups["default"].cancelled) == (3, 10, 10)
        if saved:
            node.save()
        node.again()
    assert listed(node) == [*range(2 * DAY, 2 * DAY + 3)]
    node.clock.advance("5d")
    assert received(node) == [*range(2 * DAY, 2 * DAY + 3)]
    assert 0 not in read, "nobody needs what was purged"


def received_or_new(node: Alone) -> list[int]:
    """The same, of a topic that is perhaps not there yet."""
    node.ask(lambda mouth, owner: owner.configure("t"))
    return received(node)


def test_retention_keeps_them(node: Alone) -> None:
    node.ask(lambda mouth, owner: owner.configure("t", retention={"on_ack": True}))
    receipts = publish(node, *range(8 * DAY, 8 * DAY + 6))
    publish(node, *[0] * 90)
    assert received(node) == [0] * 90
    node.again()
    for row in (0, 2, 3):
        node.ask(lambda mouth, owner, row=row: owner.cancel(receipts[row].id))
    for _ in range(4):
        node.clock.advance("1d")
        assert scheduled(node) == 3
        node.save()
        node.tidy()
    assert partition(node).floor == 96
    assert partition(node).far
    for _ in range(2):
        node.again()
        assert (scheduled(node), partition(node).retained) == (3, 3)
        assert listed(node) == [8 * DAY + row for row in (1, 4, 5)]
        assert received(node) == []
        node.clock.advance("2d")
    node.clock.advance("1ms")
    assert received(node) == [8 * DAY + 1]
    node.clock.advance("4ms")
    assert received(node) == [8 * DAY + 4, 8 * DAY + 5]


def test_what_expires_does_so_though_it_was_moved(node: Alone) -> None:
    receipts = publish(node, *range(2 * DAY, 2 * DAY + 4), ttl="3d")
    node.ask(lambda mouth, owner: owner.reschedule(receipts[0].id, delay="1m"))
    node.again()
    node.clock.advance("1m")
    assert node.ask(lambda mouth, owner: owner.stats("t")).ready == 1
    node.clock.advance("6d")
    stats = node.ask(lambda mouth, owner: owner.stats("t"))
    assert (stats.ready, stats.scheduled, stats.expired) == (0, 0, 4)


def test_a_topic_goes_with_them(node: Alone, read: list[int]) -> None:
    publish(node, *range(DAY, DAY + 10))
    node.again()
    node.ask(lambda mouth, owner: owner.delete_topic("t"))
    node.clock.advance("2d")
    node.again()
    node.ask(lambda mouth, owner: owner.configure("t"))
    assert received(node) == []
    assert read == []


def test_what_is_damaged_holds_up_nothing_else(node: Alone) -> None:
    publish(node, *range(DAY, DAY + 3))
    publish(node, *range(DAY + 1, DAY + 4))
    node.again()
    assert scheduled(node) == 6
    node.link.call("update mqueue.frames set body = set_byte(body, 250, 255 - get_byte(body, 250)) where base = 0")
    node.clock.advance("2d")
    assert received(node) == [*range(DAY + 1, DAY + 4)]
    stats = node.ask(lambda mouth, owner: owner.stats("t"))
    assert (stats.scheduled, stats.depth) == (0, 0)
