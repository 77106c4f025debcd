"""What requests ask of the servers themselves, whoever delivers: in threads, a few for each server.

A server that does not answer holds up those who ask it, and nobody who asks another. Nobody waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from mqueue.cluster.errands import Errands
from mqueue.cluster.estate import Estate
from mqueue.cluster.node import Node
from mqueue.model.errors import ShardDown

T = TypeVar("T")
_THREADS = 2
_SECONDS = 12.0
"""As long as one statement may take, and then some: whoever waits behind others that hang is told."""


class Asking:
    """Lives in the loop of the server."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._errands: dict[str, Errands] = {}

    def close(self) -> None:
        for errands in self._errands.values():
            errands.close()

    async def one(self, estate: Estate, ask: Callable[[Estate], T]) -> T:
        """Something of one server."""
        errands = self._errands.get(estate.name)
        if errands is None:
            errands = self._errands[estate.name] = Errands(f"{estate.name}-ask", _THREADS)
        try:
            async with asyncio.timeout(_SECONDS):
                return await errands(ask, estate)
        except TimeoutError:
            why = f"{estate.name} did not answer within {_SECONDS:g} seconds"
            raise ShardDown(why, applied=None, retry_after=1) from None

    async def all(self, ask: Callable[[Estate], T]) -> list[T]:
        """Something of every server, asked at once."""
        return await asyncio.gather(*(self.one(estate, ask) for estate in self._node.estates))

    async def first(self, ask: Callable[[Estate], T | None]) -> T | None:
        """What one of the servers has. One that is away, or slow, matters only if no other has it."""
        waiting = {asyncio.ensure_future(self.one(estate, ask)) for estate in self._node.estates}
        problem: BaseException | None = None
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    problem = one.exception() or problem
                    if one.exception() is None and (found := one.result()) is not None:
                        return found
        finally:
            for one in waiting:
                one.cancel()
        if problem is not None:
            raise problem
        return None
