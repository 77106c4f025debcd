"""What is asked for while calls are under way goes with the next one, and everybody hears of his own part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mqueue.server.amqp.joining import AT_ONCE, Joined


class Calls:
    """Calls that are over when they are told."""

    def __init__(self) -> None:
        self.made: list[list[int]] = []
        self._ends: list[asyncio.Future[str]] = []

    async def do(self, numbers: list[int]) -> str:
        self.made.append(numbers)
        self._ends.append(asyncio.get_running_loop().create_future())
        return await self._ends[-1]

    def end(self, call: int, word: str) -> None:
        self._ends[call].set_result(word)

    def fail(self, call: int, error: Exception) -> None:
        self._ends[call].set_exception(error)


def joined(test: Callable[[Joined[int, str], Calls], Coroutine[Any, Any, None]]) -> None:
    calls = Calls()
    asyncio.run(test(Joined(calls.do), calls))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_those_of_one_turn_go_together_and_later_ones_with_the_next() -> None:
    async def test(line: Joined[int, str], calls: Calls) -> None:
        first = [asyncio.create_task(line.call(some)) for some in ([1, 2], [3])]
        await turns()
        assert calls.made == [[1, 2, 3]]
        second = asyncio.create_task(line.call([4]))
        await turns()
        later = [asyncio.create_task(line.call(some)) for some in ([5], [6, 7])]
        await turns()
        assert calls.made[1:] == [[4]], f"{AT_ONCE} at a time"
        calls.end(1, "two")
        assert await second == ("two", 0)
        await turns()
        assert calls.made[2:] == [[5, 6, 7]]
        assert not line.idle
        calls.end(0, "one")
        calls.end(2, "three")
        assert await asyncio.gather(*first) == [("one", 0), ("one", 2)]
        assert await asyncio.gather(*later) == [("three", 0), ("three", 1)]
        assert line.idle

    joined(test)


def test_a_call_that_fails_fails_for_those_who_went_with_it() -> None:
    async def test(line: Joined[int, str], calls: Calls) -> None:
        tasks = [asyncio.create_task(line.call([number])) for number in range(2)]
        await turns()
        later = asyncio.create_task(line.call([2]))
        await turns()
        calls.fail(0, OSError("away"))
        assert [str(found) for found in await asyncio.gather(*tasks, return_exceptions=True)] == ["away", "away"]
        calls.end(1, "again")
        assert await later == ("again", 0)
        assert line.idle

    joined(test)


def test_whoever_goes_takes_nothing_from_the_others() -> None:
    async def test(line: Joined[int, str], calls: Calls) -> None:
        gone, stays = (asyncio.create_task(line.call([number])) for number in range(2))
        await turns()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        calls.end(0, "done")
        assert await stays == ("done", 1)
        assert calls.made == [[0, 1]]

    joined(test)
