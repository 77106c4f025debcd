"""Assigned groups of a server, from afar: join, be heard of, leave, look at the members.

An id is made here if none is given: so a join whose answer was lost is repeated by the same member.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from mqueue.broker.deliver import wait_ms
from mqueue.broker.members import GroupMembers, Membership, check, check_partitions
from mqueue.client.manage import group_path
from mqueue.client.window import Window
from mqueue.model.names import check_name
from mqueue.model.times import Duration
from mqueue.wire.json_manage import HeartbeatIn, JoinIn, LeaveIn


def made_id() -> str:
    return f"member-{uuid4().hex[:16]}"


async def join(window: Window, topic: str, group: str, member: str | None) -> Membership:
    id = made_id() if member is None else check_name(member, "member")
    return await window.ask(Membership, "POST", group_path(topic, group, "join"), JoinIn(id), repeatable=True)


async def heartbeat(window: Window, held: Membership, released: Collection[int], wait: Duration | None) -> Membership:
    check(held)
    lasting = wait_ms(wait)
    told = HeartbeatIn(
        held.member,
        held.generation,
        held.version,
        sorted(check_partitions(released)),
        f"{lasting}ms" if lasting else None,
    )
    path = group_path(held.topic, held.group, "heartbeat")
    return await window.ask(Membership, "POST", path, told, repeatable=True, wait_ms=lasting)


async def leave(window: Window, held: Membership) -> None:
    check(held)
    path = group_path(held.topic, held.group, "leave")
    await window.tell("POST", path, LeaveIn(held.member, held.generation))


async def leave_last(window: Window, held: Membership) -> None:
    """One try, also while the line is being closed."""
    path = group_path(held.topic, held.group, "leave")
    request = window.request("POST", path, LeaveIn(held.member, held.generation), repeatable=True)
    await window.line.send_last(request)


async def members(window: Window, topic: str, group: str) -> GroupMembers:
    return await window.ask(GroupMembers, "GET", group_path(topic, group, "members"))
