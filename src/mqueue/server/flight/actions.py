"""DoAction: what is managed and looked up, by the words of the broker, with the JSON of `/v1`.

A table: an action has a name, the right it takes and where, what its body is, and what it does. The body names topic
and namespace; the rest is as in the body or the query of the route of that name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from mqueue.broker.aio import AsyncBroker
from mqueue.model.errors import NotFound, Refused
from mqueue.model.names import check_name
from mqueue.model.settings import check_values
from mqueue.model.times import instant_ms, to_datetime
from mqueue.server.faces import Footing
from mqueue.server.flight.asked import Asked, parsed, placed
from mqueue.server.flight.door import Caller
from mqueue.server.security.principal import Verb
from mqueue.wire.json import DeadOut, ExplanationOut, MessagesOut, TraceEventOut, TraceOut
from mqueue.wire.json_in import ids_of
from mqueue.wire.json_manage import (
    DeadsOut,
    GroupOut,
    GroupsOut,
    OffsetOut,
    OffsetsOut,
    PurgeOut,
    RedriveOut,
    TopicOut,
    TopicSettings,
    TopicsOut,
)
from mqueue.wire.json_out import message_out, time_out

_ENCODER = msgspec.json.Encoder()
_NOTHING: dict[str, Any] = {}


class Nowhere(Struct, forbid_unknown_fields=True):
    """About a namespace."""

    namespace: str = ""


class Configure(Asked, kw_only=True):
    settings: dict[str, Any]


class Limited(Asked, kw_only=True):
    limit: int = 100


class Peek(Asked, kw_only=True):
    group: str = "default"
    limit: int = 10


class Offsets(Asked, kw_only=True):
    time: str | None = None


class Purge(Asked, kw_only=True):
    ready_for: str | None = None


class Group(Asked, kw_only=True):
    group: str


class CreateGroup(Group, kw_only=True):
    start: int | str = "earliest"
    assigned: bool = False


class Seek(Group, kw_only=True):
    to: int | str


class Redrive(Asked, kw_only=True):
    filter: str | None = None
    limit: int | None = None
    dry_run: bool = False
    rate: float | None = None


class One(Nowhere, kw_only=True):
    """A message, by its id."""

    id: str


class Explain(One, kw_only=True):
    group: str = "default"


class Reschedule(One, kw_only=True):
    deliver_at: int | str | None = None
    delay: float | str | None = None


class Action(Struct, frozen=True):
    name: str
    verb: Verb
    takes: type[Any]
    do: Callable[[AsyncBroker, Any], Awaitable[object]]
    about: str
    changes: bool = False


async def perform(footing: Footing, caller: Caller, name: str, body: bytes) -> bytes:
    """Do what is asked for; the answer as JSON."""
    action = ACTIONS.get(name)
    if action is None:
        raise Refused(f"action {name!r:.80}; there are {', '.join(ACTIONS)}", code="unknown_action")
    asked = parsed(body, action.takes, "body")
    asked.namespace = check_name(asked.namespace or caller.namespace, "namespace")
    broker = footing.broker(asked.namespace)
    topic = await _demand(action, caller, broker, asked)
    answer = await action.do(broker, asked)
    if action.changes:
        caller.changed(name, asked.namespace, topic)
    return _ENCODER.encode(answer)


async def _demand(action: Action, caller: Caller, broker: AsyncBroker, asked: Any) -> str:
    """Raise unless the caller may do that; else the topic that it is about. A setting may name a second one."""
    namespace: str = asked.namespace
    if isinstance(asked, One):
        return await _demand_message(action, caller, broker, asked)
    if not isinstance(asked, Asked):
        caller.demand(action.name, action.verb, namespace)
        return ""
    placed(asked, namespace)
    caller.demand(action.name, action.verb, namespace, asked.topic)
    dlq = asked.settings.get("dlq") if isinstance(asked, Configure) else None
    if isinstance(dlq, str):  # whose dead letters lie in a topic looks into it, and puts messages there
        caller.demand(action.name, action.verb, namespace, check_name(dlq, "topic"))
    return asked.topic


async def _demand_message(action: Action, caller: Caller, broker: AsyncBroker, asked: One) -> str:
    """Who may not is not told whether the message is there."""
    try:
        topic = (await broker.trace(_id(asked))).topic
    except NotFound:
        caller.demand(action.name, action.verb, asked.namespace)
        raise
    if not caller.principal.allows(action.verb, asked.namespace, topic):
        caller.demand(action.name, action.verb, asked.namespace)
    return topic


async def _topics(broker: AsyncBroker, asked: Nowhere) -> object:
    return TopicsOut(sorted(await broker.topics()))


async def _settings(broker: AsyncBroker, asked: Asked) -> object:
    return _shown(asked, await broker.settings(asked.topic))


async def _configure(broker: AsyncBroker, asked: Configure) -> object:
    check_values(asked.settings)  # before they are names of arguments
    return _shown(asked, await broker.configure(asked.topic, **asked.settings))


def _shown(asked: Asked, settings: dict[str, Any]) -> TopicOut:
    return TopicOut(asked.topic, asked.namespace, msgspec.convert(settings, TopicSettings))


async def _delete_topic(broker: AsyncBroker, asked: Asked) -> object:
    await broker.delete_topic(asked.topic)
    return _NOTHING


async def _purge(broker: AsyncBroker, asked: Purge) -> object:
    return PurgeOut(await broker.purge(asked.topic, ready_for=asked.ready_for))


async def _stats(broker: AsyncBroker, asked: Asked) -> object:
    return await broker.stats(asked.topic)


async def _offsets(broker: AsyncBroker, asked: Offsets) -> object:
    found = await broker.offsets(asked.topic, asked.time)
    made_at = found[0].made_at
    told = [OffsetOut(each.partition, each.first, each.next, each.at, each.floor) for each in found]
    return OffsetsOut(told, None if made_at is None else time_out(made_at))


async def _groups(broker: AsyncBroker, asked: Asked) -> object:
    stats = await broker.stats(asked.topic)
    return GroupsOut([GroupOut(name, **asdict(each)) for name, each in stats.groups.items()])


async def _create_group(broker: AsyncBroker, asked: CreateGroup) -> object:
    await broker.create_group(asked.topic, asked.group, start=asked.start, assigned=asked.assigned)
    return _NOTHING


async def _delete_group(broker: AsyncBroker, asked: Group) -> object:
    await broker.delete_group(asked.topic, asked.group)
    return _NOTHING


async def _seek(broker: AsyncBroker, asked: Seek) -> object:
    await broker.seek(asked.topic, group=asked.group, to=asked.to)
    return _NOTHING


async def _peek(broker: AsyncBroker, asked: Peek) -> object:
    found = await broker.peek(asked.topic, asked.limit, group=asked.group)
    return MessagesOut([message_out(message) for message in found])


async def _scheduled(broker: AsyncBroker, asked: Limited) -> object:
    return MessagesOut([message_out(message) for message in await broker.scheduled(asked.topic, asked.limit)])


async def _dead(broker: AsyncBroker, asked: Limited) -> object:
    found = await broker.dlq(asked.topic).messages(asked.limit)
    return DeadsOut([message_out(message, DeadOut) for message in found], len(found))


async def _redrive(broker: AsyncBroker, asked: Redrive) -> object:
    dlq = broker.dlq(asked.topic)
    done = await dlq.redrive(filter=asked.filter, limit=asked.limit, dry_run=asked.dry_run, rate=asked.rate)
    return RedriveOut(done.matched, done.redriven, done.dry_run)


async def _trace(broker: AsyncBroker, asked: One) -> object:
    told = await broker.trace(_id(asked))
    events = [TraceEventOut(time_out(event.time), event.kind, event.detail) for event in told.events]
    latency = None if told.latency is None else round(told.latency.total_seconds() * 1000)
    return TraceOut(str(told.id), told.topic, events, told.attempts, latency, str(told))


async def _explain(broker: AsyncBroker, asked: Explain) -> object:
    told = await broker.explain(_id(asked), group=asked.group)
    until = None if told.until is None else time_out(told.until)
    return ExplanationOut(told.code, told.sentence, until, told.by, told.ahead)


async def _cancel(broker: AsyncBroker, asked: One) -> object:
    await broker.cancel(_id(asked))
    return _NOTHING


async def _reschedule(broker: AsyncBroker, asked: Reschedule) -> object:
    at = asked.deliver_at
    deliver_at = to_datetime(instant_ms(at, "deliver_at")) if isinstance(at, int) else at
    await broker.reschedule(_id(asked), deliver_at=deliver_at, delay=asked.delay)
    return _NOTHING


def _id(asked: One) -> int:
    return ids_of([asked.id])[0]


_TABLE = (
    Action("topics", "read", Nowhere, _topics, "List topics"),
    Action("settings", "read", Asked, _settings, "Show a topic and its settings"),
    Action("configure", "manage", Configure, _configure, "Make a topic, or change its settings", True),
    Action("delete_topic", "manage", Asked, _delete_topic, "Delete a topic and what is in it", True),
    Action("purge", "manage", Purge, _purge, "Cancel everything in a topic", True),
    Action("stats", "read", Asked, _stats, "Show a topic in numbers"),
    Action("offsets", "read", Offsets, _offsets, "Show where each partition begins and ends"),
    Action("groups", "read", Asked, _groups, "List groups, in numbers"),
    Action("create_group", "receive", CreateGroup, _create_group, "Make a group"),
    Action("delete_group", "manage", Group, _delete_group, "Delete a group", True),
    Action("seek", "manage", Seek, _seek, "Move a group", True),
    Action("peek", "read", Peek, _peek, "See what comes next for a group, without a lease"),
    Action("scheduled", "read", Limited, _scheduled, "List what is scheduled, soonest first"),
    Action("dead", "read", Limited, _dead, "List the dead of a topic"),
    Action("redrive", "manage", Redrive, _redrive, "Bring the dead back", True),
    Action("trace", "read", One, _trace, "Get the life of a message"),
    Action("explain", "read", Explain, _explain, "Get why a message is not being delivered to a group now"),
    Action("cancel", "manage", One, _cancel, "Cancel a scheduled message", True),
    Action("reschedule", "manage", Reschedule, _reschedule, "Give a scheduled message another time", True),
)
ACTIONS = {action.name: action for action in _TABLE}
