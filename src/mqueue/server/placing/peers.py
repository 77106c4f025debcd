"""The other nodes of a cluster, all asked the same at once: each answers for itself.

A node that does not answer in time is left out, and named. Does not know what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from mqueue.model.errors import Error
from mqueue.server.forwarding.heads import FORWARDED
from mqueue.server.http.answer import Answer, Streamed
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.service import Service
from mqueue.server.http.v1.admin import ROUTES
from mqueue.server.security.principal import Grant, Principal

_QUOTAS: Route = next(route for route in ROUTES if (route.method, route.path) == ("GET", "/v1/quotas"))
_NODE = Principal("node", (Grant("admin", "*"),), via="cluster")
_NEWS_SECONDS = 2.0


class Forwards(Protocol):
    async def forward(self, call: Call, route: Route, address: str) -> Answer | Streamed: ...


class Peers:
    """`addresses` gives those of the other nodes that are alive."""

    def __init__(self, forwards: Forwards, addresses: Callable[[], Iterable[str]]) -> None:
        self._forwards = forwards
        self._addresses = addresses

    async def ask(self, call: Call, route: Route, seconds: float) -> dict[str, Answer | None]:
        """The answer of each, by its address; None: there was none in time, or no good one."""
        addresses = list(self._addresses())
        answers = await asyncio.gather(*(self._one(call, route, address, seconds) for address in addresses))
        return dict(zip(addresses, answers, strict=True))

    async def tell(self, service: Service) -> None:
        """That keys or quotas have changed, or that we are here. Who asks for quotas makes a node look at what is kept
        of both, and at who is there; one that is not reached looks by itself soon."""
        call = Call(service, "GET", _QUOTAS.path, {}, {}, {}, _NODE, "default", target=f"{_QUOTAS.path}?limit=1")
        await self.ask(call, _QUOTAS, _NEWS_SECONDS)

    async def _one(self, call: Call, route: Route, address: str, seconds: float) -> Answer | None:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._forwards.forward(call, route, address)
        except (Error, TimeoutError):
            return None
        return answer if isinstance(answer, Answer) and answer.status == 200 else None


def is_asked_by_peer(call: Call) -> bool:
    """Whether another node asks, and wants to know of this one alone."""
    return call.vouched and FORWARDED in call.headers
