"""The async broker: the same calls as the sync one, and waiting that a publish, the clock or a cancellation ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import mqueue
from mqueue import AsyncBroker, AsyncMessage
from mqueue.broker import occurrences
from mqueue.model.clock import Clock, SystemClock
from mqueue.testing import ManualClock

DEADLINE_SECONDS = 120


def run(main: Callable[[AsyncBroker, ManualClock], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine on a broker whose time stands still."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            clock = ManualClock()
            async with AsyncBroker(clock=clock, name="tester") as q:
                await main(q, clock)

    asyncio.run(bounded())


async def others() -> None:
    """Let every other task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


def waiters(q: AsyncBroker) -> int:
    return sum(map(len, q._sync._engine.waiters.values())) + len(q._sync._engine.clock._sleepers)


# Waiting


def test_a_publish_ends_the_wait() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        waiting = asyncio.create_task(q.receive("orders", wait="60s"))
        await others()
        assert not waiting.done()
        await q.publish("orders", b"1")
        [m] = await waiting
        assert isinstance(m, AsyncMessage)
        assert m.payload == b"1"
        await m.ack()
        assert (await q.stats("orders")).groups["default"].acked == 1
        assert waiters(q) == 0

    run(main)


def test_a_publish_from_another_thread_ends_the_wait() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        waiting = asyncio.create_task(q.receive("orders", wait="60s"))
        await others()
        thread = threading.Thread(target=lambda: asyncio.run(q.publish("orders", b"1")))
        thread.start()
        assert len(await waiting) == 1
        thread.join()

    run(main)


def test_the_clock_ends_the_wait() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        await q.publish("orders", b"later", delay="5s")
        waiting = asyncio.create_task(q.receive("orders", wait="60s"))
        in_vain = asyncio.create_task(q.receive("empty", wait="1s"))
        await others()
        clock.advance("1s")
        assert await in_vain == []
        assert not waiting.done()
        clock.advance("4s")
        assert [m.text() for m in await waiting] == ["later"]
        assert waiters(q) == 0

    run(main)


def test_real_time_ends_the_wait() -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), AsyncBroker() as q:
            assert await q.receive("orders", wait="20ms") == []
            await q.publish("orders", b"1", delay="20ms")
            assert len(await q.receive("orders", wait="20s")) == 1

    asyncio.run(main())


