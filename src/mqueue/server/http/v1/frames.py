"""The log as packed frames, for readers of much of it: pages of bytes as they lie on the disk."""

from __future__ import annotations

from mqueue.broker import frames as pages
from mqueue.model.errors import Refused
from mqueue.server.http.answer import Answer, Headers
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.wire.packed import FRAMES

_END = 1 << 62


async def frames(call: Call) -> Answer:
    broker, partition = call.behind, call.number("partition")
    if partition is None:
        raise Refused("partition is not given; frames are read of one partition at a time", code="bad_query")
    start, stop = call.number("start_offset", 0), call.number("stop_offset", _END)
    page = await pages.page(broker._engine, broker._namespace, call.topic, partition, start, stop)
    headers: Headers = () if page.next is None else (("x-mqueue-next", str(page.next)),)
    return Answer(200, b"".join(page.pieces), FRAMES, headers)


ROUTES = (
    Route(
        "GET",
        "/v1/topics/{topic}/frames",
        frames,
        "read",
        "topic",
        "Read the log as packed frames, page by page",
        query=(
            Parameter("partition", "integer", "of which partition", required=True),
            Parameter("start_offset", "integer", "from this offset on"),
            Parameter("stop_offset", "integer", "up to this offset, without it"),
        ),
        kind=FRAMES,
    ),
)
