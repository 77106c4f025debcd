"""How many, of what, in which state: statistics of a topic and of the whole broker, as plain numbers."""

from __future__ import annotations

from msgspec import Struct

from mqueue.broker.engine import Engine
from mqueue.heart.group import Group
from mqueue.heart.topic import Topic


class GroupStats(Struct, frozen=True):
    """What became of the messages of one group. A message that the group was to get is in exactly one of these."""

    ready: int
    waiting: int
    leased: int
    acked: int
    dead: int
    expired: int
    cancelled: int
    lapsed: int
    """Dropped by retention before the group had settled them: it had not been heard of for too long."""
    delivered: int
    oldest_ready_seconds: float | None
    assigned: bool = False
    """Whether each partition is for one member; see `members` for who has which."""
    members: int = 0
    rebalances: int = 0
    blocked_keys: int = 0
    """Of an ordered topic: keys that wait for a message which has failed more often than `max_retries` allows."""
    diverted_keys: int = 0
    """Of an ordered topic: keys whose messages go to the dead-letter queue until one of them is redriven."""

    @property
    def depth(self) -> int:
        """What the group has still to do."""
        return self.ready + self.waiting + self.leased


class TopicStats(Struct, frozen=True):
    """A topic in numbers. The states are those of its slowest group; without a group everything visible is ready."""

    topic: str
    published: int
    retained: int
    bytes: int
    partitions: int
    scheduled: int
    depth: int
    ready: int
    waiting: int
    leased: int
    acked: int
    dead: int
    expired: int
    cancelled: int
    oldest_ready_seconds: float | None
    groups: dict[str, GroupStats]


def topic_stats(engine: Engine, topic: Topic, now: int) -> TopicStats:
    groups = {name: group_stats(engine, topic, group, now) for name, group in topic.groups.items()}
    slowest = max(groups.values(), key=lambda group: group.depth, default=None)
    shown = slowest or group_stats(engine, topic, Group(topic.id, "", topic.partitions, topic.firsts, now), now)
    log = engine.store.log
    return TopicStats(
        topic=topic.name,
        published=sum(partition.next for partition in topic.partitions),
        retained=sum(partition.retained for partition in topic.partitions),
        bytes=sum(log.size(topic.id, partition.number) for partition in topic.partitions),
        partitions=len(topic.partitions),
        scheduled=topic.scheduled,
        depth=topic.depth,
        ready=shown.ready,
        waiting=shown.waiting,
        leased=shown.leased,
        acked=shown.acked,
        dead=shown.dead,
        expired=shown.expired if slowest else sum(partition.expired_count for partition in topic.partitions),
        cancelled=shown.cancelled if slowest else sum(partition.cancelled for partition in topic.partitions),
        oldest_ready_seconds=shown.oldest_ready_seconds,
        groups=groups,
    )


def group_stats(engine: Engine, topic: Topic, group: Group, now: int) -> GroupStats:
    fronts = [first for reader in group.readers if (first := reader.oldest_ready()) is not None]
    return GroupStats(
        ready=group.ready,
        waiting=group.waiting,
        leased=group.in_flight,
        acked=group.acked,
        dead=group.dead,
        expired=group.expired,
        cancelled=group.cancelled,
        lapsed=group.lapsed,
        delivered=group.delivered,
        oldest_ready_seconds=(now - min(fronts)) / 1000 if fronts else None,
        assigned=group.crew is not None,
        members=len(group.crew.members) if group.crew is not None else 0,
        rebalances=group.crew.rebalances if group.crew is not None else 0,
        blocked_keys=_blocked(engine, topic, group),
        diverted_keys=len(group.diverted),
    )


def _blocked(engine: Engine, topic: Topic, group: Group) -> int:
    """How many messages are tried again and again; no two of them have the same key."""
    settings = topic.settings
    most = settings.attempts_max
    if not settings.ordered or settings.on_failure != "block" or most is None:
        return 0
    leases = engine.store.state.leases
    parked = (run.count for reader in group.readers for run in reader.parked.values() if run.attempt >= most)
    leased = (run.count for token in group.tokens for run in leases[token].runs if run.attempt > most)
    return sum(parked) + sum(leased)


def metrics(engine: Engine, now: int, namespace: str | None = None) -> dict[str, int]:
    """The whole broker in numbers, or one namespace."""
    everything = engine.store.state.topics
    topics = [topic for (space, _), topic in engine.store.state.names.items() if namespace in (None, space)]
    groups = [group for topic in topics for group in topic.groups.values()]
    return {
        "topics": len(topics),
        "groups": len(groups),
        "leases": sum(
            namespace is None or everything[lease.group.topic].namespace == namespace
            for lease in engine.store.state.leases.values()
        ),
        "published": sum(partition.next for topic in topics for partition in topic.partitions),
        "retained": sum(partition.retained for topic in topics for partition in topic.partitions),
        "scheduled": sum(topic.scheduled for topic in topics),
        "ready": sum(group.ready for group in groups),
        "waiting": sum(group.waiting for group in groups),
        "leased": sum(group.in_flight for group in groups),
        "delivered": sum(group.delivered for group in groups),
        "acked": sum(group.acked for group in groups),
        "dead": sum(group.dead for group in groups),
        "expired": sum(partition.expired_count for topic in topics for partition in topic.partitions),
        "cancelled": sum(partition.cancelled for topic in topics for partition in topic.partitions),
    }
