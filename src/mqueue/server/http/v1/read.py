"""Looking without disturbing: peek, scans page by page, single messages and what became of them."""

from __future__ import annotations

import asyncio

from mqueue.broker import overview, scanning
from mqueue.broker.shown import messages_out, rows_out, table_out
from mqueue.broker.tables import SCHEMA, batch_of
from mqueue.model.errors import NotFound, Refused
from mqueue.model.limits import ANSWER_BYTES_MAX
from mqueue.model.times import instant_ms, rfc3339
from mqueue.server.http.answer import ARROW, Answer, Headers, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import LIMIT, fitting, limit_of
from mqueue.server.http.v1.receive import COLUMNS, all_columns
from mqueue.wire.json import ExplanationOut, MessageOut, MessagesOut, TraceEventOut, TraceOut
from mqueue.wire.json_in import ids_of
from mqueue.wire.json_manage import OffsetOut, OffsetsOut
from mqueue.wire.json_out import time_out
from mqueue.wire.stream import write_stream, write_table

_PEEKED = 10
_SCANNED = 100
_SCANNED_ARROW = 10_000
_DIGITS_MAX = 18


async def peek(call: Call) -> Answer:
    found = await call.broker.peek(call.topic, limit_of(call, _PEEKED), group=_group(call))
    return as_json(MessagesOut(messages_out(fitting(found))))


async def scan(call: Call) -> Answer:
    """Log order, partition by partition. It is read in a thread: a page may have to come from the disk."""
    asked = scanning.Asked(
        call.topic,
        bound_of(call, "start"),
        bound_of(call, "stop"),
        call.number("partition"),
        limit_of(call, _SCANNED_ARROW if call.wants_arrow else _SCANNED),
        ANSWER_BYTES_MAX,
        call.query.get("cursor", ""),
        call.flag("include_deleted"),
    )
    whole = all_columns(call)
    if call.wants_arrow:
        return await asyncio.to_thread(_scanned_table, call, asked, whole)
    return await asyncio.to_thread(_scanned, call, asked)


def _scanned(call: Call, asked: scanning.Asked) -> Answer:
    page = scanning.page(call.behind, asked)
    found = [shown for frame, rows in page.pieces for shown in rows_out(page.desk, frame, rows, 0)]
    return as_json(MessagesOut(found, page.next))


def _scanned_table(call: Call, asked: scanning.Asked, whole: bool) -> Answer:
    page = scanning.page(call.behind, asked)
    headers: Headers = () if page.next is None else (("x-mqueue-next", page.next),)
    if whole:
        body = write_table(table_out((page.desk, frame, rows, 0) for frame, rows in page.pieces))
    else:
        body = write_stream((batch_of(frame, rows.start, rows.stop, 0) for frame, rows in page.pieces), SCHEMA)
    return Answer(200, body, ARROW, headers)


async def offsets(call: Call) -> Answer:
    found = await call.broker.offsets(call.topic, _time(call, "time"))
    told = [OffsetOut(each.partition, each.first, each.next, each.at, each.floor) for each in found]
    made_at = found[0].made_at
    return as_json(OffsetsOut(told, None if made_at is None else time_out(made_at)))


async def message(call: Call) -> Answer:
    return as_json(scanning.one(call.behind, await _readable(call)))


async def trace(call: Call) -> Answer:
    told = await call.broker.trace(await _readable(call))
    latency = told.latency
    return as_json(
        TraceOut(
            str(told.id),
            told.topic,
            [TraceEventOut(time_out(event.time), event.kind, event.detail) for event in told.events],
            told.attempts,
            None if latency is None else round(latency.total_seconds() * 1000),
            str(told),
        )
    )


async def explain(call: Call) -> Answer:
    told = await call.broker.explain(await _readable(call), group=_group(call))
    until = None if told.until is None else time_out(told.until)
    return as_json(ExplanationOut(told.code, told.sentence, until, told.by, told.ahead))


async def _readable(call: Call) -> int:
    """The id of a message whose topic the caller may read. Who may not is not told whether it is there."""
    [id] = ids_of([call.names["id"]])
    if call.principal.allows("read", call.namespace):
        return id
    try:
        topic = await overview.topic_of(call.behind, id)
    except NotFound:
        topic = ""
    if not topic or not call.principal.allows("read", call.namespace, topic):
        call.demand("read", call.namespace)
    return id


def _group(call: Call) -> str:
    return call.query.get("group", "default")


def bound_of(call: Call, name: str) -> int | str | None:
    """Where a scan begins or ends: an offset, a time as text, or nothing."""
    offset, time = call.number(f"{name}_offset"), _time(call, f"{name}_time")
    if offset is not None and time is not None:
        raise Refused(f"{name}_offset and {name}_time are both given; one of them will do", code="bad_query")
    return time if offset is None else int(offset)


def _time(call: Call, name: str) -> str | None:
    """A time as text; digits alone are milliseconds."""
    time = call.query.get(name)
    if time is not None and time.isascii() and time.isdecimal() and len(time) <= _DIGITS_MAX:
        return rfc3339(instant_ms(int(time), name))
    return time


GROUP = Parameter("group", "text", "whose view it is; `default` if not given")
_MESSAGE = "/v1/messages/{id}"

ROUTES = (
    Route(
        "GET",
        "/v1/topics/{topic}/peek",
        peek,
        "read",
        "topic",
        "See what comes next for a group, without a lease",
        gives=MessagesOut,
        query=(GROUP, LIMIT),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/messages",
        scan,
        "read",
        "topic",
        "Read the log by offset or time, page by page",
        gives=MessagesOut,
        query=(
            Parameter("partition", "integer", "of this partition alone"),
            Parameter("start_offset", "integer", "from this offset on"),
            Parameter("start_time", "text", "or from this time on"),
            Parameter("stop_offset", "integer", "up to this offset, without it"),
            Parameter("stop_time", "text", "or up to this time"),
            LIMIT,
            Parameter("include_deleted", "boolean", "also what retention has dropped, as far as the lake has it"),
            Parameter("cursor", "text", "go on where the last answer ended: its `next`, or X-Mqueue-Next"),
            COLUMNS,
        ),
        arrow=("out",),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/offsets",
        offsets,
        "read",
        "topic",
        "Show where each partition begins and ends, and where it stood at a time",
        gives=OffsetsOut,
        query=(Parameter("time", "text", "also show the first offset published at or after this time"),),
    ),
    Route("GET", _MESSAGE, message, "read", "inside", "Get one message", gives=MessageOut),
    Route("GET", f"{_MESSAGE}/trace", trace, "read", "inside", "Get the life of a message", gives=TraceOut),
    Route(
        "GET",
        f"{_MESSAGE}/explain",
        explain,
        "read",
        "inside",
        "Get why a message is not being delivered to a group now",
        gives=ExplanationOut,
        query=(GROUP,),
    ),
)
