"""Large requests begin one after the other, and namespaces take turns: one that floods makes others wait for one of its
requests, not for all that lie at hand.

Whoever comes alone goes through at once. Between two of them the loop looks what else has come. What is small, and what
a request waits for once it has begun (a disk, messages), is none of this.
"""

from __future__ import annotations

import asyncio
from collections import deque

LARGE_BYTES = 16 * 1024
"""Bodies from this size on take long enough that others notice."""


class Turnstile:
    __slots__ = ("_lines", "_open")

    def __init__(self) -> None:
        self._open = True
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by namespace; the first namespace is next."""

    async def turn(self, namespace: str) -> None:
        """Wait for one's turn."""
        loop = asyncio.get_running_loop()
        if self._open:
            self._open = False
            loop.call_soon(self._next)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(namespace, deque()).append(turn)
        await turn

    def _next(self) -> None:
        while self._lines:
            namespace, line = next(iter(self._lines.items()))
            del self._lines[namespace]
            turn = line.popleft()
            if line:
                self._lines[namespace] = line  # behind the others
            if not turn.done():  # else whoever waited has left
                turn.set_result(None)
                turn.get_loop().call_soon(self._next)
                return
        self._open = True
