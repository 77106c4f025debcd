"""A user's table on its way in: checked column by column, sorted and cut into frames, never message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqueue.broker.engine import Engine
from mqueue.broker.intake import check_fairness_key, check_idempotency_key, check_rows, check_size
from mqueue.broker.publish import publish_rows, reached
from mqueue.heart.topic import Topic
from mqueue.model.errors import BadFrame, BadPriority, BadTime, Refused, TooLarge
from mqueue.model.limits import TIME_MS_MAX, Limits
from mqueue.model.message import WAL, Receipt
from mqueue.model.priority import NORMAL, PRIORITY_MAX, PRIORITY_MIN
from mqueue.store.place import check_priorities, place_batch
from mqueue.wire.arrow import BODY, decode, largest, total
from mqueue.wire.frame import Frame, one_or_many
from mqueue.wire.rows import Numbers, Rows

_SPARE_BYTES = 64 * 1024
_NUMBERS = {"priority", "deliver_at", "expires_at"}
COLUMNS = ("payload", "key", "headers", "priority", "deliver_at", "expires_at", "idempotency_key", "fairness_key")


class Receipts(Sequence[Receipt]):
    """The receipts of a table, made when they are looked at."""

    def __init__(
        self, topic: str, asked: str, reached: str, placed: list[tuple[Frame, NDArray[np.intp] | range]]
    ) -> None:
        self._topic = topic
        self._asked = asked
        self._reached = reached
        self._placed = placed
        self._count = sum(frame.count for frame, _ in placed)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(self._count))]
        row = index + self._count if index < 0 else index
        for frame, rows in self._placed:
            if isinstance(rows, range):
                found = [row - rows.start] if row in rows else []
            else:
                found = np.flatnonzero(rows == row).tolist()
            if found:
                place = found[0]
                offset = frame.base + place if frame.base >= 0 else -1
                return Receipt(frame.id_of(place), self._topic, frame.partition, offset, False, self.durability)
        raise IndexError(index)

    @property
    def durability(self) -> str:
        """What was reached: what was asked for, or more where the log of a node was not to be had."""
        return self._reached if self._asked == WAL and self._placed[0][0].base >= 0 else self._asked

    def stretches(self) -> list[tuple[int, int, int, int]]:
        """(first id, partition, first offset, count) of neighbours, in the table's order; none if it was sorted, or if
        there are no offsets."""
        if not all(isinstance(rows, range) and frame.base >= 0 for frame, rows in self._placed):
            return []
        return [(frame.ids[0], frame.partition, frame.base, frame.count) for frame, _ in self._placed]

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """Ids, partitions and offsets, in the order of the table."""
        ids, offsets = np.empty(self._count, np.int64), np.empty(self._count, np.int64)
        partitions = np.empty(self._count, np.int32)
        for frame, rows in self._placed:
            places = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
            ids[places] = frame.column_ids()
            offsets[places] = np.arange(frame.base, frame.stop) if frame.base >= 0 else -1
            partitions[places] = frame.partition
        return ids, partitions, offsets


def publish_table(
    engine: Engine, namespace: str, name: str, table: Any, durability: str | None = None
) -> Sequence[Receipt]:
    """One call, one commit, all or none."""
    batch = checked_table(table, engine.store.limits)
    with engine.reaching(durability):
        now = engine.tick()
        topic = engine.draft_topic(namespace, name, now)
        store = engine.store
        store.check_disk()
        body, rows = columns_of(batch, topic, store.limits, now)
        if body is None:
            return reached(publish_rows(engine, topic, rows, now), durability)
        check_priorities(topic, rows)
        store.check_room(topic, batch.num_rows)
        store.ids.check(batch.num_rows, now)
        if not topic.id:
            store.check_topics(namespace, 1)
        engine.quotas.admit(namespace, batch.num_rows, now)
        topic = engine.topic(namespace, name, now)
        store.make_room(topic, batch.num_rows, now)
        placed = list(place_batch(topic, body, rows, store.next_partition(topic), now))
        store.append(topic, [frame for frame, _ in placed], now)
        if engine.waiters:
            engine.wake(topic)
        engine.wake_written()
        return Receipts(name, durability or store.log.durability, store.log.durability, placed)


def columns_of(batch: pa.RecordBatch, topic: Topic, limits: Limits, now: int) -> tuple[pa.RecordBatch | None, Rows]:
    """A table that was checked as its body and its numbers. No body: each message has to be looked at; all is rows."""
    rows = _numbers_of(batch, topic, now)
    body = batch.select([column for column in batch.schema.names if column in BODY])
    if "idempotency_key" not in body.schema.names and "headers" not in body.schema.names:
        return body, rows
    whole = decode(body)
    whole.priority, whole.deliver_at, whole.expires_at = rows.priority, rows.deliver_at, rows.expires_at
    check_rows(whole, limits)
    return None, whole


def checked_table(table: Any, limits: Limits) -> pa.RecordBatch:
    """The table as one valid record batch of columns that we know, none of them too large."""
    if isinstance(table, pa.Table):
        batches = table.to_batches()
        if len(batches) > 1:
            batches = table.combine_chunks().to_batches()
        table = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
    if not isinstance(table, pa.RecordBatch):
        raise BadFrame(f"{type(table).__name__} is no pyarrow Table or RecordBatch")
    names = table.schema.names
    for name in names:
        if name not in COLUMNS or names.count(name) > 1:
            raise BadFrame(f"column {name!r} is unknown or stands twice; allowed: {', '.join(COLUMNS)}")
    if "payload" not in names:
        raise BadFrame(f"column 'payload' is missing; there are: {', '.join(names) or 'none'}")
    if not table.num_rows:
        raise Refused("the table has no rows", code="empty")
    if table.num_rows > limits.call_messages_max:
        raise TooLarge(
            f"{table.num_rows} messages in one call; {limits.call_messages_max} are allowed", code="too_many"
        )
    try:
        table.validate(full=True)
        arrays = [_cast(table.column(name), BODY.get(name)) for name in names]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadFrame(f"the table does not fit: {error}") from error
    batch = pa.RecordBatch.from_arrays(arrays, names)
    if batch.get_total_buffer_size() > 2 * batch.nbytes + _SPARE_BYTES:  # a small part of a large table: not all of it
        batch = batch.take(pa.array(np.arange(batch.num_rows)))
    _check_sizes(batch, limits)
    _check_texts(batch)
    return batch


def _cast(column: pa.Array, kind: pa.DataType | None) -> pa.Array:
    return column if kind is None or column.type == kind else column.cast(kind)


def _check_texts(batch: pa.RecordBatch) -> None:
    """What a draft's headers and keys must be, those of a table must be too."""
    names = batch.schema.names
    if "headers" in names:
        pairs = batch.column("headers").flatten()
        if any(part.null_count for part in pairs.flatten()):
            raise BadFrame("a header has no name or no value")
    for name, check in (("idempotency_key", check_idempotency_key), ("fairness_key", check_fairness_key)):
        for key in batch.column(name).unique().to_pylist() if name in names else ():
            if key is not None:
                check(key)


