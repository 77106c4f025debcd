"""Recovers an image with the real code and says what is wrong with the result. Two depths.

`Judge.log` opens the log: what comes back is a prefix of the commits that were written, at least as long as was
promised, byte by byte. `Judge.store` opens the whole store: its state is the fold of that prefix, every message in it
reads as it was published, ids, offsets, tokens and epochs go on where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mqueue.log.segments.log import SegmentLog
from mqueue.log.segments.storage import Storage
from mqueue.log.segments.tape import Row
from mqueue.model.times import to_datetime
from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk
from mqueue.wire.pack import unpack
from tests.laws.snapshot import differences
from tests.simulation.record import Record, ripe_snapshot
from tests.simulation.world import STORAGE, World

Key = tuple[int, int, tuple[tuple[int, bool], ...]]
"""What decides what a store finds: how many commits, which checkpoint, which segments, and which have an index."""


Found = tuple[SegmentLog, int]
"""A log that was recovered, and how many commits came back."""


class Judge:
    """Counts what it judged. `violations` are sentences; there must be none."""

    def __init__(self, storage: Storage = STORAGE) -> None:
        self.storage = storage
        self.states = 0
        self.stores = 0
        self.violations: list[str] = []
        self._known: set[tuple[int, Key, int]] = set()

    def log(
        self, image: SimDisk, record: Record, promised: int, rng: Random, what: str
    ) -> tuple[SegmentLog, int] | None:
        """Recover a log. It, and how many commits came back; None if something is wrong with it."""
        self.states += 1
        try:
            image.lock()
            log = SegmentLog(image, rng.randbytes, self.storage)
        except Exception as error:  # whatever it is, a store that was promised to open does not
            return self._wrong(f"{what}: it does not open: {error!r}")
        link = log.writer.link
        count = record.ends.get((link.position, link.crc))
        if count is None:
            return self._wrong(f"{what}: it ends at position {link.position}, where no commit ended")
        if count < promised:
            return self._wrong(f"{what}: {count} commits are left, {promised} were promised")
        damage = [report for report in log.reports if not report.startswith("EPOCH")]
        if damage:
            return self._wrong(f"{what}: a power cut is taken for damage: {damage[0]}")
        sentence = _misread(log, record, count, rng)
        return self._wrong(f"{what}: {sentence}") if sentence else (log, count)

    def once_more(self, log: SegmentLog, record: Record, count: int, rng: Random, what: str) -> None:
        """A log that was recovered and served is found just so by the next one, and so is what was written since."""
        disk, kind = log.disk, rng.choice(["none", "all", "torn", "sectors", None])
        assert isinstance(disk, SimDisk)
        what = f"{what}, recovered, cut again ({kind})"
        found = self.log(disk.crash(rng, kind), record, count, rng, what)
        if found is not None and found[1] != count:
            self._wrong(f"{what}: it is not the same")
        log.writer.write(log.take(empty=True))
        number, position, active = log.writer.mark()
        assert active is not None
        log.writer.sync_to(number, position, active)
        after, image = log.writer.link, disk.crash(rng, kind)
        self.states += 1
        try:
            image.lock()
            if SegmentLog(image, rng.randbytes, self.storage).writer.link[:2] != after[:2]:
                self._wrong(f"{what}: what was written after the recovery is gone")
        except Exception as error:
            self._wrong(f"{what}: written on, it does not open: {error!r}")

    def key(self, log: SegmentLog, count: int) -> Key:
        return count, log.told[-1], tuple((segment.start, segment.indexed) for segment in log.shelf.segments)

    def is_new(self, record: Record, key: Key, now: int) -> bool:
        """Whether no store was found like this yet."""
        full = (id(record), key, now)
        known = full in self._known
        self._known.add(full)
        return not known

    def store(
        self, make: Callable[[], SimDisk], record: Record, count: int, now: int, token: bytes, rng: Random, what: str
    ) -> World | None:
        """Recover a whole store. The world that it gives, to go on with; None if something is wrong with it."""
        self.stores += 1
        clock = ManualClock(to_datetime(now))
        try:
            world = World(make(), clock, rng.randbytes, self.storage)
        except Exception as error:  # whatever it is, a store that was promised to open does not
            return self._wrong(f"{what}: the store does not open: {error!r}")
        found = ripe_snapshot(world.engine.store.heart, now)
        for sentence in differences(record.snapshot(count, now), found):
            return self._wrong(f"{what}: the store is not the fold of its {count} commits: {sentence}")
        for sentence in (_unlike(world, record, count), _repeating(world, record, count, token)):
            if sentence:
                return self._wrong(f"{what}: {sentence}")
        return world

    def _wrong(self, sentence: str) -> None:
        self.violations.append(sentence)


def _misread(log: SegmentLog, record: Record, count: int, rng: Random) -> str:
    """What is wrong with one of the frames that were found, chosen by chance."""
    tapes = [tape for tape in log._tapes.values() if tape.base]
    if not tapes:
        return ""
    tape = tapes[rng.randrange(len(tapes))]
    row: Row = tape.row(rng.randrange(len(tape.base)))
    for one in reversed(record.commits[:count]):
        if one.position <= row.position < one.end:
            place = row.position - one.position
            meant = unpack(one.data[place : place + row.length])
            found = log.shelf.frame(tape, row)
            same = (found.topic, found.partition, found.base, found.ids) == (
                meant.topic,
                meant.partition,
                meant.base,
                meant.ids,
            )
            return "" if same and found.rows.payload == meant.rows.payload else f"the frame at {row} reads otherwise"
    return f"{row} is of no commit that was recovered"


def _unlike(world: World, record: Record, count: int) -> str:
    """What is wrong with the messages: each that is alive has to read as it was published, none may be missing."""
    meant = record.frames(count)
    for topic in world.engine.store.state.topics.values():
        for partition in topic.partitions:
            place = meant.get((topic.id, partition.number), {})
            if place and partition.next != max(place) + 1:
                return f"{topic.name}/{partition.number} goes on at {partition.next}, not at {max(place) + 1}"
            for offset in range(partition.next):
                if offset < partition.floor and offset not in partition.kept:
                    continue
                found = world.log.frame(topic.id, partition.number, offset)
                if found is None:
                    return f"message {offset} of {topic.name}/{partition.number} is not there"
                frame, row = place[offset]
                there = offset - found.base
                if _message(found, there) != _message(frame, row):
                    return f"message {offset} of {topic.name}/{partition.number} is not what was published"
                if world.log.find(frame.id_of(row)) is None:
                    return f"message {frame.id_of(row)} is not found by its id"
    return ""


def _message(frame: object, row: int) -> tuple[object, ...]:
    rows = frame.rows  # type: ignore[attr-defined]
    columns = (rows.payload, rows.key, rows.headers, rows.idempotency_key)
    numbers = [frame.number(name, row) for name in ("priority", "deliver_at", "expires_at")]  # type: ignore[attr-defined]
    stamps = (frame.id_of(row), frame.at_of(row))  # type: ignore[attr-defined]
    return (*(None if column is None else column[row] for column in columns), *numbers, *stamps)


def _repeating(world: World, record: Record, count: int, token: bytes) -> str:
    """What would be given out a second time."""
    store = world.engine.store
    last = max((id for id, number in record.ids.items() if number <= count), default=0)
    if store.ids.take(1, world.clock.now()) <= last:
        return "ids start again"
    if store.tokens.take() <= token:
        return f"tokens start again in epoch {world.log.epoch}"
    numbers = [event.topic for one in record.commits[:count] for event in one.events]
    if store.topic_id < max(numbers, default=0):
        return "the numbers of topics start again"
    return ""
