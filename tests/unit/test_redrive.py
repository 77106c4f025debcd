"""The steps of a redrive: short, over what was dead when it began; in threads and in event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import mqueue
from mqueue.broker.redrive import Redriving
from mqueue.heart.runs import Run
from mqueue.model.limits import FRAME_ROWS_MAX, REDRIVE_STEP_MESSAGES
from mqueue.testing import ManualClock
from tests.conformance.steps import TellingClock

DEADLINE_SECONDS = 120
MANY = FRAME_ROWS_MAX + 500


def dead(q: mqueue.Broker, count: int) -> None:
    q.publish_many("t", [b"%d" % n for n in range(count)])
    q.reject(q.receive("t", limit=count))


def test_no_step_is_long() -> None:
    with mqueue.Broker(clock=ManualClock()) as q:
        dead(q, 2 * REDRIVE_STEP_MESSAGES + 1)
        redriving = Redriving(q.dlq("t")._yard, None, None, False)
        done = [redriving.done.redriven]
        while redriving.step():
            done.append(redriving.done.redriven)
        assert done == [0, REDRIVE_STEP_MESSAGES, 2 * REDRIVE_STEP_MESSAGES]
        assert redriving.done.redriven == 2 * REDRIVE_STEP_MESSAGES + 1
        assert len(q.dlq("t")) == 0


def test_no_step_looks_at_many_either() -> None:
    with mqueue.Broker(clock=ManualClock()) as q:
        dead(q, 2 * REDRIVE_STEP_MESSAGES)
        looks: list[int] = [0]

        def none(message: mqueue.DeadMessage) -> bool:
            looks[-1] += 1
            return False

        redriving = Redriving(q.dlq("t")._yard, none, None, True)
        while redriving.step():
            looks.append(0)
        assert max(looks) == REDRIVE_STEP_MESSAGES
        assert sum(looks) == 2 * REDRIVE_STEP_MESSAGES


def test_the_last_to_come_back_costs_as_little_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came back before lies beside it: it is not all looked at again for each."""
    looks: list[int] = []
    bits = Run.bits

    def counted(run: Run, start: int, mask: int) -> int:
        looks.append(start)
        return bits(run, start, mask)

    with mqueue.Broker(clock=ManualClock()) as q:
        dead(q, MANY)
        monkeypatch.setattr(Run, "bits", counted)
        assert q.dlq("t").redrive().redriven == MANY
        assert len(looks) <= 10 * MANY


def test_what_dies_again_meanwhile_stays_dead() -> None:
    with mqueue.Broker(clock=ManualClock()) as q:
        dead(q, 5)
        redriving = Redriving(q.dlq("t")._yard, None, None, False)
        while redriving.step(1):
            for m in q.receive("t"):
                m.reject(error="again")
        assert redriving.done.redriven == 5
        assert {m.error for m in q.dlq("t").messages()} == {"again"}
        assert len(q.dlq("t")) == 4


def test_a_queue_that_is_deleted_meanwhile_ends_it() -> None:
    with mqueue.Broker(clock=ManualClock()) as q:
        dead(q, 5)
        redriving = Redriving(q.dlq("t")._yard, None, None, False)
        assert redriving.step(2)
        q.delete_topic("t.dlq")
        assert not redriving.step(2)
        assert redriving.done.redriven == 2


def test_nothing_is_dead() -> None:
    with mqueue.Broker(clock=ManualClock()) as q:
        q.publish("t", b"1")
        assert q.dlq("t").redrive(rate=1) == mqueue.Redrive(0, 0, False)
        with pytest.raises(mqueue.NotFound):
            q.dlq("nowhere").redrive(rate=1)


def test_closing_the_broker_ends_the_pause_of_a_thread() -> None:
    clock = TellingClock()
    q = mqueue.Broker(clock=clock)
    dead(q, 3)
    ended: list[BaseException] = []

    def redrive() -> None:
        try:
            q.dlq("t").redrive(rate=1)
        except mqueue.Closed as error:
            ended.append(error)

    thread = threading.Thread(target=redrive)
    thread.start()
    assert clock.asleep.wait(DEADLINE_SECONDS)
    q.close()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert len(ended) == 1


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_loop_goes_on_while_it_pauses(tmp_path: Any, on_disk: bool) -> None:
    async def main() -> None:
        clock = TellingClock()
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            mqueue.AsyncBroker(tmp_path if on_disk else None, clock=clock) as q,
        ):
            await q.publish_many("t", [b"1", b"2", b"3"])
            await q.reject(await q.receive("t", limit=3))
            redriving = asyncio.create_task(q.dlq("t").redrive(rate=1))
            for number in (1, 2):
                while not clock.asleep.is_set():
                    await asyncio.sleep(0)
                assert [m.payload for m in await q.receive("t", limit=3)] == [b"%d" % number]
                clock.asleep.clear()
                clock.advance("1s")
            assert (await redriving).redriven == 3
            assert [m.payload for m in await q.receive("t", limit=3)] == [b"3"]

    asyncio.run(main())


def test_who_is_cancelled_loses_nothing() -> None:
    async def main() -> None:
        clock = TellingClock()
        async with asyncio.timeout(DEADLINE_SECONDS), mqueue.AsyncBroker(clock=clock) as q:
            await q.publish_many("t", [b"1", b"2", b"3"])
            await q.reject(await q.receive("t", limit=3))
            redriving = asyncio.create_task(q.dlq("t").redrive(rate=1))
            while not clock.asleep.is_set():
                await asyncio.sleep(0)
            redriving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await redriving
            assert (await q.dlq("t").redrive()).redriven == 2
            assert [m.payload for m in await q.receive("t", limit=3)] == [b"1", b"2", b"3"]

    asyncio.run(main())
