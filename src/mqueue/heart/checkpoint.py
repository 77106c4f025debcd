"""What frames cannot tell: the part of the state that a log writes down now and then, so that folding starts there.

Lanes are not in it: they are built from the frames that are kept. Cursors are, as order keys, and everything that is
owed out of line: runs given back, leases, ends and moved due times, idempotency keys, users' cursors, transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from msgspec import Struct

from mqueue.heart.bulk import Table, fill
from mqueue.heart.crew import CrewPoint, crew_of, crew_point
from mqueue.heart.dedup import Claim
from mqueue.heart.group import Group, Lease
from mqueue.heart.lates import Key, Late
from mqueue.heart.outlet import OutletPoint, outlet_of, outlet_point
from mqueue.heart.partition import Partition, cut
from mqueue.heart.reader import Reader
from mqueue.heart.runs import Run
from mqueue.heart.staging import veiled_table
from mqueue.heart.state import State
from mqueue.heart.topic import Topic
from mqueue.model.events import Concluded, Event, Followed, Pinned, Planned, Settled, Staged
from mqueue.model.limits import FRAME_ROWS_MAX
from mqueue.model.settings import Settings

E = TypeVar("E", bound=Event)


class PartitionPoint(Struct, frozen=True):
    next: int
    floor: int
    visible: int
    expired_count: int
    cancelled: int
    void: tuple[tuple[int, int], ...]
    expired: tuple[tuple[int, int], ...]
    moved: tuple[tuple[int, int], ...]
    """offset, due time given last"""
    kept: tuple[tuple[int, int], ...] = ()
    """start, mask of what is alive below the floor"""
    upto: Key | None = None
    lates: tuple[Late, ...] = ()


class ReaderPoint(Struct, frozen=True):
    start: int
    cursors: tuple[tuple[int, int, int], ...]
    """priority, at, offset of the first message that is still ahead; none for a lane that is all behind"""
    parked: tuple[Run, ...]


class GroupPoint(Struct, frozen=True):
    name: str
    heard_at: int
    counts: tuple[int, ...]
    readers: tuple[ReaderPoint, ...]
    crew: CrewPoint | None = None
    diverted: tuple[int, ...] = ()


class LeasePoint(Struct, frozen=True):
    token: bytes
    topic: int
    group: str
    consumer: str
    count: int
    runs: tuple[Run, ...]


class TopicPoint(Struct, frozen=True):
    at: int
    id: int
    namespace: str
    name: str
    made_at: int
    settings: Settings
    partitions: tuple[PartitionPoint, ...]
    groups: tuple[GroupPoint, ...]
    claims: tuple[tuple[bytes, Claim], ...]
    leases: tuple[LeasePoint, ...]
    settled: tuple[Settled, ...]
    followed: tuple[Followed, ...] = ()
    pins: tuple[Pinned, ...] = ()
    staged: tuple[Staged, ...] = ()
    moved: int = 0
    concluded: tuple[Concluded, ...] = ()
    schedules: tuple[Planned, ...] = ()
    outlet: OutletPoint | None = None
    generation: int = 0


class Checkpoint(Struct, frozen=True):
    """Some topics, or all. They have nothing to do with each other, so each may have been taken at its own time."""

    topics: tuple[TopicPoint, ...]


def checkpoint(state: State, topics: Iterable[Topic], now: int, *, frames_tell: bool = False) -> Checkpoint:
    """Topics as they are; nothing in it changes when the state goes on.

    `frames_tell`: whoever restores it reads idempotency keys from the frames; only those of dropped ones are in it.
    """
    settled = _by_topic(state.recent.events())
    followed = _by_topic(state.follows.events())
    return Checkpoint(
        tuple(
            _topic_point(state, topic, settled.get(topic.id, []), followed.get(topic.id, []), now, frames_tell)
            for topic in topics
        )
    )


def _by_topic(events: Iterable[E]) -> dict[int, list[E]]:
    found: dict[int, list[E]] = {}
    for event in events:
        found.setdefault(event.topic, []).append(event)
    return found


def restore(
    point: Checkpoint,
    loaded: Callable[[int, int], Table],
    claimed: Callable[[int], Iterable[tuple[bytes, Claim]]],
) -> State:
    """The state at a checkpoint.

    `loaded(topic, partition)` gives what the log has, in order of offsets, `claimed(topic)` what its frames tell of
    idempotency keys.
    """
    state = State()
    for saved in point.topics:
        topic = Topic(saved.id, saved.namespace, saved.name, saved.settings, saved.made_at)
        state.enlist(topic)
        topic.generation = saved.generation
        if saved.outlet is not None:
            topic.outlet = outlet_of(saved.outlet, saved.settings.due_rate)
            for partition in topic.partitions:
                partition.gate = topic.outlet.gate
        for partition, place in zip(topic.partitions, saved.partitions, strict=True):
            rows = loaded(topic.id, partition.number)
            _load_partition(partition, place, rows if topic.staging is None else veiled_table(rows), saved.at)
            state.arm(topic, partition)
        for group in saved.groups:
            topic.groups[group.name] = _load_group(state, topic, group)
        for key, claim in _claims(saved, claimed(topic.id)):
            topic.dedup.add(key, claim, topic.settings)
        for held in saved.leases:
            _load_lease(state, held)
        for known in topic.groups.values():
            if known.crew is not None:
                known.crew.count(state.held(known))
                state.watch(topic, known)
        for event in saved.settled:
            state.recent.add(event)
        for followed in saved.followed:
            state.follows.add(followed)
        for told in (*saved.pins, *saved.staged, *saved.concluded, *saved.schedules):
            state.apply(told)
        if topic.staging is not None:
            topic.staging.moved = saved.moved
    return state


def _claims(saved: TopicPoint, told: Iterable[tuple[bytes, Claim]]) -> list[tuple[bytes, Claim]]:
    """What was claimed by the time of a checkpoint, oldest first."""
    ends = [partition.next for partition in saved.partitions]
    known = [pair for pair in told if pair[1].partition < len(ends) and pair[1].offset < ends[pair[1].partition]]
    return sorted([*saved.claims, *known], key=lambda pair: (pair[1].made_at, pair[1].id)) if known else [*saved.claims]


def _untold(topic: Topic) -> Iterator[tuple[bytes, Claim]]:
    """The claims of messages that retention has dropped."""
    partitions = topic.partitions
    if any(partition.floor for partition in partitions):
        for bucket in topic.dedup.buckets:
            for key, claim in bucket.claims.items():
                partition = partitions[claim.partition]
                if claim.offset < partition.floor and claim.offset not in partition.kept:
                    yield key, claim


def _topic_point(
    state: State, topic: Topic, settled: list[Settled], followed: list[Followed], now: int, frames_tell: bool
) -> TopicPoint:
    groups = topic.groups.values()
    return TopicPoint(
        now,
        topic.id,
        topic.namespace,
        topic.name,
        topic.made_at,
        topic.settings,
        tuple(_partition_point(partition) for partition in topic.partitions),
        tuple(_group_point(group) for group in groups),
        tuple(_untold(topic) if frames_tell else (pair for b in topic.dedup.buckets for pair in b.claims.items())),
        tuple(_lease_point(state.leases[token]) for group in groups for token in group.tokens),
        tuple(settled),
        tuple(followed),
        tuple(topic.pins.values()),
        tuple(topic.staging.parts.values()) if topic.staging else (),
        topic.staging.moved if topic.staging else 0,
        tuple(topic.ledger.lines.values()) if topic.ledger else (),
        tuple(topic.schedules.values()),
        None if topic.outlet is None else outlet_point(topic.outlet),
        topic.generation,
    )


def _partition_point(partition: Partition) -> PartitionPoint:
    return PartitionPoint(
        partition.next,
        partition.floor,
        partition.visible,
        partition.expired_count,
        partition.cancelled,
        tuple(partition.void.spans()),
        tuple(partition.expired.spans()),
        tuple((offset, abs(due)) for offset, due in partition.due.items()),
        tuple(partition.kept.spans()),
        partition.upto,
        tuple(partition.lates),
    )


def _group_point(group: Group) -> GroupPoint:
    return GroupPoint(
        group.name,
        group.heard_at,
        tuple(getattr(group, name) for name in _COUNTS),
        tuple(ReaderPoint(reader.start, tuple(reader.places()), _parked(reader)) for reader in group.readers),
        None if group.crew is None else crew_point(group.crew),
        tuple(group.diverted),
    )


def _parked(reader: Reader) -> tuple[Run, ...]:
    """What was given back; what turns have drawn is put together, whatever its keys, else it were a run for each."""
    if reader.turns is None:
        return _copies(reader.parked.values())
    known = [copy(run) for run in reader.parked.values() if run.attempt or run.until or run.failure]
    drawn: dict[tuple[int, int, int], int] = {}
    for run in reader.parked.values():
        if not (run.attempt or run.until or run.failure):
            block = run.start // FRAME_ROWS_MAX
            mask = run.mask << run.start - block * FRAME_ROWS_MAX
            while mask:
                place = run.priority, run.at, block
                drawn[place] = drawn.get(place, 0) | mask & (1 << FRAME_ROWS_MAX) - 1
                mask >>= FRAME_ROWS_MAX
                block += 1
    number = reader.partition.number
    for (priority, at, block), mask in drawn.items():
        start = block * FRAME_ROWS_MAX
        known.append(Run(number, start, start + FRAME_ROWS_MAX, mask, 0, priority, at, 0).part(mask))
    return tuple(known)


def _lease_point(lease: Lease) -> LeasePoint:
    group = lease.group
    runs = _copies(run for run in lease.runs if run.mask)
    return LeasePoint(lease.token, group.topic, group.name, lease.consumer, lease.count, runs)


def _load_partition(partition: Partition, point: PartitionPoint, loaded: Table, now: int) -> None:
    partition.floor = point.floor
    sets = ((partition.void, point.void), (partition.expired, point.expired), (partition.kept, point.kept))
    for marks, spans in sets:
        for start, mask in spans:
            marks.add(start, mask)
    partition.upto = point.upto
    for due, offset, last_due, last, at in point.lates:
        partition.lates.add((due, offset), (last_due, last), at)
    if point.moved or point.void or point.expired or point.kept:
        _replay(partition, point, loaded, now)
        partition.open = partition.count_open(point.next)
        partition.scheduled = partition.scheduled_in(0, point.next)
    else:
        fill(partition, loaded, point.floor, point.next, now)
    partition.next = point.next
    partition.visible = point.visible
    partition.expired_count, partition.cancelled = point.expired_count, point.cancelled


def _replay(partition: Partition, point: PartitionPoint, loaded: Table, now: int) -> None:
    """Let it happen again, append by append."""
    moved = dict(point.moved)
    partition.restoring = []
    for at, rows in groupby(loaded.tolist(), key=itemgetter(5)):
        alive = cut([tuple(row[:5]) for row in rows], point.floor, point.next, partition.kept)
        if not alive:
            continue  # dropped since then, or not there yet
        partition.ripen(at)
        partition.append_stretches(alive, at)
        for start, stop, priority, due, _ in alive if moved else ():
            for offset in range(start, stop):
                if offset in moved:
                    partition.reschedule(offset, priority, due, moved[offset])
    partition.ripen(now)
    for entry in partition.restoring:
        partition.schedule.add(entry)
    partition.restoring = None


def _load_group(state: State, topic: Topic, point: GroupPoint) -> Group:
    starts = tuple(reader.start for reader in point.readers)
    group = Group(topic.id, point.name, topic.partitions, starts, point.heard_at)
    for name, count in zip(_COUNTS, point.counts, strict=True):
        setattr(group, name, count)
    group.crew = None if point.crew is None else crew_of(point.crew)
    for reader, place in zip(group.readers, point.readers, strict=True):
        reader.put(place.cursors)
        for run in _copies(place.parked):
            state.park(group, run)
    group.diverted.update(point.diverted)
    group.arrange(topic.settings)
    return group


def _load_lease(state: State, point: LeasePoint) -> None:
    group = state.topics[point.topic].groups[point.group]
    runs = _copies(point.runs)
    until = min(run.until for run in runs)
    lease = Lease(point.token, group, point.consumer, runs, until, until, sum(run.count for run in runs), point.count)
    state.leases[lease.token] = lease
    group.tokens.add(lease.token)
    state.timers.set(until, lease)


_COUNTS = ("in_flight", "delivered", "acked", "dead", "expired", "cancelled", "lapsed")


def _copies(runs: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(copy(run) for run in runs)
