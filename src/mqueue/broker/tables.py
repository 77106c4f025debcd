"""Whole batches going out as Arrow: a lease as a table, a scan as record batches. No message is touched one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from mqueue.broker.deliver import TopicDesk, lost_sentence
from mqueue.broker.given import check_ids
from mqueue.broker.portion import fit
from mqueue.broker.settle import Settlement
from mqueue.heart.group import Lease
from mqueue.heart.heart import Outcome
from mqueue.heart.runs import full, tight
from mqueue.model.errors import Corrupt, LeaseLost, Unavailable
from mqueue.model.events import Span
from mqueue.model.times import Duration
from mqueue.wire.arrow import BODY, HEADERS, constant
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Numbers


class ArrowLease:
    """A lease whose messages are a table. Settles as a whole, or what is left of it; or the messages with some ids."""

    def __init__(self, desk: TopicDesk, lease: Lease, pieces: list[tuple[Frame, range, int]]) -> None:
        self._desk = desk
        self._lease = lease
        self._pieces = pieces
        self._moved = _moved(desk, pieces)
        self._settled: set[int] = set()
        """The ids of those that were settled apart from the rest."""

    def __len__(self) -> int:
        return sum(len(rows) for _, rows, _ in self._pieces)

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @classmethod
    def of(cls, desk: TopicDesk, lease: Lease) -> ArrowLease:
        """What a lease holds. What turns out to be damaged is taken out of it."""
        try:
            return cls(desk, lease, cls._read(desk, lease))
        except Corrupt:
            return cls(desk, lease, cls._read(desk, lease)) if desk.set_aside(lease) else cls.empty()
        except Unavailable:
            if not desk.set_aside(lease):
                raise
            return cls(desk, lease, cls._read(desk, lease))

    @staticmethod
    def _read(desk: TopicDesk, lease: Lease) -> list[tuple[Frame, range, int]]:
        pieces: list[tuple[Frame, range, int]] = []
        for run in lease.runs:
            for frame, rows in desk.pieces(run):
                if frame.open:  # the table is made later, without the lock
                    desk.engine.store.log.seal(frame)
                if pieces and _adjoins(pieces[-1], frame, rows, run.attempt):  # the next lane of a sorted frame
                    rows = range(pieces.pop()[1].start, rows.stop)
                pieces.append((frame, rows, run.attempt))
        return pieces

    @classmethod
    def first_of(cls, found: list[ArrowLease]) -> ArrowLease:
        """The lease that was found; an empty one if none was."""
        return found[0] if found else cls.empty()

    @classmethod
    def empty(cls) -> ArrowLease:
        lease = cls.__new__(cls)
        lease._pieces = []
        return lease

    @cached_property
    def table(self) -> pa.Table:
        """The messages, in delivery order."""
        batches = [batch_of(frame, rows.start, rows.stop, attempt) for frame, rows, attempt in self._pieces]
        if not batches:
            return SCHEMA.empty_table()
        table = pa.Table.from_batches(batches)
        return table if self._moved is None else _with_due(table, self._moved)

    @property
    def token(self) -> str:
        """What proves the right to settle, also elsewhere; empty if nothing was handed out."""
        return self._lease.token.hex() if self._pieces else ""

    @property
    def remaining_ms(self) -> int:
        """For how long it is held."""
        return max(0, self._lease.until - self._desk.engine.clock.now()) if self._pieces else 0

    def ack(self, *, ids: Iterable[int] | None = None) -> Settlement:
        return self._settle("ack", ids=ids)

    def nack(
        self, delay: Duration | None = None, error: object = None, *, ids: Iterable[int] | None = None
    ) -> Settlement:
        return self._settle("nack", delay, error, ids)

    def reject(self, error: object = None, *, ids: Iterable[int] | None = None) -> Settlement:
        return self._settle("reject", None, error, ids)

    def release(self, *, ids: Iterable[int] | None = None) -> Settlement:
        return self._settle("release", ids=ids)

    def extend(self, visibility: Duration, *, ids: Iterable[int] | None = None) -> Settlement:
        return self._settle("extend", visibility, ids=ids)

    def _settle(
        self, verb: str, wait: Duration | None = None, error: object = None, ids: Iterable[int] | None = None
    ) -> Settlement:
        if not self._pieces:
            return Settlement(0)
        if ids is not None:
            return self._settle_some(verb, wait, error, ids)
        if self._settled:
            return self._settle_some(verb, wait, error, set(self.table["id"].to_pylist()) - self._settled)
        lease = self._lease
        whole = lease.open == lease.count  # nothing of it is settled or lost, as far as we know: the short way
        outcome = self._desk.settle_spans(lease, verb, None if whole else self._spans(), wait, error)
        if whole and not outcome.settled:
            outcome = self._desk.settle_spans(lease, verb, self._spans(), wait, error)
        lost = self._ids(outcome.lost) if outcome.lost else ()
        if not outcome.settled:
            raise LeaseLost(lost_sentence(verb, lost), lost=lost)
        return Settlement(outcome.settled, lost)

    def _settle_some(self, verb: str, wait: Duration | None, error: object, ids: Iterable[int]) -> Settlement:
        """The messages with these ids. Those that never were in the table are lost, too."""
        chosen = check_ids(ids)
        spans = self._named(chosen)
        if not chosen:
            return Settlement(0)
        outcome = self._desk.settle_spans(self._lease, verb, spans, wait, error) if spans else Outcome(0)
        lost = (*sorted(chosen.difference(self.table["id"].to_pylist())), *self._ids(outcome.lost))
        if not outcome.settled:
            raise LeaseLost(lost_sentence(verb, lost), lost=lost)
        if verb != "extend":
            self._settled |= chosen.difference(lost)
        return Settlement(outcome.settled, lost)

    def _named(self, ids: set[int]) -> tuple[Span, ...]:
        """The places of messages with these ids, as far as they were handed out."""
        chosen = np.array(list(ids), np.int64)
        spans = []
        for frame, rows, _ in self._pieces:
            found = np.isin(frame.column_ids()[rows.start : rows.stop], chosen)
            mask = int.from_bytes(np.packbits(found, bitorder="little").tobytes(), "little")
            if mask:
                start, stop, mask = tight(frame.base + rows.start, mask)
                spans.append((frame.partition, start, stop, mask))
        return tuple(spans)

    def _spans(self) -> tuple[Span, ...]:
        """What was handed out, piece by piece."""
        return tuple(
            (frame.partition, frame.base + rows.start, frame.base + rows.stop, full(len(rows)))
            for frame, rows, _ in self._pieces
        )

    def _ids(self, places: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        """The ids of (partition, offset), in the order of the table."""
        chosen = set(places)
        return tuple(
            frame.id_of(row)
            for frame, rows, _ in self._pieces
            for row in rows
            if (frame.partition, frame.base + row) in chosen
        )


def leased(desk: TopicDesk, lease: Lease, now: int) -> ArrowLease:
    """What was leased just now; where answers are bounded, as much of it as fits one. Hold the lock."""
    if desk.engine.answers_bounded:
        fit(desk, lease, now)
    return ArrowLease.of(desk, lease)


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("attempt", pa.int32()),
        ("priority", pa.int32()),
        ("published_at", pa.timestamp("ms", "UTC")),
        ("deliver_at", pa.timestamp("ms", "UTC")),
        ("expires_at", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("headers", HEADERS),
        ("payload", pa.binary()),
    ]
)


def _moved(desk: TopicDesk, pieces: list[tuple[Frame, range, int]]) -> list[int] | None:
    """When each message was due, if some of them were given another time after the publish."""
    if not any(partition.due for partition in desk.topic.partitions):
        return None
    return [desk.due(frame, row) for frame, rows, _ in pieces for row in rows]


def _with_due(table: pa.Table, due: list[int]) -> pa.Table:
    place = SCHEMA.get_field_index("deliver_at")
    return table.set_column(place, SCHEMA.field(place), pa.array(due, pa.int64()).view(_TIME))


def _adjoins(piece: tuple[Frame, range, int], frame: Frame, rows: range, attempt: int) -> bool:
    return piece[0] is frame and piece[1].stop == rows.start and piece[2] == attempt


def batch_of(frame: Frame, start: int, stop: int, attempt: int) -> pa.RecordBatch:
    """Some rows of a frame as a record batch with all columns. Those of a whole frame are made once, and cut."""
    whole = frame.delivered or _whole(frame)
    frame.delivered = whole
    piece = whole.slice(start, stop - start)
    if attempt != 1:
        attempts = constant(attempt, stop - start, pa.int32())
        piece = piece.set_column(SCHEMA.get_field_index("attempt"), SCHEMA.field("attempt"), attempts)
    return piece


def _whole(frame: Frame) -> pa.RecordBatch:
    """A frame with all columns, as it is delivered the first time."""
    count = frame.count
    body = frame.batch
    at = frame.column_at()
    published = due = pa.array(at).view(_TIME)
    if not isinstance(frame.deliver_at, int) or frame.deliver_at:
        due = pa.array(np.maximum(at, frame.deliver_at)).view(_TIME)
    arrays = [
        pa.array(frame.column_ids()),
        constant(frame.partition, count, pa.int32()),
        pa.array(np.arange(frame.base, frame.base + count, dtype=np.int64)),
        constant(1, count, pa.int32()),
        _column(frame.priority, count),
        published,
        due,
        _expiry(frame.expires_at, count),
        _body(body, "key", count),
        _body(body, "headers", count),
        body.column("payload"),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_TIME = pa.timestamp("ms", "UTC")


def _column(values: Numbers, count: int) -> pa.Array:
    return constant(values, count, pa.int32()) if isinstance(values, int) else pa.array(np.asarray(values), pa.int32())


def _body(body: pa.RecordBatch, name: str, count: int) -> pa.Array:
    return body.column(name) if name in body.schema.names else constant(None, count, BODY[name])


def _expiry(column: Numbers, count: int) -> pa.Array:
    """Expiry times; 0 stands for never."""
    if isinstance(column, int):
        return constant(column or None, count, _TIME)
    values = np.asarray(column, np.int64)
    return pa.array(values, mask=values == 0).view(_TIME)


def scan_batches(pieces: Iterator[tuple[Frame, int, int]]) -> Iterator[pa.RecordBatch]:
    for frame, start, stop in pieces:
        yield batch_of(frame, start, stop, 0)
