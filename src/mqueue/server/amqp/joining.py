"""Calls of many connections as one: what is asked for while calls are under way goes together when one of them is over.

For a broker that is reached through the cluster: what a call costs there hardly depends on how much it carries, and
sixty-four clients that publish one message each would pay for it sixty-four times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

AT_ONCE = 2
"""One is made ready while the other waits for the disk: a tenth more than with one."""

T = TypeVar("T")
R = TypeVar("R")


class Joined(Generic[T, R]):
    """`do` is called with all that has gathered."""

    def __init__(self, do: Callable[[list[T]], Coroutine[Any, Any, R]]) -> None:
        self._do = do
        self._gathered: list[T] = []
        self._next: asyncio.Task[R] | None = None
        """The call that is gathered for."""
        self._under_way: set[asyncio.Task[R]] = set()

    @property
    def idle(self) -> bool:
        return self._next is None and not self._under_way

    async def call(self, some: Sequence[T]) -> tuple[R, int]:
        """What the call gave that these went with, and where among all that it was made with they begin."""
        start = len(self._gathered)
        self._gathered += some
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._go(), name="mqueue-amqp-joined")
        return await asyncio.shield(self._next), start  # whoever goes takes nothing from the others

    async def _go(self) -> R:
        while len(self._under_way) >= AT_ONCE:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        gathered, self._gathered = self._gathered, []
        task, self._next = self._next, None
        assert task is not None, "this one"
        self._under_way.add(task)
        try:
            return await self._do(gathered)
        finally:
            self._under_way.discard(task)
