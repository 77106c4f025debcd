"""Waiting for messages: in a thread, or in an event loop. Nobody polls: a publish or the clock wakes whoever waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from mqueue.broker.deliver import safely
from mqueue.broker.engine import Engine, Place

T = TypeVar("T")


def never() -> bool:
    """When a wait ends only by itself."""
    return False


class ThreadWaiter:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def sleep(self, timeout: float | None) -> None:
        self._event.wait(timeout)
        self._event.clear()


class LoopWaiter:
    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        with suppress(RuntimeError):  # a loop that was closed: nobody waits there any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def sleep(self, timeout: float | None) -> None:
        # Not wait_for: when the event and a cancellation come together, Python 3.11 drops the cancellation there.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        self._event.clear()


class Turn(Generic[T]):
    """One waiting receive: it looks, and tells how long to sleep before it looks again. Shared by threads and loops."""

    def __init__(
        self,
        engine: Engine,
        topics: Callable[[int], Sequence[Place]],
        look: Callable[[int], list[T]],
        wait_ms: int,
        waiter: ThreadWaiter | LoopWaiter,
        stopped: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._topics = topics
        self._look = look
        self._wait_ms = wait_ms
        self._waiter = waiter
        self._stopped = stopped
        self._until: int | None = None
        self._watched: list[Place] = []
        self.timeout: float | None = None

    def look(self) -> list[T] | None:
        """What was found; None: sleep for `timeout` and look again."""
        engine = self._engine
        with engine.lock:
            now = engine.tick()
            if self._until is None:
                self._until = now + self._wait_ms
                engine.clock.watch(self._waiter)
            self._watch(self._topics(now))
            found = [] if self._stopped() else self._look(now)
            if found or now >= self._until or self._stopped():
                return found
            self.timeout = engine.clock.timeout(min(self._until, engine.store.heart.next_at) - now)
            return None

    def _watch(self, topics: Sequence[Place]) -> None:
        """Be woken for these topics. They change if one is deleted and made again meanwhile."""
        if list(topics) != self._watched:
            self._engine.leave(self._watched, self._waiter)
            self._watched = list(topics)
            self._engine.wait_for(self._watched, self._waiter)

    def end(self) -> None:
        self._engine.leave(self._watched, self._waiter)
        self._engine.clock.unwatch(self._waiter)


def wait_in_thread(
    engine: Engine,
    topics: Callable[[int], Sequence[Place]],
    look: Callable[[int], list[T]],
    wait_ms: int,
    stopped: Callable[[], bool],
) -> list[T]:
    waiter = ThreadWaiter()
    turn: Turn[T] = Turn(engine, topics, look, wait_ms, waiter, stopped)
    try:
        while (found := turn.look()) is None:
            waiter.sleep(turn.timeout)
        return found
    finally:
        turn.end()


async def look_in_loop(
    engine: Engine, topics: Callable[[int], Sequence[Place]], look: Callable[[int], list[T]]
) -> list[T]:
    """What there is now. Who waits for nothing need not be woken: a wait of no time at all gives the same."""
    with engine.lock:
        now = engine.tick()
        topics(now)
        found = look(now)
    return await safely(found)


async def wait_in_loop(
    engine: Engine,
    topics: Callable[[int], Sequence[Place]],
    look: Callable[[int], list[T]],
    wait_ms: int,
    stopped: Callable[[], bool],
) -> list[T]:
    waiter = LoopWaiter()
    turn: Turn[T] = Turn(engine, topics, look, wait_ms, waiter, stopped)
    try:
        while (found := turn.look()) is None:
            await waiter.sleep(turn.timeout)
        return await safely(found)
    finally:
        turn.end()
