"""Calls of a connection that are on their way: several at a time where they keep their order, told of in that order.

A commit takes as long as the disk; what comes meanwhile need not wait for it to be handed in. But nobody is told of a
later message before an earlier one: a confirm stands for all before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

DEPTH_MAX = 16


class Pipeline:
    """`in_order`: calls take effect in the order in which they are begun; else there is one at a time. `broken` is told
    of what went wrong."""

    def __init__(self, in_order: bool, broken: Callable[[Exception], None]) -> None:
        self._depth_max = DEPTH_MAX if in_order else 1
        self._broken = broken
        self._under_way: deque[asyncio.Task[None]] = deque()

    def begin(self, call: Coroutine[Any, Any, Any], told: Callable[[Any], None] | None = None) -> None:
        """`told` gets what the call gave, when all before it have been told."""
        before = self._under_way[-1] if self._under_way else None
        task = asyncio.get_running_loop().create_task(self._do(call, before, told), name="mqueue-amqp-call")
        self._under_way.append(task)

    async def room(self) -> None:
        """Until one more may begin."""
        while len(self._under_way) >= self._depth_max:
            await asyncio.wait([self._under_way[0]])
            self._sweep()
        self._sweep()

    async def empty(self) -> None:
        """Until all are done."""
        if self._under_way:
            await asyncio.wait([self._under_way[-1]])
            self._sweep()

    def _sweep(self) -> None:
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft()

    async def _do(
        self, call: Coroutine[Any, Any, Any], before: asyncio.Task[None] | None, told: Callable[[Any], None] | None
    ) -> None:
        try:
            found = await call
            if before is not None and not before.done():
                await asyncio.wait([before])
            if told is not None:
                told(found)
        except Exception as error:
            self._broken(error)
            if before is not None and not before.done():
                await asyncio.wait([before])
