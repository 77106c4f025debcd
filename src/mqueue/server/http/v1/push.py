"""Push by server-sent events: one event per message, settled by the routes of its lease. WebSockets: `sockets`."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from mqueue.broker import remote
from mqueue.model.errors import Error, Refused
from mqueue.model.names import check_name
from mqueue.server.http.answer import Answer, Streamed, error_answer
from mqueue.server.http.call import Call
from mqueue.server.http.push import Pushing
from mqueue.server.http.routes import Parameter, Route
from mqueue.wire.json_out import message_out
from mqueue.wire.json_push import PushedOut

EVENTS = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
"""A comment after so long without a message, so that proxies and dead peers are noticed."""

_PREFETCH = 100
_HELLO = b"retry: 1000\n\n"
_HEARTBEAT = b": nothing yet\n\n"
GOODBYE = b"event: end\ndata: {}\n\n"
_ENCODER = msgspec.json.Encoder()


def wanted_of(call: Call) -> remote.Wanted:
    """What a consumer that is pushed to asks for, from its query."""
    prefetch: int = call.number("prefetch", _PREFETCH)
    if not 1 <= prefetch <= 10_000:
        raise Refused(f"prefetch {prefetch}; it takes 1 to 10000", code="bad_limit")
    acked = call.query.get("ack", "manual")
    if acked not in ("manual", "auto"):
        raise Refused(f"ack {acked!r:.80}; it takes manual or auto", code="bad_query")
    wanted = remote.Wanted(
        (check_name(call.topic, "topic"),),
        prefetch,
        group=call.query.get("group", "default"),
        visibility=call.query.get("visibility"),
        mode="at_most_once" if acked == "auto" else "at_least_once",
        consumer=call.consumer,
    )
    remote.check(wanted)
    return wanted


async def stream(call: Call) -> Answer | Streamed:
    wanted = wanted_of(call)
    return Streamed(_events(call, wanted), EVENTS, headers=(("cache-control", "no-store"),))


async def _events(call: Call, wanted: remote.Wanted) -> AsyncGenerator[bytes, None]:
    yield _HELLO
    try:
        async with Pushing(call, wanted) as pushing:
            while (handed := await pushing.next(HEARTBEAT_SECONDS)) is not None:
                yield b"".join(map(_events_of, handed)) or _HEARTBEAT
    except Error as error:  # it is too late for a status
        yield failed(error)
        return
    yield GOODBYE


def failed(error: Error) -> bytes:
    """The last event of a stream that ends before its time."""
    return b"event: failed\ndata: %b\n\n" % error_answer(error).body


def _events_of(handed: remote.Handed) -> bytes:
    lease = handed.token or None
    events = []
    for message in handed.messages:
        told = message_out(message, PushedOut)
        told.lease = lease
        events.append(b"id: %d\nevent: message\ndata: %b\n\n" % (message.id, _ENCODER.encode(told)))
    return b"".join(events)


ROUTES = (
    Route(
        "GET",
        "/v1/topics/{topic}/stream",
        stream,
        "receive",
        "topic",
        "Messages as they come: server-sent events, or a WebSocket",
        None,
        None,
        (
            Parameter("group", "text", "who shares the work"),
            Parameter("prefetch", "integer", "never more than so many unsettled"),
            Parameter("visibility", "text", "how long a lease lasts"),
            Parameter("ack", "text", "manual (settled by the consumer), or auto (at most once)"),
        ),
        kind=EVENTS,
    ),
)
