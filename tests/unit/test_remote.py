"""Receive and settle for consumers elsewhere: by token and ids, fenced, repeatable, across restarts."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import mqueue
from mqueue import Draft, LeaseLost
from mqueue.broker import remote, waiting
from mqueue.broker.commits import committed
from mqueue.broker.loop import LoopBroker
from mqueue.broker.remote import Handed, Wanted
from mqueue.broker.settle import Settlement
from mqueue.cluster.holding import Gone
from mqueue.testing import ManualClock

DEADLINE_SECONDS = 120
VERBS = ("ack", "nack", "reject", "release")


class World:
    """A broker that can be opened again, and its clock."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.q = self._open()

    def _open(self, **settings: Any) -> LoopBroker:
        storage = None if self.folder is None else mqueue.Storage(reserve_bytes=0)
        return LoopBroker(self.folder, clock=self.clock, storage=storage, **settings)

    async def restart(self) -> None:
        await self.q.close_keeping_leases()
        self.q = self._open()

    async def stop_hard(self) -> None:
        """Go on with what is on disk at this moment, as after a kill."""
        assert self.folder is not None
        after = self.folder.with_name(self.folder.name + "-after")
        shutil.copytree(self.folder, after)
        self.q.close()
        self.folder = after
        self.q = self._open()

    async def publish(self, topic: str, *payloads: bytes) -> list[int]:
        receipts = self.q.publish_many(topic, list(payloads))
        await committed()
        return [receipt.id for receipt in receipts]

    async def take(self, topic: str = "t", limit: int = 10, **wanted: Any) -> Handed:
        [handed] = await remote.receive(self.q, Wanted((topic,), limit, **wanted))
        return handed

    async def payloads(self, topic: str = "t", **wanted: Any) -> list[bytes]:
        found = await remote.receive(self.q, Wanted((topic,), 100, **wanted))
        return [message.payload for handed in found for message in handed.messages]

    async def settle(self, verb: str, token: str, ids: list[int] | None = None, **more: Any) -> Settlement:
        return await remote.settle(self.q, verb, token, ids, **more)

    async def is_lost(self, verb: str, token: str, ids: list[int] | None = None, **more: Any) -> tuple[int, ...]:
        with pytest.raises(LeaseLost) as caught:
            await self.settle(verb, token, ids, **more)
        return caught.value.lost


