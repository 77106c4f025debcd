"""Places in topics, as numbers: offsets per topic and partition, ranges of them, and how ranges are shared out.

Everything here is arithmetic: no server, no Spark. As JSON, places have the shape that Spark's Kafka source gives them:

    {"orders": {"0": 23, "1": 7}, "refunds": {"0": 0}}

Two equal places are equal as text, too: Spark compares text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from mqueue.model.errors import BadSetting

Places: TypeAlias = dict[str, dict[int, int]]
"""An offset for each partition, by topic."""

SPLIT_ROWS_MIN = 100_000
"""Fewer rows than these are not worth a second task, unless somebody asks for it."""
TASK_ROWS = 4_000_000
"""Unless somebody says otherwise no task reads more: a failed one costs seconds, not minutes."""


class Range(Struct, frozen=True):
    """Offsets [start, stop) of one partition."""

    topic: str
    partition: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def dumped(places: Places) -> dict[str, dict[str, int]]:
    """As Spark stores it: sorted, so that the same places are the same text."""
    return {topic: {str(p): places[topic][p] for p in sorted(places[topic])} for topic in sorted(places)}


def loaded(stored: Mapping[str, Mapping[str, int]]) -> Places:
    """What `dumped` gave, back from Spark's log."""
    return {topic: {int(p): offset for p, offset in partitions.items()} for topic, partitions in stored.items()}


def parsed(text: str, option: str) -> Places:
    """What a user wrote into an option: JSON of topics, partitions and numbers."""
    shape = f'{option} {text!r:.200}; it takes JSON such as {{"orders": {{"0": 23, "1": -2}}}}'
    try:
        given: Any = msgspec.json.decode(text, type=dict[str, dict[str, int]])
        found = {topic: {int(p): number for p, number in partitions.items()} for topic, partitions in given.items()}
    except (msgspec.DecodeError, ValueError):
        raise BadSetting(shape) from None
    if not found or any(p < 0 for partitions in found.values() for p in partitions):
        raise BadSetting(shape)
    return found


def ranges_between(start: Places, end: Places) -> list[Range]:
    """What lies between, partition by partition; what `start` does not name begins at 0."""
    return [
        Range(topic, partition, start.get(topic, {}).get(partition, 0), stop)
        for topic, partitions in sorted(end.items())
        for partition, stop in sorted(partitions.items())
        if stop > start.get(topic, {}).get(partition, 0)
    ]


# Tasks


def split(ranges: Iterable[Range], cores: int, partitions_min: int | None, records_max: int | None) -> list[Range]:
    """Ranges cut so that there are `partitions_min` of them or a few more, and none is longer than `records_max`.

    Where neither is given, much is cut so that all cores have work, and little is not.
    """
    whole = [each for each in ranges if len(each)]
    if partitions_min is None and records_max is None:
        records_max = TASK_ROWS
        partitions_min = cores if sum(map(len, whole)) >= SPLIT_ROWS_MIN else None
    if records_max is not None:
        whole = [piece for each in whole for piece in _cut(each, -(-len(each) // records_max))]
    if partitions_min is not None and len(whole) < partitions_min:
        whole = [piece for each, parts in _shares(whole, partitions_min) for piece in _cut(each, parts)]
    return whole


def _shares(ranges: list[Range], parts: int) -> list[tuple[Range, int]]:
    """How many parts each range is cut into: by its length, at least one. Short ones stay whole, and count."""
    total = sum(map(len, ranges))
    long = {each for each in ranges if len(each) * parts > total}
    left, rows = parts - (len(ranges) - len(long)), sum(map(len, long))
    return [(each, -(-len(each) * left // rows) if each in long else 1) for each in ranges]


def _cut(range_: Range, parts: int) -> list[Range]:
    """As many pieces, as even as can be; none is empty."""
    parts = min(parts, len(range_))
    edges = [range_.start + len(range_) * n // parts for n in range(parts + 1)]
    return [Range(range_.topic, range_.partition, a, b) for a, b in pairwise(edges)]


# Batches of streams


def rows_between(start: Places, end: Places) -> int:
    return sum(map(len, ranges_between(start, end)))


def admitted(start: Places, end: Places, rows_max: int) -> Places:
    """`end`, drawn nearer so that not more than `rows_max` lie between: each partition by its share of what is there.

    Something always lies between while something is there, or a stream would stand still.
    """
    waiting = {(each.topic, each.partition): len(each) for each in ranges_between(start, end)}
    total = sum(waiting.values())
    if total <= rows_max:
        return end
    taken = {place: rows * rows_max // total for place, rows in waiting.items()}
    rest = rows_max - sum(taken.values())
    for place in sorted(waiting, key=lambda place: (taken[place] - waiting[place], place))[:rest]:
        taken[place] += 1  # what rounding left goes to those with most to read
    return {
        topic: {
            partition: start.get(topic, {}).get(partition, 0) + taken[topic, partition]
            if (topic, partition) in waiting
            else stop
            for partition, stop in partitions.items()
        }
        for topic, partitions in end.items()
    }
