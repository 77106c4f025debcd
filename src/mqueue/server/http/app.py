"""The walk of a request: route → caller → right → body → handler → answer. Only here do errors become answers.

`admit` is called as soon as the headers are there, so that nobody sends a body for nothing; `answer` when the body is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from mqueue.model.errors import Error, Refused, Unavailable
from mqueue.server.http.answer import Answer, Streamed, error_answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route, Routes
from mqueue.server.http.service import Service
from mqueue.server.security.principal import Principal

LOGGER = logging.getLogger("mqueue.server")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

NOBODY = Principal("", via="open")
"""Who calls a route that is open to everybody."""

_QUERY_FIELDS_MAX = 64


class App:
    def __init__(self, service: Service, routes: Routes) -> None:
        self.service = service
        self._routes = routes

    def admit(
        self, method: str, target: str, headers: Mapping[str, str], socket: str, certificate: bytes | None
    ) -> tuple[Call, Route]:
        """What a request asks for. Raises what is wrong with it, or with the one who sent it.

        `target` is the path and the query as they came; `headers` have lower-case names; `socket` is the address at
        the other end of the connection.
        """
        service = self.service
        path, _, asked = target.partition("?")
        route, names = self._routes.find(method, path)
        query = _query(asked) if asked else {}
        peer = service.door.peer(headers, socket)
        principal = NOBODY
        if route.place != "open":
            principal = service.door.caller(headers, peer, certificate, service.clock.now())
        namespace = _namespace(query, headers)
        shown = unquote(path) if "%" in path else path
        call = Call(service, method, shown, names, query, headers, principal, namespace, peer=peer)
        demand(call, route)
        return call, route

    async def answer(self, call: Call, route: Route) -> Answer | Streamed:
        try:
            return await route.handler(call)
        except Exception as error:
            return self.refusal(error, f"{call.method} {call.path}")

    def refusal(self, error: Exception, what: str) -> Answer:
        """What the caller is told of an error. Those that are not on purpose go to the log."""
        if isinstance(error, Error):
            return error_answer(error)
        LOGGER.error("%s failed", what, exc_info=error)
        return error_answer(Unavailable("something went wrong inside", code="internal", applied=None))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """WebSockets, in the words of ASGI."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})


def demand(call: Call, route: Route) -> None:
    """Raise unless the caller may do this here."""
    if route.place not in ("open", "inside"):
        namespace = "*" if route.place == "server" else call.namespace
        call.demand(route.verb, namespace, call.topic if route.place == "topic" else None)


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
