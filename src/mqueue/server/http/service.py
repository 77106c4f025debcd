"""What the handlers stand on: one broker, one gatekeeper, one clock, and how much patience there is with callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
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
from mqueue.server.overview.window import Asked
from mqueue.server.security.keys import KeyRecord
from mqueue.server.security.principal import Principal
from mqueue.wire.json_cluster import ClusterOut
from mqueue.wire.json_overview import OverviewOut

if TYPE_CHECKING:
    from mqueue.broker.remote import Handed, HandedTable, Wanted
    from mqueue.server.http.answer import Answer, Streamed
    from mqueue.server.http.call import Call
    from mqueue.server.http.routes import Route
    from mqueue.server.http.sqs.naming import Place

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

    def claimant(self, headers: Mapping[str, str], peer: str, now: int) -> Principal:
        """Who claims to have signed a call whose body is not there yet. Raises Unauthorized or QuotaExceeded."""

    def prove(
        self, headers: Mapping[str, str], method: str, target: str, body: bytes, peer: str, now: int
    ) -> Principal:
        """Who signed a call. Raises Unauthorized."""

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

    async def signing_secret(self, name: str) -> str:
        """What the bearer of a key signs requests with. Raises NotFound."""

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


class Telemetry(Protocol):
    """Who tells a collector what is done to messages; `mqueue.server.telemetry.ServerSpans` is one."""

    def now(self) -> int:
        """When something begins, for `handed`."""

    async def told(self, call: Call, route: Route, work: Awaitable[Answer | Streamed]) -> Answer | Streamed:
        """The answer that some work gives to a call."""

    def calling(
        self, verb: str, namespace: str, topics: Sequence[str], count: int, headers: Iterable[Mapping[str, str | bytes]]
    ) -> AbstractContextManager[None]:
        """Around a call that did not come by HTTP. `headers`: of the messages that it is about."""

    def handed(
        self,
        namespace: str,
        group: str,
        handed: Sequence[Handed | HandedTable],
        since: int,
        asked: Mapping[str, str] = ...,
        consumer: str = "",
    ) -> None:
        """Messages were handed out. `asked`: the headers of the request, where there is one."""


class Overview(Protocol):
    """All topics at a glance: of this server, or of the cluster that it belongs to."""

    async def look(self, call: Call, asked: Asked) -> OverviewOut:
        """As they are now, or were a moment ago."""

    async def following(self, number: int) -> int | None:
        """Wait until they were counted once more; the number of that count, None: there is no other."""


class Vitals(Protocol):
    async def look(self, call: Call) -> ClusterOut:
        """How this server is, or all nodes of its cluster are."""


class Service:
    places: Places | None = None
    """None: everything is here."""
    voucher: Voucher | None = None
    """Reads what other nodes say about those for whom they call; None: it is not even looked at."""
    administration: Administration
    """Whoever puts the server together sets it."""
    loop: asyncio.AbstractEventLoop
    """That of the server; set as well."""
    page: Page | None = None
    """The metrics; None: they are off."""
    telemetry: Telemetry | None = None
    """None: nobody is told."""
    overview: Overview
    """Whoever puts the server together sets it."""
    vitals: Vitals
    """Whoever puts the server together sets it."""

    def __init__(self, broker: AsyncBroker, door: Door, clock: Clock, bounds: Bounds) -> None:
        self.root = broker
        self.door = door
        self.clock = clock
        self.bounds = bounds
        self.stopping = asyncio.Event()
        """Set when the server has been told to stop: whoever waits or streams comes to an end."""
        self.local = False
        """Whether it is for callers of this machine alone, whoever they are: then it answers to local names only."""
        self.secure = False
        """Whether it is called by HTTPS."""
        self.dequeued = Dequeued()
        self.streams = Streams()
        self.node: Service | None = None
        """That of the whole server, where this is for one of its loops."""
        self.carried: dict[Place, float] = {}
        """When dead letters were last carried to a queue; see `mqueue.server.http.sqs.carrying`."""
        self._errands: set[asyncio.Task[None]] = set()
        self._views: dict[str, AsyncBroker] = {"default": broker}
        self.calls: Callable[[str], AsyncBroker] = self.view
        """The calls of one namespace, each of which goes where it belongs: in a cluster through a client of this node.
        For what one request does in several places."""

    def errand(self, work: Callable[[Service], Coroutine[Any, Any, None]]) -> None:
        """Something that goes on when its caller has his answer, where all calls can be made: `work` gets the service
        of the whole server. It sees to its own errors."""
        node = self.node or self
        node.loop.call_soon_threadsafe(node._set_out, work)

    def _set_out(self, work: Callable[[Service], Coroutine[Any, Any, None]]) -> None:
        if not self.stopping.is_set():
            task = self.loop.create_task(work(self))
            self._errands.add(task)
            task.add_done_callback(self._errands.discard)

    async def end_errands(self) -> None:
        """Whatever is not done by now is left as it is."""
        for task in self._errands:
            task.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)

    def view(self, namespace: str) -> AsyncBroker:
        """The broker of one namespace."""
        view = self._views.get(namespace)
        if view is None:
            if len(self._views) >= _VIEWS_MAX:
                self._views = {"default": self.root}
            view = self._views[namespace] = self.root.namespace(check_name(namespace, "namespace"))
        return view
