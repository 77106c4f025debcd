"""The frames of one partition as they lie in a shard: where each begins and when it came, not what is in it.

A few numbers for each frame, in columns: a node may own millions of them. A frame of which retention keeps only some
rows stands here as slices; each knows where the stored frame begins that it is a part of.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from msgspec import Struct

from mqueue.heart.marks import Marks
from mqueue.heart.runs import segments


class Place(Struct, frozen=True, gc=False):
    """One frame, or a slice of one."""

    base: int
    count: int
    id: int
    at: int
    size: int
    origin: int
    """Where the stored frame begins."""

    @property
    def stop(self) -> int:
        return self.base + self.count


class Tape:
    __slots__ = ("at", "bases", "bytes", "counts", "floor", "ids", "kept", "next", "origins", "sizes")

    def __init__(self) -> None:
        self.bases = array("q")
        self.counts = array("q")
        self.ids = array("q")
        self.at = array("q")
        self.sizes = array("q")
        self.origins = array("q")
        self.next = 0
        """Offsets below this are known."""
        self.floor = 0
        self.kept = Marks()
        """What is there below the floor."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.bases)

    def add(self, place: Place) -> None:
        """The next frame."""
        assert not self.bases or place.base >= self.bases[-1] + self.counts[-1], "frames come in order"
        for column, value in zip(self._columns(), _values(place), strict=True):
            column.append(value)
        self.bytes += place.size
        self.next = max(self.next, place.stop)

    def place(self, index: int) -> Place:
        return Place(*(column[index] for column in self._columns()))

    def find(self, offset: int) -> int | None:
        """Which frame holds an offset."""
        index = bisect_right(self.bases, offset) - 1
        return index if index >= 0 and offset < self.bases[index] + self.counts[index] else None

    def touching(self, start: int, stop: int) -> range:
        """The frames that have something of [start, stop)."""
        first = max(0, bisect_right(self.bases, start) - 1)
        if first < len(self.bases) and self.bases[first] + self.counts[first] <= start:
            first += 1
        return range(first, max(first, bisect_left(self.bases, stop)))

    def offset_at(self, at: int) -> int:
        """The first offset that came at a time or later; the end if none did."""
        index = bisect_left(self.at, at)
        return self.bases[index] if index < len(self.bases) else self.next

    def bases_below(self, floor: int) -> list[int]:
        """Where what is kept below a floor begins."""
        return list(self.bases[: bisect_left(self.bases, floor)])

    def weights(self) -> Iterator[tuple[int, int, int]]:
        """(stop, time, bytes) of each, oldest first."""
        for base, count, at, size in zip(self.bases, self.counts, self.at, self.sizes, strict=True):
            yield base + count, at, size

    def trim(self, floor: int, kept: Marks) -> None:
        """Drop what lies below the floor and is not kept."""
        high = bisect_left(self.bases, floor)
        left = [piece for index in range(high) for piece in _slices(self.place(index), kept)]
        rest = [column[high:] for column in self._columns()]
        for column in self._columns():
            del column[:]
        for piece in left:
            for column, value in zip(self._columns(), _values(piece), strict=True):
                column.append(value)
        for column, more in zip(self._columns(), rest, strict=True):
            column.extend(more)
        self.bytes = sum(self.sizes)
        self.floor, self.kept = floor, kept

    def stored_anew(self, floor: int, bases: list[int]) -> None:
        """What lies below a floor is stored in pieces that begin at these offsets; the frames it came from may go."""
        for index in range(bisect_left(self.bases, floor)):
            self.origins[index] = bases[bisect_right(bases, self.bases[index]) - 1]

    def _columns(self) -> tuple[array[int], ...]:
        return self.bases, self.counts, self.ids, self.at, self.sizes, self.origins


def _values(place: Place) -> tuple[int, ...]:
    return place.base, place.count, place.id, place.at, place.size, place.origin


def _slices(place: Place, kept: Marks) -> list[Place]:
    """What is kept of a frame: itself, or slices of it."""
    found = []
    for start, stop in segments(place.base, kept.mask(place.base, place.stop)):
        size = place.size * (stop - start) // place.count
        found.append(Place(start, stop - start, place.id + start - place.base, place.at, size, place.origin))
    return found
