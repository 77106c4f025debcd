"""What happened to many messages, as tables: one row for each message and each thing that happened to it.

The trace of every message of a range of offsets at once, in the order of offsets, each story from its beginning. A page
is a window of offsets, cut short where it would grow too large. Spans and masks are expanded as whole columns; there
is Python for each event and each frame, none for each message. What retention has dropped is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from mqueue.broker import replay
from mqueue.broker.deliver import TopicDesk
from mqueue.broker.engine import Engine
from mqueue.broker.telling import Told, detail, told
from mqueue.heart.runs import full
from mqueue.model import events as ev
from mqueue.model.errors import Refused
from mqueue.model.lifecycle import Kind
from mqueue.model.limits import FRAME_ROWS_MAX, MIB
from mqueue.wire.frame import Frame

Ints = NDArray[np.int64]

WINDOW = 8 * FRAME_ROWS_MAX
"""So many offsets are looked at for one page. The log finds events by blocks of that length, or of a part of it."""
PAGE_BYTES_MAX = 16 * MIB
_ROW_BYTES = 96

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("id", pa.int64()),
        ("event", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("group", pa.string()),
        ("consumer", pa.string()),
        ("attempt", pa.int32()),
        ("error", pa.string()),
    ]
)
"""`consumer` and `attempt` of what became of a delivery are those of the delivery, if that is still known."""

_OF_A_DELIVERY = frozenset((Kind.EXTENDED, Kind.NACKED, Kind.RELEASED, Kind.TIMED_OUT, Kind.ACKNOWLEDGED, Kind.DEAD))

_Piece = tuple[ev.Event, Told]
"""Some messages that the same happened to at the same time."""


class Page(Struct):
    batch: pa.RecordBatch
    next: int | None
    """The offset to go on with; None: this was all."""


def events(
    engine: Engine, namespace: str, topic: str, partition: int, start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """All pages of a range, those that are empty left out."""
    return _walk(*_covered(engine, namespace, topic, partition, start, stop))


def page(engine: Engine, namespace: str, topic: str, partition: int, start: int, stop: int) -> Page:
    """The first page of a range."""
    return _page(*_covered(engine, namespace, topic, partition, start, stop))


def check_numbers(partition: int, start: int, stop: int) -> None:
    """Raise unless they are whole numbers."""
    for name, number in (("partition", partition), ("start", start), ("stop", stop)):
        if type(number) is not int:
            raise Refused(f"{name} {number!r:.80}; it takes a whole number", code="bad_position")


def _walk(desk: TopicDesk, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    place: int | None = start
    while place is not None:
        found = _page(desk, partition, place, stop)
        if found.batch.num_rows:
            yield found.batch
        place = found.next


def _covered(
    engine: Engine, namespace: str, topic: str, partition: int, start: int, stop: int
) -> tuple[TopicDesk, int, int, int]:
    """What there is of a range of offsets."""
    check_numbers(partition, start, stop)
    with engine.lock:
        engine.tick()
        desk = TopicDesk(engine, engine.known_topic(namespace, topic))
        [(_, first, end)] = replay.stretches(desk, start, stop, partition)
    return desk, partition, first, end


def _page(desk: TopicDesk, partition: int, start: int, stop: int) -> Page:
    end = min(stop, start - start % FRAME_ROWS_MAX + WINDOW)
    if start >= end:
        return Page(pa.RecordBatch.from_pylist([], SCHEMA), None)
    store = desk.engine.store
    with desk.engine.lock:
        store.flush()
        journal: Iterable[ev.Event] = ()
        if desk.topic.settings.trace:
            journal = store.log.events(desk.topic.id, partition, start, end)
    pieces = [(event, part) for event in journal for part in told(event, partition, start, end)]
    cut = _fitting(pieces, start, end)
    if cut < end:
        pieces = [(event, part) for event, whole in pieces if (part := _below(whole, cut)).bits]
    frames = replay.scan_frames(desk, [(partition, start, cut)])
    return Page(_batch(partition, _Born.of(frames), pieces), cut if cut < stop else None)


def _fitting(pieces: list[_Piece], start: int, stop: int) -> int:
    """How far a page goes: as far as it stays small enough, and one message at least."""
    born = 2 * _ROW_BYTES * (stop - start)
    if born + sum(part.bits.bit_count() * _weight(event) for event, part in pieces) <= PAGE_BYTES_MAX:
        return stop
    weights = np.full(stop - start, 2 * _ROW_BYTES, np.int64)
    for event, part in pieces:
        weights[_offsets(part) - start] += _weight(event)
    return start + max(1, int(np.searchsorted(np.cumsum(weights), PAGE_BYTES_MAX, side="right")))


def _weight(event: ev.Event) -> int:
    """About how many bytes a row takes."""
    return _ROW_BYTES + len(_error(event))


def _below(part: Told, stop: int) -> Told:
    return part._replace(bits=part.bits & full(max(0, stop - part.first)))


def _expanded(parts: list[Told], counts: list[int]) -> Ints:
    """The offsets of all parts, one after the other. Those without holes, as most are, cost no array of their own."""
    ends = np.cumsum(np.array(counts, np.int64))
    shift = np.array([part.first for part in parts], np.int64) - ends + counts
    found = np.arange(sum(counts), dtype=np.int64) + np.repeat(shift, counts)
    for part, count, end in zip(parts, counts, ends.tolist(), strict=True):
        if count < part.bits.bit_length():
            found[end - count : end] = _offsets(part)
    return found


def _offsets(part: Told) -> Ints:
    """The offsets of a mask."""
    length = part.bits.bit_length()
    if part.bits.bit_count() == length:
        return np.arange(part.first, part.first + length, dtype=np.int64)
    data = np.frombuffer(part.bits.to_bytes((length + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(data, bitorder="little")) + part.first


class _Born(NamedTuple):
    """Of each message that is there: its offset, its id, when it was published, and whether it was not due then."""

    offsets: Ints
    ids: Ints
    at: Ints
    late: NDArray[np.bool_]

    @classmethod
    def of(cls, frames: Iterator[tuple[Frame, int, int]]) -> _Born:
        """No frame is held on to: of a page of large messages there may not be room for two."""
        columns = [cls(*(np.empty(0, kind) for kind in (np.int64, np.int64, np.int64, bool)))]
        columns += [cls.rows_of(frame, first, stop) for frame, first, stop in frames]
        return cls(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))

    @classmethod
    def rows_of(cls, frame: Frame, first: int, stop: int) -> _Born:
        due = frame.deliver_at if isinstance(frame.deliver_at, int) else np.asarray(frame.deliver_at)[first:stop]
        at = frame.column_at()[first:stop]
        offsets = np.arange(frame.base + first, frame.base + stop, dtype=np.int64)
        return cls(offsets, frame.column_ids()[first:stop], at, due > at)


def _batch(partition: int, born: _Born, pieces: list[_Piece]) -> pa.RecordBatch:
    """The rows of a page. They are made chunk by chunk: what was published, what was scheduled, then the pieces."""
    known, late = born.offsets, born.late
    counts = [part.bits.bit_count() for _, part in pieces]
    lengths = [len(known), int(late.sum()), *counts]
    offsets = np.concatenate((known, known[late], _expanded([part for _, part in pieces], counts)))
    chunk = np.repeat(np.arange(len(lengths)), lengths)
    times = np.repeat(np.array([0, 0, *(event.at for event, _ in pieces)], np.int64), lengths)
    times[: lengths[0] + lengths[1]] = np.concatenate((born.at, born.at[late]))

    place = np.searchsorted(known, offsets)
    there = known[np.minimum(place, len(known) - 1)] == offsets if len(known) else np.zeros(len(offsets), bool)
    order = np.argsort(offsets, kind="stable")
    order = order[there[order]]

    notes = _Notes(pieces)
    delivery = notes.deliveries(offsets, chunk)[order]
    chunk = chunk[order]
    by = pa.array(delivery, mask=delivery < 0)
    columns = [
        pa.repeat(pa.scalar(partition, pa.int32()), len(order)),
        pa.array(offsets[order]),
        pa.array(born.ids[place[order]]),
        notes.kinds.take(pa.array(chunk)),
        pa.array(times[order] * 1000).view(SCHEMA.field("time").type),
        notes.groups.take(pa.array(chunk)),
        notes.consumers.take(by),
        notes.attempts.take(by),
        notes.errors.take(pa.array(chunk)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class _Notes:
    """What is said of whole chunks: the first two are what was published and what was scheduled then."""

    def __init__(self, pieces: list[_Piece]) -> None:
        kinds = [Kind.PUBLISHED, Kind.SCHEDULED, *(part.kind for _, part in pieces)]
        groups = [None, None, *(getattr(event, "group", None) for event, _ in pieces)]
        attempts = [0, 0, *(part.attempt for _, part in pieces)]
        self.kinds = pa.array([kind.value for kind in kinds], pa.string())
        self.groups = pa.array(groups, pa.string())
        self.consumers = pa.array(
            [None, None, *(getattr(event, "consumer", None) or None for event, _ in pieces)], pa.string()
        )
        self.errors = pa.array([None, None, *(_error(event) or None for event, _ in pieces)], pa.string())
        self.attempts = pa.array(attempts, pa.int32())
        codes = {group: code for code, group in enumerate(dict.fromkeys(groups))}
        self._group = np.array([codes[group] for group in groups])
        self._delivers = np.array(attempts) > 0
        self._follows = np.array([kind in _OF_A_DELIVERY for kind in kinds])

    def deliveries(self, offsets: Ints, chunk: Ints) -> Ints:
        """Of each row the chunk of the delivery that it is, or that it is the end of; -1 where there is none."""
        order = np.lexsort((self._group[chunk], offsets))  # stable: each story stays in order
        offset, told = offsets[order], chunk[order]
        delivers = self._delivers[told]
        last = np.maximum.accumulate(np.where(delivers, np.arange(len(told)), 0))
        same = (offset[last] == offset) & (self._group[told[last]] == self._group[told]) & delivers[last]
        found = np.empty_like(chunk)
        found[order] = np.where(same & (delivers | self._follows[told]), told[last], -1)
        return found


def _error(event: ev.Event) -> str:
    """What went wrong, in words."""
    if isinstance(event, ev.Voided):
        return detail(event, 0)
    return event.error if isinstance(event, ev.Settled) else ""
