"""Schedules: messages that are published again and again, by the calendar. They are found by topic and name."""

from __future__ import annotations

import msgspec

from mqueue.broker.aio import AsyncSchedules
from mqueue.broker.schedules import Schedule
from mqueue.model.errors import Refused
from mqueue.model.limits import SCHEDULES_PAGE_MAX
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.receipts import one_receipt
from mqueue.server.security.principal import Verb
from mqueue.wire.json import MessageIn, PublishOut
from mqueue.wire.json_in import draft_of
from mqueue.wire.json_out import headers_out, text_or_base64, time_out
from mqueue.wire.json_schedules import ScheduleChange, ScheduleIn, ScheduleOut, SchedulesOut

_IN = msgspec.json.Decoder(ScheduleIn)
_CHANGE = msgspec.json.Decoder(ScheduleChange)
_PAGE = 100
_NOT_HERE = ("delay", "deliver_at", "idempotency_key", "fairness_key", "topic")
"""What a message cannot have that is published again and again."""


async def schedules(call: Call) -> Answer:
    topic = call.query.get("topic")
    call.demand("read", call.namespace, topic)
    return as_json(page(call, [shown(each) for each in await call.broker.schedules(topic).all()]))


async def schedule(call: Call) -> Answer:
    return as_json(shown(await _found(call, "read").get(call.names["name"])))


async def add(call: Call) -> Answer:
    wanted = call.parsed(_IN)
    call.demand("manage", call.namespace, wanted.topic)
    call.demand("publish", call.namespace, wanted.topic)
    _check(wanted.message)
    draft = draft_of(wanted.message)
    made = await call.broker.schedules(wanted.topic).add(
        draft.payload,
        cron=wanted.cron,
        every=wanted.every,
        tz=wanted.tz,
        name=wanted.name,
        key=draft.key,
        headers=draft.headers,
        priority=draft.priority,
        ttl=draft.ttl,
        misfire=wanted.misfire,
    )
    return as_json(shown(made))


async def change(call: Call) -> Answer:
    found, name, wanted = _found(call, "manage"), call.names["name"], call.parsed(_CHANGE)
    changed = await found.change(
        name, cron=wanted.cron, every=wanted.every, tz=wanted.tz, misfire=wanted.misfire, paused=wanted.paused
    )
    return as_json(shown(changed))


async def delete(call: Call) -> Answer:
    await _found(call, "manage").delete(call.names["name"])
    return NOTHING


async def run(call: Call) -> Answer:
    found = _found(call, "manage")
    call.demand("publish", call.namespace, call.query["topic"])
    return one_receipt(await found.run(call.names["name"]))


def _found(call: Call, verb: Verb) -> AsyncSchedules:
    topic = call.query.get("topic")
    call.demand(verb, call.namespace, topic)
    if not topic:
        raise Refused("a schedule is found by its topic and its name: name the topic in the query", code="no_topic")
    return call.broker.schedules(topic)


def _check(message: MessageIn) -> None:
    for name in _NOT_HERE:
        if getattr(message, name) is not None:
            raise Refused(f"{name} of a message that repeats: it cannot have one", code="bad_schedule")


def page(call: Call, found: list[ScheduleOut], *, more: int = 0) -> SchedulesOut:
    """By topic and name, from behind `after` on; `more`: so many on top of what was asked for."""
    limit = call.number("limit", _PAGE)
    if not 1 <= limit <= SCHEDULES_PAGE_MAX:
        raise Refused(f"limit {limit}; it takes 1 to {SCHEDULES_PAGE_MAX}", code="bad_limit")
    limit += more
    topic, _, name = call.query.get("after", "").partition("/")
    places = {(each.topic, each.name): each for each in found}
    rest = sorted(place for place in places if place > (topic, name))
    following = "/".join(rest[limit - 1]) if len(rest) > limit else None
    return SchedulesOut([places[place] for place in rest[:limit]], following)


def shown(schedule: Schedule) -> ScheduleOut:
    out = ScheduleOut(
        schedule.name,
        schedule.topic,
        schedule.tz,
        schedule.misfire,
        schedule.paused,
        schedule.count,
        time_out(schedule.made_at),
        schedule.priority,
        schedule.cron,
        schedule.every,
        ttl=schedule.ttl,
    )
    out.payload, out.payload_base64 = text_or_base64(schedule.payload)
    if schedule.key is not None:
        out.key, out.key_base64 = text_or_base64(schedule.key)
    if schedule.headers:
        out.headers, out.headers_base64 = headers_out(schedule.headers)
    if schedule.next_at is not None:
        out.next_at = time_out(schedule.next_at)
    if schedule.last_at is not None:
        out.last_at, out.last_id = time_out(schedule.last_at), str(schedule.last_id)
    return out


PATH = "/v1/schedules"
_ONE = PATH + "/{name}"
_TOPIC = Parameter("topic", "text", "the topic it belongs to", required=True)
_LISTED = (
    Parameter("topic", "text", "of this topic alone"),
    Parameter("limit", "integer", f"how many at most, 1 to {SCHEDULES_PAGE_MAX}"),
    Parameter("after", "text", "go on behind this one: `next` of the answer before"),
)

ROUTES = (
    Route("GET", PATH, schedules, "read", "inside", "List schedules", gives=SchedulesOut, query=_LISTED),
    Route("POST", PATH, add, "manage", "inside", "Add a schedule", takes=ScheduleIn, gives=ScheduleOut),
    Route("GET", _ONE, schedule, "read", "inside", "Show a schedule", gives=ScheduleOut, query=(_TOPIC,)),
    Route(
        "PATCH",
        _ONE,
        change,
        "manage",
        "inside",
        "Pause, resume or change a schedule",
        takes=ScheduleChange,
        gives=ScheduleOut,
        query=(_TOPIC,),
    ),
    Route("DELETE", _ONE, delete, "manage", "inside", "Delete a schedule", query=(_TOPIC,), status=204),
    Route("POST", f"{_ONE}/run", run, "manage", "inside", "Publish it once, now", gives=PublishOut, query=(_TOPIC,)),
)