def _check_sizes(batch: pa.RecordBatch, limits: Limits) -> None:
    if batch.column("payload").null_count:
        raise BadFrame(f"{batch.column('payload').null_count} payloads are null")
    for name, most in (("payload", limits.payload_bytes_max), ("key", limits.key_bytes_max)):
        if name not in batch.schema.names or total(batch.column(name)) <= most:
            continue  # if all of them together are short, so is each
        if (size := largest(batch.column(name))) > most:
            raise TooLarge(f"{name} of {size} bytes; {most} are allowed", code=f"{name}_too_large")
    check_size(_size(batch), limits)


def _size(batch: pa.RecordBatch) -> int:
    """What counts of a call: payloads, keys and headers, as if they were handed in one by one."""
    names = batch.schema.names
    columns = [batch.column(name) for name in ("payload", "key") if name in names]
    if "headers" in names:
        columns += batch.column("headers").flatten().flatten()
    return sum(map(total, columns))


def _numbers_of(batch: pa.RecordBatch, topic: Topic, now: int) -> Rows:
    """Priorities and times of a table."""
    if topic.settings.default_ttl_ms is None and not _NUMBERS & set(batch.schema.names):
        return Rows([])
    urgent = _numbers(batch, "priority", NORMAL, PRIORITY_MIN, PRIORITY_MAX, BadPriority)
    due = _numbers(batch, "deliver_at", 0, 0, TIME_MS_MAX, BadTime)
    expires = _numbers(batch, "expires_at", 0, 0, TIME_MS_MAX, BadTime)
    from_when = np.maximum(np.asarray(due, np.int64), now)
    settings = topic.settings
    if settings.max_delay_ms is not None and (from_when - now).max() > settings.max_delay_ms:
        raise BadTime(f"a deliver_at is more than max_delay, {settings.max_delay_ms} ms, ahead", code="delay_too_long")
    ends = np.asarray(expires, np.int64)
    if settings.default_ttl_ms is not None:
        ends = np.atleast_1d(np.where(ends == 0, from_when + settings.default_ttl_ms, ends))
        if ends.max() > TIME_MS_MAX:
            raise BadTime(f"default_ttl {settings.default_ttl_ms} ms ends after the year 9999, the last there is")
        expires = one_or_many(ends)
    if np.any((ends != 0) & (ends <= from_when)):
        raise BadTime("an expires_at is not after its deliver_at and after now")
    return Rows([], priority=urgent, deliver_at=due, expires_at=expires)


def _numbers(batch: pa.RecordBatch, name: str, default: int, low: int, high: int, error: type[Refused]) -> Numbers:
    """A column of numbers or times: one number if all rows agree, else an array."""
    if name not in batch.schema.names:
        return default
    column = batch.column(name)
    try:
        values: NDArray[np.int64] = column.cast(pa.int64()).fill_null(default).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
        raise BadFrame(f"column {name!r} of type {column.type} does not fit: {cause}") from cause
    if pa.types.is_timestamp(column.type):
        values = _milliseconds(values, column.type.unit)
    if values.min() < low or values.max() > high:
        raise error(f"{name} {values.min() if values.min() < low else values.max()} is outside {low} to {high}")
    return one_or_many(values)


def _milliseconds(times: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Times of a grain as milliseconds, rounded up as single times are: nothing is delivered early."""
    if unit == "s":
        return np.clip(times, -TIME_MS_MAX, TIME_MS_MAX) * 1000
    whole = -(-times // {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit])
    return np.where(whole == TIME_MS_MAX + 1, TIME_MS_MAX, whole)
