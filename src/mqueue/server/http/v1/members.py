"""Assigned groups: join, be heard of, leave, and look at the members."""

from __future__ import annotations

import msgspec

from mqueue.broker.deliver import wait_ms
from mqueue.broker.members import GroupMembers, Membership
from mqueue.model.names import check_name
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.push import unless_over
from mqueue.server.http.routes import Route
from mqueue.wire.json_manage import HeartbeatIn, JoinIn, LeaveIn

_JOIN = msgspec.json.Decoder(JoinIn)
_HEARTBEAT = msgspec.json.Decoder(HeartbeatIn)
_LEAVE = msgspec.json.Decoder(LeaveIn)


async def join(call: Call) -> Answer:
    return as_json(await call.broker.join(call.topic, group=call.names["group"], member=call.parsed(_JOIN).member))


async def heartbeat(call: Call) -> Answer:
    """Heard of at once. Who wants to wait for news does so in a second step, which ends when the server stops."""
    asked = call.parsed(_HEARTBEAT)
    wait_ms(asked.wait)
    held = _held(call, asked.member, asked.generation, asked.version)
    seen = await call.broker.heartbeat(held, released=asked.released)
    if asked.wait and seen.version == asked.version:
        seen = await unless_over(call, call.broker.heartbeat(held, wait=asked.wait)) or seen
    return as_json(seen)


async def leave(call: Call) -> Answer:
    asked = call.parsed(_LEAVE)
    await call.broker.leave(_held(call, asked.member, asked.generation))
    return NOTHING


async def members(call: Call) -> Answer:
    return as_json(await call.broker.members(call.topic, group=call.names["group"]))


def _held(call: Call, member: str, generation: int, version: int = -1) -> Membership:
    group = check_name(call.names["group"], "group")
    return Membership(call.topic, group, check_name(member, "member"), generation, version=version)


_ONE = "/v1/topics/{topic}/groups/{group}"

ROUTES = (
    Route("GET", f"{_ONE}/members", members, "read", "topic", "Show the members of a group", gives=GroupMembers),
    Route("POST", f"{_ONE}/join", join, "receive", "topic", "Join a group", takes=JoinIn, gives=Membership),
    Route(
        "POST",
        f"{_ONE}/heartbeat",
        heartbeat,
        "receive",
        "topic",
        "Stay a member, and see which partitions are one's own",
        takes=HeartbeatIn,
        gives=Membership,
    ),
    Route("POST", f"{_ONE}/leave", leave, "receive", "topic", "Leave a group", takes=LeaveIn, status=204),
)
