"""Two servers, of which one forwards what callers ask of it to the other, as the nodes of a cluster do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from mqueue.assembly.server import Serving
from mqueue.broker.remote import Wanted
from mqueue.config import Config
from mqueue.model.clock import Clock
from mqueue.server.forwarding.forwarder import Forwarder
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.http.answer import Answer, Streamed
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.service import Receive, Send
from mqueue.testing.server import RunningServer

SECRET = b"a secret that the nodes of a test share"


class Elsewhere:
    """Everything but what is open to everybody is at one other node, but for topics that are said to be elsewhere."""

    def __init__(self, forwarder: Forwarder, address: str, topics: Mapping[str, str]) -> None:
        self._forwarder = forwarder
        self._address = address
        self._topics = topics

    async def answer(self, call: Call, route: Route) -> Answer | Streamed:
        if route.place == "open":
            return await route.handler(call)
        address = self._topics.get(call.names.get("topic", ""), self._address)
        return await self._forwarder.forward(call, route, address)

    async def talk(self, call: Call, wanted: Wanted, receive: Receive, send: Send) -> None:
        await self._forwarder.talk(call, self._address, receive, send)


class Node(RunningServer):
    """`forwards_to`: the address of the other node; without, it answers, and believes whom a node vouches for."""

    def __init__(
        self,
        config: Config | None = None,
        clock: Clock | None = None,
        *,
        forwards_to: str = "",
        topics: Mapping[str, str] | None = None,
        secret: bytes | None = SECRET,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._forwards_to = forwards_to
        self._topics = topics or {}
        self._secret = secret
        self._trust = tls
        super().__init__(config, clock)

    async def _serve(self) -> None:
        serving = Serving(self._config, self._clock)
        scheme = "https" if self._config.security.tls.on else "http"
        self.url = f"{scheme}://{await serving.start()}"
        assert serving._listener is not None
        service = serving._listener.connections.app.service
        voucher = None if self._secret is None else Voucher(self._secret, service.clock.now)
        forwarder = Forwarder("a", self._trust, voucher)
        if self._forwards_to:
            service.places = Elsewhere(forwarder, self._forwards_to, self._topics)
        else:
            service.voucher = voucher
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(told.set)
        self._started.set()
        await told.wait()
        await serving.stop()
        await forwarder.close()
