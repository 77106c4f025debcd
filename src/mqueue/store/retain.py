"""Retention: raising the floor of partitions as far as the rules allow, and keeping below it what somebody needs.

What a group has not read holds the floor back. What is scheduled, leased or given back does not: these few are kept
below the floor until they are done, each in a slice of its frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import dropwhile

from msgspec.structs import replace

from mqueue.heart.checkpoint import checkpoint
from mqueue.heart.marks import Marks
from mqueue.heart.needs import holding, needed, pinned, unread
from mqueue.heart.partition import Partition
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.settings import Retention
from mqueue.policy.retention import REST_MS, allowed, drops, worthwhile
from mqueue.store.compact import compact, late
from mqueue.store.store import Store
from mqueue.store.visits import Cut, Visits

_LOOKED_AT_PER_MS = 20
"""So much of what is kept and needed is looked at in a millisecond of the clock, on average."""


def retain(store: Store, topics: Iterable[Topic], now: int) -> int:
    """Drop what may go; how many messages that were."""
    trimmed: list[Topic] = []
    dropped = 0
    for topic in topics:
        event = _trimmed(store, topic, now)
        if event is not None:
            dropped += _retained(topic)
            store.happen(event, now)
            dropped -= _retained(topic)
            trimmed.append(topic)
        elif store.log.overdue(topic.id):
            trimmed.append(topic)
    if trimmed:  # whoever folds the log later must not miss what is dropped now
        store.flush()
        if not store.log.remembers:
            store.log.checkpoint(checkpoint(store.state, trimmed, now, frames_tell=store.log.frames_tell))
        for topic in trimmed:
            store.log.trim(topic.id, topic.floors, [partition.kept.copy() for partition in topic.partitions])
    return dropped


def _trimmed(store: Store, topic: Topic, now: int) -> ev.Trimmed | None:
    """What may be dropped of a topic. Who needs what is looked at only where something could be."""
    visits = store.visits.get(topic.id)
    if visits is not None and now < visits.rests_until:
        return None
    groups = holding(topic, now)
    rule = _rule(store, topic)
    pins = pinned(topic, now)
    lines = []
    for partition, pin in zip(topic.partitions, pins, strict=True):
        line = partition.next if rule.compact else _allowed(store, topic, partition, rule, now)
        held = min(unread(partition, groups), max(pin, partition.floor)) if line > partition.floor else line
        lines.append(min(line, held))
    if tuple(lines) == topic.floors and not any(partition.kept for partition in topic.partitions):
        return None
    needs = needed(store.state, topic, groups, pins, lines)
    visits = store.visits.setdefault(topic.id, Visits())
    cuts = []
    for partition, line, marks in zip(topic.partitions, lines, needs, strict=True):
        if rule.compact:
            cuts.append(compact(store, topic, partition, visits.latest, rule, line, marks, now))
        else:
            visits.latest.clear()
            for start, mask in late(store, topic, partition, rule, line, now):
                marks.add(start, mask)
            cuts.append(_cut(store, topic, partition, rule, line, marks, now))
    looked_at = sum(marks.count for marks in needs)
    if not rule.compact:  # else what is kept is not gone through
        looked_at += sum(partition.kept.count for partition in topic.partitions)
    visits.rests_until = now + looked_at // _LOOKED_AT_PER_MS
    return _event(topic, cuts, now)


def _event(topic: Topic, cuts: list[Cut], now: int) -> ev.Trimmed | None:
    floors = tuple(cut.floor for cut in cuts)
    kept = [(number, a, a + mask.bit_length(), mask) for number, cut in enumerate(cuts) for a, mask in cut.kept]
    gone = [(number, a, a + mask.bit_length(), mask) for number, cut in enumerate(cuts) for a, mask in cut.gone]
    if floors == topic.floors and not gone:
        return None
    return ev.Trimmed(now, topic.id, floors, tuple(kept), tuple(gone))


def _rule(store: Store, topic: Topic) -> Retention:
    """The rule of a topic as it holds for each of its partitions."""
    rule = topic.settings.retention
    if not topic.groups:  # nothing is acked while nobody reads
        rule = replace(rule, on_ack=False)
    if topic.groups and store.history_bytes is not None:
        most = store.history_bytes
        rule = replace(rule, bytes=most if rule.bytes is None else min(most, rule.bytes))
    if rule.bytes is not None:
        rule = replace(rule, bytes=rule.bytes // len(topic.partitions))
    return rule


def _allowed(store: Store, topic: Topic, partition: Partition, rule: Retention, now: int) -> int:
    """How far the rule would go."""
    size = store.log.size(topic.id, partition.number)
    return allowed(_above(store, topic, partition), partition.floor, rule, size, now)


def _above(store: Store, topic: Topic, partition: Partition) -> Iterator[tuple[int, int, int]]:
    """(stop, time of the last message, bytes) of the frames above the floor."""
    sizes = store.log.sizes(topic.id, partition.number)
    return dropwhile(lambda frame: frame[0] <= partition.floor, sizes) if partition.kept else iter(sizes)


def _cut(store: Store, topic: Topic, partition: Partition, rule: Retention, line: int, needs: Marks, now: int) -> Cut:
    """How far the floor of a partition rises, what is kept below it, and what need not be kept any more."""
    gone, size = _done(store, topic, partition, rule, needs, now)
    line = min(line, allowed(_above(store, topic, partition), partition.floor, rule, size, now))
    frames = _survivors(_above(store, topic, partition), partition.floor, line, needs, now)
    floor = worthwhile(frames, partition.floor)
    return Cut(floor, list(needs.within(partition.floor, floor)), gone)


def _done(
    store: Store, topic: Topic, partition: Partition, rule: Retention, needs: Marks, now: int
) -> tuple[list[tuple[int, int]], int]:
    """What is kept below the floor, needed no more and dropped by the rule; how many bytes are left then."""
    size = store.log.size(topic.id, partition.number)
    gone: list[tuple[int, int]] = []
    first = 0
    for stop, at, weight in store.log.sizes(topic.id, partition.number) if partition.kept else ():
        if stop > partition.floor:
            break
        all_of_it = free_of_it = 0
        for start, mask in partition.kept.within(first, stop):
            free = mask & ~needs.mask(start, start + mask.bit_length())
            all_of_it, free_of_it = all_of_it + mask.bit_count(), free_of_it + free.bit_count()
            if free and drops(rule, at, size, now):
                gone.append((start, free))
        if free_of_it and drops(rule, at, size, now):
            size -= weight * free_of_it // all_of_it
        first = stop
    return gone, size


def _survivors(
    frames: Iterable[tuple[int, int, int]], first: int, line: int, needs: Marks, now: int
) -> Iterator[tuple[int, int]]:
    """(stop, how many of its messages are needed) of the frames that may be dropped."""
    for stop, at, _ in frames:
        if stop > line:
            return
        count = sum(mask.bit_count() for _, mask in needs.within(first, stop))
        if count and at > now - REST_MS:
            return
        yield stop, count
        first = stop


def _retained(topic: Topic) -> int:
    return sum(partition.retained for partition in topic.partitions)
