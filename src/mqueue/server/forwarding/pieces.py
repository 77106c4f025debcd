"""An answer in pieces, as it comes from another node: handed through one by one, none kept.

This node let the caller in, so it looks again and again whether he may still be here; the other one cannot. Events can
say why they end: so they do if the other node is lost, or the caller may not listen any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from mqueue.model.errors import Error
from mqueue.server.forwarding.line import Broken, Line
from mqueue.server.http.v1.push import EVENTS, GOODBYE, HEARTBEAT_SECONDS, failed

SILENCE_SECONDS = 3 * HEARTBEAT_SECONDS
"""A node that says nothing for so long is not there any more: one that has nothing to say says that."""


class Pieces(AsyncGenerator[bytes, None]):
    """No generator function: one that never began would not let go of its connection when it is closed.

    `check` raises if the caller may not be here any more, `lost` says what is wrong when the line breaks, `stopping`
    whether it was this node that ended it. `let_go` is called once, whether all was read or not.
    """

    def __init__(
        self,
        line: Line,
        kind: str,
        check: Callable[[], None],
        lost: Callable[[BaseException], Error],
        stopping: Callable[[], bool],
        let_go: Callable[[], None],
    ) -> None:
        self._line = line
        self._tells = kind.startswith(EVENTS)
        self._check = check
        self._lost = lost
        self._stopping = stopping
        self._let_go = let_go
        self._between = True
        """What was handed through ends with the end of an event."""
        self._over = False

    async def asend(self, value: None) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                data = await self._line.piece()
            if self._between:
                self._check()
        except (Broken, TimeoutError) as error:
            return self._end(self._lost(error))
        except Error as error:
            return self._end(error)
        if not data:
            self._close()
            raise StopAsyncIteration
        self._between = data.endswith(b"\n\n")
        return data

    async def athrow(self, kind: Any, value: Any = None, trace: Any = None) -> bytes:
        self._close()
        raise kind if value is None else value

    async def aclose(self) -> None:
        self._close()

    def _end(self, error: Error) -> bytes:
        """The last piece. Half an event is passed over by whoever reads events; half of anything else is cut off."""
        self._close()
        if not self._tells:
            raise error
        if not self._between:
            raise StopAsyncIteration
        return GOODBYE if self._stopping() else failed(error)

    def _close(self) -> None:
        if not self._over:
            self._over = True
            self._let_go()
