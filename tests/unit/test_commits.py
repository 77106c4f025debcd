"""Group commit: many callers share a write and a sync, nobody is answered too early, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import errno
import sys
import threading
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import mqueue
from mqueue.broker import scanning, upkeep
from mqueue.broker.commits import WAITS
from mqueue.broker.twin import behind
from mqueue.log.segments.disk import RealDisk
from mqueue.testing import ManualClock

SMALL = mqueue.Storage(segment_bytes=64 * 1024, checkpoint_bytes=64 * 1024, reserve_bytes=0)
DEADLINE = 120.0


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each sync."""
    seen: list[int] = []
    real = RealDisk.sync

    def sync(self: RealDisk, file: int) -> None:
        seen.append(file)
        real(self, file)

    monkeypatch.setattr(RealDisk, "sync", sync)
    return seen


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes on in the background, however long a test takes."""
    monkeypatch.setattr(upkeep, "PERIOD_SECONDS", 3600.0)


@pytest.fixture
def gate(syncs: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No sync ends before it is open."""
    gate = threading.Event()
    real = RealDisk.sync

    def sync(self: RealDisk, file: int) -> None:
        gate.wait(DEADLINE)
        real(self, file)

    gate.set()
    monkeypatch.setattr(RealDisk, "sync", sync)
    yield gate
    gate.set()


@pytest.fixture
def _nervous() -> Iterator[None]:
    """Threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_threads(*jobs: object) -> None:
    failures: list[BaseException] = []

    def guarded(job: object) -> None:
        try:
            job()  # type: ignore[operator]
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive(), "somebody waits for ever"
    assert failures == []


@pytest.mark.usefixtures("_quiet")
def test_threads_share_syncs(
    tmp_path: Path, syncs: list[int], gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sync lasts until everybody has handed in: the others need one between them."""
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        q.publish("orders", "first")
        log = q._engine.store.log
        extend, handed_in = log.extend, []

        def hand_in(*args: object) -> int:
            offset = extend(*args)
            handed_in.append(offset)
            if len(handed_in) == 16:
                gate.set()
            return offset

        monkeypatch.setattr(log, "extend", hand_in)
        syncs.clear()
        gate.clear()
        run_threads(*[lambda: q.publish("orders", "x")] * 16)
        assert 1 <= len(syncs) <= 3
        assert q.stats("orders").published == 17


def test_threads_at_work_share_syncs_and_lose_nothing(tmp_path: Path, syncs: list[int]) -> None:
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        q.publish("orders", "first")
        syncs.clear()
        run_threads(*[lambda: [q.publish("orders", "x") for _ in range(25)] for _ in range(16)])
        assert len(syncs) < 300  # of 400 calls
        assert q.stats("orders").published == 401


@pytest.mark.usefixtures("_quiet")
def test_tasks_share_syncs(tmp_path: Path, syncs: list[int], gate: threading.Event) -> None:
    async def together(calls: list[Awaitable[object]]) -> None:
        """The first sync lasts until everybody has handed in."""
        syncs.clear()
        gate.clear()
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks)
        assert 1 <= len(syncs) <= 3

    async def main() -> None:
        async with mqueue.AsyncBroker(tmp_path / "data", storage=SMALL) as q:
            await q.publish("orders", "first")
            await together([q.publish("orders", "x") for _ in range(20)])
            held = [m for _ in range(20) for m in await q.receive("orders")]
            await together([m.ack() for m in held])
            assert (await q.stats("orders")).acked == 20

    asyncio.run(main())


def test_tasks_at_work_share_syncs_and_lose_nothing(tmp_path: Path, syncs: list[int]) -> None:
    """All that the tasks of a loop hand in, in one turn of it, goes with one commit."""

    async def main() -> int:
        async with mqueue.AsyncBroker(tmp_path / "data", storage=SMALL) as q:
            await q.publish("orders", "first")
            syncs.clear()

            async def work() -> None:
                for _ in range(10):
                    await q.publish("orders", "x")
                    [m] = await q.receive("orders")
                    await m.ack()

            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(work())
            assert (await q.stats("orders")).acked == 200
            return len(syncs)

    assert asyncio.run(main()) < 100  # of 600 calls


