"""Taking over may take long, and may fail: the session goes on, and so does everything else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from mqueue.cluster import pulse
from mqueue.cluster.holding import Holding
from mqueue.heart.checkpoint import Checkpoint
from mqueue.log.postgres.log import PostgresLog
from mqueue.log.segments.points import decode
from mqueue.model.errors import Corrupt, Unavailable
from mqueue.policy.routing import virtual_shard
from mqueue.testing import ManualClock
from tests.cluster.alone import VSHARD, Alone
from tests.cluster.patience import wait_until
from tests.cluster.test_upkeep import depth, publish, taken

OTHER = virtual_shard("default", "other")
SESSION_MS = 2_000


@pytest.fixture
def node(database: str) -> Iterator[Alone]:
    """It delivers from the topics t and other."""
    node = Alone(database, ManualClock(), SESSION_MS)
    publish(node, 0, 10)
    node.ask(lambda mouth, owner: mouth.publish("other", b"x"))
    yield node
    node.close()


def asked(node: Alone, vshard: int) -> Future[Holding]:
    return asyncio.run_coroutine_threadsafe(node.estate.holding(vshard), node.estate.loop)


def loads_as(monkeypatch: pytest.MonkeyPatch, before: Callable[[], Any]) -> None:
    """Whoever takes over topic t does this first."""
    real = PostgresLog.load

    def load(log: PostgresLog) -> Checkpoint | None:
        if log.vshard == VSHARD:
            before()
        return real(log)

    monkeypatch.setattr(PostgresLog, "load", load)


def test_the_session_goes_on_while_a_take_over_takes_long(node: Alone, monkeypatch) -> None:
    """The node is ready meanwhile, serves the rest, and whoever asks for what is not there yet waits for that."""
    go_on = threading.Event()
    loads_as(monkeypatch, lambda: go_on.wait(30))
    node.again()
    assert not go_on.is_set()
    begun, meters = time.monotonic(), node.estate.meters
    waiting = asked(node, VSHARD)
    assert OTHER in node.estate.holdings or asked(node, OTHER).result(10)
    wait_until(lambda: meters.beaten_at > begun + 2 * SESSION_MS / 1000 or time.monotonic() > begun + 25)
    assert (meters.doubts, waiting.done(), meters.beaten_at > begun) == (0, False, True)
    go_on.set()
    assert waiting.result(60).vshard == VSHARD
    assert (len(taken(node, 20)), meters.doubts) == (10, 0)


def test_slow_reads_do_not_hold_up_the_beat(node: Alone) -> None:
    """All threads that read for requests and looks are busy."""
    go_on, begun = threading.Event(), time.monotonic()
    busy = [
        asyncio.run_coroutine_threadsafe(errand(go_on.wait, 30), node.estate.loop)
        for errand in (node.estate._errand, node.estate._errand, node.estate._looks)
    ]
    wait_until(lambda: node.estate.meters.beaten_at > begun + 2 * SESSION_MS / 1000)
    assert node.estate.meters.doubts == 0
    go_on.set()
    assert all(one.result(60) for one in busy)


def test_a_loop_that_waits_does_not_hold_up_the_beat(node: Alone) -> None:
    """As for a table that somebody has locked: what is published with a key is looked up there."""
    go_on, begun = threading.Event(), time.monotonic()
    node.estate.loop.call_soon_threadsafe(go_on.wait, 60)
    wait_until(lambda: node.estate.meters.beaten_at > begun + 2 * SESSION_MS / 1000)
    go_on.set()
    assert len(taken(node, 20)) == 10
    assert (node.estate.meters.doubts, node.estate.owned) == (0, 1024)


def test_a_loop_that_stands_still_leaves_all_to_others(node: Alone, monkeypatch) -> None:
    """It delivers nothing. Should it go on after all, it learns that it has lost everything, and begins anew."""
    monkeypatch.setattr(pulse, "STILL_SECONDS", 3.0)
    alive, go_on = "select count(*) from mqueue.sessions where until > clock_timestamp()", threading.Event()
    assert node.link.call(alive) == [(1,)]
    node.estate.loop.call_soon_threadsafe(go_on.wait, 120)
    wait_until(lambda: node.link.call(alive) == [(0,)])
    go_on.set()
    wait_until(lambda: (node.estate.meters.doubts > 0, node.estate.owned) == (True, 1024))
    assert len(taken(node, 20)) == 10


@pytest.mark.parametrize("problem", [StopIteration, AssertionError, RuntimeError, Corrupt, Unavailable])
def test_one_that_cannot_be_taken_over_is_tried_again(node: Alone, monkeypatch, problem: type[Exception]) -> None:
    """The others are there; who asks for it is told why."""
    sick = True

    def fail() -> None:
        if sick:
            raise problem("no good")

    loads_as(monkeypatch, fail)
    node.again()
    assert asked(node, OTHER).result(60).vshard == OTHER
    with pytest.raises(Unavailable, match="no good"):
        asked(node, VSHARD).result(60)
    assert (node.estate.lives, node.estate.meters.doubts) == (True, 0)
    sick = False
    wait_until(lambda: VSHARD in node.estate.holdings)
    assert len(taken(node, 20)) == 10


def spoil(node: Alone, how_many: int) -> None:
    """The newest checkpoints are cut off in the middle."""
    node.link.call(
        "update mqueue.checkpoints set body = substring(body from 1 for 300) where vshard = %b "
        "and seq in (select seq from mqueue.checkpoints where vshard = %b order by seq desc limit %b)",
        (VSHARD, VSHARD, how_many),
    )


def points(node: Alone) -> int:
    return int(node.link.call("select count(*) from mqueue.checkpoints where vshard = %b", (VSHARD,))[0][0])


@pytest.fixture
def worn(node: Alone) -> Alone:
    """Two checkpoints; behind the newer one the floor rose, and some is kept below it."""
    node.ask(lambda mouth, owner: owner.configure("t", retention={"on_ack": True}))
    node.ask(lambda mouth, owner: mouth.publish("t", b"later", delay="10d"))
    for number in range(1, 7):
        publish(node, 10 * number, 10)
        taken(node, 3, ack=False)
        taken(node, 9)
        for _ in range(2):
            node.clock.advance("4h")
            depth(node)
        node.save()
    assert points(node) == 2
    assert floor(node) > older_floor(node) > 0
    assert node.link.call("select count(*) > 0 from mqueue.frames_kept")[0][0]
    return node


def floor(node: Alone) -> int:
    return int(node.link.call("select max(floor) from mqueue.floors")[0][0])


def older_floor(node: Alone) -> int:
    """Of the checkpoint before the last one."""
    rows = node.link.call("select body from mqueue.checkpoints where vshard = %b order by seq limit 1", (VSHARD,))
    [topic] = [decode(body) for body in msgspec.msgpack.decode(rows[0][0], type=list[bytes])]
    return max(partition.floor for partition in topic.partitions)


def test_the_checkpoint_before_the_last_one_will_do(worn: Alone) -> None:
    before = depth(worn)
    spoil(worn, 1)
    worn.again()
    assert depth(worn) == before
    _, _, open, _, leased = before
    assert len(taken(worn, 100)) == open - leased - 1, "all but the one that is for later"
    worn.save()
    worn.again()
    assert taken(worn, 100) == []


def test_where_no_checkpoint_can_be_read_the_whole_journal_will_do(node: Alone) -> None:
    for _ in range(2):
        taken(node, 3)
        node.save()
    before = depth(node)
    spoil(node, 2)
    node.again()
    assert depth(node) == before
    assert len(taken(node, 20)) == 4


def test_what_was_dropped_since_an_older_checkpoint_is_not_made_up(worn: Alone) -> None:
    """Better none than half of it. The rest of the node does not mind."""
    at = older_floor(worn)
    spoil(worn, 1)
    worn.link.call("delete from mqueue.frames where base = %b", (at,))
    worn.again()
    assert asked(worn, OTHER).result(60).vshard == OTHER
    with pytest.raises(Unavailable, match="were dropped since checkpoint"):
        asked(worn, VSHARD).result(60)


def test_what_is_missing_in_the_journal_is_not_passed_over(worn: Alone) -> None:
    spoil(worn, 2)
    worn.link.call("delete from mqueue.journal where vshard = %b and seq <= 2", (VSHARD,))
    worn.again()
    with pytest.raises(Unavailable, match="row 1 of the journal of virtual shard"):
        asked(worn, VSHARD).result(60)
