"""The Flight face: Arrow's own server, in threads of its own, and how it begins and ends.

A handler here finds out who calls and what about, asks for the right, and hands over to the module of its walk:
`publishing` (DoPut), `scanning` (GetFlightInfo, DoGet), `exchanging` (DoExchange), `actions` (DoAction).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from mqueue.broker.tables import SCHEMA
from mqueue.model.names import check_name
from mqueue.server.faces import Footing
from mqueue.server.flight import actions
from mqueue.server.flight.asked import Consume, Listing, Put, Scan, Ticket, asked_in, parsed, placed
from mqueue.server.flight.bridge import Bridge
from mqueue.server.flight.connections import check_free, cut
from mqueue.server.flight.door import NAME, Anybody, Caller, Entrance, caller_of
from mqueue.server.flight.exchanging import Exchange
from mqueue.server.flight.publishing import Publishing
from mqueue.server.flight.scanning import Scanning, flight_info, schema_of
from mqueue.server.flight.statuses import told, told_plainly

T = TypeVar("T")

LOGGER = logging.getLogger("mqueue.server")

_CUT_SECONDS = 0.05
_RETRY_SECONDS = 0.2


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """What Arrow calls, each call in a thread of gRPC."""

    def __init__(self, footing: Footing, bridge: Bridge, entrance: Entrance, location: str, **tls: Any) -> None:
        super().__init__(location, auth_handler=Anybody(), middleware={NAME: entrance}, **tls)
        self._footing = footing
        self._bridge = bridge

    @told
    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        async def names(caller: Caller) -> tuple[str, list[str]]:
            namespace = check_name(parsed(criteria, Listing, "criteria").namespace or caller.namespace, "namespace")
            caller.demand("list_flights", "read", namespace)
            return namespace, await self._footing.broker(namespace).topics()

        namespace, topics = self._asked(context, names)
        return iter([_listed(namespace, topic) for topic in topics])

    @told
    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        async def info(caller: Caller) -> flight.FlightInfo:
            asked = asked_in(descriptor, Scan, caller.namespace)
            caller.demand("get_flight_info", "read", asked.namespace, asked.topic)
            return await flight_info(self._footing.broker(asked.namespace), asked, descriptor)

        return self._asked(context, info)

    @told_plainly
    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        async def schema(caller: Caller) -> pa.Schema:
            asked = asked_in(descriptor, Scan, caller.namespace)
            caller.demand("get_schema", "read", asked.namespace, asked.topic)
            await self._footing.broker(asked.namespace).offsets(asked.topic)
            return schema_of(asked.columns)

        return flight.SchemaResult(self._asked(context, schema))

    @told
    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        async def scanning(caller: Caller) -> Scanning:
            asked = placed(parsed(ticket.ticket, Ticket, "ticket"), caller.namespace)
            caller.demand("do_get", "read", asked.namespace, asked.topic)
            broker = self._footing.broker(asked.namespace)
            return Scanning(self._bridge, broker, caller, asked)

        scan = self._asked(context, scanning)
        batches = _told_late(scan.batches(scan.first()))
        return flight.GeneratorStream(scan.schema, batches)

    @told
    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        async def publishing(caller: Caller) -> Publishing:
            asked = asked_in(descriptor, Put, caller.namespace)
            caller.demand("do_put", "publish", asked.namespace, asked.topic)
            broker = self._footing.broker(asked.namespace)
            return Publishing(self._bridge, broker, caller, asked)

        self._asked(context, publishing).run(reader, writer)

    @told
    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        async def exchange(caller: Caller) -> Exchange:
            asked = asked_in(descriptor, Consume, caller.namespace)
            caller.demand("do_exchange", "receive", asked.namespace, asked.topic)
            return Exchange(self._bridge, self._footing.broker(asked.namespace), caller, asked)

        self._asked(context, exchange).run(reader, writer, context.is_cancelled)

    @told
    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        async def listed(caller: Caller) -> list[tuple[str, str]]:
            return [(action.name, action.about) for action in actions.ACTIONS.values()]

        return self._asked(context, listed)

    @told
    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        async def done(caller: Caller) -> bytes:
            return await actions.perform(self._footing, caller, action.type, action.body.to_pybytes())

        return iter([self._asked(context, done)])

    def _asked(self, context: flight.ServerCallContext, work: Callable[[Caller], Awaitable[T]]) -> T:
        """Do something for whoever calls, in the loop."""

        async def run() -> T:
            arrival = context.get_middleware(NAME)
            return await work(await caller_of(self._footing, arrival.headers, context.peer()))

        return self._bridge.run(run(), context.is_cancelled)


def _listed(namespace: str, topic: str) -> flight.FlightInfo:
    """A topic by its name. What there is to read of it is for GetFlightInfo."""
    return flight.FlightInfo(SCHEMA, flight.FlightDescriptor.for_path(namespace, topic), [], -1, -1)


@told
def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(batches, None)


def _told_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What goes wrong while a stream is sent is told as what goes wrong before."""
    while (batch := _next(batches)) is not None:
        yield batch


