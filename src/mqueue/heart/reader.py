"""One group's place in one partition: a cursor per lane, and the runs that were given back.

What lies behind a cursor and is neither leased nor parked here is settled: nothing is kept of what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from itertools import groupby

from mqueue.heart.gaps import Gaps
from mqueue.heart.lanes import Lane
from mqueue.heart.partition import Partition
from mqueue.heart.runs import Run, segments, tight
from mqueue.model.limits import FRAME_ROWS_MAX

OrderKey = tuple[int, int, int]
"""priority, at, offset"""


class Cursor:
    """The next message of a lane: the number of its run, and the offset in it (0: at the start of the run).

    At the end of the lane it stays on the last run, because that run may still grow.
    """

    __slots__ = ("lane", "number", "offset")

    def __init__(self, lane: Lane, number: int, offset: int = 0) -> None:
        self.lane = lane
        self.number = number
        self.offset = offset

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


class Reader:
    __slots__ = (
        "_longest",
        "_ready",
        "_serial",
        "_shape",
        "consumed",
        "cursors",
        "parked",
        "partition",
        "ready_back",
        "start",
        "waiting",
    )

    def __init__(self, partition: Partition, start: int) -> None:
        self.partition = partition
        self.start = start
        """Nothing below this offset is for this group."""
        self.cursors: list[Cursor] = []
        self._shape = -1
        self.consumed = partition.visible - (partition.open - partition.open_below(start))
        """Of all that became visible in the partition, how much is not ahead of the cursors (any more)."""
        self.parked: dict[int, Run] = {}
        """Runs that were given back, by their first offset: ready again (`until` 0) or waiting."""
        self._longest = 0
        """No parked run spans more offsets than this."""
        self._ready: list[tuple[int, int, int, int, Run]] = []
        self._serial = 0
        self.ready_back = 0
        self.waiting = 0

    @property
    def ready(self) -> int:
        """How many messages could be handed out now."""
        return self.partition.visible - self.consumed + self.ready_back

    def front(self) -> OrderKey | None:
        """The order key of the next message, or None if there is none."""
        if self._shape != self.partition.shape:
            self._follow_lanes()
        back = self._back()
        for cursor in self.cursors:
            index = self._advance(cursor)
            lane = cursor.lane
            if index < 0:
                if back is not None and back[0] == lane.priority:
                    return back[:3]
                continue
            fresh = (lane.priority, lane.at[index], max(lane.starts[index], cursor.offset))
            return fresh if back is None or fresh < back[:3] else back[:3]
        return None

    def next(self, limit: int, deadline: int) -> Run | None:
        """Lease the next messages in order until `deadline`, up to `limit` of them, as one run."""
        partition = self.partition
        if self._shape != partition.shape:
            self._follow_lanes()
        void = partition.void.blocks
        back = self._back() if self._ready else None
        for cursor in self.cursors:
            lane = cursor.lane
            stops = lane.stops
            index = cursor.number
            # mostly the cursor stands on a run that it may go on with, or at the end of its lane
            if index == len(stops) - 1 and cursor.offset == stops[index]:
                index = -1
            elif void or index >= len(stops) or not self.start <= cursor.offset < stops[index]:
                index = self._advance(cursor)
            if index < 0:
                if back is not None and back[0] == lane.priority:
                    return self._take_back(back[4], limit, deadline)
                continue
            at = lane.at[index]
            start = lane.starts[index]
            if cursor.offset > start:
                start = cursor.offset
            if back is not None and back[:3] < (lane.priority, at, start):
                return self._take_back(back[4], limit, deadline)
            stop = stops[index]
            if stop - start > limit:
                stop = start + limit
            if stop - start > FRAME_ROWS_MAX:
                stop = start + FRAME_ROWS_MAX
            cursor.offset = stop
            mask = (1 << stop - start) - 1
            if void:
                mask &= ~partition.void.mask(start, stop)
                self.consumed += mask.bit_count()
            else:
                self.consumed += stop - start
            return Run(partition.number, start, stop, mask, 1, lane.priority, at, deadline)
        return None

    def _advance(self, cursor: Cursor) -> int:
        """Move a cursor to the next message that may be handed out; its place in the lane's columns, or -1."""
        lane = cursor.lane
        stops = lane.stops
        plain = not self.partition.void.blocks
        index = cursor.number
        while index < len(stops):
            stop = stops[index]
            if cursor.offset < stop:
                start = lane.starts[index]
                if (plain and start >= self.start) or self._skip(cursor, start, stop):
                    return index
            if index + 1 == len(stops):
                break
            index += 1
            cursor.number += 1
            cursor.offset = 0
        return -1

    def _skip(self, cursor: Cursor, start: int, stop: int) -> bool:
        """Pass over what is below the start or void; False if nothing is left of this run."""
        first = max(start, cursor.offset, self.start)
        while first < stop:
            window = min(stop, first + FRAME_ROWS_MAX)
            bits = ~self.partition.void.mask(first, window) & (1 << window - first) - 1
            if bits:
                cursor.offset = first + (bits & -bits).bit_length() - 1
                return True
            first = window
        cursor.offset = stop
        return False

    def _back(self) -> tuple[int, int, int, int, Run] | None:
        """The first of the ready runs that were given back; those that are gone are swept out here."""
        ready = self._ready
        while ready:
            first = ready[0]
            if self.parked.get(first[2]) is first[4] and not first[4].until:
                return first
            heappop(ready)
        return None

    def _take_back(self, run: Run, limit: int, deadline: int) -> Run:
        heappop(self._ready)
        del self.parked[run.start]
        bits = run.first(limit)
        other = self._back() if run.mask & run.mask + 1 else None
        if other is not None and other[:2] == (run.priority, run.at) and other[2] < run.stop:
            bits &= (
                1 << other[2] - run.start
            ) - 1  # it fills a hole of this run: it goes before what is behind the hole
        self.ready_back -= bits.bit_count()
        taken = run
        if bits != run.mask:
            taken = run.part(bits)
            rest = run.part(run.mask ^ bits)
            self.parked[rest.start] = rest
            self._offer(rest)
        taken.attempt += 1
        taken.until = deadline
        return taken

    def park(self, run: Run) -> None:
        """Take a run back: ready at once, or waiting until `run.until`."""
        length = run.stop - run.start
        self._longest = max(self._longest, length) if self.parked else length
        self.parked[run.start] = run
        if run.until:
            self.waiting += run.count
        else:
            self.ready_back += run.count
            self._offer(run)

    def _offer(self, run: Run) -> None:
        """Line a ready run up. The serial tells entries with one key apart: some may be stale."""
        self._serial += 1
        heappush(self._ready, (run.priority, run.at, run.start, self._serial, run))

    def wake(self, run: Run) -> None:
        """A waiting run is due."""
        self.waiting -= run.count
        run.until = 0
        self.ready_back += run.count
        self._offer(run)

    def is_parked(self, run: Run) -> bool:
        return self.parked.get(run.start) is run

    def holds(self, offset: int) -> Run | None:
        """The parked run that an offset is in."""
        return next((run for run in self._parked_in(offset, offset + 1) if run.bits(offset, 1)), None)

    def unpark(self, start: int, mask: int) -> list[Run]:
        """Take bits out of the parked runs, wherever they are; the pieces taken."""
        taken = []
        for run in self._parked_in(start, start + mask.bit_length()):
            bits = run.bits(start, mask)
            if bits:
                taken.append(run.part(bits))
                self._shrink(run, bits)
        return taken

    def passed(self, priority: int, at: int, start: int, stop: int) -> int:
        """The first offset of a stretch with one order key that is still ahead of the cursor; `stop` if none is."""
        if self._shape != self.partition.shape:
            self._follow_lanes()
        for cursor in self.cursors:
            if cursor.lane.priority == priority:
                first = cursor.place(at, start, stop)
                return min(stop, max(first, self.start))
        return stop  # the lane is gone, and what was in it

    def move_past(self, run: Run) -> list[Run]:
        """Fold a lease of fresh messages: put the cursor behind `run`. What it would pass over comes back as runs."""
        if self._shape != self.partition.shape:
            self._follow_lanes()
        cursor = next(cursor for cursor in self.cursors if cursor.lane.priority == run.priority)
        number = cursor.lane.number_of(run.at, run.start)
        passed: list[Run] = []
        while (index := self._advance(cursor)) >= 0 and (cursor.number, cursor.offset) < (number, run.start):
            lane = cursor.lane
            first = max(lane.starts[index], cursor.offset)
            stop = lane.stops[index] if cursor.number < number else run.start
            stop = min(stop, first + FRAME_ROWS_MAX)
            if first >= stop:
                break
            mask = (1 << stop - first) - 1 & ~self.partition.void.mask(first, stop)
            passed.append(Run(run.partition, first, stop, mask, 0, run.priority, lane.at[index], 0).part(mask))
            self.consumed += mask.bit_count()
            cursor.offset = stop
        cursor.number, cursor.offset = number, run.stop
        self.consumed += run.count
        return passed

    def places(self) -> Iterator[tuple[int, int, int]]:
        """(priority, at, offset) of the first message ahead in each lane that has one."""
        for cursor in self._at_lanes():
            index = self._advance(cursor)
            if index >= 0:
                lane = cursor.lane
                yield lane.priority, lane.at[index], max(lane.starts[index], cursor.offset)

    def put(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Put the cursors where they stood: at these places, at the end of every other lane."""
        known = {priority: (at, offset) for priority, at, offset in places}
        self._follow_lanes()
        self.cursors = [
            Cursor.at(cursor.lane, *known[cursor.lane.priority])
            if cursor.lane.priority in known
            else Cursor.at_end(cursor.lane)
            for cursor in self.cursors
        ]
        ahead = sum(self.partition.not_void(start, stop) for start, stop, _, _ in self.ahead())
        self.consumed = self.partition.visible - ahead

    def ahead(self, below: int | None = None) -> Iterator[tuple[int, int, int, int]]:
        """(start, stop, priority, at) of what is ahead of the cursors, lane by lane; voids included.

        Everything, or only the runs that begin below an offset.
        """
        for cursor in self._at_lanes():
            if self._advance(cursor) < 0:
                continue
            lane, number, first = cursor.lane, cursor.number, cursor.offset
            stop = lane.stops[number]
            start = max(lane.starts[number], first, self.start)
            if start < stop and (below is None or start < below):
                yield start, stop, lane.priority, lane.at[number]
            for start, stop, at in lane.runs(number + 1, below):
                start = max(start, self.start)
                if start < stop:
                    yield start, stop, lane.priority, at

    def unread(self, floor: int) -> int:
        """The lowest offset not below `floor` that is ahead of a cursor; the end if none is."""
        lowest = self.partition.next
        for cursor in self._at_lanes():
            if self._advance(cursor) >= 0:
                first = cursor.lane.lowest(cursor.number, cursor.offset, max(floor, self.start))
                lowest = lowest if first is None else min(lowest, first)
        return lowest

    def forget_below(self, floor: int) -> int:
        """Nothing below an offset is for this group any more; how many messages were still before it."""
        not_void = self.partition.not_void
        count = sum(not_void(start, min(stop, floor)) for start, stop, _, _ in self.ahead(floor) if start < floor)
        self.consumed += count
        for run in [run for run in self.parked.values() if run.start < floor]:
            bits = run.mask & (1 << min(run.stop, floor) - run.start) - 1
            count += bits.bit_count()
            self._shrink(run, bits)
        self.start = max(self.start, floor)
        return count

    def forget(self, gaps: Gaps) -> int:
        """Retention drops these; how many of them were still before this group. The lanes still have them."""
        floor, count = self.partition.floor, 0
        for start, stop, _, _ in self.ahead(floor):
            count += sum(self.partition.not_void(*piece) for piece in gaps.within(start, stop))
        self.consumed += count
        for run in [run for run in self.parked.values() if run.start < floor]:
            bits = run.mask & gaps.mask(run.start, run.stop)
            if bits:
                count += bits.bit_count()
                self._shrink(run, bits)
        return count

    def oldest(self) -> tuple[int, int, int, int, int, int] | None:
        """(at, partition, start, priority, stop, mask) of what has been visible longest and is not leased."""
        number = self.partition.number
        found = [(run.at, number, run.start, run.priority, run.stop, run.mask) for run in self.parked.values()]
        for cursor in self._at_lanes():
            index = self._advance(cursor)
            if index >= 0:
                lane = cursor.lane
                start = max(lane.starts[index], cursor.offset)
                stop = min(lane.stops[index], start + FRAME_ROWS_MAX)
                mask = ~self.partition.void.mask(start, stop) & (1 << stop - start) - 1
                found.append((lane.at[index], number, start, lane.priority, stop, mask))
        return min(found, default=None)

    def upcoming(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(priority, at, start, stop, mask) of what is ready, in delivery order, taking nothing."""
        void = self.partition.void
        lanes: dict[int, list[tuple[int, int, int, int, int]]] = {}
        for run in self.parked.values():
            for start, stop in segments(run.start, run.mask) if not run.until else ():
                piece = (run.priority, run.at, start, stop, (1 << stop - start) - 1)
                lanes.setdefault(run.priority, []).append(piece)
        for priority, fresh in groupby(self.ahead(), lambda stretch: stretch[2]):
            pieces = (
                (priority, at, first, stop, ~void.mask(first, stop) & (1 << stop - first) - 1)
                for start, end, _, at in fresh
                for first, stop in _windows(start, end)
            )
            for number in sorted(lane for lane in lanes if lane < priority):
                yield from sorted(lanes.pop(number))
            yield from merge(sorted(lanes.pop(priority, ())), pieces)
        for number in sorted(lanes):
            yield from sorted(lanes[number])

    def oldest_ready(self) -> int | None:
        """Since when the message that is ready longest is visible."""
        times = [run.at for run in self.parked.values() if not run.until]
        for cursor in self._at_lanes():
            index = self._advance(cursor)
            if index >= 0:
                times.append(cursor.lane.at[index])
        return min(times, default=None)

    def _parked_in(self, start: int, stop: int) -> list[Run]:
        """The parked runs that could touch a stretch: none begins further ahead of it than the longest is long."""
        first = start - self._longest + 1
        if len(self.parked) <= stop - first:
            return [run for run in self.parked.values() if run.start < stop and run.stop > start]
        return [self.parked[offset] for offset in range(first, stop) if offset in self.parked]

    def _shrink(self, run: Run, bits: int) -> None:
        """Take bits out of a parked run; it stays the same object, because a timer may be set on it."""
        del self.parked[run.start]
        if run.until:
            self.waiting -= bits.bit_count()
        else:
            self.ready_back -= bits.bit_count()
        run.mask ^= bits
        if run.mask:
            run.start, run.stop, run.mask = tight(run.start, run.mask)
            self.parked[run.start] = run
            if not run.until:
                self._offer(run)

    def follow(self) -> None:
        """Let go of lanes that others have taken the place of."""
        self._at_lanes()

    def _at_lanes(self) -> list[Cursor]:
        """The cursors, one for each lane that there is now."""
        return self.cursors if self._shape == self.partition.shape else self._follow_lanes()

    def _follow_lanes(self) -> list[Cursor]:
        known = {cursor.lane.priority: cursor for cursor in self.cursors}
        self.cursors = []
        for priority in self.partition.order:
            lane = self.partition.lanes[priority]
            cursor = known.get(priority)
            if cursor is None:
                cursor = Cursor(lane, 0)
            elif cursor.lane is not lane:
                cursor = cursor.follow(lane)
            self.cursors.append(cursor)
        self._shape = self.partition.shape
        return self.cursors


def _windows(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """A stretch, cut so that its masks stay small."""
    for first in range(start, stop, FRAME_ROWS_MAX):
        yield first, min(stop, first + FRAME_ROWS_MAX)
