"""One group's place in one partition: a cursor per lane, and the runs that were given back.

What lies behind a cursor and is neither leased nor parked here is settled: nothing is kept of what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from itertools import groupby, islice

from mqueue.heart.cursor import Cursor
from mqueue.heart.gaps import Gaps
from mqueue.heart.partition import Partition
from mqueue.heart.runs import Run, segments, tight, windows
from mqueue.heart.watcher import Watcher
from mqueue.model.limits import FRAME_ROWS_MAX

OrderKey = tuple[int, int, int]
"""priority, at, offset"""


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
        "turns",
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
        self.turns: Watcher | None = None
        """Lines up what is ready, where the order of priority and time is not all; `next` and `front` do not then."""

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

    def draw(self, cursor: Cursor, most: int) -> Run | None:
        """Take the next fresh messages of one lane off its cursor, as a run that nobody has got so far."""
        index = self._advance(cursor)
        if index < 0:
            return None
        lane = cursor.lane
        start = max(lane.starts[index], cursor.offset)
        stop = min(lane.stops[index], start + most, start + FRAME_ROWS_MAX)
        cursor.offset = stop
        mask = (1 << stop - start) - 1 & ~self.partition.void.mask(start, stop)
        self.consumed += mask.bit_count()
        return Run(self.partition.number, start, stop, mask, 0, lane.priority, lane.at[index], 0).part(mask)

    def take_parked(self, run: Run, bits: int, deadline: int) -> Run:
        """Lease the first bits of a ready run; what is left of it stays parked."""
        del self.parked[run.start]
        self.ready_back -= bits.bit_count()
        taken = run
        if bits != run.mask:
            taken = run.part(bits)
            run.start, run.stop, run.mask = tight(run.start, run.mask ^ bits)
            self.parked[run.start] = run
        taken.attempt += 1
        taken.until = deadline
        return taken

    def sort(self, run: Run, told: list[tuple[int, tuple[int, int]]]) -> list[Run]:
        """The keys of a parked run were found out, bits by bits: it becomes one run for each.

        The object stays with the first of them, because a timer may be set on it; the others.
        """
        parked = self.parked
        base, attempt, priority, at, until = run.start, run.attempt, run.priority, run.at, run.until
        number, failure = run.partition, run.failure
        del parked[base]
        run.start, run.stop, run.mask = tight(base, told[0][0])
        run.keys = told[0][1]
        parked[run.start] = run
        pieces = []
        for bits, keys in told[1:]:
            start, stop, mask = tight(base, bits)
            piece = Run(number, start, stop, mask, attempt, priority, at, until, failure, keys)
            parked[start] = piece
            pieces.append(piece)
        return pieces

    def line_up(self) -> None:
        """The order of priority and time is all from now on."""
        self.turns = None
        self._ready = []
        for run in self.parked.values():
            if not run.until:
                self._offer(run)

    def park(self, run: Run) -> None:
        """Take a run back: ready at once, or waiting until `run.until`."""
        length = run.stop - run.start
        self._longest = max(self._longest, length) if self.parked else length
        self.parked[run.start] = run
        if run.until:
            self.waiting += run.count
        else:
            self.ready_back += run.count
        if self.turns is not None:
            self.turns.park(run)
        elif not run.until:
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
        if self.turns is None:
            self._offer(run)
        else:
            self.turns.release(run, run.count)
            self.turns.offer(run)

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

    def take_out(self, start: int, mask: int, priority: int, at: int) -> list[Run]:
        """Fold that messages with one order key left: those parked, wherever they are, and those ahead of the cursor.

        What the cursor would pass over is parked. The pieces that were parked already.
        """
        parked = self.unpark(start, mask)
        for piece in parked:
            mask &= ~(piece.mask << piece.start - start if piece.start >= start else piece.mask >> start - piece.start)
        for first, stop in segments(start, mask):
            run = Run(self.partition.number, first, stop, (1 << stop - first) - 1, 0, priority, at, 0)
            for passed in self.move_past(run):
                self.park(passed)
        return parked

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
                for first, stop in windows(start, end)
            )
            for number in sorted(lane for lane in lanes if lane < priority):
                yield from sorted(lanes.pop(number))
            yield from merge(sorted(lanes.pop(priority, ())), pieces)
        for number in sorted(lanes):
            yield from sorted(lanes[number])

    def oldest_ready(self, looks_max: int | None = None) -> int | None:
        """Since when the message that is ready longest is visible. `looks_max`: of what was given back, look at so many
        runs only."""
        times = [run.at for run in islice(self.parked.values(), looks_max) if not run.until]
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
        first, count = run.start, bits.bit_count()
        del self.parked[first]
        if run.until:
            self.waiting -= count
        else:
            self.ready_back -= count
        run.mask ^= bits
        if run.mask:
            run.start, run.stop, run.mask = tight(first, run.mask)
            self.parked[run.start] = run
            if not run.until and self.turns is None:
                self._offer(run)
        if self.turns is not None:
            self._tell_shrunk(self.turns, run, first, count)

    def _tell_shrunk(self, turns: Watcher, run: Run, first: int, count: int) -> None:
        if run.until:
            turns.release(run, count)
        else:
            if run.mask and run.start != first:
                turns.offer(run)
            turns.lost(run, count)

    def follow(self) -> list[Cursor]:
        """Let go of lanes that others have taken the place of; the cursors."""
        return self._at_lanes()

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
