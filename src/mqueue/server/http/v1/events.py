"""What happened to the messages of a range of offsets, page by page, as Arrow."""

from __future__ import annotations

import asyncio

from mqueue.broker import occurrences
from mqueue.broker.commits import disregard
from mqueue.model.errors import Refused
from mqueue.server.http.answer import ARROW, Answer, Headers
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.wire.stream import write_table

_END = 1 << 62


async def events(call: Call) -> Answer:
    """It is read in a thread: a page may have to come from the disk."""
    partition = call.number("partition")
    if partition is None:
        raise Refused("partition is not given; events are read of one partition at a time", code="bad_query")
    return await asyncio.to_thread(
        _page, call, partition, call.number("start_offset", 0), call.number("stop_offset", _END)
    )


def _page(call: Call, partition: int, start: int, stop: int) -> Answer:
    broker = call.behind
    try:
        page = occurrences.page(broker._engine, broker._namespace, call.topic, partition, start, stop)
    finally:
        disregard()  # time passed while it looked; threads that only look would remember it for ever
    headers: Headers = () if page.next is None else (("x-mqueue-next", str(page.next)),)
    return Answer(200, write_table(page.batch), ARROW, headers)


ROUTES = (
    Route(
        "GET",
        "/v1/topics/{topic}/events",
        events,
        "read",
        "topic",
        "Get what happened to the messages of a partition, one row for each event, as Arrow",
        query=(
            Parameter("partition", "integer", "of this partition", required=True),
            Parameter("start_offset", "integer", "from this offset on; to go on, X-Mqueue-Next of the last answer"),
            Parameter("stop_offset", "integer", "up to this offset, without it"),
        ),
        kind=ARROW,
    ),
)