@pytest.mark.usefixtures("_quiet")
def test_a_lease_is_written_before_it_is_handed_out_and_needs_no_sync(tmp_path: Path, syncs: list[int]) -> None:
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        q.publish("orders", "a")
        q.create_group("orders", "g")
        log = q._engine.store.log
        before = log.writer.written
        syncs.clear()
        assert len(q.receive("orders", group="g")) == 1
        assert log.writer.written == before + 1
        assert syncs == []


@pytest.mark.usefixtures("_quiet")
def test_what_is_not_durable_is_not_handed_out_before_it_is(tmp_path: Path, syncs: list[int]) -> None:
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        q.create_group("orders", "g") if q.publish("orders", "a") else None
        q.publish("orders", "b", durability="os")
        syncs.clear()
        assert [m.text() for m in q.receive("orders", limit=2, group="g")] == ["a", "b"]
        assert syncs


@pytest.mark.usefixtures("_nervous")
def test_everything_at_once_on_tiny_segments(tmp_path: Path) -> None:
    """Publishers, consumers, tracers and the upkeep in each other's way; then every message is accounted for."""
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        q.configure("orders", retention={"on_ack": True}, partitions=3)
        done = threading.Event()
        seen: list[int] = []

        def publish() -> None:
            for number in range(60):
                q.publish_many("orders", [mqueue.Draft(bytes(700), key=f"k{number % 7}") for _ in range(5)])

        def consume() -> None:
            while len(seen) < 1200:
                messages = q.receive("orders", limit=7, wait="50ms")
                seen.extend(m.id for m in messages)
                if messages:
                    q.ack(messages)

        def look() -> None:
            while not done.is_set():
                for id in seen[-3:]:
                    with suppress(mqueue.NotFound):  # retention was quicker
                        q.trace(id)
                q._engine.upkeep.run_once()  # type: ignore[union-attr]

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        run_threads(*[publish] * 4, *[consume] * 3)
        done.set()
        watcher.join(DEADLINE)
        assert sorted(seen) == sorted(set(seen))
        assert q.stats("orders").acked == len(seen) == 1200
        assert q.damage() == []
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        assert q.receive("orders") == []
        assert q.damage() == []


