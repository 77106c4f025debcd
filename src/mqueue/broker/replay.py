"""Reading without disturbing: peek, scan, and moving a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace, merge
from itertools import islice
from typing import Any, TypeVar

from mqueue.broker.deliver import TopicDesk
from mqueue.broker.message import AnyMessage
from mqueue.heart.group import Group, Lease
from mqueue.heart.partition import Partition
from mqueue.heart.reader import Reader
from mqueue.heart.runs import Run, segments
from mqueue.heart.schedule import NEVER
from mqueue.model.errors import BadTime, NotFound, Refused
from mqueue.model.times import Instant, instant
from mqueue.wire.frame import Frame

M = TypeVar("M")
Position = int | Instant
Place = tuple[int, int, int]
"""due, partition, offset: where something stands among what is scheduled"""
_Open = tuple[int, int, int, int, Iterator[tuple[int, int]]]
"""due, offset, where its frame begins and ends, what comes next of the frame"""
_DIGITS_MAX = 19

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


def check_window(start: Position | None, stop: Position | None) -> None:
    """Raise if a scan ends before it begins, both being times: one that is mistyped would look like an empty log."""
    if isinstance(start, int | None) or isinstance(stop, int | None):
        return
    if {start, stop} & {"earliest", "latest"}:
        return
    if instant(start, "start") > instant(stop, "stop"):
        raise BadTime(
            f"start {start!s:.40} lies after stop {stop!s:.40}; a window begins before it ends", code="bad_window"
        )


def starts_of(desk: TopicDesk, to: Position) -> tuple[int, ...]:
    """Where a group stands after a seek: earliest, latest, an offset or a time."""
    ends = desk.topic.ends
    if isinstance(to, int) and to > max(ends):
        raise Refused(
            f"to {to} lies beyond the log: topic {desk.topic.name!r} ends at offset {max(ends)}; it takes 0 to"
            f" {max(ends)}, a time, earliest or latest",
            code="bad_position",
        )
    starts = []
    for known in desk.topic.partitions:
        offset = offset_of(desk, known.number, to, "to")
        starts.append(min(max(offset, known.first), known.next))
    return tuple(starts)


def _upcoming(desk: TopicDesk, group: Group) -> Iterator[tuple[Frame, int]]:
    """The messages that are ready for a group, in delivery order over all partitions."""
    log = desk.engine.store.log
    for _, _, start, number, mask in merge(*map(ready_in, group.readers)):
        for first, stop in segments(start, mask):
            for offset in range(first, stop):
                frame = log.frame(desk.topic.id, number, offset)
                if frame is not None:
                    yield frame, offset - frame.base


def ready_in(reader: Reader) -> Iterator[tuple[int, int, int, int, int]]:
    """(priority, at, start, partition, mask) of what is ready in one partition."""
    for priority, at, start, _, mask in reader.upcoming():
        yield priority, at, start, reader.partition.number, mask


def scan(desk: TopicDesk, pieces: Iterator[tuple[Frame, int, int]], kind: Callable[..., M]) -> Iterator[M]:
    """The messages of some rows of frames."""
    nobody = Group(desk.topic.id, "", [], (), 0)
    for frame, start, stop in pieces:
        for row in range(start, stop):
            yield looked_at(desk, nobody, frame, row, kind)


def scheduled(desk: TopicDesk, limit: int, after: Place | None, kind: Callable[..., M]) -> list[M]:
    """What is scheduled, soonest first, behind a place. Call it with the lock held."""
    unheld = Lease(b"", Group(desk.topic.id, "", [], (), 0), "", (), 0, 0, 0, 0)
    log = desk.engine.store.log
    found: list[M] = []
    for place in scheduled_places(desk, after):
        _, number, offset = place
        if after is not None and place <= after:
            continue
        frame = log.frame(desk.topic.id, number, offset)
        if frame is not None:
            row = offset - frame.base
            found.append(kind(desk, unheld, _SEEN, frame, row, frame.payload_of(row)))
            if len(found) == limit:
                break
    return found


def scheduled_places(desk: TopicDesk, after: Place | None = None) -> Iterator[Place]:
    """Where it lies, soonest first; from about a place on. Call it with the lock held."""
    partitions = desk.topic.partitions
    near = (_pending(partition, _low(partition.number, after)) for partition in partitions)
    far = (_far(desk, partition, _low(partition.number, after)) for partition in partitions if partition.far)
    return merge(*near, *far)


def place_of(after: Any) -> Place | None:
    """Where a page of what is scheduled ended: at a message, or where the text says that came with it."""
    if after is None:
        return None
    if isinstance(after, AnyMessage):
        return instant(after.deliver_at), after.partition, after.offset
    parts = after.split(".") if isinstance(after, str) else []
    numbers = [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) <= _DIGITS_MAX]
    if len(parts) != 3 or len(numbers) != 3:
        raise Refused(
            f"after {after!r:.80}; it takes the last message of the page before, or what that gave as next",
            code="bad_position",
        )
    return numbers[0], numbers[1], numbers[2]


def place_text(message: AnyMessage) -> str:
    """The place of a message among what is scheduled, as text."""
    return f"{instant(message.deliver_at)}.{message.partition}.{message.offset}"


def _low(partition: int, after: Place | None) -> tuple[int, int]:
    """From which time, and which offset of that time, on a partition has something behind a place."""
    if after is None:
        return 0, 0
    due, number, offset = after
    if partition == number:
        return due, offset
    return (due, 0) if partition > number else (due + 1, 0)


def _pending(partition: Partition, low: tuple[int, int]) -> Iterator[Place]:
    """What is scheduled from a time and an offset on."""
    for entry in partition.schedule.entries(low):
        for start, stop in partition.still_due(entry):
            for offset in range(start if entry[0] > low[0] else max(start, low[1]), stop):
                yield entry[0], partition.number, offset


def _far(desk: TopicDesk, partition: Partition, low: tuple[int, int]) -> Iterator[Place]:
    """The same of what is not loaded: read only as far as somebody wants to know, and not loaded by that, either."""
    still: dict[int, int] = {}
    for due, offset, start, stop in _soonest(desk, partition, low):
        if start not in still:
            still[start] = partition.unmoved(start, stop)
        if still[start] >> offset - start & 1:
            yield due, partition.number, offset


def _soonest(desk: TopicDesk, partition: Partition, low: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """(due, offset) of what frames say that are not loaded, soonest first, and from where to where the frame goes."""
    engine = desk.engine
    open_ones: list[_Open] = []
    for soonest, start, stop, _ in partition.far.near(NEVER):
        while open_ones and open_ones[0][0] < soonest:
            yield _advance(open_ones)
        if partition.unmoved(start, stop):
            rest = engine.dues.of(engine.store.log, desk.topic.id, partition.number, start, stop).since(low)
            for due, offset in islice(rest, 1):
                heappush(open_ones, (due, offset, start, stop, rest))
    while open_ones:
        yield _advance(open_ones)


def _advance(open_ones: list[_Open]) -> tuple[int, int, int, int]:
    """The soonest of all; its frame gives the next one."""
    due, offset, start, stop, rest = open_ones[0]
    for following in islice(rest, 1):
        heapreplace(open_ones, (*following, start, stop, rest))
        break
    else:
        heappop(open_ones)
    return due, offset, start, stop
