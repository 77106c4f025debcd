"""All topics at a glance: once, or again and again by server-sent events that tell what has changed."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from mqueue.model.errors import Error
from mqueue.model.names import check_name
from mqueue.server.http.answer import Answer, Streamed, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.push import unless_over
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.push import EVENTS, GOODBYE, failed
from mqueue.server.overview.window import SORTS, WINDOW_MAX, Asked
from mqueue.wire.json_overview import OverviewChangeOut, OverviewOut

PATH = "/v1/overview"

_ENCODER = msgspec.json.Encoder()
_HELLO = b"retry: 1000\n\n"


async def overview(call: Call) -> Answer:
    asked = asked_of(call)
    return as_json(await call.service.overview.look(call, asked), headers=(("cache-control", "no-store"),))


async def stream(call: Call) -> Answer | Streamed:
    asked = asked_of(call)
    return Streamed(_events(call, asked), EVENTS, headers=(("cache-control", "no-store"),))


def asked_of(call: Call) -> Asked:
    """All namespaces, unless one is named. Raises if the caller may read nothing there."""
    named = "namespace" in call.query or "x-mqueue-namespace" in call.headers
    namespace = check_name(call.namespace, "namespace") if named else None
    if not call.principal.reaches("read", namespace):
        call.demand("read", namespace or "*", call.query.get("topic"))
    return Asked(
        namespace,
        call.query.get("search", "")[:256],
        call.query.get("sort", "interest"),
        call.number("skip", 0),
        call.number("limit", 100),
        call.flag("nonzero"),
        call.query.get("topic", ""),
    ).check()


async def _events(call: Call, asked: Asked) -> AsyncGenerator[bytes, None]:
    """First all of the window, then what is different. Who may not look any more is told, and that is the end."""
    overview = call.service.overview
    yield _HELLO
    number = 0
    told: OverviewOut | None = None
    try:
        while (following := await unless_over(call, overview.following(number))) is not None:
            number = following
            call.look_again()
            asked_of(call)
            now = await overview.look(call, asked)
            yield _event(b"view", now) if told is None else _event(b"change", changes(told, now))
            told = now
    except Error as error:  # it is too late for a status
        yield failed(error)
        return
    yield GOODBYE


def changes(was: OverviewOut, now: OverviewOut) -> OverviewChangeOut:
    before = {(row.namespace, row.topic): row for row in was.rows}
    order = [f"{row.namespace}/{row.topic}" for row in now.rows]
    return OverviewChangeOut(
        now.at,
        now.topics,
        now.totals,
        [row for row in now.rows if before.get((row.namespace, row.topic)) != row],
        None if order == [f"{row.namespace}/{row.topic}" for row in was.rows] else order,
        [] if now.namespaces == was.namespaces else now.namespaces,
        now.missing,
        now.away,
    )


def _event(name: bytes, value: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, _ENCODER.encode(value))


_QUERY = (
    Parameter("topic", "text", "only the topic of this name"),
    Parameter("search", "text", "only topics whose names hold this"),
    Parameter("sort", "text", f"one of {', '.join(SORTS)}"),
    Parameter("skip", "integer", "leave out so many of the first"),
    Parameter("limit", "integer", f"how many at most, 1 to {WINDOW_MAX}"),
    Parameter("nonzero", "boolean", "only topics that have something of what they are sorted by"),
)

ROUTES = (
    Route("GET", PATH, overview, "read", "inside", "Show all topics at a glance", gives=OverviewOut, query=_QUERY),
    Route(
        "GET",
        f"{PATH}/stream",
        stream,
        "read",
        "inside",
        "Show all topics at a glance, and what changes: server-sent events",
        query=_QUERY,
        kind=EVENTS,
    ),
)
