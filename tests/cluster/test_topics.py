"""What is remembered of topics goes with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mqueue.broker.aio import AsyncBroker
from mqueue.testing import ManualClock
from tests.cluster.alone import Alone
from tests.cluster.patience import wait_until


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    node = Alone(database, ManualClock())
    yield node
    node.close()


def test_topics_that_are_gone_are_forgotten(node: Alone, monkeypatch) -> None:
    """Those of transactions too, which nobody ever sees; and those of others, of which we only heard."""
    monkeypatch.setattr("mqueue.cluster.tenure.BEAT_SECONDS", 0.05)
    monkeypatch.setattr("mqueue.cluster.topics._SWEEP_LOOKS", 1)
    monkeypatch.setattr("mqueue.cluster.topics._HEARD_AT_ONCE", 3)

    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> None:
        await mouth.publish("t", b"1", idempotency_key="k")
        for number in range(5):
            await mouth.publish(f"t{number}", b"1", idempotency_key="k")
            await owner.stage(f"x{number}", "t", [b"2"])
            await owner.commit(f"x{number}")

    node.ask(work)
    estate = node.estate
    estate._homes.update(dict.fromkeys(range(10_001, 10_006), 1))
    there = {row[0] for row in node.link.call("select topic_id from mqueue.topics where deleted_at is null")}
    counted = estate.mouth.store.counted
    assert len(counted) >= 6
    assert there <= estate._homes.keys()
    node.link.call("update mqueue.topics set deleted_at = 1 where name ~ '^t[0-9]'")
    left = {row[0] for row in node.link.call("select topic_id from mqueue.topics where deleted_at is null")}
    wait_until(lambda: estate._homes.keys() <= left and counted.keys() <= left)
    known = asyncio.run_coroutine_threadsafe(_known(node), estate.loop).result(60)
    assert known <= estate._homes.keys(), "what is there is known"


async def _known(node: Alone) -> set[int]:
    stores = [node.estate.mouth.store, *(holding.store for holding in node.estate.holdings.values())]
    return {topic for store in stores for topic in store.state.topics}
