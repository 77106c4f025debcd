"""Days change: what is published, held and acked before midnight is the same after it, whoever delivers then, and
however many days nobody was there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from mqueue.broker.aio import AsyncBroker
from mqueue.log.postgres.days import days, journal_days
from mqueue.testing import ManualClock
from tests.cluster.alone import Alone
from tests.cluster.patience import wait_until

DAY = date(2027, 7, 1)
MIDNIGHT = datetime(2027, 7, 1, tzinfo=UTC)
"""Its first moment."""


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    """It is the last second of a day."""
    node = Alone(database, ManualClock(MIDNIGHT - timedelta(seconds=1)))
    yield node
    node.close()


def publish(node: Alone, payload: bytes, **settings: Any) -> Any:
    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> Any:
        return await mouth.publish("t", payload, **settings)

    return node.ask(work)


def receive(node: Alone, limit: int = 100) -> list[Any]:
    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> list[Any]:
        return await owner.receive("t", limit, visibility="30s")

    return list(node.ask(work))


def ack(node: Alone, messages: list[Any]) -> None:
    """By whoever delivers now."""

    async def work(mouth: AsyncBroker, owner: AsyncBroker) -> None:
        await owner.ack(messages)

    node.ask(work)


def payloads(messages: list[Any]) -> list[bytes]:
    return [bytes(message.payload) for message in messages]


def day_of(message: Any) -> date:
    return datetime.fromtimestamp(message.published_at.timestamp(), UTC).date()


def test_days_are_made_before_they_begin(node: Alone) -> None:
    ahead = [DAY + timedelta(days=n) for n in (-1, 0, 1)]
    wait_until(lambda: days(node.link) == ahead and journal_days(node.link) == ahead)


@pytest.mark.parametrize("taken_over", [False, True])
def test_what_was_begun_before_midnight_goes_on_after_it(node: Alone, taken_over: bool) -> None:
    """Held, waiting, delayed and known by its key; and a new owner right after midnight knows all of it."""
    first = publish(node, b"held")
    assert len(receive(node)) == 1
    publish(node, b"waits")
    publish(node, b"delayed", delay="2s")
    once = publish(node, b"once", idempotency_key="k")
    node.clock.advance("1s")
    if taken_over:
        node.again()
    again = publish(node, b"once", idempotency_key="k")
    assert (again.id, again.duplicate) == (once.id, True)
    publish(node, b"next day")
    got = receive(node)
    assert payloads(got) == [b"waits", b"once", b"next day"]
    assert [day_of(message) for message in got] == [DAY - timedelta(days=1)] * 2 + [DAY]
    ack(node, got)
    node.clock.advance("1s")
    (delayed,) = receive(node)
    assert bytes(delayed.payload) == b"delayed"
    ack(node, [delayed])
    node.clock.advance("30s")
    (back,) = receive(node)
    assert (back.id, back.attempt) == (first.id, 2), "its time was up on the next day"
    ack(node, [back])
    node.again()
    assert receive(node) == []


@pytest.mark.parametrize(("away", "kept"), [(1, True), (2, True), (3, True), (6, True), (100, False)])
def test_nobody_was_there_for_many_days(node: Alone, away: int, kept: bool) -> None:
    """No table was made for the day on which they come back; what was published before is there, unless the topic does
    not keep anything for so long."""
    publish(node, b"old")
    node.save()
    publish(node, b"after the checkpoint")
    node.clock.advance(timedelta(days=away - 1, seconds=6))
    node.again()
    publish(node, b"new")
    got = receive(node)
    assert payloads(got) == [*([b"old", b"after the checkpoint"] if kept else []), b"new"]
    ack(node, got)
    today = DAY + timedelta(days=away - 1)
    assert today in days(node.link)
    assert today in journal_days(node.link)
    node.again()
    assert receive(node) == []


def test_a_day_that_is_missing_at_midnight_is_made_by_whoever_writes_first(node: Alone) -> None:
    """Nobody tidied: the next days were never made."""
    for day in days(node.link):
        if day > DAY:
            for table in ("frames", "journal", "journal_index"):
                node.link.script(f"drop table if exists mqueue.{table}_{day:%Y%m%d}")
    node.clock.advance("25h")
    publish(node, b"1")
    got = receive(node)
    assert payloads(got) == [b"1"]
    ack(node, got)
    assert DAY + timedelta(days=1) in days(node.link)
