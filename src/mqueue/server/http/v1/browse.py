"""Leafing through a topic: messages with their states, and how much there is of each priority."""

from __future__ import annotations

import asyncio
from functools import partial

from mqueue.broker import browsing, overview
from mqueue.broker.browsing import BROWSED_MAX, STATES
from mqueue.broker.commits import disregard
from mqueue.broker.deliver import TopicDesk
from mqueue.model.times import rfc3339
from mqueue.server.http.answer import Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import PREVIEW, preview_of
from mqueue.server.http.v1.read import GROUP, bound_of
from mqueue.wire.json_browse import BrowsedOut, BrowseOut, PrioritiesOut, PriorityOut
from mqueue.wire.json_out import headers_out, show_beginning, text_or_base64

_PREVIEW_BYTES = 256


async def browse(call: Call) -> Answer:
    """It is read in a thread: a page may have to come from the disk."""
    preview = preview_of(call, _PREVIEW_BYTES)
    assert preview is not None
    asked = browsing.Asked(
        call.topic,
        call.query.get("group", "default"),
        call.query.get("state", "all"),
        call.number("partition"),
        bound_of(call, "start"),
        call.number("limit", 50),
        call.query.get("cursor", ""),
    )
    return await asyncio.to_thread(_page, call, asked, preview)


async def priorities(call: Call) -> Answer:
    found = await overview.priorities(call.behind, call.topic, call.query.get("group", "default"))
    return as_json(PrioritiesOut([PriorityOut(each.priority, each.ready, each.waiting, each.leased) for each in found]))


def _page(call: Call, asked: browsing.Asked, preview: int) -> Answer:
    try:
        found, following = browsing.browse(call.behind, asked, partial(_shown, preview))
    finally:
        disregard()
    return as_json(BrowseOut(found, following))


def _shown(preview: int, desk: TopicDesk, seen: browsing.Seen) -> BrowsedOut:
    frame, row, body = seen.frame, seen.row, seen.frame.rows
    out = BrowsedOut(
        str(frame.id_of(row)),
        desk.namespace,
        desk.name,
        frame.partition,
        frame.base + row,
        rfc3339(frame.at_of(row)),
        rfc3339(seen.due),
        frame.number("priority", row),
        seen.attempt,
        state=seen.state,
        until=rfc3339(seen.until) if seen.until else None,
        by=seen.by or None,
    )
    show_beginning(out, body.payload[row], preview)
    key = None if body.key is None else body.key[row]
    if key is not None:
        out.key, out.key_base64 = text_or_base64(key)
    headers = None if body.headers is None else body.headers[row]
    if headers:
        out.headers, out.headers_base64 = headers_out(headers)
    expires_at = frame.number("expires_at", row)
    out.expires_at = rfc3339(expires_at) if expires_at else None
    return out


_TOPIC = "/v1/topics/{topic}"

ROUTES = (
    Route(
        "GET",
        f"{_TOPIC}/browse",
        browse,
        "read",
        "topic",
        "Leaf through a topic: messages with their states, newest first",
        gives=BrowseOut,
        query=(
            GROUP,
            Parameter("state", "text", f"one of {', '.join(STATES)}"),
            Parameter("partition", "integer", "of this partition alone"),
            Parameter("start_offset", "integer", "from this offset on, upwards"),
            Parameter("start_time", "text", "or from this time on"),
            Parameter("limit", "integer", f"how many at most, 1 to {BROWSED_MAX}"),
            PREVIEW,
            Parameter("cursor", "text", "go on where the last answer ended: its `next`"),
        ),
    ),
    Route(
        "GET",
        f"{_TOPIC}/priorities",
        priorities,
        "read",
        "topic",
        "Show how much a group has of each priority",
        gives=PrioritiesOut,
        query=(GROUP,),
    ),
)
