"""The gaps that a trim makes: the offsets of one partition that it drops, as sorted ranges that do not touch.

A trim may drop millions of offsets and keep a few among them, so what it does to lanes is worked out in whole columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]


class Gaps:
    __slots__ = ("_before", "starts", "stops")

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        columns = np.array(list(ranges), np.int64).reshape(-1, 2)
        self.starts: Offsets = columns[:, 0]
        self.stops: Offsets = columns[:, 1]
        self._before: Offsets = np.concatenate(([0], np.cumsum(self.stops - self.starts)))
        """How many offsets lie in the gaps before each one; last, in all of them."""

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self.starts, offset) - 1
        return index >= 0 and offset < self.stops[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts.tolist(), self.stops.tolist(), strict=True)

    @property
    def count(self) -> int:
        return int(self._before[-1])

    def counts(self, starts: Offsets, stops: Offsets) -> Offsets:
        """How many offsets of each range are dropped."""
        return self._below(stops) - self._below(starts)

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are dropped."""
        index = max(0, bisect_right(self.starts, start) - 1)
        while index < len(self.starts) and (first := int(self.starts[index])) < stop:
            first, last = max(first, start), min(int(self.stops[index]), stop)
            if first < last:
                yield first, last
            index += 1

    def rest(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that stay."""
        for first, last in self.within(start, stop):
            if start < first:
                yield start, first
            start = last
        if start < stop:
            yield start, stop

    def mask(self, start: int, stop: int) -> int:
        """What is dropped of [start, stop), bit 0 standing for `start`."""
        found = 0
        for first, last in self.within(start, stop):
            found |= (1 << last - first) - 1 << first - start
        return found

    def _below(self, offsets: Offsets) -> Offsets:
        """How many dropped offsets lie below each of these."""
        if not self:
            return np.zeros_like(offsets)
        index = np.maximum(np.searchsorted(self.starts, offsets, side="right") - 1, 0)
        inside = np.clip(offsets - self.starts[index], 0, self.stops[index] - self.starts[index])
        counts: Offsets = self._before[index] + inside
        return counts
