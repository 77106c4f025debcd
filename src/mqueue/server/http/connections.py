"""All connections of a server: who is there, whose time is up, and how they end when the server stops.

One sweep a quarter of a second looks at every deadline: a timer for each would cost more than the sweep.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from mqueue.server.http.app import App
from mqueue.server.http.reading import Room
from mqueue.server.http.websockets import WebSockets

SWEEP_SECONDS = 0.25
LEAVE_SECONDS = 0.3
"""A server that stops turns newcomers away for so long before it closes the door: who was on his way is told."""
_TURNED_AWAY_MAX = 1000


class Open(Protocol):
    """A connection, as far as the sweep and the end know it."""

    deadline: float
    """In the loop's time; infinity while there is nothing to wait for."""

    @property
    def work(self) -> asyncio.Task[None] | None:
        """What answers at present."""

    def expire(self) -> None:
        """The deadline has passed."""

    def finish(self) -> None:
        """Close as soon as nothing is under way."""

    def abort(self) -> None:
        """Close now."""


class Connections:
    def __init__(self, app: App) -> None:
        bounds = app.service.bounds
        self.app = app
        self.bounds = bounds
        self.loop = asyncio.get_running_loop()
        self.headers_seconds = _early(bounds.headers_timeout_ms / 1000)
        self.body_seconds = _early(bounds.body_timeout_ms / 1000)
        self.idle_seconds = bounds.idle_timeout_ms / 1000
        self.room = Room(bounds.bodies_bytes_max)
        self.open: set[Open] = set()
        self._parting: set[Open] = set()
        """Those who were told that the server stops, and have only to go: nobody waits for them."""
        self.websockets = WebSockets(app)
        self.now = self.loop.time()
        """The time of the last sweep: near enough for deadlines."""
        self.stopping = False
        self._empty = asyncio.Event()
        self._next = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def __len__(self) -> int:
        return len(self.open) + len(self._parting) + len(self.websockets)

    @property
    def crowded(self) -> bool:
        """There are more than may be."""
        return len(self) > self.bounds.connections_max

    @property
    def flooded(self) -> bool:
        """So many more that not even an answer can be spared."""
        return len(self) > self.bounds.connections_max + _TURNED_AWAY_MAX

    def add(self, connection: Open) -> None:
        self.open.add(connection)

    def part(self, connection: Open) -> None:
        self.open.discard(connection)
        self._parting.add(connection)

    def discard(self, connection: Open) -> None:
        self.open.discard(connection)
        self._parting.discard(connection)
        if self.stopping and not self.open:
            self._empty.set()

    async def leave(self) -> None:
        """Tell everybody that this is the end. Back once nobody is there any more, or after a while: who is busy may
        stay, see `drain`."""
        self.stopping = True
        for connection in list(self.open):
            connection.finish()
        self.websockets.finish()
        end = self.loop.time() + LEAVE_SECONDS
        while self.open or self._parting:
            self._empty.clear()
            left = end - self.loop.time()
            if left <= 0:
                return
            await _within(self._empty, left)

    async def drain(self) -> None:
        """Let what is under way come to its end, for as long as is allowed; then end it. After `leave`."""
        if self.open:
            self._empty.clear()
            await _within(self._empty, self.bounds.drain_timeout_ms / 1000)
        works = [connection.work for connection in self.open if connection.work is not None]
        for connection in [*self.open, *self._parting]:
            connection.abort()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await self.websockets.end()
        self._next.cancel()

    def _sweep(self) -> None:
        now = self.now = self.loop.time()
        for connection in [one for one in (*self.open, *self._parting) if one.deadline <= now]:
            connection.expire()
        self.websockets.sweep(now)
        self._next = self.loop.call_later(SWEEP_SECONDS, self._sweep)


def _early(seconds: float) -> float:
    """A sweep comes late by up to its period: what is to be over in time has to be due before."""
    return max(SWEEP_SECONDS, seconds - SWEEP_SECONDS)


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
