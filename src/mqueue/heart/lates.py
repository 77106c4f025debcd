"""When messages of one partition became visible that had to wait beyond their due times.

They become visible in the order of (due, offset), many at once. So a few numbers tell it for all that did together:
from which message on, up to which, and when. What no such span covers became visible when it was due.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Key: TypeAlias = tuple[int, int]
"""due time, offset"""
Column: TypeAlias = NDArray[np.int64]
Late: TypeAlias = tuple[int, int, int, int, int]
"""due time and offset of the first, of the last, and when they became visible"""


class Lates:
    __slots__ = ("_at", "_first_due", "_first_offset", "_last_due", "_last_offset")

    def __init__(self) -> None:
        self._first_due = array("q")
        self._first_offset = array("q")
        self._last_due = array("q")
        self._last_offset = array("q")
        self._at = array("q")

    def __len__(self) -> int:
        return len(self._at)

    def __iter__(self) -> Iterator[Late]:
        return zip(self._first_due, self._first_offset, self._last_due, self._last_offset, self._at, strict=True)

    def add(self, first: Key, last: Key, at: int) -> None:
        """All from the one to the other became visible; later ones, later than all before."""
        for column, number in zip(self._columns, (*first, *last, at), strict=True):
            column.append(number)

    def pieces(self, start: int, stop: int, due: int) -> Iterator[tuple[int, int, int]]:
        """(start, stop, when they became visible) of neighbours that were due together and are visible."""
        while start < stop:
            index = self._reaching(due, start)
            if index == len(self._at) or self._first_due[index] > due:
                yield start, stop, due
                return
            first = self._first_offset[index] if self._first_due[index] == due else 0
            if start < first:
                end, at = min(stop, first), due
            else:
                end = stop if self._last_due[index] > due else min(stop, self._last_offset[index] + 1)
                at = self._at[index]
            yield start, end, at
            start = end

    def times(self, due: Column, starts: Column) -> Column:
        """The same for many: when each became visible, by its due time and first offset. None of them is cut by a span:
        see `borders`."""
        if not self:
            return due
        first_due, first, last_due, last, at = (np.array(column, np.int64) for column in self._columns)
        index = ranks(last_due, last, due, starts)
        reached = np.minimum(index, len(at) - 1)
        begun = (first_due[reached] < due) | (first_due[reached] == due) & (first[reached] <= starts)
        return np.where((index < len(at)) & begun, at[reached], due)

    @property
    def borders(self) -> list[Key]:
        """Where spans begin, and where what follows them does."""
        return [key for due, first, last_due, last, _ in self for key in ((due, first), (last_due, last + 1))]

    def forget(self, before: int) -> None:
        """Nothing is left of what became visible before a time."""
        gone = bisect_left(self._at, before)
        if gone:
            for column in self._columns:
                del column[:gone]

    def _reaching(self, due: int, offset: int) -> int:
        """The first span that ends at a message, or behind it."""
        low = bisect_left(self._last_due, due)
        return bisect_left(self._last_offset, offset, low, bisect_right(self._last_due, due, low))

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self._first_due, self._first_offset, self._last_due, self._last_offset, self._at


def ranks(known_due: Column, known: Column, due: Column, offsets: Column) -> Column:
    """For each (due, offset), how many of the known ones sort before it."""
    is_known = np.concatenate((np.ones(len(known), np.int64), np.zeros(len(offsets), np.int64)))
    order = np.lexsort((is_known, np.concatenate((known, offsets)), np.concatenate((known_due, due))))
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(is_known[order])
    return found[len(known) :]
