"""Where callers connect: the socket of a server, from the first connection to the last."""

from __future__ import annotations

import asyncio
import select
import ssl

from mqueue.server.http.app import App
from mqueue.server.http.connections import Connections
from mqueue.server.http.keepalive import keep_alive
from mqueue.server.http.protocol import Connection

_BACKLOG = 4096
_TURNS_TO_LET_IN = 100


class Listener:
    def __init__(self, server: asyncio.Server, connections: Connections) -> None:
        self._server = server
        self.connections = connections

    @classmethod
    async def open(cls, app: App, host: str, port: int, tls: ssl.SSLContext | None = None) -> Listener:
        """Listen; port 0 is a free one. Raises OSError where that cannot be."""
        connections = Connections(app)
        patience = None if tls is None else connections.headers_seconds
        try:
            server = await connections.loop.create_server(
                lambda: Connection(connections),
                host,
                port,
                ssl=tls,
                backlog=_BACKLOG,
                ssl_handshake_timeout=patience,
            )
        except BaseException:
            await connections.leave()
            await connections.drain()
            raise
        for listening in server.sockets:
            keep_alive(listening.fileno())
        return cls(server, connections)

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Let nobody in any more, end what waits, and let the rest come to its end.

        Who has connected and is not let in would be cut off, and not know whether he was heard: so the door is closed
        when nobody stands before it.
        """
        self.connections.app.service.stopping.set()
        await self.connections.leave()
        for _ in range(_TURNS_TO_LET_IN):
            if not _awaited(self._server):
                break
            await asyncio.sleep(0)
        self._server.close()
        await self.connections.drain()


def _awaited(server: asyncio.Server) -> bool:
    """Whether somebody has connected whom we have not let in yet."""
    poll = select.poll()
    for socket in server.sockets:
        poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))
