"""Who calls, in Flight: the headers of a call, and whom the door of the server makes of them.

`authorization: Bearer` and `x-api-key` as over HTTP. `authorization: Basic` is for clients that know nothing else: its
password is the token or the key, its name is not looked at; a handshake answers with the bearer that it stands for.
Certificates of clients are asked for where HTTP asks for them, but name nobody here: Arrow shows no certificate.
"""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Mapping, Sequence

from msgspec import Struct
from pyarrow import flight

from mqueue.model.errors import Backpressure, Error, Forbidden, Stopping
from mqueue.server.faces import Footing
from mqueue.server.flight.bridge import Bridge
from mqueue.server.flight.numbers import CallNumbers
from mqueue.server.flight.statuses import status_of
from mqueue.server.security.principal import Principal, Verb

NAME = "mqueue-door"
CALLS_MAX = 1_000
"""Calls at one time: each has a thread."""
_EARLY = (
    flight.FlightMethod.DO_PUT,
    flight.FlightMethod.DO_EXCHANGE,
    flight.FlightMethod.HANDSHAKE,
    flight.FlightMethod.GET_SCHEMA,
)
"""Of these Arrow reads a first message before we are asked, or has no way to tell who is refused: so their callers are
looked at before that."""


class Arrival(flight.ServerMiddleware):  # type: ignore[misc]
    """One call that was let in so far."""

    def __init__(self, entrance: Entrance, headers: Mapping[str, str], method: flight.FlightMethod) -> None:
        self._entrance = entrance
        self.headers = headers
        self._method = method

    def sending_headers(self) -> Mapping[str, str]:
        if self._method == flight.FlightMethod.HANDSHAKE and "authorization" in self.headers:
            return {"authorization": self.headers["authorization"]}
        return {}

    def call_completed(self, exception: BaseException | None) -> None:
        self._entrance.leave(self._method, exception)


class Entrance(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Sees every call first."""

    def __init__(self, footing: Footing, bridge: Bridge) -> None:
        self._footing = footing
        self._bridge = bridge
        self._lock = threading.Lock()
        self.numbers = CallNumbers()

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> Arrival:
        told = _headers(headers)
        try:
            if self._footing.stopping.is_set():
                raise Stopping("the server stops")
            if info.method in _EARLY:
                self._bridge.run(self._look(told))
            self._enter()
        except Error as error:
            raise status_of(error) from None
        return Arrival(self, told, info.method)

    async def _look(self, headers: Mapping[str, str]) -> None:
        """Where the call comes from is not known here."""
        footing = self._footing
        footing.door.known(headers, "", None, footing.clock.now())

    def _enter(self) -> None:
        with self._lock:
            calls = self.numbers.under_way
            if calls >= CALLS_MAX:
                raise Backpressure(f"{calls} Flight calls at one time; {CALLS_MAX} are allowed")
            self.numbers.under_way += 1

    def leave(self, method: flight.FlightMethod, exception: BaseException | None) -> None:
        with self._lock:
            self.numbers.under_way -= 1
            self.numbers.over[method.name.lower(), "ok" if exception is None else "failed"] += 1


class Anybody(flight.ServerAuthHandler):  # type: ignore[misc]
    """Arrow has no handshake without one of these. Whether callers are who they say is for the door to find out."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """The headers have said it all."""

    def is_valid(self, token: bytes) -> bytes:
        return b""


class Caller(Struct):
    """Somebody who was let in. Belongs to the loop."""

    footing: Footing
    headers: Mapping[str, str]
    peer: str
    principal: Principal

    @property
    def namespace(self) -> str:
        """Where a call is meant to go that names no namespace itself."""
        return self.headers.get("x-mqueue-namespace", "default")

    def demand(self, what: str, verb: Verb, namespace: str, topic: str | None = None) -> None:
        """Raise unless the caller may do this there; then the audit log is told."""
        try:
            self.principal.demand(verb, namespace, topic)
        except Forbidden:
            now = self.footing.clock.now()
            self.footing.door.refused(self.principal, f"Flight {what}", self.peer, now, namespace, topic or "")
            raise

    def demand_again(self, what: str, verb: Verb, namespace: str, topic: str) -> None:
        """Raise unless somebody who stays is still let in, and may still do this there."""
        footing = self.footing
        self.principal = footing.door.known(self.headers, self.peer, None, footing.clock.now())
        self.demand(what, verb, namespace, topic)

    def changed(self, what: str, namespace: str, topic: str) -> None:
        """Something was managed: for the audit log."""
        now = self.footing.clock.now()
        self.footing.door.changed(self.principal, f"Flight {what}", self.peer, now, namespace, topic)


async def caller_of(footing: Footing, headers: Mapping[str, str], socket: str) -> Caller:
    """Raises Unauthorized or QuotaExceeded. `socket`: the other end of the connection, as gRPC writes it."""
    door = footing.door
    peer = door.peer(headers, _address(socket))
    return Caller(footing, headers, peer, door.caller(headers, peer, None, footing.clock.now()))


def _headers(given: Mapping[str, Sequence[str | bytes]]) -> dict[str, str]:
    """Those that are text, by lower-case name; what came twice is joined. A Basic becomes the Bearer it stands for."""
    texts = {name.lower(): ", ".join(v for v in values if isinstance(v, str)) for name, values in given.items()}
    scheme, _, rest = texts.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            _, _, password = b64decode(rest.strip(), validate=True).decode().partition(":")
        except ValueError:
            password = ""
        texts["authorization"] = f"Bearer {password}"
    return texts


def _address(socket: str) -> str:
    """`ipv4:127.0.0.1:41000`, `ipv6:%5B::1%5D:41000` without kind and port."""
    address = socket.partition(":")[2].rpartition(":")[0]
    return address.removeprefix("%5B").removesuffix("%5D").removeprefix("[").removesuffix("]")
