"""Work in the loop of another thread: its results, its errors and its end come home, and nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from mqueue.cluster.crossing import Crossing

DEADLINE_SECONDS = 60


@pytest.fixture
def other() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def where() -> int:
    return threading.get_ident()


def test_it_is_done_over_there(other: asyncio.AbstractEventLoop) -> None:
    async def ask() -> int:
        return await Crossing(other).run(where())

    assert asyncio.run(ask()) not in (0, threading.get_ident())


def test_who_is_there_already_stays(other: asyncio.AbstractEventLoop) -> None:
    crossing = Crossing(other)

    async def nested() -> bool:
        return await crossing.run(where()) == threading.get_ident()

    assert asyncio.run(crossing.run(nested()))


def test_many_come_home_each_with_its_own(other: asyncio.AbstractEventLoop) -> None:
    async def twice(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def ask() -> list[int]:
        crossing = Crossing(other)
        return await asyncio.gather(*(crossing.run(twice(number)) for number in range(5_000)))

    assert asyncio.run(ask()) == [2 * number for number in range(5_000)]


def test_from_several_loops_at_once(other: asyncio.AbstractEventLoop) -> None:
    crossing = Crossing(other)
    found: list[int] = []

    async def ask() -> None:
        for number in range(500):
            found.append(await crossing.run(asyncio.sleep(0, number)))

    threads = [threading.Thread(target=lambda: asyncio.run(ask())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert sorted(found) == sorted([*range(500)] * 4)


def test_errors_come_home(other: asyncio.AbstractEventLoop) -> None:
    async def fail() -> None:
        raise ValueError("no good")

    async def ask() -> None:
        await Crossing(other).run(fail())

    with pytest.raises(ValueError, match="no good"):
        asyncio.run(ask())


def test_who_is_cancelled_cancels_it(other: asyncio.AbstractEventLoop) -> None:
    ended = threading.Event()

    async def long() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.set()
            raise

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Crossing(other).run(long()), 0.05)

    asyncio.run(ask())
    assert ended.wait(DEADLINE_SECONDS)


def test_work_that_is_cancelled_over_there_is_cancelled_here(other: asyncio.AbstractEventLoop) -> None:
    async def leave() -> None:
        raise asyncio.CancelledError

    async def ask() -> bool:
        task = asyncio.ensure_future(Crossing(other).run(leave()))
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(ask())


def test_nobody_can_go_to_a_loop_that_is_closed() -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    async def ask() -> None:
        await Crossing(loop).run(where())

    with pytest.raises(RuntimeError):
        asyncio.run(ask())
