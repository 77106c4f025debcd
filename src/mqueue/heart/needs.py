"""Who still needs what: what retention must neither drop nor pass over.

Messages that are scheduled, leased, or given back are needed, wherever they lie. Messages that a group has not read yet
are needed too, but there may be any number of them: so the floor stays below the first of them. The same goes for what
users' cursors have before them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from mqueue.heart.group import Group
from mqueue.heart.marks import Marks
from mqueue.heart.partition import Partition
from mqueue.heart.runs import full
from mqueue.heart.state import State
from mqueue.heart.topic import Topic
from mqueue.model.limits import FRAME_ROWS_MAX


def holding(topic: Topic, now: int) -> list[Group]:
    """The groups that have been heard of lately: what they owe is held back."""
    return [group for group in topic.groups.values() if now - group.heard_at <= topic.settings.hold_ms]


def unread(partition: Partition, groups: list[Group]) -> int:
    """The first offset above the floor that one of these groups has not read."""
    readers = (group.readers[partition.number] for group in groups)
    return min((reader.unread(partition.floor) for reader in readers), default=partition.next)


def pinned(topic: Topic, now: int) -> list[int]:
    """Of each partition, the first offset that a user's cursor needs; the end if none needs any."""
    alive = [pin.offsets for pin in topic.pins.values() if pin.expires_at > now]
    return [
        min((offsets[number] if number < len(offsets) else 0 for offsets in alive), default=partition.next)
        for number, partition in enumerate(topic.partitions)
    ]


def shown_since(partition: Partition, at: int, line: int) -> Iterator[tuple[int, int]]:
    """(start, mask) of what lies below a line, became visible after `at` and has not ended."""
    for lane in partition.lanes.values():
        for start, stop, _ in lane.runs(bisect_right(lane.at, at), line):
            for first in range(start, min(stop, line), FRAME_ROWS_MAX):
                last = min(stop, line, first + FRAME_ROWS_MAX)
                yield first, full(last - first) & ~partition.void.mask(first, last)


def needed(state: State, topic: Topic, groups: list[Group], pins: list[int], lines: list[int]) -> list[Marks]:
    """What is needed below these lines, one for each partition, of which nothing above the floors is unread or pinned.

    What a lease holds is needed, also if its group has been silent for too long: its consumer may be at work.
    """
    found = [Marks() for _ in topic.partitions]
    for group in topic.groups.values():
        for token in group.tokens:
            for run in state.leases[token].runs:
                found[run.partition].add(run.start, run.mask)
    for group in groups:
        for reader, marks in zip(group.readers, found, strict=True):
            for run in reader.parked.values():
                marks.add(run.start, run.mask)
            for start, stop, _, _ in reader.ahead(reader.partition.floor) if reader.partition.kept else ():
                marks.add_range(start, min(stop, reader.partition.floor))
    for partition, marks, pin in zip(topic.partitions, found, pins, strict=True):
        for start, mask in partition.kept.within(pin, partition.floor) if pin < partition.floor else ():
            marks.add(start, mask)
    for partition, marks, line in zip(topic.partitions, found, lines, strict=True):
        for entry in partition.schedule.below(line):
            for start, stop in partition.still_due(entry):
                marks.add_range(start, stop)
        for start, stop in partition.far.within(0, line):
            marks.add(start, partition.unmoved(start, stop))
    return found
