"""Members of assigned groups, written down: each verb decides with the heart and ends with what happened in the log."""

from __future__ import annotations

from collections.abc import Collection

from mqueue.heart import members
from mqueue.heart.crew import Member, Seat
from mqueue.heart.group import Group
from mqueue.heart.topic import Topic
from mqueue.store.store import Store


def join(store: Store, topic: Topic, group: str, id: str | None, consumer: str, now: int) -> Member:
    """A member of a group, which is made on first use and is assigned from now on. Without an id one is made."""
    name = id or f"member-{store.tokens.take()[8:].hex()}"
    known = store.group(topic, group, now)
    member = members.join(store.heart, topic, known, name, consumer, store.limits.members_max, now)
    store.commit(now)
    return member


def hear(store: Store, topic: Topic, group: Group, seat: Seat, released: Collection[int], now: int) -> Member:
    member = members.hear(store.heart, topic, group, seat, released, now)
    group.heard_at = now
    store.commit(now)
    return member


def leave(store: Store, topic: Topic, group: Group, seat: Seat, now: int) -> None:
    members.leave(store.heart, topic, group, seat, now)
    store.commit(now)


def depart(store: Store, topic: Topic, group: Group, seat: Seat, leaves: bool, now: int) -> None:
    """Nobody in this process stands for a member any more. It leaves; or it has the session to come back."""
    member = group.crew.members.get(seat[0]) if group.crew is not None else None
    if topic.groups.get(group.name) is not group or member is None or member.generation != seat[1]:
        return  # it is none any more
    member.kept = False
    if leaves:
        leave(store, topic, group, seat, now)
    else:
        member.heard_at = now


def dismiss(store: Store, now: int) -> None:
    """The members that consumers of this process stand for leave: those are stopped."""
    for topic in store.state.topics.values():
        for group in topic.groups.values():
            for member in list(group.crew.members.values()) if group.crew is not None else ():
                if member.kept:
                    leave(store, topic, group, (member.id, member.generation), now)
