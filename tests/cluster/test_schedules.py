"""Schedules in a cluster: whoever takes over goes on with them, and publishes each occurrence once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqueue.broker.aio import AsyncBroker
from mqueue.model.times import rfc3339
from mqueue.testing import ManualClock
from tests.cluster.alone import Alone

START = ManualClock().now()
HOUR_MS = 3_600_000


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    node = Alone(database, ManualClock())
    yield node
    node.close()


def taken(node: Alone) -> list[str]:
    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> list[str]:
        messages = await owner.receive("t", limit=1000, wait="5s")
        if messages:
            await owner.ack(messages)
        return [str(message.headers["mqueue-occurrence"]) for message in messages]

    found: list[str] = node.ask(work)
    return found


def hours(first: int, last: int) -> list[str]:
    return [rfc3339(START + hour * HOUR_MS) for hour in range(first, last + 1)]


def test_who_takes_over_goes_on(node: Alone) -> None:
    node.ask(lambda mouth, owner: owner.schedules("t").add(b"x", every="1h", misfire="all", name="n"))
    node.clock.advance("1h")
    assert taken(node) == hours(1, 1)
    node.again()  # from the journal
    node.clock.advance("2h")
    assert taken(node) == hours(2, 3)
    node.save()
    node.again()  # from a checkpoint
    node.clock.advance("1h")
    assert taken(node) == hours(4, 4)
    node.clock.advance("30m")
    node.again()
    node.clock.advance("30m")
    assert taken(node) == hours(5, 5)
    told = node.ask(lambda mouth, owner: owner.schedules("t").get("n"))
    assert (told.count, rfc3339(round(told.last_at.timestamp() * 1000))) == (5, hours(5, 5)[0])
