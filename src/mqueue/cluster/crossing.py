"""From the loop of one thread to that of another and back: work goes over, its result comes home.

What is sent while the other loop has not looked goes together: both loops are woken once for many. That is what makes
it cheap: a wake-up costs as much as the rest of a small request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Mailbox:
    """Calls to be made in a loop, put there by any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = False

    def put(self, call: Callable[[], None]) -> None:
        """Raises RuntimeError if the loop is closed."""
        self._calls.append(call)
        if not self._woken:  # whoever looks clears it before, not after: no call is left behind
            self._woken = True
            self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._woken = False
        for _ in range(len(self._calls)):
            self._calls.popleft()()


class Crossing:
    """To a loop, from wherever `run` is awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._there = Mailbox(loop)
        self._homes: dict[asyncio.AbstractEventLoop, Mailbox] = {}
        """Loops that something was sent from."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop. Who is cancelled meanwhile cancels it."""
        here = asyncio.get_running_loop()
        if here is self._loop:
            return await work
        home = self._homes.get(here)
        if home is None:
            home = self._homes[here] = Mailbox(here)
        trip = _Trip(work, here.create_future(), home)
        try:
            self._there.put(trip.begin)
        except RuntimeError:
            work.close()
            raise
        try:
            return await trip.outcome  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # if the loop is closed its tasks were cancelled before
                self._there.put(trip.cancel)
            raise


class _Trip:
    """Some work on its way."""

    __slots__ = ("_home", "_task", "_work", "outcome")

    def __init__(self, work: Coroutine[Any, Any, Any], outcome: asyncio.Future[Any], home: Mailbox) -> None:
        self._work = work
        self.outcome = outcome
        self._home = home
        self._task: asyncio.Future[Any] | None = None

    def begin(self) -> None:
        self._task = asyncio.ensure_future(self._work)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        assert self._task is not None, "it was begun before"
        self._task.cancel()

    def _end(self, task: asyncio.Future[Any]) -> None:
        with suppress(RuntimeError):  # nobody is at home any more
            self._home.put(partial(_settle, self.outcome, task))


def _settle(outcome: asyncio.Future[Any], task: asyncio.Future[Any]) -> None:
    """At home. A result that nobody waits for any more is dropped, and so is an error."""
    if task.cancelled():
        outcome.cancel()
    elif (error := task.exception()) is not None:
        if not outcome.done():
            outcome.set_exception(error)
    elif not outcome.done():
        outcome.set_result(task.result())
