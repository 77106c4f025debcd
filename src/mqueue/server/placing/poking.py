"""Tells other nodes that something was published to topics which they deliver: those who wait there need not wait for
the next look.

A poke asks where a topic ends. Whoever is asked that looks for himself, and wakes those who wait. A poke that is lost
costs a second, nothing else. Of each topic one is under way at a time, and one more stands for all that come meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import quote

from mqueue.model.errors import Error
from mqueue.server.forwarding.forwarder import Forwarder
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.service import Service
from mqueue.server.http.v1.read import ROUTES
from mqueue.server.security.principal import Grant, Principal

_PATH = "/v1/topics/{topic}/offsets"
_OFFSETS: Route = next(route for route in ROUTES if route.path == _PATH)
_NODE = Principal("node", (Grant("read", "*"),), via="cluster")
_POKES_MAX = 10_000


class Poker:
    """Made in the loop of the server; `poke` may be called by any thread."""

    def __init__(self, forwarder: Forwarder, service: Service) -> None:
        self._forwarder = forwarder
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._again: dict[tuple[str, str, str], bool] = {}
        """Of those under way: whether there is news since it went."""
        self._tasks: set[asyncio.Task[None]] = set()

    def poke(self, address: str, namespace: str, topic: str) -> None:
        with suppress(RuntimeError):  # the server is closed
            self._loop.call_soon_threadsafe(self._begin, (address, namespace, topic))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, whom: tuple[str, str, str]) -> None:
        if whom in self._again:
            self._again[whom] = True
        elif len(self._again) < _POKES_MAX:
            self._again[whom] = False
            task = asyncio.ensure_future(self._poke(whom))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _poke(self, whom: tuple[str, str, str]) -> None:
        address, namespace, topic = whom
        try:
            while True:
                self._again[whom] = False
                with suppress(Error):
                    await self._forwarder.forward(self._call(namespace, topic), _OFFSETS, address)
                if not self._again[whom]:
                    return
        finally:
            del self._again[whom]

    def _call(self, namespace: str, topic: str) -> Call:
        path = _PATH.replace("{topic}", topic)
        target = _PATH.replace("{topic}", quote(topic, safe=""))
        headers = {"x-mqueue-namespace": namespace}
        return Call(self._service, "GET", path, {"topic": topic}, {}, headers, _NODE, namespace, target=target)
