"""WebSockets: connections that asked for one are handed to uvicorn, which calls the app in the words of ASGI."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState

from mqueue.model.limits import MIB
from mqueue.server.http.app import App

_MESSAGE_BYTES_MAX = MIB
_PING_SECONDS = 20.0
_END_SECONDS = 5.0


class WebSockets:
    def __init__(self, app: App) -> None:
        self._app: Any = app
        self._state = ServerState()
        self._config: Config | None = None
        self._ends: dict[Any, float] = {}
        """Until when those who are being closed have time, in the loop's time."""

    def __len__(self) -> int:
        return len(self._state.connections)

    def take_over(self, transport: asyncio.Transport, request: bytes, certificate: bytes | None) -> None:
        """From now on a transport is a WebSocket; `request` is what asked for it, and what came behind it."""
        if self._config is None:
            self._config = Config(
                self._app,
                ws="wsproto",
                lifespan="off",
                log_config=None,
                proxy_headers=False,
                ws_max_size=_MESSAGE_BYTES_MAX,
                ws_per_message_deflate=False,  # a few bytes could unfold into a great many
                ws_ping_interval=_PING_SECONDS,
                ws_ping_timeout=_PING_SECONDS,
            )
        protocol = WSProtocol(self._config, self._state, {"certificate": certificate})
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        protocol.data_received(request)

    def sweep(self, now: float) -> None:
        """Cut off those who were told goodbye and do not take it: what is on its way to them would be held for ever."""
        closing = [each for each in self._state.connections if each.transport.is_closing()]
        self._ends = {each: self._ends.get(each, now + _END_SECONDS) for each in closing}
        for each, end in self._ends.items():
            if end <= now:
                each.transport.abort()

    def finish(self) -> None:
        """Tell everybody that the server is about to stop."""
        for protocol in list(self._state.connections):
            protocol.shutdown()

    async def end(self) -> None:
        """Wait for those who serve them, not for long; then they are cancelled."""
        tasks = list(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
