"""The walk of a request: route → caller → right → body → handler → answer. Only here do errors become answers.

`admit` is called as soon as the headers are there, so that nobody sends a body for nothing; `answer` when the body is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote

from mqueue.model.errors import Error, Forbidden, Refused, Unavailable
from mqueue.server.forwarding.voucher import PEER, Voucher
from mqueue.server.http import session
from mqueue.server.http.answer import Answer, Streamed, error_answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route, Routes
from mqueue.server.http.service import Receive, Send, Service
from mqueue.server.http.sockets import check_pushed, refuse, talk
from mqueue.server.http.sqs.errors import is_sqs, sqs_error
from mqueue.server.http.sqs.naming import PATH as SQS_PATH
from mqueue.server.http.turnstile import LARGE_BYTES, Turnstile
from mqueue.server.http.v1.push import wanted_of
from mqueue.server.http.watching import Watch
from mqueue.server.security.gatekeeper import ANYBODY
from mqueue.server.security.peers import is_local
from mqueue.server.security.principal import Principal, Rejected
from mqueue.server.security.sigv4 import SCHEME

LOGGER = logging.getLogger("mqueue.server")

Scope = MutableMapping[str, Any]

NOBODY = Principal("", via="open")
"""Who calls a route that is open to everybody."""

_QUERY_FIELDS_MAX = 64


class App:
    def __init__(self, service: Service, routes: Routes, watch: Watch) -> None:
        self.service = service
        self._routes = routes
        self._watch = watch
        self._turnstile = Turnstile()

    def admit(
        self, method: str, target: str, headers: Mapping[str, str], socket: str, certificate: bytes | None
    ) -> tuple[Call, Route]:
        """What a request asks for. Raises what is wrong with it, or with the one who sent it.

        `target` is the path and the query as they came; `headers` have lower-case names; `socket` is the address at
        the other end of the connection.
        """
        service = self.service
        path, _, asked = target.partition("?")
        route, names = self._routes.find(method, SQS_PATH if method == "POST" and is_sqs(headers) else path)
        if route.within is not None:
            route = route.within(headers)
        query = _query(asked) if asked else {}
        if service.local and route.place != "open":
            check_host(headers.get("host", ""))
        if "origin" in headers or "sec-fetch-site" in headers:
            check_origin(headers, route)
        peer = service.door.peer(headers, socket)
        principal, vouched, signed = NOBODY, None, False
        if route.place != "open":
            now = service.clock.now()
            if service.voucher is not None:
                vouched = self._vouched(service.voucher, method, target, headers, peer, now)
            headers = session.entered(headers, only_looks(method, route))
            signed = vouched is None and route.signed and headers.get("authorization", "").startswith(SCHEME)
            if signed:
                principal = service.door.claimant(headers, peer, now)
            else:
                principal = vouched or service.door.caller(headers, peer, certificate, now)
        if vouched is not None:
            peer = headers.get(PEER, "")
        namespace = _namespace(query, headers)
        shown = unquote(path) if "%" in path else path
        call = Call(
            service, method, shown, names, query, headers, principal, namespace, peer=peer, certificate=certificate
        )
        call.target = target
        call.unproven = signed
        call.vouched = vouched is not None
        demand(call, route)
        return call, route

    def admit_face(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[Call, Route]:
        """The same of a face of this server, which has let its caller in and asked for each right that he needs."""
        path, _, asked = target.partition("?")
        route, names = self._routes.find(method, path)
        query = _query(asked) if asked else {}
        call = Call(self.service, method, path, names, query, headers, ANYBODY, _namespace(query, headers), body)
        call.target = target
        call.vouched = True
        return call, route

    def _vouched(
        self, voucher: Voucher, method: str, target: str, headers: Mapping[str, str], peer: str, now: int
    ) -> Principal | None:
        """Whom another node calls for; the audit log is told of one that lies."""
        try:
            return voucher.principal(headers, method, target)
        except Rejected as error:
            self.service.door.refused(NOBODY, error.why, peer, now, "", "")
            raise

    async def answer(self, call: Call, route: Route) -> Answer | Streamed:
        watch = self._watch
        begun = watch.begin()
        answer: Answer | Streamed | None = None
        try:
            if call.unproven:
                self._prove(call)
            if len(call.body) >= LARGE_BYTES:
                await self._turnstile.turn(call.namespace)
            service = self.service
            work = route.handler(call) if service.places is None else service.places.answer(call, route)
            answer = await (work if service.telemetry is None else service.telemetry.told(call, route, work))
        except Exception as error:
            answer = _told(error, f"{call.method} {call.path}", call.headers)
        finally:
            watch.end(call, route, answer, begun)
        return answer

    def _prove(self, call: Call) -> None:
        service = self.service
        now = service.clock.now()
        call.principal = service.door.prove(call.headers, call.method, call.target, call.body, call.peer, now)
        call.unproven = False

    def refusal(self, error: Exception, what: str, headers: Mapping[str, str] | None = None) -> Answer:
        """What a caller is told who was not admitted."""
        answer = _told(error, what, headers or {})
        self._watch.turned_away(answer.status)
        return answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """WebSockets, in the words of ASGI."""
        await receive()  # that somebody wants to connect
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        target, asked = scope["raw_path"].decode(), scope["query_string"].decode()
        if asked:
            target = f"{target}?{asked}"
        socket = scope["client"][0] if scope.get("client") else ""
        try:
            call, route = self.admit("GET", target, headers, socket, scope["state"]["certificate"])
            check_pushed(route)
            wanted = wanted_of(call)
        except Exception as error:
            await refuse(self.refusal(error, f"WebSocket {scope['path']}"), send)
            return
        places = self.service.places
        await (talk if places is None else places.talk)(call, wanted, receive, send)


def _told(error: Exception, what: str, headers: Mapping[str, str]) -> Answer:
    """What the caller is told of an error, in the words of his protocol. Those not on purpose go to the log."""
    if not isinstance(error, Error):
        LOGGER.error("%s failed", what, exc_info=error)
        error = Unavailable("something went wrong inside", code="internal", applied=None)
    return sqs_error(error) if is_sqs(headers) else error_answer(error)


def only_looks(method: str, route: Route) -> bool:
    """A GET may hand out messages: that is more than to look."""
    return method in ("GET", "HEAD") and route.verb in ("read", "manage")


def demand(call: Call, route: Route) -> None:
    """Raise unless the caller may do this here."""
    if route.place not in ("open", "inside"):
        namespace = "*" if route.place == "server" else call.namespace
        call.demand(route.verb, namespace, call.topic if route.place == "topic" else None)


@lru_cache(maxsize=256)
def check_host(host: str) -> None:
    """A page whose name is made to mean this machine once it is loaded comes by that name, and may not call."""
    name = host.lower()
    if ":" in name.rpartition("]")[2]:
        name = name.rpartition(":")[0]
    if name and not is_local(name):
        raise Forbidden(
            f"host {host!r:.200}: without authentication this server answers to localhost and loopback addresses only,"
            " unless security.publicBind is set",
            code="cross_origin",
        )


def check_origin(headers: Mapping[str, str], route: Route) -> None:
    """Pages of other sites may not call through the browser of somebody who can reach this server.

    An image or a link has no origin, but browsers say that it stands on another site: it may lead to what is open.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
        raise Forbidden(f"origin {origin!r:.200} is another site", code="cross_origin")
    if site not in ("same-origin", "none") and route.place != "open":
        raise Forbidden(f"a call from another site ({site!r:.80})", code="cross_origin")


def _query(asked: str) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(asked, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError as error:
        raise Refused(f"the query cannot be read: {error}", code="bad_query") from error
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused("a name stands twice in the query", code="bad_query")
    return found


def _namespace(query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    asked, told = query.get("namespace"), headers.get("x-mqueue-namespace")
    if asked is not None and told is not None and asked != told:
        raise Refused(f"namespace {asked!r:.80} in the query, {told!r:.80} in the header", code="bad_query")
    return asked or told or "default"