def _fail_next_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(self: RealDisk, file: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(RealDisk, "sync", sync)


@pytest.mark.usefixtures("_quiet")
def test_a_failed_sync_is_told_to_everybody_and_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    q = mqueue.Broker(tmp_path / "data", storage=SMALL)
    kept = q.publish("orders", "kept")
    with monkeypatch.context() as patch:
        _fail_next_sync(patch)
        told: list[mqueue.Poisoned] = []

        def publish() -> None:
            with pytest.raises(mqueue.Poisoned) as poisoned:
                q.publish("orders", "unknown")
            told.append(poisoned.value)

        run_threads(*[publish] * 8)
        assert {error.applied for error in told} <= {None, False}
        assert None in {error.applied for error in told}
    for call in (lambda: q.publish("orders", "late"), lambda: q.receive("orders"), lambda: q.stats("orders")):
        with pytest.raises(mqueue.Poisoned) as poisoned:
            call()
        assert poisoned.value.applied is False
    with pytest.raises(mqueue.Poisoned):
        q.close()
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        assert [m.id for m in q.scan("orders")] == [kept.id]


def test_a_failed_sync_is_told_to_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        q = mqueue.AsyncBroker(tmp_path / "data", storage=SMALL)
        await q.publish("orders", "kept")
        _fail_next_sync(monkeypatch)
        answers = await asyncio.gather(*[q.publish("orders", "x") for _ in range(5)], return_exceptions=True)
        assert [type(answer) for answer in answers] == [mqueue.Poisoned] * 5
        with pytest.raises(mqueue.Poisoned):
            await q.close()

    asyncio.run(main())


def test_whoever_is_inside_when_the_store_dies_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    q = mqueue.Broker(tmp_path / "data", storage=SMALL)
    q.publish("orders", "first")
    log = q._engine.store.log
    real = log.extend

    def dies(*args: object) -> int:
        offset = real(*args)
        log.writer.die("the disk is gone")
        return offset

    monkeypatch.setattr(log, "extend", dies)
    with pytest.raises(mqueue.Poisoned) as poisoned:
        q.publish("orders", "not durable")
    assert poisoned.value.applied is None
    with pytest.raises(mqueue.Poisoned):
        q.close()


def test_a_cancelled_receive_gives_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    real = RealDisk.sync

    def slow(self: RealDisk, file: int) -> None:
        gate.wait(DEADLINE)
        real(self, file)

    async def main() -> None:
        async with mqueue.AsyncBroker(tmp_path / "data", storage=SMALL) as q:
            await q.publish_many("orders", ["a", "b"])
            monkeypatch.setattr(RealDisk, "sync", slow)
            task = asyncio.create_task(q.receive("orders", limit=2, mode="at_least_once", wait="10s"))
            late = asyncio.create_task(q.publish("other", "x"))
            await asyncio.sleep(0)
            task.cancel()
            gate.set()
            await asyncio.wait([task, late])
            found = [] if task.cancelled() else task.result()
            stats = await q.stats("orders")
            assert stats.leased == len(found)
            assert [m.attempt for m in await q.receive("orders", limit=2)] == [1] * (2 - len(found))

    asyncio.run(main())


def test_closing_from_many_threads_closes_once(tmp_path: Path) -> None:
    for _ in range(5):
        q = mqueue.Broker(tmp_path / "data", storage=SMALL)
        q.publish("orders", "x")
        run_threads(*[q.close] * 6)


def test_a_signal_handler_is_kept_out_of_a_call_it_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        q.publish("orders", "first")
        real = q._engine.store.log.extend
        codes: list[str] = []

        def handled(*args: object) -> int:
            with pytest.raises(mqueue.Refused) as refused:
                q.publish("orders", "from the handler")
            codes.append(refused.value.code)
            return real(*args)

        monkeypatch.setattr(q._engine.store.log, "extend", handled)
        q.publish("orders", "second")
        monkeypatch.undo()
        assert codes == ["reentered"]
        assert [m.text() for m in q.scan("orders")] == ["first", "second"]


def test_a_call_that_is_interrupted_ends_the_store_and_leaves_nothing_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = mqueue.Broker(tmp_path / "data", storage=SMALL)
    q.publish("orders", "kept")
    log = q._engine.store.log

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log, "extend", interrupted)
        with pytest.raises(KeyboardInterrupt):
            q.publish("orders", "half")

    def late() -> None:
        with pytest.raises(mqueue.Poisoned):
            q.publish("orders", "late")

    run_threads(late)
    with pytest.raises(mqueue.Poisoned, match="interrupted"):
        q.close()
    with mqueue.Broker(tmp_path / "data", storage=SMALL) as q:
        assert [m.text() for m in q.scan("orders")] == ["kept"]


def test_a_thread_that_only_looks_remembers_nothing(tmp_path: Path) -> None:
    """Time passes when it looks, and what that does is handed in: but nobody there waits for it."""

    async def work() -> None:
        clock = ManualClock()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as thread:
            async with mqueue.AsyncBroker(tmp_path, clock=clock) as q:
                for _ in range(3):
                    await q.publish("t", b"1", ttl="1s")
                    clock.advance("2s")
                    asked = scanning.Asked("t", None, None, None, 10, 1000)
                    page = await loop.run_in_executor(thread, scanning.page, behind(q), asked)
                    assert page.pieces
                assert await loop.run_in_executor(thread, lambda: list(WAITS.open)) == []

    asyncio.run(work())
