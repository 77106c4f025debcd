"""One partition: the lanes, and the state of its *messages* (scheduled, visible, void) that holds for every group.

It knows offsets, priorities and times; it knows neither payloads nor groups.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from mqueue.heart.lanes import Lane
from mqueue.heart.marks import Marks
from mqueue.heart.runs import full, segments, tight
from mqueue.heart.schedule import NEVER, Entry, Schedule

Stretch = tuple[int, int, int, int, int]
"""start, stop, priority, due, expires (0: never) of neighbours that share them"""


class Partition:
    __slots__ = (
        "_times",
        "at",
        "cancelled",
        "due",
        "expired",
        "expired_count",
        "expiry",
        "floor",
        "lanes",
        "next",
        "number",
        "open",
        "order",
        "schedule",
        "scheduled",
        "shape",
        "visible",
        "void",
        "wake_at",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.next = 0
        self.floor = 0
        self.at = 0
        """The newest time seen here; nothing is ever added before it."""
        self.lanes: dict[int, Lane] = {}
        self.order: list[int] = []
        """The priorities that have a lane, most urgent first."""
        self.visible = 0
        """How many messages ever became visible here."""
        self.open = 0
        """How many of them a new group would get: visible, not void, not dropped."""
        self.scheduled = 0
        self.expired_count = 0
        self.cancelled = 0
        self.void = Marks()
        """What ended for everybody: expired or cancelled."""
        self.expired = Marks()
        self.due: dict[int, int] = {}
        """Due times that were changed after the publish; negative once they have come."""
        self._times: dict[int, set[int]] = {}
        """At which times the schedule has an entry for a message that was moved: one for each time will do."""
        self.shape = 0
        """Changes whenever a lane comes or goes."""
        self.schedule = Schedule()
        self.expiry = Schedule()
        self.wake_at = NEVER
        """When the timer set for this partition fires."""

    def append(self, start: int, stop: int, priority: int, at: int) -> None:
        """Messages that are visible at once, appended at `at`."""
        lane = self.lanes.get(priority) or self.lane(priority)
        if lane.stops and lane.stops[-1] == start and lane.at[-1] == at:  # singles of one millisecond: no call for each
            lane.stops[-1] = stop
        else:
            lane.add(start, stop, at)
        self.visible += stop - start
        self.open += stop - start
        self.next = stop
        self.at = at

    def append_stretches(self, stretches: Iterable[Stretch], at: int) -> None:
        """Messages of a frame, in the order of their offsets."""
        for start, stop, priority, due, expires in stretches:
            if due > at:
                self.lane(priority)
                self.schedule.add((due, start, stop, priority, due))
                self.scheduled += stop - start
                self.next = stop
                self.at = at
            else:
                self.append(start, stop, priority, at)
            if expires:
                self.expiry.add((expires, start, stop, priority, max(due, at)))

    def lane(self, priority: int) -> Lane:
        lane = self.lanes.get(priority)
        if lane is None:
            lane = self.lanes[priority] = Lane(priority)
            insort(self.order, priority)
            self.shape += 1
        return lane

    def ripen(self, now: int) -> list[tuple[int, int]]:
        """Make visible what is due; the stretches that were."""
        if now < self.schedule.next_at:
            return []
        shown: list[tuple[int, int]] = []
        for entry in self.schedule.take(now):
            shown += self._show(entry)
        return shown

    def end(self, start: int, mask: int, at: int, cause: str, now: int) -> None:
        """Messages with one order key end for everybody: `cause` is expired or cancelled."""
        count = mask.bit_count()
        self.void.add(start, mask)
        if cause == "expired":
            self.expired.add(start, mask)
            self.expired_count += count
        else:
            self.cancelled += count
        if at <= now:
            self.open -= count
        else:
            self.scheduled -= count

    def purge(self, floor: int) -> None:
        """Everything below `floor` is cancelled."""
        waiting = self.scheduled_in(0, floor)
        gone = self.open_below(floor)
        self.cancelled += gone + waiting
        self.scheduled -= waiting
        self.open -= gone
        self.void.add_range(self.floor, floor)

    def still_due(self, entry: Entry) -> list[tuple[int, int]]:
        """The stretches of a schedule entry that still wait for just this time: not void, not dropped, not moved."""
        when, start, stop, _, _ = entry
        start = max(start, self.floor)
        if start >= stop:
            return []
        mask = full(stop - start) & ~self.void.mask(start, stop)
        for offset in self._moved(start, stop):
            if self.due[offset] != when:
                mask &= ~(1 << offset - start)
        return list(segments(start, mask))

    def lapse(self, now: int) -> list[tuple[int, int, int, int]]:
        """(start, mask, priority, at) of what has run out of time and has not ended yet."""
        lapsed = []
        for _, start, stop, priority, at in self.expiry.take(now):
            start = max(start, self.floor)
            if start >= stop:
                continue
            mask = full(stop - start) & ~self.void.mask(start, stop)
            for offset in self._moved(start, stop):
                bit = 1 << offset - start
                if mask & bit:
                    lapsed.append((offset, 1, priority, abs(self.due[offset])))
                    mask ^= bit
            if mask:
                first, _, bits = tight(start, mask)
                lapsed.append((first, bits, priority, at))
        return lapsed

    @property
    def next_at(self) -> int:
        """Nothing changes here by itself before this time."""
        return min(self.schedule.next_at, self.expiry.next_at)

    def scheduled_in(self, low: int, high: int) -> int:
        """How many messages in [low, high) are scheduled, counted anew."""
        if not self.schedule:
            return 0
        pieces = (piece for entry in self.schedule.entries() for piece in self.still_due(entry))
        return sum(max(0, min(stop, high) - max(start, low)) for start, stop in pieces)

    def reschedule(self, offset: int, priority: int, was: int, due: int) -> None:
        self.due[offset] = due
        times = self._times.setdefault(offset, {was})
        if due not in times:
            times.add(due)
            self.schedule.add((due, offset, offset + 1, priority, due))

    def trim(self, floor: int) -> None:
        """Drop everything below `floor`."""
        self.open -= self.open_below(floor)
        self.floor = floor
        self.void.trim(floor)
        self.expired.trim(floor)
        for offset in [offset for offset in self.due if offset < floor]:
            del self.due[offset]
            self._times.pop(offset, None)
        for lane in list(self.lanes.values()):
            lane.trim(floor)
            if not lane.starts and not self.scheduled:
                del self.lanes[lane.priority]
                self.order.remove(lane.priority)
                self.shape += 1

    def open_below(self, offset: int) -> int:
        """How many open messages lie below an offset."""
        if offset <= self.floor:
            return 0
        return self.open if offset >= self.next else self.count_open(offset)

    def count_open(self, offset: int) -> int:
        """The same, counted anew."""
        total = 0
        for lane in self.lanes.values():
            for start, stop in lane.below(offset):
                start, stop = max(start, self.floor), min(stop, offset)
                if start < stop:
                    total += stop - start - self.void.mask(start, stop).bit_count()
        return total

    def _show(self, entry: Entry) -> list[tuple[int, int]]:
        when, _, _, priority, _ = entry
        shown = self.still_due(entry)
        for start, stop in shown:
            self.lanes[priority].add(start, stop, when)
            self.visible += stop - start
            self.open += stop - start
            self.scheduled -= stop - start
            for offset in self._moved(start, stop):
                self.due[offset] = -when
                del self._times[offset]
        return shown

    def _moved(self, start: int, stop: int) -> list[int]:
        """The offsets in a stretch whose due time was changed."""
        if not self.due:
            return []
        if len(self.due) < stop - start:
            return [offset for offset in self.due if start <= offset < stop]
        return [offset for offset in range(start, stop) if offset in self.due]


def cut(stretches: Iterable[Stretch], low: int, high: int) -> list[Stretch]:
    """What of these stretches lies in [low, high)."""
    return [
        (max(start, low), min(stop, high), priority, due, expires)
        for start, stop, priority, due, expires in stretches
        if start < high and stop > low
    ]
