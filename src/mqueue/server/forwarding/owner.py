"""Another node, as this one reaches it: its address, and the connections to it, which are kept for the next request.

There are never more than `LINES_MAX` of them, and requests that may wait long leave some to the others: a consumer that
waits must not keep another from settling. Does not know what is asked.
"""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from mqueue.model.errors import Backpressure, BadSetting, Unavailable
from mqueue.server.forwarding.line import Broken, Line, Reply

LINES_MAX = 1_000
WAITING_MAX = 900
"""Of these, how many may carry receives, streams and WebSockets."""
CONNECT_SECONDS = 5.0
ROOM_SECONDS = 10.0
"""How long a request waits for a connection while all are taken."""
KEEP_SECONDS = 15.0
"""A connection that rests for longer is not used again: the other side may be about to close it."""
QUIET_SECONDS = 3.0
"""Who has not answered for so long is asked whether it is there at all."""
DOUBTED_SECONDS = 0.5
"""The same, for who was not there when that was asked last."""
PULSE_SECONDS = 3.0
"""Whoever does not say so within this time is not."""
_PORTS = {"http": 80, "https": 443}


class Owner:
    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        """`address`: host:port, or with http:// or https:// before it; without, TLS is used if there is `tls`."""
        told = urlsplit(address if "://" in address else f"{'http' if tls is None else 'https'}://{address}")
        try:
            self.port = told.port or _PORTS[told.scheme]
        except (ValueError, KeyError):
            raise BadSetting(f"{address!r:.200} is no address of a node") from None
        self.address = address
        self.host = told.hostname or ""
        self.netloc = told.netloc
        self.tls = None if told.scheme == "http" else tls or ssl.create_default_context()
        self._room = asyncio.Semaphore(LINES_MAX)
        self._waiting = asyncio.Semaphore(WAITING_MAX)
        self._taken = 0
        self._resting: list[Line] = []
        self._pulse: asyncio.Task[bool] | None = None
        """One asks for all who want to know."""
        self._doubted = False

    @property
    def unused(self) -> bool:
        return not self._taken

    async def take(self, waits: bool, fresh: bool = False) -> Line:
        """A connection for one request. Raises Unavailable; then nothing was sent."""
        await self.enter(waits)
        try:
            line = None if fresh else self._rested()
            if line is None:
                line = await self._connected()
        except BaseException:
            self.leave(waits)
            raise
        line.waits = waits
        return line

    def give(self, line: Line) -> None:
        """It is free again: kept if it can be used once more."""
        self.leave(line.waits)
        if line.reusable:
            line.rested_at = asyncio.get_running_loop().time()
            self._resting.append(line)
        else:
            line.abort()

    def drop(self, line: Line) -> None:
        """It is of no more use, or what is asked on it is to end now."""
        self.leave(line.waits)
        line.abort()

    async def enter(self, waits: bool) -> None:
        """Take one of the places there are."""
        if self._room.locked() or (waits and self._waiting.locked()):
            await self._queue(waits)
        else:
            await self._places(waits)
        self._taken += 1

    async def _queue(self, waits: bool) -> None:
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                await self._places(waits)
        except TimeoutError:
            most = WAITING_MAX if waits else LINES_MAX
            why = f"{self._taken} requests are under way to {self.address}; {most} are allowed"
            raise Backpressure(why, code="crowded", retry_after=1) from None

    async def _places(self, waits: bool) -> None:
        if waits:
            await self._waiting.acquire()
        try:
            await self._room.acquire()
        except BaseException:
            if waits:
                self._waiting.release()
            raise

    def leave(self, waits: bool) -> None:
        self._taken -= 1
        self._room.release()
        if waits:
            self._waiting.release()

    async def answer(self, line: Line) -> Reply:
        """The answer to what was asked on a line, however long it takes; unless nobody is there. Raises Broken, or
        TimeoutError.

        A connection over which nothing gets through any more looks like one on which somebody thinks for long.
        """
        while True:
            try:
                async with asyncio.timeout(DOUBTED_SECONDS if self._doubted else QUIET_SECONDS):
                    return await line.answer()
            except TimeoutError:
                if not await self._lives():
                    raise

    async def _lives(self) -> bool:
        if self._pulse is None:
            self._pulse = asyncio.get_running_loop().create_task(self._ask_life())
            self._pulse.add_done_callback(self._asked_life)
        return await asyncio.shield(self._pulse)

    async def _ask_life(self) -> bool:
        """On a connection of its own: those there are may be the trouble."""
        line: Line | None = None
        try:
            async with asyncio.timeout(PULSE_SECONDS):
                line = await self._connected()
                line.ask(f"GET /livez HTTP/1.1\r\nhost: {self.netloc}\r\n\r\n".encode("latin-1"), b"")
                await line.answer()
        except (Broken, Unavailable, TimeoutError):
            return False
        finally:
            if line is not None:
                line.abort()
        return True

    def _asked_life(self, done: asyncio.Task[bool]) -> None:
        self._pulse = None
        self._doubted = done.cancelled() or not done.result()

    def close(self) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
        for line in self._resting:
            line.abort()
        self._resting.clear()

    def unreachable(self, error: BaseException) -> Unavailable:
        why = f"{self.address} cannot be reached: {f'{error!s:.200}' or type(error).__name__}"
        return Unavailable(why, code="owner_unreachable", retry_after=1)

    def _rested(self) -> Line | None:
        """The one that was used last: those that nobody needs grow old."""
        oldest = asyncio.get_running_loop().time() - KEEP_SECONDS
        while self._resting:
            line = self._resting.pop()
            if line.reusable and line.rested_at >= oldest and not line.unread:
                return line
            line.abort()
        return None

    async def _connected(self) -> Line:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, line = await loop.create_connection(lambda: Line(loop), self.host, self.port, ssl=self.tls)
        except (OSError, ValueError) as error:
            raise self.unreachable(error) from None
        return line
