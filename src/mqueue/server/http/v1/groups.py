"""Groups: list, look at, make, move, delete."""

from __future__ import annotations

import msgspec

from mqueue.broker import overview
from mqueue.broker.numbers import GroupStats
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.v1.paging import PAGED, after_of, limit_of
from mqueue.wire.json_manage import GroupIn, GroupOut, GroupsOut, SeekIn

_GROUP = msgspec.json.Decoder(GroupIn)
_SEEK = msgspec.json.Decoder(SeekIn)


async def groups(call: Call) -> Answer:
    limit = limit_of(call)
    found = await overview.groups(call.behind, call.topic, after_of(call), limit + 1)
    more = found[limit - 1][0] if len(found) > limit else None
    return as_json(GroupsOut([_shown(name, stats) for name, stats in found[:limit]], more))


async def group(call: Call) -> Answer:
    name = call.names["group"]
    return as_json(_shown(name, await overview.group(call.behind, call.topic, name)))


async def create(call: Call) -> Answer:
    name = call.names["group"]
    asked = call.parsed(_GROUP)
    await call.broker.create_group(call.topic, name, start=asked.start, assigned=asked.assigned)
    return as_json(_shown(name, await overview.group(call.behind, call.topic, name)), 201)


async def delete(call: Call) -> Answer:
    await call.broker.delete_group(call.topic, call.names["group"])
    return NOTHING


async def seek(call: Call) -> Answer:
    await call.broker.seek(call.topic, group=call.names["group"], to=call.parsed(_SEEK).to)
    return NOTHING


def _shown(name: str, stats: GroupStats) -> GroupOut:
    return GroupOut(name, **msgspec.structs.asdict(stats))


_GROUPS = "/v1/topics/{topic}/groups"
_ONE = _GROUPS + "/{group}"

ROUTES = (
    Route("GET", _GROUPS, groups, "read", "topic", "List groups, in numbers", gives=GroupsOut, query=PAGED),
    Route("GET", _ONE, group, "read", "topic", "Show a group in numbers", gives=GroupOut),
    Route("PUT", _ONE, create, "receive", "topic", "Make a group", takes=GroupIn, gives=GroupOut, status=201),
    Route("DELETE", _ONE, delete, "manage", "topic", "Delete a group", status=204),
    Route("POST", f"{_ONE}/seek", seek, "manage", "topic", "Move a group", takes=SeekIn, status=204),
)
