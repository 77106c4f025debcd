"""What is scheduled: list it, cancel it, give it another time."""

from __future__ import annotations

import msgspec

from mqueue.broker import overview
from mqueue.broker.replay import place_text
from mqueue.model.errors import NotFound
from mqueue.model.times import instant_ms, to_datetime
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import LIMIT, PREVIEW, fitting, limit_of, preview_of
from mqueue.wire.json import MessagesOut
from mqueue.wire.json_in import ids_of
from mqueue.wire.json_manage import RescheduleIn
from mqueue.wire.json_out import message_out

_RESCHEDULE = msgspec.json.Decoder(RescheduleIn)


async def scheduled(call: Call) -> Answer:
    limit, preview = limit_of(call, 100), preview_of(call)
    found = await call.broker.scheduled(call.topic, limit, after=call.query.get("after"))
    shown = fitting(found, preview)
    following = place_text(shown[-1]) if len(shown) < len(found) or len(found) == limit else None
    return as_json(MessagesOut([message_out(message, preview=preview) for message in shown], following))


async def cancel(call: Call) -> Answer:
    await call.broker.cancel(await _managed(call))
    return NOTHING


async def reschedule(call: Call) -> Answer:
    wanted = call.parsed(_RESCHEDULE)
    at = wanted.deliver_at
    deliver_at = to_datetime(instant_ms(at, "deliver_at")) if isinstance(at, int) else at
    await call.broker.reschedule(await _managed(call), deliver_at=deliver_at, delay=wanted.delay)
    return NOTHING


async def _managed(call: Call) -> int:
    """The id of a message whose topic the caller may manage. Who may not is not told whether it is there."""
    [id] = ids_of([call.names["id"]])
    try:
        topic = await overview.topic_of(call.behind, id)
    except NotFound:
        call.demand("manage", call.namespace)
        raise
    call.demand("manage", call.namespace, topic)
    return id


_MESSAGE = "/v1/messages/{id}"

ROUTES = (
    Route(
        "GET",
        "/v1/topics/{topic}/scheduled",
        scheduled,
        "read",
        "topic",
        "List what is scheduled, soonest first",
        gives=MessagesOut,
        query=(LIMIT, PREVIEW, Parameter("after", "text", "go on behind this place: `next` of the answer before")),
    ),
    Route("DELETE", _MESSAGE, cancel, "manage", "inside", "Cancel a scheduled message", status=204),
    Route(
        "PATCH",
        _MESSAGE,
        reschedule,
        "manage",
        "inside",
        "Give a scheduled message another time",
        takes=RescheduleIn,
        status=204,
    ),
)
