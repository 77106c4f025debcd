"""The walk of a request: route → caller → right → body → handler → answer. Only here do errors become answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from mqueue.model.errors import Error, Refused, TooLarge, Unavailable
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
    """An ASGI application."""

    def __init__(self, service: Service, routes: Routes) -> None:
        self._service = service
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await _write(await self._answer(scope, receive), scope["method"] == "HEAD", send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | Streamed:
        try:
            call, route = self._admit(scope)
            call.body = await _body(receive, self._service.bounds.body_bytes_max)
            return await route.handler(call)
        except Error as error:
            return error_answer(error)
        except Exception:
            LOGGER.exception("%s %s failed", scope["method"], scope["path"])
            return error_answer(Unavailable("something went wrong inside", code="internal", applied=None))

    def _admit(self, scope: Scope) -> tuple[Call, Route]:
        service = self._service
        route, names = self._routes.find(scope["method"], scope["raw_path"].decode("latin-1"))
        headers = _headers(scope)
        query = _query(scope["query_string"])
        peer = service.door.peer(headers, scope["client"][0] if scope.get("client") else "")
        now = service.clock.now()
        principal = NOBODY
        if route.place != "open":
            principal = service.door.caller(headers, peer, scope.get("certificate"), now)
        namespace = _namespace(query, headers)
        call = Call(service, scope["method"], scope["path"], names, query, headers, principal, namespace, peer=peer)
        demand(call, route)
        return call, route


def demand(call: Call, route: Route) -> None:
    """Raise unless the caller may do this here."""
    if route.place not in ("open", "inside"):
        namespace = "*" if route.place == "server" else call.namespace
        call.demand(route.verb, namespace, call.topic if route.place == "topic" else None)


def _headers(scope: Scope) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1")
        text = value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def _query(raw: bytes) -> Mapping[str, str]:
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
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


async def _body(receive: Receive, most: int) -> bytes:
    """The whole body. One that is too long is refused as soon as that is known."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise TooLarge(f"a body of more than {most} bytes; {most} are allowed", code="body_too_large")
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _write(answer: Answer | Streamed, head: bool, send: Send) -> None:
    headers = [(b"content-type", answer.kind.encode())] if answer.status != 204 else []
    headers += [(name.encode(), value.encode()) for name, value in answer.headers]
    if isinstance(answer, Answer):
        if answer.status != 204:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else answer.body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    async for piece in answer.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
