"""Time passes and checkpoints are taken, whatever becomes of some of the virtual shards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mqueue.cluster import upkeep
from mqueue.log.postgres.link import Link
from mqueue.model.errors import Unavailable
from mqueue.testing import ManualClock
from tests.cluster.alone import VSHARD, Alone
from tests.cluster.patience import wait_until
from tests.cluster.test_upkeep import publish, taken


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    node = Alone(database, ManualClock())
    yield node
    node.close()


def _points(node: Alone) -> int:
    return int(node.link.call("select count(*) from mqueue.checkpoints where vshard = %b", (VSHARD,))[0][0])


def _due(node: Alone) -> None:
    publish(node, 0, 1)
    taken(node, 1)
    node.clock.advance("61s")


def test_a_checkpoint_that_cannot_be_taken_is_tried_again(node: Alone, monkeypatch) -> None:
    """Also if it fails in a way that nobody thought of."""
    real, problems = upkeep.take, [LookupError("what is that?"), Unavailable("not just now")]

    def take(*args: object) -> upkeep.Point:
        if problems:
            raise problems.pop()
        return real(*args)

    monkeypatch.setattr(upkeep, "take", take)
    _due(node)
    for left in (1, 0):
        wait_until(lambda left=left: len(problems) == left)
        node.clock.advance("10s")
    wait_until(lambda: _points(node) == 1)


def test_one_that_is_being_given_away_is_passed_over(node: Alone, monkeypatch) -> None:
    """Its engine has no clock any more, and it is due."""
    asked: list[int] = []
    monkeypatch.setattr(upkeep, "tidy", lambda link, now: asked.append(now))
    publish(node, 0, 1)
    taken(node, 1)

    async def shut() -> None:
        holding = await node.estate.holding(VSHARD)
        holding.leaving = True
        holding._shut(Unavailable("it goes to another node"))

    asyncio.run_coroutine_threadsafe(shut(), node.estate.loop).result(60)
    for number in (1, 2):
        node.clock.advance("11m")
        wait_until(lambda number=number: len(asked) >= number)
    assert _points(node) == 0


def test_days_are_dropped_though_that_failed_once(node: Alone, monkeypatch) -> None:
    asked: list[int] = []

    def tidy(link: Link, now: int) -> None:
        asked.append(now)
        raise RuntimeError("no, really")

    monkeypatch.setattr(upkeep, "tidy", tidy)
    for number in (1, 2):
        node.clock.advance("11m")
        wait_until(lambda number=number: len(asked) >= number)
