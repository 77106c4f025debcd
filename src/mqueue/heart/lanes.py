"""A lane: the visible offsets of one priority of one partition, in delivery order, shared by all groups.

Kept as runs in three columns, sorted by (time, offset). Runs are added at the end only, because what becomes visible
later never sorts before what was visible already, so a run's number is its place in the columns. When a trim drops
something from a lane a new one takes its place: whoever had a place in the old one finds it again by its order key.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from mqueue.heart.gaps import Gaps, Offsets


class Lane:
    __slots__ = ("at", "priority", "starts", "stops")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.starts = array("q")
        self.stops = array("q")
        self.at = array("q")

    def add(self, start: int, stop: int, at: int) -> None:
        if self.stops and self.stops[-1] == start and self.at[-1] == at:
            self.stops[-1] = stop
            return
        self.starts.append(start)
        self.stops.append(stop)
        self.at.append(at)

    def fill(self, starts: NDArray[np.int64], stops: NDArray[np.int64], at: NDArray[np.int64]) -> None:
        """Many runs into an empty lane, in their order; neighbours become one."""
        if not len(starts):
            return
        first = np.concatenate(([True], (starts[1:] != stops[:-1]) | (at[1:] != at[:-1])))
        last = np.append(first[1:], True)
        self.starts.frombytes(starts[first].tobytes())
        self.stops.frombytes(stops[last].tobytes())
        self.at.frombytes(at[first].tobytes())

    def number_of(self, at: int, offset: int) -> int:
        """The number of the run that holds the message with this order key, or of the first run behind it."""
        first = bisect_left(self.at, at)
        if first == len(self.at) or self.at[first] > at:
            return first
        return bisect_right(self.stops, offset, first, bisect_right(self.at, at, first))

    def runs(self, number: int = 0, below: int | None = None) -> Iterator[tuple[int, int, int]]:
        """(start, stop, at) from a run on; only those that begin below an offset, if one is given."""
        numbers: Iterable[int] = range(number, len(self.starts))
        if below is not None:
            numbers = (np.flatnonzero(np.array(self.starts[number:]) < below) + number).tolist()
        for index in numbers:
            yield self.starts[index], self.stops[index], self.at[index]

    def lowest(self, number: int, offset: int, floor: int) -> int | None:
        """The lowest offset not below `floor` from a place in a run on."""
        starts, stops = np.array(self.starts[number:]), np.array(self.stops[number:])
        starts[0] = max(starts[0], offset)
        starts = np.maximum(starts, floor)
        there = starts[starts < stops]
        return int(there.min()) if len(there) else None

    def count(self, gaps: Gaps) -> int:
        """How many offsets lie in gaps."""
        return int(gaps.counts(np.array(self.starts, np.int64), np.array(self.stops, np.int64)).sum())

    def dropped(self, gaps: Gaps) -> Iterator[tuple[int, int]]:
        """The pieces that lie in gaps."""
        starts, stops = np.array(self.starts, np.int64), np.array(self.stops, np.int64)
        for index in np.flatnonzero(gaps.counts(starts, stops)).tolist():
            yield from gaps.within(self.starts[index], self.stops[index])

    def without(self, gaps: Gaps) -> Lane:
        """What stays of this lane; itself if that is all."""
        starts, stops = np.array(self.starts, np.int64), np.array(self.stops, np.int64)
        dropped = gaps.counts(starts, stops)
        if not dropped.any():
            return self
        at = np.array(self.at, np.int64)
        lane, done = Lane(self.priority), 0
        for index in np.flatnonzero((dropped > 0) & (dropped < stops - starts)).tolist():
            whole = done + np.flatnonzero(dropped[done:index] == 0)
            lane._extend(starts[whole], stops[whole], at[whole])
            for start, stop in gaps.rest(self.starts[index], self.stops[index]):
                lane.add(start, stop, self.at[index])
            done = index + 1
        whole = done + np.flatnonzero(dropped[done:] == 0)
        lane._extend(starts[whole], stops[whole], at[whole])
        return lane

    def _extend(self, starts: Offsets, stops: Offsets, at: Offsets) -> None:
        for column, more in ((self.starts, starts), (self.stops, stops), (self.at, at)):
            column.frombytes(more.tobytes())
