"""Retention: dropping from the log what its rules allow and nobody is owed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from msgspec.structs import replace

from mqueue.heart.checkpoint import checkpoint
from mqueue.heart.partition import Partition
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.policy.retention import allowed
from mqueue.store.store import Store


def retain(store: Store, topics: Iterable[Topic], now: int) -> int:
    """Drop what may go; how many messages that were."""
    trimmed: dict[int, tuple[int, ...]] = {}
    gone = 0
    for topic in topics:
        floors = tuple(_floor(store, topic, partition, now) for partition in topic.partitions)
        if floors != topic.floors:
            gone += sum(floors) - sum(topic.floors)
            trimmed[topic.id] = floors
            store.happen(ev.Trimmed(now, topic.id, floors), now)
    if trimmed:  # whoever folds the log later must not miss what is dropped now
        store.flush()
        store.log.checkpoint(checkpoint(store.state, now))
        for number, floors in trimmed.items():
            store.log.trim(number, floors)
    return gone


def _floor(store: Store, topic: Topic, partition: Partition, now: int) -> int:
    rule = topic.settings.retention
    if topic.groups and store.history_bytes is not None:
        most = store.history_bytes
        rule = replace(rule, bytes=most if rule.bytes is None else min(most, rule.bytes))
    if rule.bytes is not None:
        rule = replace(rule, bytes=rule.bytes // len(topic.partitions))
    number = partition.number
    size = store.log.size(topic.id, number)
    floor = allowed(store.log.sizes(topic.id, number), partition.floor, rule, size, now)
    if floor == partition.floor:
        return floor
    held = _held(store, topic, partition, now)  # costs a look at everything that is owed: only if it matters
    stops = takewhile(lambda stop: stop <= min(floor, held), (stop for stop, _, _ in store.log.sizes(topic.id, number)))
    return max(stops, default=partition.floor)


def _held(store: Store, topic: Topic, partition: Partition, now: int) -> int:
    """The first offset that is scheduled, or owed to a group that has been heard of lately."""
    held = min(partition.next, partition.schedule.lowest())
    for group in topic.groups.values():
        if now - group.heard_at <= topic.settings.hold_ms:
            held = min(held, group.readers[partition.number].lowest())
            if group.in_flight:
                held = min(held, store.heart.lowest_leased(group, partition.number))
    return held
