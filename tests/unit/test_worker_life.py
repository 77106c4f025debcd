"""The worker over time: leases renewed, time limits, queues that go away and come back, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

import mqueue
from mqueue.broker.envelope import AsyncEmbeddedMessage
from tests.unit.workers import DEADLINE_SECONDS, Bench, run, until


class Away:
    """A queue that can be away: its calls then raise."""

    def __init__(self, q: mqueue.AsyncBroker) -> None:
        self._q = q
        self.error: mqueue.Error | None = None
        self.refused = 0

    def namespace(self, name: str) -> Away:
        return self

    async def receive(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return await self._q.receive(*args, **kwargs)

    async def extend(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return await self._q.extend(*args, **kwargs)

    def _check(self) -> None:
        if self.error is not None:
            self.refused += 1
            raise self.error


async def passes(bench: Bench, duration: str, condition: Any) -> None:
    """Let time pass, again and again, until something is so. Each time everybody gets as far as he can: on a slow
    machine time would otherwise run away from those who renew their leases by it."""
    while not condition():
        bench.clock.advance(duration)
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.sleep(0.001)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Leases


@pytest.mark.parametrize("awaited", [True, False])
def test_leases_are_renewed_while_handlers_work(awaited: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        begun: list[int] = []
        gate, gate_async = threading.Event(), asyncio.Event()

        def hold(m: mqueue.Message) -> None:
            begun.append(m.attempt)
            gate.wait(DEADLINE_SECONDS)

        async def hold_async(m: mqueue.AsyncMessage) -> None:
            begun.append(m.attempt)
            await gate_async.wait()

        bench.app.handler("orders", visibility="30s", timeout=None)(hold_async if awaited else hold)
        receipts = await bench.q.publish_many("orders", ["a", "b"])
        async with bench.working():
            await until(lambda: len(begun) == 2)
            for renewals in range(1, 8):
                bench.clock.advance("10s")
                for receipt in receipts:
                    while await extensions(bench, receipt) < renewals:
                        await asyncio.sleep(0.001)
            assert await bench.count("orders", "leased") == 2
            gate.set()
            gate_async.set()
            await bench.until("orders", "acked", 2)
        assert begun == [1, 1]
        assert warnings(caplog) == []

    run(main)


async def extensions(bench: Bench, receipt: mqueue.Receipt) -> int:
    return [event.kind for event in (await bench.q.trace(receipt)).events].count("EXTENDED")


def test_a_lease_that_is_lost_is_told_and_settles_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        begun: list[int] = []
        gate = asyncio.Event()

        @bench.app.handler("orders", concurrency=1)
        async def hold(m: mqueue.AsyncMessage) -> None:
            begun.append(m.attempt)
            await gate.wait()

        receipt = await bench.q.publish("orders", "a")
        async with bench.working():
            await until(lambda: begun)
            await bench.q.seek("orders", to="earliest")  # takes from the group whatever it holds
            bench.clock.advance("10s")
            await until(lambda: any("was lost at work" in line for line in warnings(caplog)))
            gate.set()
            await bench.until("orders", "acked")  # it came again, and the place was free again
        assert begun == [1, 1]
        lost, late = warnings(caplog)
        assert f"message {receipt.id} of orders was lost at work" in lost
        assert "was no longer ours" in late

    run(main)


# Time limits


def test_a_coroutine_that_outlives_its_time_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        ends: list[str] = []

        @bench.app.handler("orders", retries=0, timeout="5m")
        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("cancelled")

        await bench.q.publish("orders", "a")
        async with bench.working():
            await until(lambda: bench.app.consumers()[0].busy == 1)
            await passes(bench, "10s", lambda: ends)
            await bench.until("orders", "dead")
        assert await bench.dead("orders") == [
            ("a", "rejected", f"TimeoutError: handler {hang.__qualname__} took longer than 300000 ms")
        ]
        assert len(warnings(caplog)) == 1
        assert bench.app.consumers()[0].failed == 1

    run(main)


def test_time_limits_hold_one_by_one() -> None:
    async def main(bench: Bench) -> None:
        begun: list[str] = []

        @bench.app.handler("orders", timeout="30s", visibility="10m")
        async def hang(text: str) -> None:
            begun.append(text)
            await asyncio.Event().wait()

        async with bench.working():
            await bench.q.publish("orders", "a")
            await until(lambda: begun == ["a"])
            bench.clock.advance("20s")
            await bench.q.publish("orders", "b")
            await until(lambda: begun == ["a", "b"])
            bench.clock.advance("10s")
            await bench.until("orders", "waiting")
            assert await bench.count("orders", "leased") == 1
            bench.clock.advance("20s")
            await until(lambda: bench.app.consumers()[0].failed >= 2)

    run(main, drain=0)


def test_a_thread_that_outlives_its_time_is_given_up_and_keeps_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        begun: list[str] = []
        gate = threading.Event()

        @bench.app.handler("orders", concurrency=1, retries=0, timeout="1m", visibility="10m")
        def hang(text: str) -> None:
            begun.append(text)
            if text == "a":
                gate.wait(DEADLINE_SECONDS)

        await bench.q.publish_many("orders", ["a", "b"])
        async with bench.working():
            await until(lambda: begun)
            bench.clock.advance("1m")
            await bench.until("orders", "dead")
            await until(lambda: not bench.app.consumers()[0].busy_since)
            assert (begun, bench.app.consumers()[0].busy) == (["a"], 1)
            gate.set()
            await bench.until("orders", "acked")
        assert begun == ["a", "b"]
        [told] = warnings(caplog)
        assert "its thread cannot be stopped" in told

    run(main)


def test_a_handler_that_ignores_its_cancellation_loses_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        begun: list[int] = []
        cancelled, gate = asyncio.Event(), asyncio.Event()

        @bench.app.handler("orders", timeout="1m", visibility="30s")
        async def stubborn(m: mqueue.AsyncMessage) -> None:
            begun.append(m.attempt)
            if m.attempt == 1:
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    cancelled.set()
                    await gate.wait()

        await bench.q.publish("orders", "a")
        async with bench.working():
            await until(lambda: begun)
            await passes(bench, "10s", cancelled.is_set)
            await passes(bench, "10s", lambda: begun == [1, 2])
            await bench.until("orders", "acked")
            gate.set()
            await until(lambda: bench.app.consumers()[0].busy == 0)
        assert any("was no longer ours" in line for line in warnings(caplog))

    run(main)


def test_the_machines_clock_times_out_and_renews() -> None:
    async def main(bench: Bench) -> None:
        async with mqueue.AsyncBroker(max_retries=1000) as q:
            app = mqueue.Worker(queue=q)
            gate = asyncio.Event()

            @app.handler("slow", timeout="50ms", retries=0)
            async def hang() -> None:
                await asyncio.Event().wait()

            @app.handler("long", visibility="3s")
            async def hold() -> None:
                await gate.wait()

            task = asyncio.create_task(app.serve())
            await until(app.consumers)
            for _ in range(50):  # until nobody has anything to wait for but messages
                await asyncio.sleep(0)
            receipt = await q.publish("long", "a")
            await q.publish("slow", "a")
            await until(lambda: app.consumers()[0].failed)
            while "EXTENDED" not in [event.kind for event in (await q.trace(receipt)).events]:
                await asyncio.sleep(0.01)
            gate.set()
            app.stop()
            await task

    run(main)


# Queues that go away


def test_a_queue_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        away = Away(bench.q)
        bench.app = mqueue.Worker(queue=away, clock=bench.clock)
        seen: list[str] = []

        @bench.app.handler("orders")
        async def ship(text: str) -> None:
            seen.append(text)

        async with bench.working():
            for outage in (1, 2):
                away.error = mqueue.Unavailable("the line is dead", retry_after=1.5)
                away.refused = 0
                await passes(bench, "1s", lambda: away.refused >= 10)
                await bench.q.publish("orders", f"after outage {outage}")
                away.error = None
                await passes(bench, "1s", lambda outage=outage: len(seen) == outage)
        assert seen == ["after outage 1", "after outage 2"]
        told = warnings(caplog)
        assert len(told) == 2
        assert all("gets no messages: the line is dead; trying again" in line for line in told)

    run(main)


def test_what_was_done_during_an_outage_is_settled_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(bench: Bench) -> None:
        away = Away(bench.q)
        bench.app = mqueue.Worker(queue=away, clock=bench.clock)
        begun: list[str] = []
        gate = asyncio.Event()
        settle = AsyncEmbeddedMessage._settle

        async def settle_unless_away(self: AsyncEmbeddedMessage, *args: Any) -> None:
            away._check()
            await settle(self, *args)

        monkeypatch.setattr(AsyncEmbeddedMessage, "_settle", settle_unless_away)

        @bench.app.handler("orders", visibility="10m")
        async def ship(text: str) -> None:
            begun.append(text)
            await gate.wait()
            if text == "bad":
                raise mqueue.Reject("bad")

        await bench.q.publish_many("orders", ["good", "bad"])
        async with bench.working():
            await until(lambda: len(begun) == 2)
            away.error = mqueue.Unavailable("the line is dead")
            gate.set()
            await passes(bench, "100ms", lambda: away.refused >= 8)
            assert await bench.count("orders", "leased") == 2
            away.error = None
            await passes(bench, "100ms", lambda: bench.app.consumers()[0].busy == 0)
        assert (await bench.count("orders", "acked"), await bench.count("orders", "dead")) == (1, 1)
        assert sorted(begun) == ["bad", "good"]

    run(main)


def test_what_cannot_be_settled_is_told_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(bench: Bench) -> None:
        begun: list[int] = []
        settle = AsyncEmbeddedMessage._settle

        async def refuse_first(self: AsyncEmbeddedMessage, *args: Any) -> None:
            if self.attempt == 1:
                raise mqueue.Forbidden("not any more")
            await settle(self, *args)

        monkeypatch.setattr(AsyncEmbeddedMessage, "_settle", refuse_first)

        @bench.app.handler("orders")
        async def ship(m: mqueue.AsyncMessage) -> None:
            begun.append(m.attempt)

        await bench.q.publish("orders", "a")
        async with bench.working():
            await until(lambda: warnings(caplog))
            await passes(bench, "10s", lambda: begun == [1, 2])
            await bench.until("orders", "acked")
        [told] = warnings(caplog)
        assert "is not settled (ack) and comes back when its lease runs out: not any more" in told

    run(main)


def test_an_error_that_waiting_does_not_help_ends_the_worker() -> None:
    async def main(bench: Bench) -> None:
        away = Away(bench.q)
        bench.app = mqueue.Worker(queue=away, clock=bench.clock)
        gate = asyncio.Event()
        begun: list[str] = []

        @bench.app.handler("orders")
        async def ship(text: str) -> None:
            begun.append(text)
            away.error = mqueue.Unauthorized("who are you?")
            await bench.q.publish("orders", "another")
            await gate.wait()

        await bench.q.publish("orders", "one")
        task = asyncio.create_task(bench.app.serve())
        await until(lambda: away.refused)
        gate.set()
        with pytest.raises(mqueue.Unauthorized, match="who are you"):
            await task
        assert await bench.count("orders", "acked") == 1, "what was at hand is finished"

    run(main)


def test_a_closed_queue_ends_the_worker() -> None:
    async def main(bench: Bench) -> None:
        bench.app.handler("orders")(lambda: None)
        bench.app.handler("others")(lambda: None)
        task = asyncio.create_task(bench.app.serve())
        await until(bench.app.consumers)
        await bench.q.close()
        await task

    run(main)


def test_a_worker_can_be_stopped_before_it_has_connected(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        with mqueue.Broker(tmp_path):
            app = mqueue.Worker(f"file:{tmp_path}", clock=bench.clock)
            app.handler("orders")(lambda: None)
            task = asyncio.create_task(app.serve())
            await until(lambda: warnings(caplog))
            app.stop()
            await task
        assert app.consumers() == []

    run(main)
    assert "cannot connect" in warnings(caplog)[0]


def test_a_worker_connects_when_it_can(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        app = mqueue.Worker(f"file:{tmp_path}", name="the worker", clock=bench.clock)

        @app.handler("orders", retries=0)
        async def ship(text: str) -> None:
            app.stop()
            raise ValueError("no")

        with mqueue.Broker(tmp_path) as q:
            q.publish("orders", "a")
            task = asyncio.create_task(app.serve())
            await until(lambda: warnings(caplog))
        await passes(bench, "1s", lambda: app.consumers() or task.done())
        await task  # and no time passes any more: the disk may be slow, and a lease is soon over
        with mqueue.Broker(tmp_path) as q:
            assert [dead.consumer for dead in q.dlq("orders").messages()] == ["the worker"]

    run(main)


# The end


@pytest.mark.parametrize("awaited", [True, False])
def test_what_is_at_hand_is_finished_and_nothing_new_is_begun(awaited: bool) -> None:
    async def main(bench: Bench) -> None:
        begun: list[str] = []
        gate, gate_async = threading.Event(), asyncio.Event()

        def hold(text: str) -> None:
            begun.append(text)
            gate.wait(DEADLINE_SECONDS)

        async def hold_async(text: str) -> None:
            begun.append(text)
            await gate_async.wait()

        bench.app.handler("orders", concurrency=2)(hold_async if awaited else hold)
        await bench.q.publish_many("orders", list("abcd"))
        async with bench.working() as task:
            await until(lambda: len(begun) == 2)
            bench.app.stop()
            for _ in range(3):  # renewed also while it drains
                bench.clock.advance("9s")
                for _ in range(50):
                    await asyncio.sleep(0)
            assert not task.done()
            gate.set()
            gate_async.set()
            await task
        assert sorted(begun) == ["a", "b"]
        assert await bench.count("orders", "acked") == 2
        assert await bench.count("orders", "ready") == 2
        assert await bench.count("orders", "leased") == 0

    run(main)


@pytest.mark.parametrize("how", ["drain is over", "second stop", "cancelled"])
@pytest.mark.parametrize("awaited", [True, False])
def test_what_is_not_done_in_the_end_is_released(how: str, awaited: bool, caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    async def main(bench: Bench) -> None:
        begun: list[int] = []

        def hold(m: mqueue.Message) -> None:
            begun.append(m.attempt)
            gate.wait(DEADLINE_SECONDS)

        async def hold_async(m: mqueue.AsyncMessage) -> None:
            begun.append(m.attempt)
            await asyncio.Event().wait()

        bench.app.handler("orders")(hold_async if awaited else hold)
        await bench.q.publish_many("orders", ["a", "b"])
        task = asyncio.create_task(bench.app.serve())
        await until(lambda: len(begun) == 2)
        if how == "cancelled":
            task.cancel()
        else:
            bench.app.stop()
            await asyncio.sleep(0)
            assert not task.done()
            if how == "second stop":
                bench.app.stop()
            else:
                await passes(bench, "10s", task.done)
        await asyncio.wait([task])
        assert task.cancelled() == (how == "cancelled")
        assert await bench.count("orders", "ready") == 2
        assert [m.attempt for m in await bench.q.receive("orders", limit=2)] == [1, 1], "the attempt did not count"
        assert all("which is released" in line for line in warnings(caplog))
        assert len(warnings(caplog)) == 2

    try:
        run(main)
    finally:
        gate.set()


def test_a_handler_may_end_on_its_cancellation_as_it_likes() -> None:
    async def main(bench: Bench) -> None:
        begun: list[str] = []

        @bench.app.handler("orders")
        async def ship(text: str) -> None:
            begun.append(text)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if text == "done":
                    return
                raise ValueError("cut off") from None

        await bench.q.publish_many("orders", ["done", "undone"])
        async with bench.working():
            await until(lambda: len(begun) == 2)
            bench.app.stop()
            bench.app.stop()
        assert await bench.count("orders", "acked") == 1
        assert await bench.count("orders", "ready") == 1

    run(main)


def test_a_worker_can_work_again() -> None:
    async def main(bench: Bench) -> None:
        seen: list[str] = []

        @bench.app.handler("orders")
        def ship(text: str) -> None:
            seen.append(text)
            bench.app.stop()

        bench.app.stop()  # nothing to stop yet
        for text in ("once", "twice"):
            await bench.q.publish("orders", text)
            await bench.app.serve()
        assert seen == ["once", "twice"]
        assert bench.app.consumers()[0].handled == 1

    run(main)


def test_run_in_another_thread_is_ended_by_stop(tmp_path: Any) -> None:
    app = mqueue.Worker(f"file:{tmp_path}")
    begun = threading.Event()

    @app.handler("orders")
    def ship(text: str) -> None:
        begun.set()

    with mqueue.Broker(tmp_path) as q:
        q.publish("orders", "a")
    thread = threading.Thread(target=app.run)
    thread.start()
    assert begun.wait(120)
    app.stop()
    thread.join(120)
    assert not thread.is_alive()
    with mqueue.Broker(tmp_path) as q:
        assert q.stats("orders").groups["default"].acked == 1
