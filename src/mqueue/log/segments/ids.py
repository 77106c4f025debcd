"""Which commit an id is in: a row per commit that holds messages. Ids rise with the log, copies of old frames apart."""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np

from mqueue.log.segments.index import Table


class Ids:
    __slots__ = ("_copies", "_first", "_last", "_position")

    def __init__(self) -> None:
        self._first = array("q")
        self._last = array("q")
        self._position = array("q")
        self._copies: dict[int, tuple[int, int]] = {}
        """First and last id of what was copied, by position."""

    def add(self, first: int, last: int, position: int) -> None:
        """A frame in the commit at a position."""
        if self._position and self._position[-1] == position:
            self._first[-1] = min(first, self._first[-1])
            self._last[-1] = max(last, self._last[-1])
        else:
            self._first.append(first)
            self._last.append(last)
            self._position.append(position)

    def add_copy(self, first: int, last: int, position: int) -> None:
        known = self._copies.get(position, (first, last))
        self._copies[position] = min(first, known[0]), max(last, known[1])

    def load(self, table: Table) -> None:
        """The rows of an index, behind those that are here."""
        originals = table[table["copies"] == 0]
        for column, name in ((self._first, "first"), (self._last, "last"), (self._position, "position")):
            column.frombytes(np.ascontiguousarray(originals[name]).tobytes())
        for row in table[table["copies"] == 1].tolist():
            self.add_copy(row[0], row[1], row[2])

    def places(self, id: int) -> list[int]:
        """The positions of the commits that may hold an id."""
        number = bisect_right(self._first, id) - 1
        found = [self._position[number]] if number >= 0 and id <= self._last[number] else []
        return found + [position for position, (first, last) in self._copies.items() if first <= id <= last]

    @property
    def last(self) -> int:
        """The highest id there is; 0 if there is none."""
        return max([*self._last[-1:], *(last for _, last in self._copies.values())], default=0)

    def forget(self, start: int, stop: int) -> None:
        """A segment went away."""
        positions = np.frombuffer(self._position, np.int64)
        stay = (positions < start) | (positions >= stop)
        if not stay.all():
            for name in ("_first", "_last", "_position"):
                column = np.frombuffer(getattr(self, name), np.int64)[stay]
                setattr(self, name, array("q", column.tobytes()))
        self._copies = {place: ids for place, ids in self._copies.items() if not start <= place < stop}