class FlightFace:
    """One that listens. Arrow keeps the certificate that a server began with: for a new one another takes its place."""

    def __init__(self, footing: Footing, host: str) -> None:
        self._footing = footing
        self._bridge = Bridge(asyncio.get_running_loop())
        self._entrance = Entrance(footing, self._bridge)
        self._host = f"[{host}]" if ":" in host else host
        self._server: Server | None = None
        self._ending: set[asyncio.Future[None]] = set()
        """Of servers that let nobody in any more, and have calls that are not over."""
        self._renewal: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.port = 0

    async def listen(self, port: int) -> None:
        """Raises OSError where that cannot be."""
        self._server = await asyncio.to_thread(self._opened, port)
        self.port = self._server.port
        if self._footing.page is not None:
            self._footing.page.registry.register(self._entrance.numbers)
        if self._footing.tls is not None:
            self._footing.tls.changed.append(self._renew)

    def _opened(self, port: int) -> Server:
        scheme = "grpc" if self._footing.tls is None else "grpc+tls"
        location = f"{scheme}://{self._host}:{port}"
        try:
            return Server(self._footing, self._bridge, self._entrance, location, **_tls(self._footing))
        except pa.ArrowException as error:
            raise OSError(f"Arrow Flight cannot listen: {error!s:.200}") from error

    def _renew(self) -> None:
        """There is another certificate."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._replace())

    async def _replace(self) -> None:
        """A server with the pair of now listens; calls of the one before go on until they are over."""
        tls = self._footing.tls
        assert tls is not None, "else there is no pair to change"
        shown = None
        while shown is not tls.pair and not self._closing.is_set():
            if self._server is not None:
                self._end(self._server)
                self._server = None
            try:
                shown, self._server = tls.pair, await asyncio.to_thread(self._opened, self.port)
            except OSError as error:  # the old one has not let go of the port, or somebody else has it
                shown = None
                LOGGER.warning("Flight does not listen with the new certificate yet: %s", error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY_SECONDS):
                        await self._closing.wait()

    def _end(self, server: Server) -> None:
        """In a thread of its own: it waits for all calls, which may take as long as they like."""
        loop = self._bridge.loop
        over = loop.create_future()
        self._ending.add(over)
        over.add_done_callback(self._ending.discard)

        def end() -> None:
            server.shutdown()
            loop.call_soon_threadsafe(over.set_result, None)

        threading.Thread(target=end, name="mqueue-flight-end", daemon=True).start()

    async def close(self) -> None:
        """Let nobody in any more. What is at work is finished; who is silent then, or slow, loses the connection."""
        self._closing.set()
        if self._footing.tls is not None:
            self._footing.tls.changed.remove(self._renew)
        if self._renewal is not None:
            await self._renewal
        if self._server is not None:
            self._end(self._server)
        patient_until = self._bridge.loop.time() + self._footing.bounds.drain_timeout_ms / 1000
        while self._ending:
            await asyncio.wait(self._ending, timeout=_CUT_SECONDS)
            if self._ending and (not self._bridge.at_work or self._bridge.loop.time() > patient_until):
                cut(self.port)


async def open_face(footing: Footing, host: str, port: int) -> FlightFace:
    """Listen; port 0 is a free one. Raises OSError where that cannot be."""
    # What strangers get wrong is none of the operator's business; gRPC would write a line for each.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    await asyncio.to_thread(check_free, host, port)
    face = FlightFace(footing, host)
    await face.listen(port)
    return face


def _tls(footing: Footing) -> dict[str, Any]:
    """The pair of now."""
    tls = footing.tls
    if tls is None:
        return {}
    found: dict[str, Any] = {"tls_certificates": [(tls.pair.certificate, tls.pair.key)]}
    if tls.client_ca is not None:
        found |= {"verify_client": True, "root_certificates": tls.client_ca}
    return found
