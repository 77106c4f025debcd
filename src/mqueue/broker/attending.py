"""Consuming as a member of an assigned group, inside this process.

It holds no message but those that its user has in hand, so a partition that is to move never waits for what lies in a
buffer. The heart keeps the member alive as long as this process has the consumer. One that was given an id of its own
does not leave at the end: who comes back with it within the session has the same partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from mqueue.broker import deliver
from mqueue.broker.consume import Source
from mqueue.broker.engine import Departed, Engine
from mqueue.heart.crew import Seat
from mqueue.heart.topic import Topic
from mqueue.model.errors import Refused
from mqueue.model.names import check_name
from mqueue.model.times import Duration
from mqueue.store import membership
from mqueue.store.store import known_group

if TYPE_CHECKING:
    from mqueue.broker.broker import Broker
    from mqueue.broker.message import Message

M = TypeVar("M")


class MemberSource(Source[M]):
    """`look` leases for a seat. It joins when it is first asked for messages, and again if it was taken for dead."""

    def __init__(
        self,
        engine: Engine,
        topic: Callable[[int], Topic],
        group: str,
        member: str | None,
        consumer: str,
        look: Callable[[int, int, Seat], list[M]],
    ) -> None:
        super().__init__(engine, lambda now: [topic(now)], self._taken)
        self._topic = topic
        self._group = check_name(group, "group")
        self._id = None if member is None else check_name(member, "member")
        self._consumer = consumer
        self._leased = look
        self._departed: Departed | None = None

    def give_back(self) -> None:
        if self._departed is not None:
            self._engine.abandoned.append(self._departed)
        super().give_back()

    def _taken(self, limit: int, now: int) -> list[M]:
        topic = self._topic(now)
        if self._departed is None or self._departed.topic is not topic:
            member = membership.join(self._engine.store, topic, self._group, self._id, self._consumer, now)
            member.kept = True
            seat = member.id, member.generation
            group = known_group(topic, self._group)
            self._departed = Departed(topic, group, seat, leaves=self._id is None)
            self._engine.wake_written()
        return self._leased(1, now, self._departed.seat)


def member_source(
    broker: Broker, topic: str, group: str, visibility: Duration | None, member: str | None
) -> MemberSource[Message]:
    visibility_ms = None if visibility is None else deliver.visibility_ms(visibility)
    engine, namespace = broker._engine, broker._namespace

    def look(limit: int, now: int, seat: Seat) -> list[Message]:
        return broker._look(topic, group, limit, visibility_ms, "at_least_once", now, seat)

    return MemberSource(engine, lambda now: engine.topic(namespace, topic, now), group, member, broker._name, look)


def check_assigned(topic: object, assigned: bool, member: str | None) -> None:
    if member is not None and not assigned:
        raise Refused(
            f"member {member!r:.80}; it takes assigned=True: a shared group has no members", code="bad_member"
        )
    if assigned and not isinstance(topic, str):
        raise Refused(f"topic {topic!r:.80}; a member of an assigned group consumes one topic", code="bad_member")
