"""Messages as somebody sees them who leafs through a topic: newest first or from a place on, or those in one state.

Each comes with the state that it is in for a group, and with the beginning of its payload only: a page of large ones is
still a page. Takes the lock once for a page. Nothing is leased, no time passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge, nlargest, nsmallest
from itertools import islice
from typing import NamedTuple, TypeVar

from msgspec import Struct

from mqueue.broker import replay
from mqueue.broker.deliver import TopicDesk
from mqueue.broker.loop import LoopBroker
from mqueue.heart.group import Group, Lease
from mqueue.heart.runs import Run, each
from mqueue.model.errors import NotFound, Refused
from mqueue.model.names import check_name
from mqueue.store.order import order_key
from mqueue.wire.frame import Frame

T = TypeVar("T")

STATES = ("all", "ready", "leased", "waiting", "scheduled")
BROWSED_MAX = 200
_DIGITS_MAX = 19
_LEAPS_MAX = 16
"""So often it looks further back for messages where retention left few."""


class Asked(Struct, frozen=True):
    """`start`: from an offset or a time on, upwards; None: the newest first. `cursor`: `next` of the page before."""

    topic: str
    group: str = "default"
    state: str = "all"
    partition: int | None = None
    start: replay.Position | None = None
    limit: int = 50
    cursor: str = ""


class Seen(NamedTuple):
    """A message and where it stands. `until`: its deadline, or when it is due; 0: nothing is. `by`: who holds it."""

    frame: Frame
    row: int
    due: int
    state: str
    attempt: int
    until: int
    by: str


def browse(broker: LoopBroker, asked: Asked, show: Callable[[TopicDesk, Seen], T]) -> tuple[list[T], str | None]:
    """The messages of a page, as they are shown, and where the next one begins."""
    _check(asked)
    engine = broker._engine
    with engine.lock:
        now = engine.clock.now()
        desk = broker._known_desk(asked.topic)
        look = _Look(desk, asked, now)
        if asked.state == "all":
            found, following = look.newest() if asked.start is None else look.upwards(asked.start)
        else:
            found, following = look.in_state(asked.state)
        return [show(desk, seen) for seen in found], following


class _Look:
    def __init__(self, desk: TopicDesk, asked: Asked, now: int) -> None:
        self._desk = desk
        self._asked = asked
        self._now = now
        topic = desk.topic
        known = topic.groups.get(asked.group)
        self._nobody = known is None
        self._group = known or Group(topic.id, asked.group, topic.partitions, topic.firsts, now)
        self._leased: dict[tuple[int, int], tuple[int, str, int]] = {}
        """Of what is shown and held: by place, the attempt, who holds it and until when."""

    def newest(self) -> tuple[list[Seen], str | None]:
        """From the end of each partition back; the place to go on says how far each was read."""
        ends = self._ends()
        limit = self._asked.limit
        found = [entry for number, end in ends.items() for entry in self._last(number, end, limit)]
        taken = nlargest(limit, found, key=lambda entry: (entry[0].at_of(entry[1]), entry[0].id_of(entry[1])))
        for frame, row in taken:
            ends[frame.partition] = min(ends[frame.partition], frame.base + row)
        more = any(end > self._desk.topic.partitions[number].first for number, end in ends.items())
        following = ",".join(f"{number}.{end}" for number, end in ends.items())
        return self._all_seen(taken), following if taken and more else None

    def upwards(self, start: replay.Position) -> tuple[list[Seen], str | None]:
        """In the order of the log, one partition after the other."""
        covered = replay.stretches(self._desk, start, None, self._asked.partition)
        if self._asked.cursor:
            [(number, offset)] = list(islice(self._places().items(), 1))
            covered = [(each, max(first, offset if each == number else first), end)
                       for each, first, end in covered if each >= number]  # fmt: skip
        rows = self._rows(covered)
        taken = list(islice(rows, self._asked.limit))
        following = next(rows, None)
        place = None if following is None else f"{following[0].partition}.{following[0].base + following[1]}"
        return self._all_seen(taken), place

    def in_state(self, state: str) -> tuple[list[Seen], str | None]:
        """The first of them: what is ready and scheduled in the order of delivery, the others soonest first."""
        log, found = self._desk.engine.store.log, []
        for number, offset in islice(self._places_in(state), self._asked.limit):
            frame = log.frame(self._desk.topic.id, number, offset)
            if frame is not None:
                found.append((frame, offset - frame.base))
        return self._all_seen(found), None

    def _places_in(self, state: str) -> Iterable[tuple[int, int]]:
        partition = self._asked.partition
        readers = [one for one in self._group.readers if partition in (None, one.partition.number)]
        if state == "ready":
            ready = merge(*map(replay.ready_in, readers))
            return ((number, offset) for _, _, start, number, mask in ready for offset in each(start, mask))
        if state == "leased":
            runs = nsmallest(self._asked.limit, (run for _, run in self._held(partition)), key=lambda run: run.until)
            return ((run.partition, offset) for run in runs for offset in each(run.start, run.mask))
        if state == "waiting":
            parked = sorted((run.until, one.partition.number, run.start, run.mask)
                            for one in readers for run in one.parked.values() if run.until)  # fmt: skip
            return ((number, offset) for _, number, start, mask in parked for offset in each(start, mask))
        due = replay.scheduled_places(self._desk)
        return ((number, offset) for _, number, offset in due if partition in (None, number))

    def _all_seen(self, taken: list[tuple[Frame, int]]) -> list[Seen]:
        wanted: dict[int, set[int]] = {}
        for frame, row in taken:
            wanted.setdefault(frame.partition, set()).add(frame.base + row)
        bounds = {number: (min(offsets), max(offsets)) for number, offsets in wanted.items()}
        for lease, run in self._held(self._asked.partition):
            low, high = bounds.get(run.partition, (0, -1))
            if run.start <= high and run.stop > low:
                for offset in wanted[run.partition].intersection(each(run.start, run.mask)):
                    self._leased[run.partition, offset] = run.attempt, lease.consumer, run.until
        return [self._seen(frame, row) for frame, row in taken]

    def _seen(self, frame: Frame, row: int) -> Seen:
        priority, due, offset = order_key(self._desk.topic, frame, row)
        partition = self._desk.topic.partitions[frame.partition]
        if offset in partition.void:
            return Seen(frame, row, due, "expired" if offset in partition.expired else "cancelled", 0, 0, "")
        if due > self._now:
            return Seen(frame, row, due, "scheduled", 0, due, "")
        held = self._leased.get((frame.partition, offset))
        if held is not None:
            attempt, by, until = held
            return Seen(frame, row, due, "leased", attempt, until, by)
        reader = self._group.readers[frame.partition]
        parked = reader.holds(offset)
        if parked is not None:
            return Seen(frame, row, due, "waiting" if parked.until else "ready", parked.attempt, parked.until, "")
        if self._nobody:
            return Seen(frame, row, due, "ready", 0, 0, "")
        if offset < reader.start:
            return Seen(frame, row, due, "before_start", 0, 0, "")
        settled = reader.passed(priority, due, offset, offset + 1) > offset
        return Seen(frame, row, due, "settled" if settled else "ready", 0, 0, "")

    def _held(self, partition: int | None) -> Iterator[tuple[Lease, Run]]:
        """What the group holds, at most `in_flight_max` runs."""
        leases = self._desk.engine.store.state.leases
        for token in self._group.tokens:
            for run in leases[token].runs:
                if run.mask and partition in (None, run.partition):
                    yield leases[token], run

    def _ends(self) -> dict[int, int]:
        partitions = self._desk.topic.partitions
        known = self._places() if self._asked.cursor else {}
        numbers = range(len(partitions)) if self._asked.partition is None else [self._asked.partition]
        if self._asked.partition is not None and not 0 <= self._asked.partition < len(partitions):
            raise NotFound(f"partition {self._asked.partition}; there are 0 to {len(partitions) - 1}")
        return {number: min(known.get(number, partitions[number].next), partitions[number].next) for number in numbers}

    def _last(self, number: int, end: int, count: int) -> list[tuple[Frame, int]]:
        """The last messages of a partition below an offset."""
        first = self._desk.topic.partitions[number].first
        found: list[tuple[Frame, int]] = []
        leap = count
        for _ in range(_LEAPS_MAX):
            if end <= first or len(found) >= count:
                break
            start = max(first, end - leap)
            found = [*self._rows([(number, start, end)]), *found]
            end, leap = start, leap * 4
        return found[-count:]

    def _rows(self, covered: list[tuple[int, int, int]]) -> Iterator[tuple[Frame, int]]:
        log = self._desk.engine.store.log
        for number, start, stop in covered:
            for frame in log.frames(self._desk.topic.id, number, start, stop):
                for row in range(max(0, start - frame.base), min(stop, frame.stop) - frame.base):
                    yield frame, row

    def _places(self) -> dict[int, int]:
        """What a cursor says: `partition.offset`, joined by commas."""
        parts = [part.split(".") for part in self._asked.cursor.split(",")]
        for part in parts:
            if len(part) != 2 or not all(
                text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX for text in part
            ):
                raise Refused(
                    f"cursor {self._asked.cursor!r:.80}; it takes `next` of the page before", code="bad_cursor"
                )
        return {int(number): int(offset) for number, offset in parts}


def _check(asked: Asked) -> None:
    check_name(asked.group, "group")
    if asked.state not in STATES:
        raise Refused(f"state {asked.state!r:.80}; it is one of {', '.join(STATES)}", code="bad_query")
    if not 1 <= asked.limit <= BROWSED_MAX:
        raise Refused(f"limit {asked.limit}; it takes 1 to {BROWSED_MAX}", code="bad_limit")
