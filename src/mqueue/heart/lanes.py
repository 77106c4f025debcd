"""A lane: the visible offsets of one priority of one partition, in delivery order, shared by all groups.

Kept as runs in three columns. Runs are added at the end only, because what becomes visible later never sorts before
what was visible already; they leave at the front, when retention drops them. So a run's number never changes:
`dropped` + its place in the columns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np


class Lane:
    __slots__ = ("at", "dropped", "priority", "starts", "stops")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.dropped = 0
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

    def number_of(self, at: int, offset: int) -> int:
        """The number of the run that holds the message with this order key, or of the first run behind it."""
        index = bisect_left(self.at, at)
        while index < len(self.at) and self.at[index] == at and self.stops[index] <= offset:
            index += 1
        return self.dropped + index

    def runs(self, number: int = 0) -> Iterator[tuple[int, int, int]]:
        """(start, stop, at) from a run on."""
        for index in range(max(0, number - self.dropped), len(self.starts)):
            yield self.starts[index], self.stops[index], self.at[index]

    def below(self, offset: int) -> Iterator[tuple[int, int]]:
        """(start, stop) of the runs that begin below an offset."""
        for index in np.flatnonzero(np.array(self.starts) < offset):
            yield self.starts[index], self.stops[index]

    def lowest(self, number: int) -> int | None:
        """The lowest offset from a run on."""
        starts = np.array(self.starts[max(0, number - self.dropped) :])
        return int(starts.min()) if len(starts) else None

    def trim(self, floor: int) -> None:
        """Drop the runs at the front that lie below `floor`."""
        gone = 0
        while gone < len(self.stops) and self.stops[gone] <= floor:
            gone += 1
        if gone:
            del self.starts[:gone], self.stops[:gone], self.at[:gone]
            self.dropped += gone