def run(folder: Path | None, main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            world = World(folder)
            try:
                await main(world)
            finally:
                world.q.close()

    asyncio.run(bounded())


async def others() -> None:
    """Let every other task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def half_way(w: World, wanted: Wanted) -> asyncio.Task[list[Handed]]:
    """A receive that has leased, and waits until that is written. The upkeep may be quicker: then once more."""
    while True:
        receiving = asyncio.create_task(remote.receive(w.q, wanted))
        await asyncio.sleep(0)
        if not receiving.done():
            return receiving
        for handed in await receiving:
            await w.settle("release", handed.token)


@pytest.fixture(params=["memory", "disk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return None if request.param == "memory" else tmp_path / "data"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "data"


# Receive


def test_messages_come_under_a_token_with_the_time_that_is_left(folder: Path | None) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2")
        handed = await w.take(visibility="5s", consumer="worker-7")
        assert (handed.topic, len(handed.token), handed.remaining_ms) == ("t", 32, 5000)
        assert handed.deadline == w.clock.now() + 5000
        assert [(m.id, m.payload, m.attempt, m.topic) for m in handed.messages] == [
            (ids[0], b"1", 1, "t"),
            (ids[1], b"2", 1, "t"),
        ]
        assert await w.payloads() == []
        assert "worker-7" in str(w.q.explain(ids[0]))

    run(folder, main)


def test_a_publish_ends_the_wait_and_time_does_too(folder: Path | None) -> None:
    async def main(w: World) -> None:
        waiting = asyncio.create_task(remote.receive(w.q, Wanted(("t",), wait="60s")))
        await others()
        assert not waiting.done()
        await w.publish("t", b"1")
        [handed] = await waiting
        assert handed.messages[0].payload == b"1"
        waiting = asyncio.create_task(remote.receive(w.q, Wanted(("t",), wait="10s")))
        await others()
        w.clock.advance("10s")
        assert await waiting == []

    run(folder, main)


def test_several_topics_have_a_lease_each_and_share_the_limit(folder: Path | None) -> None:
    async def main(w: World) -> None:
        await w.publish("a", b"a1", b"a2")
        await w.publish("b", b"b1", b"b2")
        found = await remote.receive(w.q, Wanted(("a", "b", "empty"), limit=3))
        assert sorted(handed.topic for handed in found) == ["a", "b"]
        assert sum(len(handed.messages) for handed in found) == 3
        assert len({handed.token for handed in found}) == 2
        for handed in found:
            assert (await w.settle("ack", handed.token)).settled == len(handed.messages)

    run(folder, main)


def test_at_most_once_there_is_nothing_to_settle(folder: Path | None) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1")
        handed = await w.take(mode="at_most_once")
        assert (handed.token, handed.deadline, handed.remaining_ms) == ("", 0, 0)
        assert [m.payload for m in handed.messages] == [b"1"]
        assert w.q.stats("t").groups["default"].acked == 1

    run(folder, main)


def test_a_table(folder: Path | None) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", *[b"%d" % n for n in range(5)])
        handed = await remote.receive_table(w.q, Wanted(("t",), limit=4))
        assert handed is not None
        assert handed.table.column("id").to_pylist() == ids[:4]
        assert (handed.topic, handed.remaining_ms) == ("t", 30_000)
        assert (await w.settle("ack", handed.token, ids[:2])).settled == 2
        assert (await w.settle("ack", handed.token)).settled == 2
        rest = await remote.receive_table(w.q, Wanted(("t",), mode="at_most_once"))
        assert rest is not None
        assert (rest.token, rest.table.column("payload").to_pylist()) == ("", [b"4"])
        assert await remote.receive_table(w.q, Wanted(("t",))) is None

    run(folder, main)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Wanted(()), "no_topic"),
        (Wanted(("t",), limit=0), "bad_limit"),
        (Wanted(("t",), mode="once"), "bad_setting"),
        (Wanted(("t",), wait="61s"), "bad_time"),
        (Wanted(("t",), visibility="0s"), "bad_time"),
        (Wanted(("t",), group="a b"), "bad_name"),
        (Wanted(("a b",)), "bad_name"),
        (Wanted(tuple(f"t{n}" for n in range(257))), "too_many"),
    ],
)
def test_what_makes_no_sense_is_refused(wanted: Wanted, code: str) -> None:
    async def main(w: World) -> None:
        with pytest.raises(mqueue.Refused) as caught:
            await remote.receive(w.q, wanted)
        assert caught.value.code == code
        assert w.q.topics() == []

    run(None, main)


def test_who_is_cancelled_gives_back_what_was_leased(disk: Path) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1", b"2")
        receiving = await half_way(w, Wanted(("t",), 2))
        assert receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        handed = await w.take()
        assert [(m.payload, m.attempt) for m in handed.messages] == [(b"1", 1), (b"2", 1)]

    run(disk, main)


def test_who_is_cancelled_while_waiting_leaves_nothing_behind(folder: Path | None) -> None:
    async def main(w: World) -> None:
        waiting = asyncio.create_task(remote.receive(w.q, Wanted(("t",), wait="60s")))
        await others()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not any(w.q._engine.waiters.values())
        await w.publish("t", b"1")
        assert await w.payloads() == [b"1"]

    run(folder, main)


@pytest.mark.parametrize("noticed", [False, True])
def test_a_lease_with_no_time_left_is_not_handed_out(disk: Path, noticed: bool) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1")
        receiving = await half_way(w, Wanted(("t",)))
        w.clock.advance("30s")
        if noticed:  # by whoever comes meanwhile
            assert w.q.stats("t").groups["default"].leased == 0
        assert await receiving == []
        assert (await w.take()).messages[0].attempt == 2

    run(disk, main)


# Settle


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_settle_some_or_all(folder: Path | None, verb: str, whole: bool) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2", b"3")
        handed = await w.take()
        done = await w.settle(verb, handed.token, None if whole else ids[:2], error="no")
        assert done == Settlement(3 if whole else 2)
        stats = w.q.stats("t").groups["default"]
        count = done.settled
        assert stats.leased == 3 - count
        assert {"ack": stats.acked, "nack": stats.waiting, "reject": stats.dead, "release": stats.ready}[verb] == count

    run(folder, main)


def test_what_follows_from_each_verb(folder: Path | None) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2", b"3", b"4")
        handed = await w.take()
        await w.settle("nack", handed.token, ids[:1], wait="7s", error="later")
        await w.settle("release", handed.token, ids[1:2])
        await w.settle("reject", handed.token, ids[2:3], error="hopeless")
        await w.settle("extend", handed.token, ids[3:], wait="10m")
        assert [(m.payload, m.attempt) for m in (await w.take()).messages] == [(b"2", 1)]
        w.clock.advance("7s")
        assert [(m.payload, m.attempt) for m in (await w.take(visibility="1h")).messages] == [(b"1", 2)]
        assert [m.error for m in w.q.dlq("t").messages()] == ["hopeless"]
        w.clock.advance("5m")
        assert await w.settle("ack", handed.token, ids[3:]) == Settlement(1)

    run(folder, main)


def test_ids_in_any_order_and_twice(folder: Path | None) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", *[b"%d" % n for n in range(100)])
        handed = await w.take(limit=100)
        chosen = [ids[n] for n in (7, 3, 99, 3, 50, 7)]
        assert await w.settle("ack", handed.token, chosen) == Settlement(4)
        assert (await w.settle("ack", handed.token)).settled == 96

    run(folder, main)


def test_a_lease_over_partitions_priorities_and_frames(folder: Path | None) -> None:
    async def main(w: World) -> None:
        w.q.configure("t", partitions=3)
        await committed()
        ids = []
        for n in range(12):
            drafts = [Draft(b"%d.%d" % (n, m), priority=m % 3, key=f"k{m}") for m in range(10)]
            ids += [receipt.id for receipt in w.q.publish_many("t", drafts)]
            await committed()
        handed = await w.take(limit=120)
        assert sorted(m.id for m in handed.messages) == sorted(ids)
        by_hand = ids[::7]
        assert await w.settle("ack", handed.token, by_hand) == Settlement(len(by_hand))
        assert await w.settle("release", handed.token, ids) == Settlement(
            120 - len(by_hand), lost=tuple(sorted(by_hand))
        )
        left = await w.take(limit=120)
        assert sorted(m.id for m in left.messages) == sorted(set(ids) - set(by_hand))

    run(folder, main)


def test_what_the_lease_does_not_hold_is_named(folder: Path | None) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2")
        [elsewhere] = await w.publish("u", b"3")
        first, second = await w.take(limit=1), await w.take(limit=1)
        strangers = [ids[1], elsewhere, 17, -1, 1 << 80]
        assert await w.settle("ack", first.token, [*strangers, ids[0]]) == Settlement(1, tuple(sorted(strangers)))
        assert await w.is_lost("ack", first.token, strangers) == tuple(sorted(strangers))
        assert await w.settle("ack", second.token, [ids[1]]) == Settlement(1)
        assert w.q.stats("u").groups == {}

    run(folder, main)


@pytest.mark.parametrize("ids", [None, [1, 2]])
def test_tokens_that_stand_for_nothing_are_all_alike(ids: list[int] | None) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1")
        token = (await w.take()).token
        await w.publish("u", b"2")
        over = (await w.take("u", visibility="1s")).token
        w.clock.advance("2s")
        words = set()
        for broker, strange in [
            (w.q.namespace("other"), token),
            *((w.q, text) for text in ("", "x", over, token[:-1], token + "0", "zz" * 16, "é" * 32, " " * 32)),
        ]:
            with pytest.raises(LeaseLost) as caught:
                await remote.settle(broker, "ack", strange, ids)  # type: ignore[arg-type]
            words.add((caught.value.message, caught.value.lost))
        assert len(words) == 1
        assert (await w.settle("ack", token)).settled == 1

    run(None, main)


def test_a_lease_that_ran_out_holds_nothing(folder: Path | None) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1")
        token = (await w.take()).token
        w.clock.advance("30s")
        assert await w.is_lost("ack", token, ids) == tuple(ids)
        assert await w.is_lost("ack", token) == ()
        assert await w.is_lost("extend", token, ids, wait="1m") == tuple(ids)
        assert (await w.take()).messages[0].attempt == 2

    run(folder, main)


def test_no_ids_are_no_messages(folder: Path | None) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1")
        token = (await w.take()).token
        assert await w.settle("ack", token, []) == Settlement(0)
        with pytest.raises(mqueue.Refused) as caught:
            await w.settle("ack", token, [], publish=[Draft(b"x", topic="u")])
        assert caught.value.code == "empty"
        with pytest.raises(mqueue.TooLarge):
            await w.settle("ack", token, list(range(10_001)))
        assert await w.settle("ack", token) == Settlement(1)

    run(folder, main)


# The same call again


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_repeated_call_is_answered_as_the_first(folder: Path | None, verb: str, whole: bool) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2", b"3")
        handed = await w.take()
        await w.settle("ack", handed.token, ids[:1])
        chosen = None if whole else [*ids[1:], 17]
        first = await w.settle(verb, handed.token, chosen)
        assert first == Settlement(2, () if whole else (17,))
        assert await w.settle(verb, handed.token, chosen) == first
        if w.folder is not None:
            await w.restart()
            assert await w.settle(verb, handed.token, chosen) == first
        other = "nack" if verb != "nack" else "release"
        assert await w.is_lost(other, handed.token, ids[1:]) == tuple(ids[1:])
        w.clock.advance("9m")
        assert await w.settle(verb, handed.token, chosen) == first
        w.clock.advance("2m")
        await w.is_lost(verb, handed.token, chosen)

    run(folder, main)


def test_a_repeated_call_is_answered_though_the_messages_are_gone(folder: Path | None) -> None:
    async def main(w: World) -> None:
        w.q.configure("t", retention={"on_ack": True})
        ids = await w.publish("t", *[b"%d" % n for n in range(10)])
        token = (await w.take()).token
        first = await w.settle("ack", token, ids)
        for _ in range(3):
            w.clock.advance("2s")
            w.q.stats("t")
        await committed()
        assert list(w.q.scan("t")) == []
        assert await w.settle("ack", token, ids) == first == Settlement(10)
        assert await w.is_lost("nack", token, ids) == tuple(ids)
        assert await w.settle("ack", token, [*ids, 1 << 62]) == Settlement(10, (1 << 62,))

    run(folder, main)


def test_a_repeated_call_waits_until_the_first_is_durable(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1")
        token = (await w.take()).token
        writer = w.q._engine.store.log.writer  # type: ignore[attr-defined]
        sync, free = writer.sync_to, threading.Event()

        def slowly(*args: Any) -> None:
            free.wait(DEADLINE_SECONDS)
            sync(*args)

        monkeypatch.setattr(type(writer), "sync_to", lambda self, *args: slowly(*args))
        first = asyncio.create_task(w.settle("ack", token))
        await others()
        again = asyncio.create_task(w.settle("ack", token))
        await others()
        assert not first.done()
        assert not again.done()
        free.set()
        assert await again == await first == Settlement(1)

    run(disk, main)


# What follows


def test_what_follows_is_published_with_the_ack(folder: Path | None) -> None:
    async def main(w: World) -> None:
        q = w.q.namespace("tenant")
        q.publish_many("t", [b"1", b"2"])
        await committed()
        [handed] = await remote.receive(q, Wanted(("t",), 2))
        ids = [m.id for m in handed.messages]
        drafts = [Draft(b"a", topic="next"), Draft(b"b", topic="log")]
        done = await remote.settle(q, "ack", handed.token, ids[:1], publish=drafts)
        assert (done.settled, [receipt.topic for receipt in done.receipts]) == (1, ["next", "log"])
        assert await remote.settle(q, "ack", handed.token, ids[:1], publish=drafts) == done
        rest = await remote.settle(q, "ack", handed.token, publish=drafts[:1])
        assert await remote.settle(q, "ack", handed.token, publish=drafts[:1]) == rest
        assert [m.payload for m in q.scan("next")] == [b"a", b"a"]
        assert (q.topics(), w.q.topics()) == (["log", "next", "t"], [])

    run(folder, main)


@pytest.mark.parametrize("hard", [False, True])
def test_the_receipts_survive_a_restart(disk: Path, hard: bool) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2", b"3")
        token = (await w.take()).token
        drafts = [Draft(b"a", topic="next", idempotency_key="k"), Draft(b"a", topic="next", idempotency_key="k")]
        some = await w.settle("ack", token, ids[:2], publish=drafts)
        rest = await w.settle("ack", token, publish=[Draft(b"b", topic="next")])
        assert [receipt.duplicate for receipt in some.receipts] == [False, True]
        for again in (False, True):
            await (w.stop_hard() if hard and not again else w.restart())
            assert await w.settle("ack", token, ids[:2], publish=drafts) == some
            assert await w.settle("ack", token, publish=[Draft(b"b", topic="next")]) == rest
        assert [m.payload for m in w.q.scan("next")] == [b"a", b"b"]
        w.clock.advance("11m")
        await w.is_lost("ack", token, ids[:2], publish=drafts)
        await w.is_lost("ack", token, publish=drafts)
        assert len(list(w.q.scan("next"))) == 2

    run(disk, main)


def test_nothing_is_published_on_behalf_of_what_is_not_held(folder: Path | None) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2")
        token = (await w.take()).token
        drafts = [Draft(b"a", topic="next")]
        assert await w.is_lost("ack", token, [ids[0], 17], publish=drafts) == (17,)
        await w.settle("ack", token, ids[:1])
        assert await w.is_lost("ack", token, ids[:1], publish=drafts) == tuple(ids[:1])
        w.clock.advance("30s")
        assert await w.is_lost("ack", token, ids[1:], publish=drafts) == tuple(ids[1:])
        await w.is_lost("ack", token, publish=drafts)
        assert w.q.topics() == ["t"]

    run(folder, main)


@pytest.mark.parametrize(
    ("verb", "more", "error"),
    [
        ("ack", {"publish": [Draft(b"a", topic="next"), Draft(b"b", topic="no name")]}, mqueue.BadName),
        ("ack", {"publish": [Draft(b"a")]}, mqueue.Refused),
        ("nack", {"publish": [Draft(b"a", topic="next")], "wait": 1e12}, mqueue.BadTime),
        ("extend", {"publish": [Draft(b"a", topic="next")], "wait": "1m"}, mqueue.Refused),
        ("extend", {}, mqueue.BadTime),
        ("extend", {"wait": "13h"}, mqueue.BadTime),
    ],
)
def test_bad_input_changes_nothing(folder: Path | None, verb: str, more: dict[str, Any], error: type) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1")
        token = (await w.take()).token
        with pytest.raises(error):
            await w.settle(verb, token, **more)
        assert w.q.topics() == ["t"]
        assert w.q.stats("t").groups["default"].leased == 1
        assert await w.settle("ack", token) == Settlement(1)

    run(folder, main)


# Restarts


@pytest.mark.parametrize("hard", [False, True])
def test_a_lease_survives_a_restart(disk: Path, hard: bool) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1", b"2", b"3")
        token = (await w.take(consumer="c")).token
        await w.settle("ack", token, ids[:1])
        await (w.stop_hard() if hard else w.restart())
        assert await w.payloads() == []
        assert await w.settle("ack", token, ids[:2]) == Settlement(2)
        assert await w.settle("nack", token, wait="1s") == Settlement(1)
        w.clock.advance("1s")
        assert [(m.payload, m.attempt) for m in (await w.take()).messages] == [(b"3", 2)]

    run(disk, main)


def test_its_deadline_goes_on_meanwhile(disk: Path) -> None:
    async def main(w: World) -> None:
        ids = await w.publish("t", b"1")
        token = (await w.take()).token
        w.clock.advance("20s")
        await w.restart()
        assert await w.payloads() == []
        w.clock.advance("10s")
        assert await w.is_lost("ack", token, ids) == tuple(ids)
        assert await w.payloads() == [b"1"]

    run(disk, main)


def test_what_this_process_worked_on_is_given_back(disk: Path) -> None:
    async def main(w: World) -> None:
        await w.publish("t", b"1", b"2")
        remote_token = (await w.take(limit=1)).token
        inside: Any = w.q.consume("t", prefetch=1)
        m = await anext(inside)
        assert m.payload == b"2"
        await w.restart()
        await inside.aclose()
        assert [(m.payload, m.attempt) for m in (await w.take()).messages] == [(b"2", 1)]
        assert await w.settle("ack", remote_token) == Settlement(1)

    run(disk, main)


@pytest.mark.parametrize("wait", [None, "1s"])
def test_a_lease_is_handed_out_though_its_engine_is_handed_over_while_it_is_written(monkeypatch, wait) -> None:
    """Whoever has it next knows of the lease: with nobody holding it the message would wait for its end."""

    async def written(found: Any) -> Any:
        world.q._engine.clock = Gone(mqueue.Unavailable("another node owns it", code="not_owner"))
        return found

    async def story() -> None:
        await world.publish("t", b"a")
        monkeypatch.setattr(waiting, "safely", written)
        handed = await world.take(wait=wait)
        assert handed.token
        assert handed.remaining_ms == 30_000

    world = World(None)
    clock = world.q._engine.clock
    asyncio.run(story())
    world.q._engine.clock = clock
    world.q.close()
