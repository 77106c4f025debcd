"""Retention: dropping from the log what its rules allow and nobody is owed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from msgspec.structs import replace

from mqueue.heart.checkpoint import checkpoint
from mqueue.heart.partition import Partition
from mqueue.heart.schedule import NEVER
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.policy.retention import allowed
from mqueue.store.store import Store


def retain(store: Store, topics: Iterable[Topic], now: int) -> int:
    """Drop what may go; how many messages that were."""
    trimmed: list[Topic] = []
    gone = 0
    for topic in topics:
        floors = _floors(store, topic, now)
        if floors != topic.floors:
            gone += sum(floors) - sum(topic.floors)
            store.happen(ev.Trimmed(now, topic.id, floors), now)
            trimmed.append(topic)
        elif store.log.overdue(topic.id):
            trimmed.append(topic)
    if trimmed:  # whoever folds the log later must not miss what is dropped now
        store.flush()
        store.log.checkpoint(checkpoint(store.state, trimmed, now))
        for topic in trimmed:
            store.log.trim(topic.id, topic.floors)
    return gone


def _floors(store: Store, topic: Topic, now: int) -> tuple[int, ...]:
    """How far each partition may be dropped. Who is owed what is looked at only where the rule would drop something."""
    allowed_floors = [_allowed(store, topic, partition, now) for partition in topic.partitions]
    if tuple(allowed_floors) == topic.floors:
        return topic.floors
    leased = [store.heart.lowest_leased(group) for group in topic.groups.values()]
    floors = []
    for partition, floor in zip(topic.partitions, allowed_floors, strict=True):
        lowest = [owed.get(partition.number, NEVER) for owed in leased]
        most = min([floor, _held(topic, partition, now), *lowest]) if floor > partition.floor else floor
        stops = (stop for stop, _, _ in store.log.sizes(topic.id, partition.number))
        floors.append(max(takewhile(most.__ge__, stops), default=partition.floor))
    return tuple(floors)


def _allowed(store: Store, topic: Topic, partition: Partition, now: int) -> int:
    """How far the rule would go."""
    rule = topic.settings.retention
    if not topic.groups:  # nothing is acked while nobody reads
        rule = replace(rule, on_ack=False)
    if topic.groups and store.history_bytes is not None:
        most = store.history_bytes
        rule = replace(rule, bytes=most if rule.bytes is None else min(most, rule.bytes))
    if rule.bytes is not None:
        rule = replace(rule, bytes=rule.bytes // len(topic.partitions))
    size = store.log.size(topic.id, partition.number)
    return allowed(store.log.sizes(topic.id, partition.number), partition.floor, rule, size, now)


def _held(topic: Topic, partition: Partition, now: int) -> int:
    """The first offset that is scheduled, or owed to a group that has been heard of lately."""
    held = min(partition.next, partition.schedule.lowest())
    for group in topic.groups.values():
        if now - group.heard_at <= topic.settings.hold_ms:
            held = min(held, group.readers[partition.number].lowest())
    return held
