"""A TCP proxy whose network can be bad: between a node and PostgreSQL, Redis, another node or a client.

    whoever connects ──► requests ──► a port of 127.0.0.1
                     ◄── answers  ◄──

What is under way when the network gets bad is held, and goes on when it is good again, as a network does that sends
again what was lost; `reset` drops it together with its connections. TCP never loses bytes in the middle, nor do we.
Of each connection and way at most some chunks are held; then nothing more is read. Knows nothing of what is said.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

from msgspec import Struct

CONNECTIONS_MAX = 1_000
_CHUNK_BYTES = 64 << 10
_CHUNKS_MAX = 16
_SILENCE = b"nothing more, and nobody is told"
_NO_LINGER = struct.pack("ii", 1, 0)


class Weather(Struct, frozen=True):
    """How the network is. Without anything: good."""

    cut: bool = False
    """Connections are reset, and so is whoever connects."""
    requests: bool = True
    """Whether they get through; if not, connections stay and are silent, also new ones."""
    answers: bool = True
    latency: float = 0.0
    """Seconds, each way."""
    rate: float = 0.0
    """Bytes a second, each way of each connection; 0: any number."""
    flaps: tuple[float, float] | None = None
    """Good for so many seconds, then cut for so many, and again."""
    loss: float = 0.0
    """Of so many packets out of one each is lost: where there are packets, which is not here."""


class Wire:
    """One place to connect to. Lives in one loop."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._weather = Weather()
        self._changed = asyncio.Event()
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flapping: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def connections(self) -> int:
        """How many are open, on whatever side."""
        return len(self._connections)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.set(Weather(), reset=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def set(self, weather: Weather, reset: bool = False) -> None:
        """From now on. `reset`: what is under way is lost, with its connections."""
        if self._flapping is not None:
            self._flapping.cancel()
            await asyncio.gather(self._flapping, return_exceptions=True)
            self._flapping = None
        self._become(weather, reset)
        if weather.flaps is not None:
            self._flapping = asyncio.create_task(self._flap(*weather.flaps))

    def abandon(self, side: str) -> int:
        """The machine at one side (`client`, `server`) is gone without a word: the other side of its connections stays
        open, and hears nothing; how many."""
        for connection in self._connections:
            connection.abandon(side)
        return len(self._connections)

    async def until(self, way: str) -> None:
        """Until something gets through that way."""
        while not getattr(self._weather, way):
            await self._changed.wait()

    @property
    def weather(self) -> Weather:
        return self._weather

    def _become(self, weather: Weather, reset: bool = False) -> None:
        self._weather = weather
        self._changed.set()
        self._changed = asyncio.Event()
        if reset or weather.cut:
            for connection in list(self._connections):
                connection.reset()

    async def _flap(self, good: float, bad: float) -> None:
        while True:
            self._become(Weather())
            await asyncio.sleep(good)
            self._become(Weather(cut=True))
            await asyncio.sleep(bad)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._weather.cut or len(self._connections) >= CONNECTIONS_MAX:
            _reset(writer)
            return
        connection = Connection(self, reader, writer)
        self._connections.add(connection)
        task = asyncio.ensure_future(connection.live(self._target))
        connection.task = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._over(connection, task))

    def _over(self, connection: Connection, task: asyncio.Task[None]) -> None:
        connection.reset()
        self._connections.discard(connection)
        self._tasks.discard(task)


class Connection:
    """Of somebody who connected, through us, to the target."""

    def __init__(self, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._wire = wire
        self._reader = reader
        self._writers = {"client": writer}
        self._abandoned = ""
        self.task: asyncio.Task[None] | None = None

    async def live(self, target: int) -> None:
        """Until both ways have come to their ends, or one broke."""
        try:
            await self._wire.until("requests")
            reader, self._writers["server"] = await asyncio.open_connection("127.0.0.1", target)
            async with asyncio.TaskGroup() as group:
                for way, source, start, end in (
                    ("requests", self._reader, "client", "server"),
                    ("answers", reader, "server", "client"),
                ):
                    held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)
                    group.create_task(self._take(source, start, held))
                    group.create_task(self._send(way, held, end))
        except* OSError:
            pass

    def reset(self) -> None:
        """Both sides hear it at once."""
        for writer in self._writers.values():
            _reset(writer)
        if self.task is not None:
            self.task.cancel()

    def abandon(self, side: str) -> None:
        self._abandoned = side
        if side in self._writers:
            _reset(self._writers[side])

    async def _take(self, reader: asyncio.StreamReader, start: str, held: asyncio.Queue[tuple[float, bytes]]) -> None:
        """What comes from one side, to be sent; its end is b"". Of somebody who was abandoned nobody hears the end."""
        data = b"?"
        while data:
            data = await reader.read(_CHUNK_BYTES)
            if not data and self._abandoned == start:
                return await held.put((0.0, _SILENCE))
            await held.put((_now() + self._wire.weather.latency, data))

    async def _send(self, way: str, held: asyncio.Queue[tuple[float, bytes]], to: str) -> None:
        while True:
            due, data = await held.get()
            if (left := due - _now()) > 0:
                await asyncio.sleep(left)
            await self._wire.until(way)
            if data is _SILENCE:
                return
            if self._abandoned == to:
                if not data:
                    return
                continue
            writer = self._writers[to]
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            if self._wire.weather.rate:
                await asyncio.sleep(len(data) / self._wire.weather.rate)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it with a reset: nothing is waited for."""
    found = writer.get_extra_info("socket")
    if found is not None and not writer.is_closing():
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        writer.transport.abort()
