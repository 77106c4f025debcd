"""One partition: the lanes, and the state of its *messages* (scheduled, visible, void) that holds for every group.

It knows offsets, priorities and times; it knows neither payloads nor groups.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator

import numpy as np

from mqueue.heart.far import FAR, NOTHING, Far
from mqueue.heart.gaps import Gaps
from mqueue.heart.lanes import Lane
from mqueue.heart.lates import Column, Key, Lates
from mqueue.heart.marks import Marks
from mqueue.heart.runs import full, segments, tight
from mqueue.heart.schedule import NEVER, Entry, Schedule

Stretch = tuple[int, int, int, int, int]
"""start, stop, priority, due, expires (0: never; FAR: see there) of neighbours that share them"""
Piece = tuple[int, int, int, int]
"""start, stop, priority, due"""


class Partition:
    __slots__ = (
        "_times",
        "at",
        "cancelled",
        "due",
        "expired",
        "expired_count",
        "expiry",
        "far",
        "floor",
        "gate",
        "kept",
        "lanes",
        "lates",
        "next",
        "number",
        "open",
        "order",
        "restoring",
        "schedule",
        "scheduled",
        "shape",
        "upto",
        "visible",
        "void",
        "wake_at",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.next = 0
        self.floor = 0
        self.kept = Marks()
        """What is alive below the floor."""
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
        self.far = NOTHING
        """What is scheduled and not loaded; what of it was moved is in the schedule all the same."""
        self.upto: Key | None = None
        """What was scheduled is visible up to this (due, offset), where an outlet decides; None: when it is due."""
        self.gate = 0
        """Nothing that is scheduled becomes visible before this time."""
        self.lates = Lates()
        self.restoring: list[Entry] | None = None
        """While it is filled from a checkpoint: what is due and has to wait."""
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
                if expires == FAR:
                    self.put_off(start, stop, priority, due)
                else:
                    self._put(start, stop, priority, due)
                self.scheduled += stop - start
                self.next = stop
                self.at = at
            else:
                self.append(start, stop, priority, at)
            if expires > 0:
                self.expiry.add((expires, start, stop, priority, -due if due > at else at))

    def put_off(self, start: int, stop: int, priority: int, due: int) -> None:
        """A frame that is loaded later, before `due`."""
        if self.far is NOTHING:
            self.far = Far()
        self.far.add(start, stop, priority, due)

    def load(self, start: int, stretches: Iterable[Stretch]) -> None:
        """What is in a far frame, or what is left of it, is known now: as if it had been from the beginning."""
        stop = self.far.remove(start)
        whole = self.unmoved(start, stop) == full(stop - start)
        for first, last, priority, due, expires in stretches:
            if whole:  # mostly: no look at each
                self.schedule.add((due, first, last, priority, due))
            else:
                for piece in segments(first, self.unmoved(first, last)):
                    self.schedule.add((due, *piece, priority, due))
            if expires:
                self.expiry.add((expires, first, last, priority, -due))

    def _put(self, start: int, stop: int, priority: int, due: int) -> None:
        """Into the schedule. While it is filled again: to where it became visible, or apart if it still has to wait."""
        if self.restoring is None or self.upto is None:
            self.schedule.add((due, start, stop, priority, due))
            return
        for first, last, time in self.timed(start, stop, due):
            if (due, first) > self.upto:
                self.restoring.append((due, first, last, priority, due))
            else:
                self.schedule.add((time, first, last, priority, due))

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
        assert now < self.far.next_at, "what is far is loaded before its time comes"
        shown: list[tuple[int, int]] = []
        for entry in self.schedule.take(now):
            shown += self._show(entry)
        return shown

    # Where an outlet decides what becomes visible

    def due_at(self, now: int) -> int:
        """When that was due which comes first; what is due later than now may be due later than that, never earlier."""
        while (entry := self.schedule.first(now)) is not None:
            if self.still_due(entry):
                return entry[0]
            self.schedule.shorten(entry[2])
        return self.schedule.next_at

    def take_due(self, at: int, most: int) -> list[Piece]:
        """Take out up to so many messages that are due, the earliest first."""
        taken: list[Piece] = []
        while most > 0 and (entry := self.schedule.first(at)) is not None:
            _, _, stop, priority, due = entry
            alive = self.still_due(entry)
            if alive:
                start, end = alive[0]
                stop = min(end, start + most)
                taken.append((start, stop, priority, due))
                most -= stop - start
            self.schedule.shorten(stop)
        return taken

    def show(self, pieces: list[Piece], at: int, all_due: bool) -> list[tuple[int, int]]:
        """Make visible what was taken out; `all_due`: nothing else is due by then. The stretches."""
        if pieces:
            (first, _, _, due), (_, last, _, last_due) = pieces[0], pieces[-1]
            self.upto = last_due, last - 1
            if due < at:
                self.lates.add((due, first), self.upto, at)
        if all_due:
            self.upto = at, NEVER
        for start, stop, priority, due in sorted(pieces):
            self._reveal(start, stop, priority, at, due)
        return [(start, stop) for start, stop, _, _ in pieces]

    def time_of(self, due: int, offset: int) -> int:
        """The time in the order of a message that was scheduled: when it became visible, or could at the earliest."""
        return due if self.upto is None else next(self.timed(offset, offset + 1, due))[2]

    def timed(self, start: int, stop: int, due: int) -> Iterator[tuple[int, int, int]]:
        """The same of neighbours that were due together: (start, stop, time)."""
        if self.upto is None:
            yield start, stop, due
            return
        last_due, last = self.upto
        shown = stop if due < last_due else start if due > last_due else max(start, min(stop, last + 1))
        yield from self.lates.pieces(start, shown, due)
        if shown < stop:
            yield shown, stop, max(due, self.gate)

    def times(self, due: Column, starts: Column) -> Column:
        """The same of many that were scheduled, none of them only partly visible."""
        assert self.upto is not None
        last_due, last = self.upto
        waits = (due > last_due) | (due == last_due) & (starts > last)
        return np.where(waits, np.maximum(due, self.gate), self.lates.times(due, starts))

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
        for start, mask in self.kept.within(0, floor):
            self.void.add(start, mask)

    def still_due(self, entry: Entry) -> list[tuple[int, int]]:
        """The stretches of a schedule entry that still wait for just this time: not void, not dropped, not moved."""
        _, start, stop, _, due = entry
        mask = self.alive(start, stop) & ~self.void.mask(start, stop)
        if not mask:
            return []
        for offset in self._moved(start, stop):
            if self.due[offset] != due:
                mask &= ~(1 << offset - start)
        return list(segments(start, mask))

    def lapse(self, now: int) -> list[tuple[int, int, int, int]]:
        """(start, mask, priority, at) of what has run out of time and has not ended yet."""
        lapsed = []
        for _, start, stop, priority, at in self.expiry.take(now):
            mask = self.alive(start, stop) & ~self.void.mask(start, stop)
            for offset in self._moved(start, stop):
                bit = 1 << offset - start
                if mask & bit:
                    lapsed.append((offset, 1, priority, self.time_of(abs(self.due[offset]), offset)))
                    mask ^= bit
            for begin, end, time in self.timed(start, stop, -at) if at < 0 else ((start, stop, at),):
                piece = mask >> begin - start & full(end - begin)
                if piece:
                    first, _, bits = tight(begin, piece)
                    lapsed.append((first, bits, priority, time))
        return lapsed

    @property
    def next_at(self) -> int:
        """Nothing changes here by itself before this time."""
        return min(max(self.schedule.next_at, self.gate), self.expiry.next_at, self.far.next_at)

    def scheduled_in(self, low: int, high: int) -> int:
        """How many messages in [low, high) are scheduled, counted anew."""
        if not self.schedule and not self.far:
            return 0
        pieces = (piece for entry in self.schedule.entries() for piece in self.still_due(entry))
        loaded = sum(max(0, min(stop, high) - max(start, low)) for start, stop in pieces)
        return loaded + sum(self.unmoved(start, stop).bit_count() for start, stop in self.far.within(low, high))

    def unmoved(self, start: int, stop: int) -> int:
        """What of [start, stop) keeps the due time that it was published with: not void, not dropped, not moved."""
        mask = self.alive(start, stop) & ~self.void.mask(start, stop)
        for offset in self._moved(start, stop):
            mask &= ~(1 << offset - start)
        return mask

    def reschedule(self, offset: int, priority: int, was: int, due: int) -> None:
        self.due[offset] = due
        times = self._times.setdefault(offset, set() if offset in self.far else {was})
        if due not in times:
            times.add(due)
            self._put(offset, offset + 1, priority, due)

    def keep(self, floor: int, kept: Iterable[tuple[int, int]], gone: Iterable[tuple[int, int]]) -> Gaps:
        """Raise the floor; what is dropped by that.

        `kept`: (start, mask) of what stays between the old floor and the new one; `gone`: of what stayed below the old
        one so far. Both in order. The lanes follow by `drop`, once every group has seen what it loses.
        """
        gaps: list[tuple[int, int]] = []
        end = self.floor
        for start, mask in gone:
            self.kept.remove(start, mask)
            gaps += segments(start, mask)
        for start, mask in kept:
            self.kept.add(start, mask)
            for first, stop in segments(start, mask):
                if end < first:
                    gaps.append((end, first))
                end = max(end, stop)
        if end < floor:
            gaps.append((end, floor))
        self.floor = max(self.floor, floor)
        return Gaps(gaps)

    def drop(self, gaps: Gaps) -> None:
        """Forget everything that lies in these gaps."""
        for priority, lane in list(self.lanes.items()):
            if self.void:
                self.open -= sum(self.not_void(start, stop) for start, stop in lane.dropped(gaps))
            else:
                self.open -= lane.count(gaps)
            left = lane.without(gaps)
            if left is not lane:
                self.lanes[priority] = left
                self.shape += 1
            if not left.starts and not self.scheduled:
                del self.lanes[priority]
                self.order.remove(priority)
                self.shape += 1
        for start, stop in gaps if self.void else ():
            self.void.remove_range(start, stop)
            self.expired.remove_range(start, stop)
        for offset in [offset for offset in self.due if offset in gaps]:
            del self.due[offset]
            self._times.pop(offset, None)
        if self.lates:
            self.lates.forget(min((lane.at[0] for lane in self.lanes.values() if lane.at), default=NEVER))

    @property
    def first(self) -> int:
        """The lowest offset that is alive, or the floor if none below it is."""
        lowest = self.kept.lowest()
        return self.floor if lowest is None else lowest

    @property
    def retained(self) -> int:
        """How many messages are alive."""
        return self.next - self.floor + self.kept.count

    def is_alive(self, offset: int) -> bool:
        """Whether an offset was appended and not dropped."""
        return self.floor <= offset < self.next or offset in self.kept

    def alive(self, start: int, stop: int) -> int:
        """What is not dropped of [start, stop), bit 0 standing for `start`."""
        if start >= self.floor:
            return full(stop - start)
        if stop <= self.floor:
            return self.kept.mask(start, stop)
        below = self.floor - start
        return self.kept.mask(start, self.floor) | full(stop - self.floor) << below

    def not_void(self, start: int, stop: int) -> int:
        """How many messages of [start, stop) have not ended."""
        return stop - start - (self.void.mask(start, stop).bit_count() if self.void else 0)

    def open_below(self, offset: int) -> int:
        """How many open messages lie below an offset."""
        if offset <= self.floor and not self.kept:
            return 0
        return self.open if offset >= self.next else self.count_open(offset)

    def count_open(self, offset: int) -> int:
        """The same, counted anew."""
        return sum(
            self.not_void(start, min(stop, offset))
            for lane in self.lanes.values()
            for start, stop, _ in lane.runs(below=offset)
        )

    def _show(self, entry: Entry) -> list[tuple[int, int]]:
        when, _, _, priority, due = entry
        shown = self.still_due(entry)
        for start, stop in shown:
            self._reveal(start, stop, priority, when, due)
        return shown

    def _reveal(self, start: int, stop: int, priority: int, at: int, due: int) -> None:
        """Messages that were scheduled are visible from now on."""
        self.lanes[priority].add(start, stop, at)
        self.visible += stop - start
        self.open += stop - start
        self.scheduled -= stop - start
        for offset in self._moved(start, stop):
            self.due[offset] = -due
            del self._times[offset]

    def _moved(self, start: int, stop: int) -> list[int]:
        """The offsets in a stretch whose due time was changed."""
        if not self.due:
            return []
        if len(self.due) < stop - start:
            return [offset for offset in self.due if start <= offset < stop]
        return [offset for offset in range(start, stop) if offset in self.due]


def cut(stretches: Iterable[Stretch], low: int, high: int, kept: Marks | None = None) -> list[Stretch]:
    """What of these stretches lies in [low, high), or below it and is kept."""
    found: list[Stretch] = []
    for start, stop, priority, due, expires in stretches:
        if kept and start < low:
            below = kept.mask(start, min(stop, low))
            found += [(first, last, priority, due, expires) for first, last in segments(start, below)]
        if start < high and stop > low:
            found.append((max(start, low), min(stop, high), priority, due, expires))
    return found
