"""From the loop of one thread to that of another and back: work goes over, its result comes home.

What is sent while the other loop has not looked goes together: both loops are woken once for many. That is what makes
it cheap: a wake-up costs as much as the rest of a small request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
LOGGER = logging.getLogger("mqueue.cluster")
_UNDOING: set[asyncio.Future[None]] = set()
"""Held until they are done."""
Undo = Callable[[T], Coroutine[Any, Any, None]]


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

    async def run(self, work: Coroutine[Any, Any, T], undo: Undo[T] | None = None) -> T:
        """Do something in the loop. Who is cancelled meanwhile cancels it; if it has come to its end all the same,
        `undo` gets there what it gave."""
        here = asyncio.get_running_loop()
        if here is self._loop:
            return await work
        home = self._homes.get(here)
        if home is None:
            home = self._homes[here] = Mailbox(here)
        trip = _Trip(work, here.create_future(), home, undo)
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

    __slots__ = ("_home", "_left", "_task", "_undo", "_work", "outcome")

    def __init__(
        self, work: Coroutine[Any, Any, Any], outcome: asyncio.Future[Any], home: Mailbox, undo: Undo[Any] | None
    ) -> None:
        self._work = work
        self.outcome = outcome
        self._home = home
        self._undo = undo
        self._left = False
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        assert self._task is not None, "it was begun before"
        self._left = True
        if not self._task.cancel():
            self._take_back(self._task)

    def _take_back(self, task: asyncio.Future[Any]) -> None:
        """What was done for somebody who has left."""
        undo, self._undo = self._undo, None
        if undo is not None and not task.cancelled() and task.exception() is None:
            undoing = asyncio.ensure_future(undo(task.result()))
            _UNDOING.add(undoing)
            undoing.add_done_callback(_undone)

    def _end(self, task: asyncio.Future[Any]) -> None:
        if self._left:
            self._take_back(task)
        with suppress(RuntimeError):  # nobody is at home any more
            self._home.put(partial(_settle, self.outcome, task))


def _undone(undoing: asyncio.Future[None]) -> None:
    _UNDOING.discard(undoing)
    if not undoing.cancelled() and (error := undoing.exception()) is not None:
        LOGGER.warning("what was done for somebody who left could not be undone: %s", error)


def _settle(outcome: asyncio.Future[Any], task: asyncio.Future[Any]) -> None:
    """At home. A result that nobody waits for any more is dropped, and so is an error."""
    if task.cancelled():
        outcome.cancel()
    elif (error := task.exception()) is not None:
        if not outcome.done():
            outcome.set_exception(error)
    elif not outcome.done():
        outcome.set_result(task.result())
