"""Waiting by a clock that may be moved by hand, and how long to wait for a queue that is not there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mqueue.broker.waiting import LoopWaiter
from mqueue.model.clock import Clock
from mqueue.model.errors import Error
from mqueue.policy.retry import JITTER_MAX, backoff_due

PAUSE_MS = 100
PAUSE_MS_MAX = 10_000


def jitter() -> float:
    return random.uniform(-JITTER_MAX, JITTER_MAX)  # noqa: S311  spreads load, guards nothing


async def sleep(clock: Clock, ms: int) -> None:
    """Until so much time has passed."""
    until = clock.now() + ms
    waiter = LoopWaiter()
    clock.watch(waiter)
    try:
        while (left := until - clock.now()) > 0:
            await waiter.sleep(clock.timeout(left))
    finally:
        clock.unwatch(waiter)


class Recurring:
    """`step(now)`, over and over: it answers when it wants to be called again; None: not before `wake`. `at`: when."""

    def __init__(self, clock: Clock, step: Callable[[int], Awaitable[int | None]]) -> None:
        self._clock = clock
        self._step = step
        self._waiter = LoopWaiter()
        self.at: int | None = None

    def wake(self) -> None:
        self._waiter.wake()

    async def run(self) -> None:
        clock = self._clock
        clock.watch(self._waiter)
        try:
            while True:
                self.at = await self._step(clock.now())
                await self._waiter.sleep(None if self.at is None else clock.timeout(max(self.at - clock.now(), 0)))
        finally:
            clock.unwatch(self._waiter)


class Pause:
    """How long to wait before a call that failed is made again: doubling, unless the error says how long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.failures = 0

    async def after(self, error: Error) -> None:
        self.failures += 1
        ms = backoff_due(self.failures, 0, PAUSE_MS, PAUSE_MS_MAX, jitter())
        if error.retry_after is not None:
            ms = max(ms, min(round(error.retry_after * 1000), PAUSE_MS_MAX))
        await sleep(self._clock, ms)


async def first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them ends; the others are cancelled."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
