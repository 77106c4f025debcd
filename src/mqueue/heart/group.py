"""One group on one topic: a reader per partition, and the counts of what became of its messages."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mqueue.heart.crew import Crew
from mqueue.heart.gaps import Gaps
from mqueue.heart.partition import Partition
from mqueue.heart.reader import Reader
from mqueue.heart.runs import Run, each, full, segments, tight, windows
from mqueue.heart.turns import Rules, Turns
from mqueue.model.events import KeyedSpan, Span
from mqueue.model.settings import Settings

_MANY_RUNS = 16


class Lease(Struct, gc=False):
    """The right to work on some runs until their deadlines. `until` is the earliest of those, `open` what is held.

    The garbage collector passes it over, and the tuples it stands in: nothing that it refers to refers back to it.
    With many leases held that is a quarter of what a single receive costs.
    """

    token: bytes
    group: Group
    consumer: str
    runs: tuple[Run, ...]
    until: int
    alarm: int
    """When its timer fires."""
    open: int
    count: int
    """What it held in the beginning."""
    keep_ms: int = 0
    """Renews itself by so much while it is in use in this process."""
    index: dict[tuple[int, int], Run] | None = None

    def find(self, partition: int, start: int, mask: int) -> list[tuple[Run, int]]:
        """The runs that hold any of these bits, with the bits they hold."""
        if mask == 1 and len(self.runs) > _MANY_RUNS:
            run = self._indexed().get((partition, start))
            bits = run.bits(start, 1) if run else 0
            return [(run, bits)] if run and bits else []
        found = []
        for run in self.runs:
            if run.partition == partition and (bits := run.bits(start, mask)):
                found.append((run, bits))
        return found

    def spans(self) -> tuple[Span, ...]:
        """All that is still held."""
        return tuple((run.partition, run.start, run.stop, run.mask) for run in self.runs if run.mask)

    def split(self, run: Run, bits: int) -> Run:
        """Make some bits of a run a run of their own, beside it."""
        piece = run.part(bits)
        run.mask ^= bits
        place = self.runs.index(run) + 1
        self.runs = (*self.runs[:place], piece, *self.runs[place:])
        self.index = None
        return piece

    def _indexed(self) -> dict[tuple[int, int], Run]:
        """Runs by offset: a lease of thousands of single messages is settled one by one in no time."""
        if self.index is None:
            self.index = {(run.partition, offset): run for run in self.runs for offset in each(run.start, run.mask)}
        return self.index


class Group:
    __slots__ = (
        "acked",
        "cancelled",
        "crew",
        "dead",
        "delivered",
        "diverted",
        "expired",
        "heard_at",
        "in_flight",
        "lapsed",
        "name",
        "readers",
        "tokens",
        "told_at",
        "topic",
        "turns",
    )

    def __init__(self, topic: int, name: str, partitions: list[Partition], starts: tuple[int, ...], now: int) -> None:
        self.topic = topic
        self.name = name
        self.heard_at = now
        """When it last asked for messages, or was made."""
        self.told_at = now
        """When an event last said so: what is left of `heard_at` after a restart."""
        self.delivered = 0
        self.tokens: set[bytes] = set()
        """Of its leases: the leases themselves are in the state, so that they refer to the group and not it to them."""
        self.crew: Crew | None = None
        """Its members, if each partition is for one of them; None: whoever asks gets messages of all."""
        self.readers: list[Reader] = []
        self.turns: Turns | None = None
        """Decides what comes next, where the order of priority and time is not all."""
        self.diverted: set[int] = set()
        """Ordering keys whose messages follow one that died."""
        self.place(partitions, starts)

    def place(self, partitions: list[Partition], starts: tuple[int, ...]) -> None:
        """Begin anew from `starts`: nothing is leased, parked or counted."""
        self.readers = [Reader(partition, start) for partition, start in zip(partitions, starts, strict=True)]
        self.in_flight = self.acked = self.dead = self.expired = self.cancelled = self.lapsed = 0
        self.diverted.clear()
        if self.turns is not None:
            self.turns = Turns(self.readers, self.turns.rules, self.diverted)

    def arrange(self, settings: Settings) -> None:
        """What comes next is decided as these settings say; also for what is there already."""
        rules = Rules.of(settings)
        if not settings.ordered or settings.on_failure != "divert":
            self.diverted.clear()
        if rules is not None:
            if self.turns is None or self.turns.rules != rules:
                self.turns = Turns(self.readers, rules, self.diverted)
        elif self.turns is not None:
            self.turns = None
            for reader in self.readers:
                reader.line_up()

    def add_reader(self, reader: Reader) -> None:
        """A partition more."""
        self.readers.append(reader)
        if self.turns is not None:
            self.turns.add_reader(reader)

    @property
    def ready(self) -> int:
        return sum(reader.ready for reader in self.readers)

    @property
    def waiting(self) -> int:
        return sum(reader.waiting for reader in self.readers)

    @property
    def owed(self) -> int:
        """What this group has still to do, of what is visible."""
        return self.ready + self.waiting + self.in_flight

    @property
    def unheld(self) -> int:
        """How much of that nobody has."""
        return self.ready + self.waiting

    def take(self, limit: int, deadline: int, only: tuple[int, ...] | None = None) -> list[Run]:
        """Lease the next runs in order, over all partitions or these only, up to `limit` messages."""
        readers = self.readers if only is None else [self.readers[number] for number in only]
        runs: list[Run] = []
        while limit > 0:
            if len(readers) == 1:
                run = readers[0].next(limit, deadline)
            else:
                fronts = [(front, number) for number, reader in enumerate(readers) if (front := reader.front())]
                run = readers[min(fronts)[1]].next(limit, deadline) if fronts else None
            if run is None:
                break
            limit -= run.mask.bit_count()
            runs.append(run)
        return runs

    def give_back(self, run: Run) -> Run | None:
        """A piece of a lease comes back: what is parked of it. What ended meanwhile for everybody ends here too."""
        reader = self.readers[run.partition]
        partition = reader.partition
        gone = run.mask & partition.void.mask(run.start, run.stop) if partition.void else 0
        if gone:
            expired = (gone & partition.expired.mask(run.start, run.stop)).bit_count()
            self.count("expired", expired)
            self.count("cancelled", gone.bit_count() - expired)
            if gone == run.mask:
                return None
            run = run.part(run.mask ^ gone)
        reader.park(run)
        return run

    def owed_of(self, partition: int, start: int, mask: int, priority: int, at: int) -> int:
        """Which messages with one order key this group still has before it, ahead or given back."""
        reader = self.readers[partition]
        first = reader.passed(priority, at, start, start + mask.bit_length())
        owed = mask >> first - start << first - start
        for offset in each(start, mask & ~owed):
            if reader.holds(offset):
                owed |= 1 << offset - start
        return owed

    def oldest(self, count: int) -> KeyedSpan | None:
        """Up to `count` neighbours that have been visible longest and are not leased."""
        best: tuple[int, int, int, int, int, int] | None = None
        for reader in self.readers:
            candidate = reader.oldest()
            if candidate and (best is None or candidate[:3] < best[:3]):
                best = candidate
        if best is None:
            return None
        at, partition, start, priority, _, mask = best
        first, end = next(segments(start, mask))
        end = min(end, first + count)
        return partition, first, end, (1 << end - first) - 1, priority, at

    def unleased(self) -> Iterator[KeyedSpan]:
        """What this group has before it, ready or waiting, in no order."""
        for reader in self.readers:
            number, void = reader.partition.number, reader.partition.void
            for run in reader.parked.values():
                yield number, run.start, run.stop, run.mask, run.priority, run.at
            for start, end, priority, at in reader.ahead():
                for first, stop in windows(start, end):
                    mask = full(stop - first) & ~void.mask(first, stop)
                    if mask:
                        yield number, *tight(first, mask), priority, at

    def end(self, partition: int, start: int, mask: int, priority: int, at: int, cause: str) -> int:
        """Messages with one order key ended for everybody: forget those that this group still had before it.

        Answers the mask of these. What is leased stays so: it may still be acked.
        """
        reader = self.readers[partition]
        ended = 0
        for run in reader.unpark(start, mask):
            ended |= run.mask << run.start - start
        first = reader.passed(priority, at, start, start + mask.bit_length())
        ahead = mask >> first - start << first - start
        reader.consumed += ahead.bit_count()
        ended |= ahead
        self.count(cause, ended.bit_count())
        return ended

    def purge(self, partition: int, floor: int) -> None:
        reader = self.readers[partition]
        self.cancelled += reader.partition.scheduled_in(reader.start, floor) + reader.forget_below(floor)

    def miss(self, partition: int, start: int, mask: int, cause: str) -> None:
        """Messages that were still scheduled ended: this group will not get them."""
        below = max(0, self.readers[partition].start - start)
        self.count(cause, (mask >> below).bit_count())

    def trim(self, partition: int, gaps: Gaps) -> None:
        """Retention drops these; those that this group was still owed are lost to it, and counted."""
        self.lapsed += self.readers[partition].forget(gaps)

    def count(self, cause: str, number: int) -> None:
        if cause == "expired":
            self.expired += number
        else:
            self.cancelled += number

    def shown(self, partition: int, stretches: list[tuple[int, int]]) -> None:
        """Scheduled messages became visible: those below this group's start are not for it."""
        reader = self.readers[partition]
        for start, stop in stretches:
            if start < reader.start:
                reader.consumed += min(stop, reader.start) - start
