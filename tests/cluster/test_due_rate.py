"""A capped topic in a cluster: whoever takes over goes on where the cap stood, and keeps the order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqueue import Draft
from mqueue.testing import ManualClock
from tests.cluster.alone import Alone

COUNT = 60


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    node = Alone(database, ManualClock())
    yield node
    node.close()


def taken(node: Alone) -> list[int]:
    async def work(mouth, owner) -> list[int]:
        messages = await owner.receive("t", limit=1000)
        if messages:
            await owner.ack(messages)
        return [int(message.payload) for message in messages]

    found: list[int] = node.ask(work)
    return found


def publish(node: Alone, first: int, count: int, **options) -> None:
    drafts = [Draft(b"%d" % n, **options) for n in range(first, first + count)]
    node.ask(lambda mouth, owner: mouth.publish_many("t", drafts))


@pytest.mark.parametrize("saved", [False, True])
def test_who_takes_over_goes_on(node: Alone, saved: bool) -> None:
    node.ask(lambda mouth, owner: owner.configure("t", due_rate=10))
    publish(node, 0, COUNT, delay="1m")
    node.clock.advance("62s")
    first = taken(node)
    assert first == list(range(22))
    if saved:
        node.save()
    node.again()
    assert taken(node) == [], "what was allowed is used up"
    publish(node, 1000, 1)
    node.clock.advance("1s")
    assert taken(node) == [1000, *range(22, 32)]
    if saved:
        node.save()
    node.again()
    node.clock.advance("1h")
    assert taken(node) == list(range(32, COUNT))


def test_what_comes_late_counts_from_then(node: Alone) -> None:
    """A frame that its owner hears of after its messages were due cannot have become visible before."""
    node.ask(lambda mouth, owner: owner.configure("t", due_rate=10))
    publish(node, 0, 20, delay="1s")

    async def behind(mouth, owner) -> None:
        await mouth.publish_many("t", [Draft(b"%d" % n, delay="50ms") for n in range(100, 105)])

    node.clock.advance("1100ms")
    node.ask(behind)
    node.clock.advance("1h")
    got = taken(node)
    node.ask(lambda mouth, owner: owner.seek("t", group="default", to="earliest"))
    node.again()
    assert sorted(got) == [*range(20), *range(100, 105)]
    assert taken(node) == got, "whoever folds the log comes to the same order"
