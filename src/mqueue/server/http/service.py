"""What the handlers stand on: one broker, one gatekeeper, one clock, and how much patience there is with callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from mqueue.broker.aio import AsyncBroker
from mqueue.model.clock import Clock
from mqueue.model.limits import KIB, MIB
from mqueue.model.names import check_name
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.http.dequeued import Dequeued
from mqueue.server.http.streams import Streams
from mqueue.server.metrics.page import Page
from mqueue.server.security.keys import KeyRecord
from mqueue.server.security.principal import Principal

if TYPE_CHECKING:
    from mqueue.broker.remote import Wanted
    from mqueue.server.http.answer import Answer, Streamed
    from mqueue.server.http.call import Call
    from mqueue.server.http.routes import Route

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PLAIN_BODY_BYTES_MAX = MIB
"""Of a body without messages: small values in great numbers cost far more than their bytes."""
_VIEWS_MAX = 10_000


class Bounds(Struct, frozen=True):
    """How much a caller may send, and how long it may take."""

    connections_max: int = 10_000
    body_bytes_max: int = 48 * MIB
    bodies_bytes_max: int = 1024 * MIB
    """Of all bodies that are being read at one time."""
    headers_bytes_max: int = 64 * KIB
    headers_timeout_ms: int = 10_000
    body_timeout_ms: int = 30_000
    idle_timeout_ms: int = 60_000
    drain_timeout_ms: int = 30_000


class Door(Protocol):
    """Who lets callers in; `mqueue.server.security.gatekeeper` is one."""

    def peer(self, headers: Mapping[str, str], socket: str) -> str:
        """Where a call comes from, given the address of its socket: what the proxies of ours say counts."""

    def caller(self, headers: Mapping[str, str], peer: str, certificate: bytes | None, now: int) -> Principal:
        """Who is calling, `certificate` being the client's in DER. Raises Unauthorized or QuotaExceeded."""

    def known(self, headers: Mapping[str, str], peer: str, certificate: bytes | None, now: int) -> Principal:
        """The same of somebody who was let in before: it does not count as a call."""

    def refused(self, principal: Principal, what: str, peer: str, now: int, namespace: str, topic: str) -> None:
        """Somebody known asked for something they may not do: for the audit log."""

    def changed(self, principal: Principal, what: str, peer: str, now: int, namespace: str, topic: str) -> None:
        """Somebody managed something, or tried to: for the audit log."""


class Administration(Protocol):
    """What is changed while the server runs and outlives it: quotas and keys. Each change is durable on return."""

    async def quotas(self) -> Mapping[str, int]:
        """Messages a minute, by namespace."""

    async def set_quota(self, namespace: str, per_minute: int | None) -> None:
        """None: no quota of its own any more."""

    async def keys(self) -> Sequence[KeyRecord]:
        """All keys ever made, the revoked ones as well."""

    async def add_key(self, name: str, scopes: Sequence[str], expires_at: int | None) -> str:
        """The key itself, for the only time. Raises Conflict where the name was given before."""

    async def revoke_key(self, name: str) -> None:
        """At once and for good. Raises NotFound."""


class Places(Protocol):
    """Where in a cluster a request is answered."""

    async def answer(self, call: Call, route: Route) -> Answer | Streamed:
        """The answer of whoever has what the request is about."""

    async def talk(self, call: Call, wanted: Wanted, receive: Receive, send: Send) -> None:
        """The same for a WebSocket."""

    def trouble(self) -> str:
        """Why this node cannot take messages now; empty while it can."""

    def poison(self) -> str:
        """Why only a new start can help; empty while all is well."""


class Service:
    places: Places | None = None
    """None: everything is here."""
    voucher: Voucher | None = None
    """Reads what other nodes say about those for whom they call; None: it is not even looked at."""
    administration: Administration
    """Whoever puts the server together sets it."""
    page: Page | None = None
    """The metrics; None: they are off."""

    def __init__(self, broker: AsyncBroker, door: Door, clock: Clock, bounds: Bounds) -> None:
        self.root = broker
        self.door = door
        self.clock = clock
        self.bounds = bounds
        self.stopping = asyncio.Event()
        """Set when the server has been told to stop: whoever waits or streams comes to an end."""
        self.local = False
        """Whether it is for callers of this machine alone, whoever they are: then it answers to local names only."""
        self.dequeued = Dequeued()
        self.streams = Streams()
        self._views: dict[str, AsyncBroker] = {"default": broker}

    def view(self, namespace: str) -> AsyncBroker:
        """The broker of one namespace."""
        view = self._views.get(namespace)
        if view is None:
            if len(self._views) >= _VIEWS_MAX:
                self._views = {"default": self.root}
            view = self._views[namespace] = self.root.namespace(check_name(namespace, "namespace"))
        return view
