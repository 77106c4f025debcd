"""Topics: list, look at, set up, empty, delete."""

from __future__ import annotations

from typing import Any

import msgspec

from mqueue.broker import overview
from mqueue.broker.numbers import TopicStats
from mqueue.model.names import check_name
from mqueue.model.settings import Settings, describe, parse
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import PAGED, page
from mqueue.wire.json_manage import PartitionOut, PartitionsOut, PurgeOut, TopicOut, TopicSettings, TopicsOut

_SETTINGS: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
"""Free names and values: what is wrong with them is told as a bad setting, wherever it was typed."""
_NAMES = frozenset(describe(Settings()))


async def topics(call: Call) -> Answer:
    return as_json(TopicsOut(*page(call, await call.broker.topics())))


async def topic(call: Call) -> Answer:
    return _shown(call, await call.broker.settings(call.topic))


async def configure(call: Call) -> Answer:
    settings = call.parsed(_SETTINGS)
    parse({name: value for name, value in settings.items() if name not in _NAMES})  # raises: these are unknown
    _demand_dlq(call, settings.get("dlq"))
    return _shown(call, await call.broker.configure(call.topic, **settings))


def _demand_dlq(call: Call, named: object) -> None:
    """Whose dead letters lie in a topic looks into it, and puts messages there: so both have to be theirs to manage."""
    if isinstance(named, str):
        call.demand("manage", call.namespace, check_name(named, "topic"))


async def delete(call: Call) -> Answer:
    await call.broker.delete_topic(call.topic)
    return NOTHING


async def purge(call: Call) -> Answer:
    return as_json(PurgeOut(await call.broker.purge(call.topic, ready_for=call.query.get("ready_for"))))


async def stats(call: Call) -> Answer:
    return as_json(await call.broker.stats(call.topic))


async def partitions(call: Call) -> Answer:
    spans = await overview.partitions(call.behind, call.topic)
    return as_json(PartitionsOut([PartitionOut(each.partition, each.start, each.end, each.messages) for each in spans]))


def _shown(call: Call, settings: dict[str, Any]) -> Answer:
    return as_json(TopicOut(call.topic, call.namespace, msgspec.convert(settings, TopicSettings)))


_TOPIC = "/v1/topics/{topic}"

ROUTES = (
    Route("GET", "/v1/topics", topics, "read", "namespace", "List topics", gives=TopicsOut, query=PAGED),
    Route("GET", _TOPIC, topic, "read", "topic", "Show a topic and its settings", gives=TopicOut),
    Route(
        "PUT", _TOPIC, configure, "manage", "topic", "Make a topic, or change it", takes=TopicSettings, gives=TopicOut
    ),
    Route("PATCH", _TOPIC, configure, "manage", "topic", "Change settings", takes=TopicSettings, gives=TopicOut),
    Route("DELETE", _TOPIC, delete, "manage", "topic", "Delete a topic and what is in it", status=204),
    Route(
        "POST",
        f"{_TOPIC}/purge",
        purge,
        "manage",
        "topic",
        "Cancel everything in a topic",
        gives=PurgeOut,
        query=(Parameter("ready_for", "text", "only what this group has before it, and has not leased"),),
    ),
    Route("GET", f"{_TOPIC}/stats", stats, "read", "topic", "Show a topic in numbers", gives=TopicStats),
    Route("GET", f"{_TOPIC}/partitions", partitions, "read", "topic", "List partitions", gives=PartitionsOut),
)
