"""A canonical view of a heart's state, so that two states can be compared.

Two states are equal when they will behave alike: how runs are cut, what lies in which heap, and which entries of a
schedule have lost their reason does not matter, so it is normalised away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from mqueue.heart.crew import Crew
from mqueue.heart.group import Group, Lease
from mqueue.heart.heart import Heart
from mqueue.heart.lanes import Lane
from mqueue.heart.marks import Marks
from mqueue.heart.partition import Partition
from mqueue.heart.reader import Reader
from mqueue.heart.recent import Recent
from mqueue.heart.runs import Run, each, segments
from mqueue.heart.state import State
from mqueue.heart.topic import Topic

Snapshot: TypeAlias = dict[str, Any]
Fact: TypeAlias = tuple[Any, ...]


def heart_of(state: State) -> Heart:
    """A heart that goes on from a state."""
    heart = Heart()
    heart.state = state
    return heart


def snapshot(state: State, now: int) -> Snapshot:
    return {
        "topics": {topic.id: _topic(topic, now) for topic in state.topics.values()},
        "names": {key: topic.id for key, topic in state.names.items()},
        "staged": {space: {id: topic.id for id, topic in staged.items()} for space, staged in state.staged.items()},
        "ledgers": {space: topic.id for space, topic in state.ledgers.items()},
        "leases": {token: _lease(lease) for token, lease in state.leases.items()},
        "recent": _recent(state.recent),
        "follows": {event.call: event for event in state.follows.events()},
    }


def differences(one: Any, other: Any, path: str = "state") -> Iterator[str]:
    """Where two snapshots differ, in words."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                yield f"{path}[{key!r}] is only in {'the second' if key not in one else 'the first'}"
            else:
                yield from differences(one[key], other[key], f"{path}[{key!r}]")
    elif one != other:
        yield f"{path}: {one!r} != {other!r}"


def _topic(topic: Topic, now: int) -> Snapshot:
    keys = {key for bucket in topic.dedup.buckets for key in bucket.claims}
    return {
        "name": (topic.namespace, topic.name),
        "settings": topic.settings,
        "partitions": {partition.number: _partition(partition) for partition in topic.partitions},
        "groups": {name: _group(group) for name, group in topic.groups.items()},
        "claims": {key: claim for key in keys if (claim := topic.dedup.find(key, topic.settings, now))},
        "generation": topic.generation,
        "pins": topic.pins,
        "schedules": topic.schedules,
        "parts": list(topic.staging.parts.values()) if topic.staging else [],
        "moved": topic.staging.moved if topic.staging else 0,
        "concluded": list(topic.ledger.lines.values()) if topic.ledger else [],
    }


def _partition(partition: Partition) -> Snapshot:
    return {
        "next": partition.next,
        "floor": partition.floor,
        "kept": _marks(partition.kept),
        "visible": partition.visible,
        "open": partition.open,
        "scheduled": partition.scheduled,
        "ended": (partition.expired_count, partition.cancelled),
        "void": _marks(partition.void),
        "expired": _marks(partition.expired),
        "due": {offset: due for offset, due in sorted(partition.due.items()) if offset not in partition.void},
        "lanes": {priority: runs for priority, lane in partition.lanes.items() if (runs := _lane(partition, lane))},
        "to come": sorted(
            {
                (entry[0], offset, entry[3])
                for entry in partition.schedule.entries()
                for start, stop in partition.still_due(entry)
                for offset in range(start, stop)
            }
        ),
        "to expire": sorted(
            {
                (entry[0], offset)
                for entry in partition.expiry.entries()
                for offset in range(entry[1], entry[2])
                if offset not in partition.void and partition.is_alive(offset)
            }
        ),
    }


def _lane(partition: Partition, lane: Lane) -> list[tuple[int, int, Fact]]:
    """What is in a lane and not void. What was dropped must not be there any more."""
    return _merged(
        (offset, (at,))
        for start, stop, at in lane.runs()
        for offset in range(start, stop)
        if offset not in partition.void
    )


def _group(group: Group) -> Snapshot:
    return {
        "readers": {number: _reader(reader) for number, reader in enumerate(group.readers)},
        "counts": {
            name: getattr(group, name)
            for name in ("in_flight", "acked", "dead", "expired", "cancelled", "lapsed", "delivered")
        },
        "diverted": group.diverted,
        "crew": None if group.crew is None else _crew(group.crew),
    }


def _crew(crew: Crew) -> Snapshot:
    """When members were heard of is not written down: whoever takes over gives them their time again."""
    return {
        "numbers": (crew.generation, crew.version, crew.rebalances),
        "members": {id: (one.generation, one.consumer, one.joined_at) for id, one in crew.members.items()},
        "owners": crew.owners,
        "targets": crew.targets,
        "moving": crew.moving,
        "history": list(crew.history),
    }


def _reader(reader: Reader) -> Snapshot:
    void = reader.partition.void
    return {
        "start": reader.start,
        "ready": reader.ready,
        "waiting": reader.waiting,
        "fresh": _merged(
            [
                *(
                    (offset, (priority, at))
                    for start, stop, priority, at in reader.ahead()
                    for offset in range(start, stop)
                    if offset not in void
                ),
                *(
                    (offset, (run.priority, run.at))
                    for run in reader.parked.values()
                    for offset in each(run.start, run.mask)
                    if _is_fresh(run)
                ),
            ]
        ),
        "parked": _merged(
            (offset, (run.attempt, run.until, run.priority, run.at, run.failure))
            for run in reader.parked.values()
            for offset in each(run.start, run.mask)
            if not _is_fresh(run)
        ),
    }


def _is_fresh(run: Run) -> bool:
    """Whether it is all the same if a run is parked or ahead of the cursor: turns draw runs before they are due."""
    return not run.attempt and not run.until and run.failure is None


def _lease(lease: Lease) -> Snapshot:
    return {
        "group": (lease.group.topic, lease.group.name),
        "consumer": lease.consumer,
        "open": lease.open,
        "held": {
            number: _merged(
                (offset, _held(run))
                for run in lease.runs
                if run.partition == number
                for offset in each(run.start, run.mask)
            )
            for number in {run.partition for run in lease.runs if run.mask}
        },
    }


def _held(run: Run) -> Fact:
    return run.attempt, run.until, run.priority, run.at, run.failure


def _recent(recent: Recent) -> Snapshot:
    found: dict[int, list[Any]] = {}
    for generation in (recent._old, recent._young):
        for token, events in generation.items():
            found.setdefault(token, []).extend(events if isinstance(events, list) else [events])
    return {str(token): events for token, events in found.items()}


def _marks(marks: Marks) -> list[tuple[int, int]]:
    stretches = [stretch for start, mask in marks.spans() for stretch in segments(start, mask)]
    return [(start, stop) for start, stop, *_ in _merged((o, ()) for a, b in stretches for o in range(a, b))]


def _merged(facts: Iterable[tuple[int, Fact]]) -> list[tuple[int, int, Fact]]:
    """Neighbouring offsets of which the same is true, as (start, stop, what is true)."""
    runs: list[tuple[int, int, Fact]] = []
    for offset, fact in sorted(facts, key=lambda pair: pair[0]):
        if runs and runs[-1][1] == offset and runs[-1][2] == fact:
            runs[-1] = (runs[-1][0], offset + 1, fact)
        else:
            runs.append((offset, offset + 1, fact))
    return runs
