"""Scans a page at a time, for readers elsewhere: each page says where the next one begins.

A scan that was given no end ends where the log ended when it began; the place to go on carries that moment along, so
that whoever keeps publishing cannot keep a reader reading. Takes the lock for one frame at a time; may read the disk.
"""

from __future__ import annotations

from msgspec import Struct

from mqueue.broker import past, replay
from mqueue.broker.commits import disregard
from mqueue.broker.deliver import TopicDesk
from mqueue.broker.engine import Archive
from mqueue.broker.explain import find
from mqueue.broker.loop import LoopBroker
from mqueue.broker.shown import rows_out
from mqueue.model.errors import Refused
from mqueue.model.limits import TIME_MS_MAX
from mqueue.model.times import to_datetime
from mqueue.wire.frame import Frame
from mqueue.wire.json import MessageOut

_DIGITS_MAX = 19


class Asked(Struct, frozen=True):
    topic: str
    start: replay.Position | None
    stop: replay.Position | None
    partition: int | None
    limit: int
    bytes_max: int
    cursor: str = ""
    """`next` of the page before."""
    include_deleted: bool = False


class Page(Struct):
    desk: TopicDesk
    pieces: list[tuple[Frame, range]]
    next: str | None
    """Where to go on; None: this was all."""


class _Place(Struct, frozen=True):
    """As text `partition.offset.end`: the end is a time in milliseconds, 0 where the caller gave one."""

    partition: int
    offset: int
    end: int


def page(broker: LoopBroker, asked: Asked) -> Page:
    """The next messages, as many as fit, at least one if there is one."""
    try:
        return _page(broker, asked)
    finally:
        disregard()  # time passed while it looked; threads that only look would remember it for ever


def _page(broker: LoopBroker, asked: Asked) -> Page:
    place = _place(asked.cursor)
    archive = past.archive_of(broker._engine) if asked.include_deleted else None
    desk, covered, end = _covered(broker, asked, place, archive)
    pieces: list[tuple[Frame, range]] = []
    room, spare = asked.limit, asked.bytes_max
    found = replay.scan_frames(desk, covered) if archive is None else past.scan_frames(desk, archive, covered)
    for frame, first, stop in found:
        taken = _fitting(frame, range(first, stop), room, spare, not pieces)
        if taken:
            pieces.append((frame, taken))
            room -= len(taken)
            spare -= _size(frame, taken)
        if len(taken) < stop - first or not room:
            return Page(desk, pieces, _next(covered, frame.partition, frame.base + taken.stop, end))
    return Page(desk, pieces, None)


def one(broker: LoopBroker, id: int) -> MessageOut:
    """A message by its id, as it lies in the log."""
    engine = broker._engine
    with engine.lock:
        engine.tick()
        topic, frame, row = find(engine, broker._namespace, id)
        return next(rows_out(TopicDesk(engine, topic), frame, range(row, row + 1), 0))


def _covered(
    broker: LoopBroker, asked: Asked, place: _Place | None, archive: Archive | None
) -> tuple[TopicDesk, list[tuple[int, int, int]], int]:
    """What is left to be read, and when the scan ends if nobody said so."""
    engine = broker._engine
    with engine.lock:
        now = engine.tick()
        desk = broker._known_desk(asked.topic)
        replay.check_window(asked.start, asked.stop)
        end = 0 if asked.stop is not None else place.end if place else now + 1
        stop = asked.stop if asked.stop is not None else to_datetime(end)
        covered = replay.stretches(desk, asked.start, stop, asked.partition)
    if archive is not None:
        covered = past.widened(desk, archive, covered, asked.start, asked.stop)
    if place is None:
        return desk, covered, end
    rest = [
        (number, max(first, place.offset if number == place.partition else first), until)
        for number, first, until in covered
        if number >= place.partition
    ]
    return desk, rest, end


def _fitting(frame: Frame, rows: range, room: int, spare: int, first: bool) -> range:
    """As many rows as there is room for; the first of a page always fits."""
    rows = rows[:room]
    if _size(frame, rows) <= spare:
        return rows
    size = 0
    for number, payload in enumerate(frame.rows.payload[rows.start : rows.stop]):
        size += len(payload) + 256
        if size > spare and (number or not first):
            return rows[:number]
    return rows


def _size(frame: Frame, rows: range) -> int:
    return frame.size * len(rows) // frame.count


def _next(covered: list[tuple[int, int, int]], partition: int, offset: int, end: int) -> str | None:
    """The place behind what was taken; None if nothing is left there."""
    for number, first, stop in covered:
        at = offset if number == partition else first
        if number >= partition and at < stop:
            return f"{number}.{at}.{end}"
    return None


def _place(cursor: str) -> _Place | None:
    if not cursor:
        return None
    parts = cursor.split(".")
    numbers = [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) <= _DIGITS_MAX]
    if len(parts) != 3 or len(numbers) != 3 or numbers[2] > TIME_MS_MAX:
        raise Refused(f"cursor {cursor!r:.80}; it takes what the page before gave", code="bad_position")
    return _Place(*numbers)
