"""Assigned groups as users see them: to join one, to be heard of, to leave it, and to look at its members."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from mqueue.broker.engine import Bench, Engine
from mqueue.heart.crew import Crew, Seat
from mqueue.heart.group import Group
from mqueue.heart.topic import Topic
from mqueue.model.errors import Refused
from mqueue.model.limits import MEMBER_HEARTBEAT_MS, MEMBER_SESSION_MS, PARTITIONS_MAX
from mqueue.model.names import check_name
from mqueue.model.times import to_datetime
from mqueue.store import membership
from mqueue.store.store import known_group


def _none() -> tuple[int, ...]:
    """No partitions. A default as such would be a tuple in the OpenAPI document, where JSON has lists."""
    return ()


class Membership(Struct, frozen=True):
    """A place in an assigned group: hand it in with `receive`, `heartbeat` and `leave`.

    `partitions`: those it gets messages of; `revoked`: those it is to let go of, once what it holds of them is settled.
    `generation`: another one that joins with the same id has a higher one, and this is refused from then on.
    `version` rises whenever partitions of the group move. Heartbeats are due every `heartbeat_seconds`; who is not
    heard of for `session_seconds` is dead.
    """

    topic: str
    group: str
    member: str
    generation: int
    partitions: tuple[int, ...] = field(default_factory=_none)
    revoked: tuple[int, ...] = field(default_factory=_none)
    version: int = 0
    heartbeat_seconds: float = MEMBER_HEARTBEAT_MS / 1000
    session_seconds: float = MEMBER_SESSION_MS / 1000

    @property
    def seat(self) -> Seat:
        return self.member, self.generation


class MemberStats(Struct, frozen=True):
    member: str
    generation: int
    consumer: str
    joined_at: datetime
    heard_at: datetime
    partitions: tuple[int, ...]
    revoked: tuple[int, ...]


class PartitionLag(Struct, frozen=True):
    """What a group has still to do in one partition. `member`: who has it; `moving_to`: who is to get it, if it moves.

    `end`: the offset that comes next in the log.
    """

    partition: int
    member: str
    moving_to: str
    ready: int
    waiting: int
    leased: int
    end: int

    @property
    def lag(self) -> int:
        return self.ready + self.waiting + self.leased


class RebalanceStats(Struct, frozen=True):
    """`moved`: partitions that changed hands; `seconds`: until the last of them was handed on, None: it is not over.

    `paused_seconds`: for how long the one that took longest got no deliveries.
    """

    number: int
    at: datetime
    reason: str
    members: int
    moved: int
    seconds: float | None
    paused_seconds: float


class GroupMembers(Struct, frozen=True):
    """Who is in a group, who has which partition, and how that came about. A shared group has no members."""

    topic: str
    group: str
    assigned: bool
    members: list[MemberStats]
    partitions: list[PartitionLag]
    rebalances: int
    history: list[RebalanceStats]
    """The last ones, oldest first."""


def join(engine: Engine, namespace: str, name: str, group: str, member: str | None, consumer: str) -> Membership:
    check_name(group, "group")
    if member is not None:
        check_name(member, "member")
    with engine.lock:
        now = engine.tick()
        topic = engine.topic(namespace, name, now)
        joined = membership.join(engine.store, topic, group, member, consumer, now)
        engine.wake_written()
        return shown(topic, topic.groups[group], (joined.id, joined.generation))


def leave(engine: Engine, namespace: str, held: Membership) -> None:
    check(held)
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, held.topic)
        membership.leave(engine.store, topic, known_group(topic, held.group), held.seat, now)
        engine.wake_written()


class Beat:
    """One heartbeat: it is heard at once, and told of once something has changed, or its time is up."""

    def __init__(self, engine: Engine, namespace: str, held: Membership, released: Collection[int]) -> None:
        self._engine = engine
        self._namespace = namespace
        self._held = check(held)
        self._released = check_partitions(released)
        self.seen = held

    def look(self, now: int) -> list[Membership]:
        topic = self._topic()
        group = known_group(topic, self._held.group)
        membership.hear(self._engine.store, topic, group, self._held.seat, self._released, now)
        self._engine.wake_written()
        self.seen = shown(topic, group, self._held.seat)
        return [self.seen] if self.seen.version != self._held.version else []

    def benches(self, now: int) -> Sequence[Bench]:
        return [Bench(~self._topic().id)]

    def told(self, found: list[Membership]) -> Membership:
        return self.seen

    def _topic(self) -> Topic:
        return self._engine.known_topic(self._namespace, self._held.topic)


def members(engine: Engine, namespace: str, name: str, group: str) -> GroupMembers:
    with engine.lock:
        now = engine.tick()
        topic = engine.known_topic(namespace, name)
        return view(engine, topic, known_group(topic, check_name(group, "group")), now)


def check(held: Membership) -> Membership:
    if not isinstance(held, Membership):
        raise Refused(f"member {held!r:.80}; it takes what join answered", code="bad_member")
    return held


def check_partitions(numbers: Any) -> frozenset[int]:
    known = isinstance(numbers, Collection) and all(type(n) is int and 0 <= n < PARTITIONS_MAX for n in numbers)
    if not known:
        raise Refused(f"released {numbers!r:.80}; it takes numbers of partitions", code="bad_partition")
    return frozenset(numbers)


def seat_of(topic: object, group: str, held: Membership | None) -> tuple[str, Seat | None]:
    """The group and the seat that a receive is for."""
    if held is None:
        return group, None
    check(held)
    if topic != held.topic or group not in ("default", held.group):
        raise Refused(
            f"topic {topic!r:.80}, group {group!r:.80}; this member joined topic {held.topic!r}, group {held.group!r}",
            code="bad_member",
        )
    return held.group, held.seat


def shown(topic: Topic, group: Group, seat: Seat) -> Membership:
    crew = group.crew
    assert crew is not None
    member, generation = seat
    held, revoked = crew.seats_of(member), crew.revoked_of(member)
    return Membership(topic.name, group.name, member, generation, held, revoked, crew.version)


def view(engine: Engine, topic: Topic, group: Group, now: int) -> GroupMembers:
    crew = group.crew or Crew(len(topic.partitions))
    leased = [0] * len(topic.partitions)
    for partition, count in engine.store.state.held(group):
        leased[partition] += count
    members = [
        MemberStats(
            one.id,
            one.generation,
            one.consumer,
            to_datetime(one.joined_at),
            to_datetime(now if one.kept else one.heard_at),
            crew.seats_of(one.id),
            crew.revoked_of(one.id),
        )
        for one in crew.members.values()
    ]
    lags = [
        PartitionLag(
            number,
            crew.owners[number],
            crew.targets[number] if number in crew.moving else "",
            reader.ready,
            reader.waiting,
            leased[number],
            reader.partition.next,
        )
        for number, reader in enumerate(group.readers)
    ]
    history = [
        RebalanceStats(
            one.number,
            to_datetime(one.at),
            one.reason,
            one.members,
            one.moved,
            (one.ended_at - one.at) / 1000 if one.ended_at else None,
            one.paused_ms / 1000,
        )
        for one in crew.history
    ]
    return GroupMembers(topic.name, group.name, group.crew is not None, members, lags, crew.rebalances, history)
