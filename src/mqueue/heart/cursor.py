"""A place in a lane: how far one group has come in it. It does not know the group, nor what was given back."""

from __future__ import annotations

from mqueue.heart.lanes import Lane


class Cursor:
    """The next message of a lane: the number of its run, and the offset in it (0: at the start of the run).

    At the end of the lane it stays on the last run, because that run may still grow.
    """

    __slots__ = ("lane", "number", "offset")

    def __init__(self, lane: Lane, number: int, offset: int = 0) -> None:
        self.lane = lane
        self.number = number
        self.offset = offset

    @property
    def is_ahead(self) -> bool:
        """Whether the lane goes on here, be it with what has ended meanwhile."""
        stops = self.lane.stops
        return self.number < len(stops) - 1 or (self.number == len(stops) - 1 and self.offset < stops[-1])

    def place(self, at: int, start: int, stop: int) -> int:
        """Where in a stretch with one order key the cursor stands, clamped to it. A lane is sorted by (at, offset)."""
        index = self.number
        if index >= len(self.lane.at) or at < self.lane.at[index]:
            return stop
        if at > self.lane.at[index]:
            return start
        return min(stop, max(start, self.offset, self.lane.starts[index]))

    def follow(self, lane: Lane) -> Cursor:
        """The same place in the lane that took the place of this one's."""
        old, index = self.lane, self.number
        if index >= len(old.at):
            return Cursor(lane, 0)
        return Cursor.at(lane, old.at[index], max(self.offset, old.starts[index]))

    @classmethod
    def at(cls, lane: Lane, at: int, offset: int) -> Cursor:
        """At a message, or at the first one behind its place; at the end if none is."""
        number = lane.number_of(at, offset)
        if number < len(lane.at):
            return cls(lane, number, offset if lane.at[number] == at else 0)
        return cls.at_end(lane)

    @classmethod
    def at_end(cls, lane: Lane) -> Cursor:
        return cls(lane, len(lane.at) - 1, lane.stops[-1]) if lane.at else cls(lane, 0)
