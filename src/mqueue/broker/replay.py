"""Reading without disturbing: peek, scan, and moving a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, merge
from typing import TypeVar

from mqueue.broker.deliver import TopicDesk
from mqueue.heart.group import Group, Lease
from mqueue.heart.partition import Partition
from mqueue.heart.reader import Reader
from mqueue.heart.runs import Run, segments
from mqueue.heart.schedule import NEVER
from mqueue.log.base import Log
from mqueue.model.errors import NotFound, Refused
from mqueue.model.times import Instant, instant
from mqueue.store.ahead import stretches_in
from mqueue.wire.frame import Frame

M = TypeVar("M")
Position = int | Instant

_SEEN = Run(0, 0, 0, 0, 0, 0, 0, 0)
"""The run of a message that was only looked at: it holds nothing."""


def peek(desk: TopicDesk, group_name: str, limit: int, kind: Callable[..., M], now: int) -> list[M]:
    """What a group would get next; one that is not there starts where the topic says. Call it with the lock held."""
    topic = desk.topic
    starts = topic.firsts if topic.settings.start == "earliest" else topic.ends
    group = topic.groups.get(group_name) or Group(topic.id, group_name, topic.partitions, starts, now)
    found: list[M] = []
    for frame, row in _upcoming(desk, group):
        found.append(looked_at(desk, group, frame, row, kind))
        if len(found) == limit:
            break
    return found


def looked_at(desk: TopicDesk, group: Group, frame: Frame, row: int, kind: Callable[..., M]) -> M:
    """A message that nobody holds; settling it is refused."""
    return kind(desk, Lease(b"", group, "", (), 0, 0, 0, 0), _SEEN, frame, row, frame.rows.payload[row])


def stretches(
    desk: TopicDesk, start: Position | None, stop: Position | None, partition: int | None
) -> list[tuple[int, int, int]]:
    """(partition, first offset, end) of what a scan covers. An int is an offset, anything else a time."""
    topic = desk.topic
    if partition is not None and (type(partition) is not int or not 0 <= partition < len(topic.partitions)):
        raise NotFound(f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}, not {partition!r}")
    found = []
    for number in range(len(topic.partitions)) if partition is None else [partition]:
        known = topic.partitions[number]
        first = known.first if start is None else max(known.first, offset_of(desk, number, start, "start"))
        end = known.next if stop is None else min(known.next, offset_of(desk, number, stop, "stop"))
        found.append((number, first, end))
    return found


def scan_frames(desk: TopicDesk, covered: list[tuple[int, int, int]]) -> Iterator[tuple[Frame, int, int]]:
    """(frame, first row, end row) in log order, partition by partition. The lock is held only to fetch a frame."""
    for number, start, stop in covered:
        while start < stop:
            with desk.engine.lock:
                frame = next(desk.engine.store.log.frames(desk.topic.id, number, start, stop), None)
                if frame is None:
                    break
                end = min(stop, frame.stop)
                if frame.open:  # it is read without the lock
                    desk.engine.store.log.seal(frame)
            yield frame, max(0, start - frame.base), end - frame.base
            start = end


def offset_of(desk: TopicDesk, partition: int, position: Position, name: str) -> int:
    check_position(position, name)
    if isinstance(position, int):
        return position
    if position in ("earliest", "latest"):
        known = desk.topic.partitions[partition]
        return known.first if position == "earliest" else known.next
    return desk.engine.store.log.offset_at(desk.topic.id, partition, instant(position, name))


def check_position(position: Position, name: str) -> None:
    """Raise unless it is an offset, a time, "earliest" or "latest"."""
    if isinstance(position, bool):
        raise Refused(f"{name} {position!r:.80}; it takes an offset or a time", code="bad_position")
    if isinstance(position, int):
        if position < 0:
            raise Refused(f"{name} {position}; an offset is not negative", code="bad_position")
    elif position not in ("earliest", "latest"):
        instant(position, name)


def starts_of(desk: TopicDesk, to: Position) -> tuple[int, ...]:
    """Where a group stands after a seek: earliest, latest, an offset or a time."""
    starts = []
    for known in desk.topic.partitions:
        offset = offset_of(desk, known.number, to, "to")
        starts.append(min(max(offset, known.first), known.next))
    return tuple(starts)


def _upcoming(desk: TopicDesk, group: Group) -> Iterator[tuple[Frame, int]]:
    """The messages that are ready for a group, in delivery order over all partitions."""
    log = desk.engine.store.log
    for _, _, start, number, mask in merge(*map(_keyed, group.readers)):
        for first, stop in segments(start, mask):
            for offset in range(first, stop):
                frame = log.frame(desk.topic.id, number, offset)
                if frame is not None:
                    yield frame, offset - frame.base


def _keyed(reader: Reader) -> Iterator[tuple[int, int, int, int, int]]:
    """(priority, at, start, partition, mask) of what is ready in one partition."""
    for priority, at, start, _, mask in reader.upcoming():
        yield priority, at, start, reader.partition.number, mask


def scan(desk: TopicDesk, pieces: Iterator[tuple[Frame, int, int]], kind: Callable[..., M]) -> Iterator[M]:
    """The messages of some rows of frames."""
    nobody = Group(desk.topic.id, "", [], (), 0)
    for frame, start, stop in pieces:
        for row in range(start, stop):
            yield looked_at(desk, nobody, frame, row, kind)


def scheduled(desk: TopicDesk, limit: int, kind: Callable[..., M], now: int) -> list[M]:
    """What is scheduled, soonest first. Call it with the lock held."""
    nobody = Group(desk.topic.id, "", [], (), 0)
    log = desk.engine.store.log
    found: list[M] = []
    partitions = desk.topic.partitions
    pending = [*map(_pending, partitions), *(_far(log, desk.topic.id, partition) for partition in partitions)]
    for _, number, offset in merge(*pending):
        frame = log.frame(desk.topic.id, number, offset)
        if frame is not None:
            found.append(looked_at(desk, nobody, frame, offset - frame.base, kind))
            if len(found) == limit:
                break
    return found


def _pending(partition: Partition) -> Iterator[tuple[int, int, int]]:
    """(due, partition, offset) of what is scheduled."""
    for entry in partition.schedule.entries():
        for start, stop in partition.still_due(entry):
            for offset in range(start, stop):
                yield entry[0], partition.number, offset


def _far(log: Log, topic: int, partition: Partition) -> Iterator[tuple[int, int, int]]:
    """The same of what is not loaded: read only as far as somebody wants to know, and not loaded by that, either."""
    found: list[tuple[int, int, int]] = []
    for soonest, start, stop, _ in partition.far.near(NEVER):
        while found and found[0][0] < soonest:
            yield heappop(found)
        there = partition.unmoved(start, stop)
        for first, last, _, due, _ in stretches_in(log, topic, partition.number, start, stop) if there else ():
            for piece in segments(first, partition.unmoved(first, last)):
                for offset in range(*piece):
                    heappush(found, (due, partition.number, offset))
    while found:
        yield heappop(found)
