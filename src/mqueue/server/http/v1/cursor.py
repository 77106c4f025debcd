"""Cursors: places in a topic that retention does not pass, for those who read it by scanning."""

from __future__ import annotations

import msgspec

from mqueue.broker.cursors import Cursor
from mqueue.model.errors import NotFound
from mqueue.model.names import check_name
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.wire.json_manage import CursorIn, CursorOut, CursorsOut
from mqueue.wire.json_out import time_out

_CURSOR = msgspec.json.Decoder(CursorIn)


async def cursors(call: Call) -> Answer:
    return as_json(CursorsOut([_shown(cursor) for cursor in await call.broker.cursors(call.topic)]))


async def cursor(call: Call) -> Answer:
    name = check_name(call.names["name"], "cursor")
    for found in await call.broker.cursors(call.topic):
        if found.name == name:
            return as_json(_shown(found))
    raise NotFound(f"cursor {name!r} is not there on topic {call.topic!r}, or has expired")


async def set_cursor(call: Call) -> Answer:
    wanted = call.parsed(_CURSOR)
    made = await call.broker.set_cursor(call.topic, call.names["name"], wanted.offsets, ttl=wanted.ttl)
    return as_json(_shown(made))


async def delete(call: Call) -> Answer:
    await call.broker.delete_cursor(call.topic, call.names["name"])
    return NOTHING


def _shown(cursor: Cursor) -> CursorOut:
    times = (time_out(at) for at in (cursor.made_at, cursor.set_at, cursor.expires_at))
    return CursorOut(cursor.name, cursor.topic, cursor.offsets, *times)


_CURSORS = "/v1/topics/{topic}/cursors"
_ONE = _CURSORS + "/{name}"

ROUTES = (
    Route("GET", _CURSORS, cursors, "read", "topic", "List cursors", gives=CursorsOut),
    Route("GET", _ONE, cursor, "read", "topic", "Show a cursor", gives=CursorOut),
    Route("PUT", _ONE, set_cursor, "receive", "topic", "Make, move or renew a cursor", takes=CursorIn, gives=CursorOut),
    Route("DELETE", _ONE, delete, "receive", "topic", "Delete a cursor", status=204),
)