def test_a_cancelled_receive_leaves_nothing_behind() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        waiting = asyncio.create_task(q.receive("orders", wait="60s"))
        await others()
        assert waiters(q) == 2  # the topic's and the clock's
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiters(q) == 0
        await q.publish("orders", b"1")
        assert len(await q.receive("orders")) == 1

    run(main)


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("clock", [ManualClock, SystemClock])
def test_a_cancellation_that_comes_with_the_message_loses_neither(clock: Callable[[], Clock], turns: int) -> None:
    """However far the waking has come when it is cancelled. wait_for of Python 3.11 swallows some of these."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), AsyncBroker(clock=clock()) as q:
            waiting = asyncio.create_task(q.receive("orders", wait="20s"))
            await others()
            await q.publish("orders", b"1")
            for _ in range(turns):
                await asyncio.sleep(0)
            if waiting.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert [m.attempt for m in await q.receive("orders")] == [1]
            else:
                assert len(await waiting) == 1

    asyncio.run(main())


def test_a_receive_left_in_a_dead_loop_does_not_disturb_a_publish() -> None:
    q = AsyncBroker(clock=ManualClock())
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(q.receive("orders", wait="60s"))
    loop.run_until_complete(others())
    loop.close()
    asyncio.run(q.publish("orders", b"1"))
    assert len(asyncio.run(q.receive("orders"))) == 1
    waiting._log_destroy_pending = False  # it is pending for good; that is the point
    waiting.get_coro().close()


def test_closing_the_broker_ends_the_wait() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        waiting = [asyncio.create_task(q.receive("orders", wait="60s")) for _ in range(3)]
        await others()
        await q.close()
        for task in waiting:
            with pytest.raises(mqueue.Closed):
                await task

    run(main)


def test_many_tasks_share_the_work_without_loss_or_repetition() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        seen: list[int] = []

        async def worker() -> None:
            while messages := await q.receive(["a", "b"], limit=7, wait="60s"):
                seen.extend(m.json() for m in messages)
                await asyncio.sleep(0)
                await q.ack(messages)

        workers = [asyncio.create_task(worker()) for _ in range(200)]
        for n in range(500):
            await q.publish_many("ab"[n % 2], [4 * n + i for i in range(4)])
            await asyncio.sleep(0)
        await others()
        clock.advance("60s")
        await asyncio.gather(*workers)
        assert sorted(seen) == list(range(2000))
        assert waiters(q) == 0

    run(main)


# Consuming


def test_consume_keeps_its_leases_and_gives_back_on_break() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        await q.publish_many("orders", [b"1", b"2", b"3"])
        async for m in q.consume("orders", visibility="30s"):
            clock.advance("10m")
            assert await q.receive("orders") == []  # three are held, by renewed leases
            async with m:
                pass
            break
        await others()
        assert [(m.text(), m.attempt) for m in await q.receive("orders", limit=9)] == [("2", 1), ("3", 1)]

    run(main)


@pytest.mark.parametrize("inside", [True, False], ids=["while at work", "while waiting"])
def test_consume_gives_back_when_cancelled(inside: bool) -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        busy = asyncio.Event()

        async def consume() -> None:
            async for _ in q.consume("orders"):
                if inside:
                    busy.set()
                    await asyncio.Event().wait()

        await q.publish_many("orders", [b"1", b"2"])
        task = asyncio.create_task(consume())
        await (busy.wait() if inside else others())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await others()
        assert len(await q.receive("orders", limit=9)) == 2
        assert waiters(q) == 0

    run(main)


def test_consume_ends_when_the_broker_closes() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        task = asyncio.create_task(_collect(q))
        await q.publish("orders", b"1")
        await others()
        await q.close()
        assert await task == ["1"]

    run(main)


async def _collect(q: AsyncBroker) -> list[str]:
    found = []
    async for m in q.consume("orders"):
        async with m:
            found.append(m.text())
    return found


def test_consume_leaves_the_others_their_turn() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        await q.publish_many("orders", [b""] * 1000)
        others_turns = asyncio.create_task(_count_turns())
        done = 0
        async for m in q.consume("orders", prefetch=10):
            async with m:
                done += 1
            if done == 1000:
                break
        others_turns.cancel()
        assert await others_turns >= 50

    run(main)


async def _count_turns() -> int:
    """How many turns a task gets until it is cancelled."""
    turns = 0
    with suppress(asyncio.CancelledError):
        while True:
            turns += 1
            await asyncio.sleep(0)
    return turns


# Subscribing


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_subscription_acks_what_returns_and_nacks_what_raises(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        def plain(m: AsyncMessage) -> None:
            if m.payload == b"bad":
                raise ValueError("no such order")

        async def awaited(m: AsyncMessage) -> None:
            await asyncio.sleep(0)
            plain(m)

        await q.publish_many("orders", [b"good", b"bad", b"good"])
        async with q.subscribe("orders", awaited if kind == "async" else plain, concurrency=2):
            await others()
        stats = (await q.stats("orders")).groups["default"]
        assert (stats.acked, stats.waiting, stats.leased) == (2, 1, 0)
        assert "no such order" in caplog.text
        assert waiters(q) == 0

    run(main)


def test_a_handler_that_never_waits_leaves_the_others_their_turn() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        await q.publish_many("orders", [b""] * 500)
        others_turns = asyncio.create_task(_count_turns())
        async with q.subscribe("orders", lambda m: None):
            while (await q.stats("orders")).ready:
                await asyncio.sleep(0)
        others_turns.cancel()
        assert await others_turns >= 50

    run(main)


def test_close_drains_and_takes_no_more() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        go, at_work, done = asyncio.Event(), 0, []

        async def handler(m: AsyncMessage) -> None:
            nonlocal at_work
            at_work += 1
            await go.wait()
            done.append(m.payload)

        await q.publish_many("orders", [b"1", b"2", b"3", b"4"])
        sub = q.subscribe("orders", handler, concurrency=3)
        await others()
        assert at_work == 3
        closing = asyncio.create_task(sub.close())
        await others()
        assert not closing.done()
        go.set()
        await closing
        assert sorted(done) == [b"1", b"2", b"3"]
        assert [m.payload for m in await q.receive("orders", limit=9)] == [b"4"]
        await sub.close()  # once more does no harm

    run(main)


def test_close_with_a_timeout_cancels_and_gives_back_uncounted() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        async def handler(m: AsyncMessage) -> None:
            await asyncio.Event().wait()

        await q.publish("orders", b"1")
        sub = q.subscribe("orders", handler)
        await others()
        await sub.close(timeout=0)
        [m] = await q.receive("orders")
        assert m.attempt == 1

    run(main)


def test_a_subscription_survives_a_lost_lease_and_ends_with_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        seen = []

        async def handler(m: AsyncMessage) -> None:
            seen.append(m.payload)
            if m.payload == b"1":
                await q.seek("orders", to="latest")  # what it holds is lost to the group

        sub = q.subscribe("orders", handler)
        await q.publish("orders", b"1")
        await others()
        await q.publish("orders", b"2")
        await others()
        assert seen == [b"1", b"2"]
        assert "no longer ours" in caplog.text
        await q.close()
        await sub.close()

    run(main)


@pytest.mark.parametrize("concurrency", [0, -1, 1025, "2", True])
def test_a_bad_concurrency_is_refused(concurrency: Any) -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        with pytest.raises(mqueue.Refused):
            q.subscribe("orders", print, concurrency=concurrency)

    run(main)


# The other calls


def test_messages_settle_awaited() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        await q.publish_many("orders", [b"ack", b"nack", b"reject", b"release", b"extend"])
        by_name = {m.text(): m for m in await q.receive("orders", limit=9)}
        await by_name["ack"].ack()
        await by_name["nack"].nack(delay="1h", error="busy")
        await by_name["reject"].reject("hopeless")
        await by_name["release"].release()
        await by_name["extend"].extend("2h")
        clock.advance("1h")
        again = await q.receive("orders", limit=9)
        assert {(m.text(), m.attempt) for m in again} == {("nack", 2), ("release", 1)}
        with pytest.raises(mqueue.LeaseLost):
            await by_name["nack"].ack()
        with pytest.raises(ValueError, match="boom"):
            async with again[0]:
                raise ValueError("boom")
        assert (await q.ack(again[1])).settled == 1
        assert (await q.ack([by_name["extend"]], publish=[mqueue.Draft(b"next", topic="next")])).settled == 1
        assert [m.payload for m in await q.peek("next")] == [b"next"]

    run(main)


def test_the_dead_are_looked_at_and_redriven() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        receipt = await q.publish("orders", b"1")
        await (await q.receive("orders"))[0].reject("hopeless")
        dlq = q.dlq("orders")
        [dead] = await dlq.messages(filter=lambda m: isinstance(m, mqueue.AsyncDeadMessage))
        assert isinstance(dead, mqueue.AsyncDeadMessage)
        assert dead.error == "hopeless"
        with pytest.raises(mqueue.LeaseLost):
            await dead.ack()
        assert (await dlq.redrive(filter='error ~ "hope"')).redriven == 1
        assert [m.id for m in await q.receive("orders")] == [receipt.id]

    run(main)


def test_tables_go_in_and_out() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        waiting = asyncio.create_task(q.receive_arrow("orders", wait="60s"))
        await others()
        await q.publish_arrow("orders", pa.table({"payload": [b"1", b"2"]}))
        lease = await waiting
        assert (len(lease), lease.table["payload"].to_pylist()) == (2, [b"1", b"2"])
        assert (await lease.ack()).settled == 2
        nothing = await q.receive_arrow("orders")
        assert not nothing
        assert (await nothing.ack()).settled == 0
        assert [batch.num_rows async for batch in q.scan_arrow("orders")] == [2]

    run(main)


def test_a_scan_is_an_async_iterator_and_refuses_at_once() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        await q.publish_many("orders", [str(n) for n in range(1000)])
        found = [m async for m in q.scan("orders", start=10)]
        assert [int(m.payload) for m in found] == list(range(10, 1000))
        assert isinstance(found[0], AsyncMessage)
        with pytest.raises(mqueue.NotFound):
            q.scan("nowhere")

    run(main)


def test_looking_and_scheduling() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        receipt = await q.publish("orders", b"1", delay="1h")
        [m] = await q.scheduled("orders")
        await q.reschedule(m, delay="2h")
        assert (await q.explain(receipt)).code == "scheduled"
        await q.cancel(m)
        assert (await q.trace(m)).events[-1].kind == "CANCELLED"
        with pytest.raises(mqueue.Conflict):
            await q.cancel(m)

    run(main)


def test_a_namespace_is_apart_and_does_not_close_the_broker() -> None:
    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        async with q.namespace("tenant-a") as tenant:
            assert type(tenant) is AsyncBroker
            await tenant.publish("orders", b"1")
            assert await q.topics() == []
        assert [m.namespace for m in await tenant.receive("orders")] == ["tenant-a"]

    run(main)


def test_one_broker_serves_several_loops_one_after_the_other() -> None:
    q = AsyncBroker()
    asyncio.run(q.publish("orders", b"1"))
    assert [m.payload for m in asyncio.run(q.receive("orders", wait="10s"))] == [b"1"]
    asyncio.run(q.close())
    with pytest.raises(mqueue.Closed):
        asyncio.run(q.topics())


def test_others_get_a_turn_between_the_pages_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "PAGE_BYTES_MAX", 1000)

    async def main(q: AsyncBroker, clock: ManualClock) -> None:
        await q.publish_many("orders", [b"x"] * 20)
        await q.ack(await q.receive("orders", limit=5))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        batches = [batch async for batch in q.events("orders", 0, 0, 20)]
        assert turns >= len(batches) - 1 > 2
        counting.cancel()
        assert sum(batch.num_rows for batch in batches) == 30

    run(main)
