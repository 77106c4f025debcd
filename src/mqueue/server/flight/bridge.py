"""From the threads of gRPC into the loop of the server, which the broker belongs to: once for a batch, never for a
message. Knows nothing of what is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""So often whoever waits in a thread looks whether its caller is still there."""


class Bridge:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.at_work = 0
        """How much is being done in the loop that somebody waits for. Belongs to the loop."""

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have something done in the loop. What is begun in order begins there in order."""
        return asyncio.run_coroutine_threadsafe(self.counted(work), self.loop)

    async def counted(self, work: Coroutine[Any, Any, T]) -> T:
        self.at_work += 1
        try:
            return await work
        finally:
            self.at_work -= 1

    def run(self, work: Coroutine[Any, Any, T], gone: Callable[[], bool] | None = None) -> T:
        """The same, and wait for it; CancelledError if the caller is gone before."""
        return self.end(self.begin(work), gone)

    def end(self, begun: Future[T], gone: Callable[[], bool] | None = None) -> T:
        """Wait for what was begun."""
        while True:
            try:
                return begun.result(LOOK_SECONDS)
            except TimeoutError:
                if begun.done():
                    return begun.result()  # it raised that itself, or has ended since
                if gone is not None and gone():
                    begun.cancel()
