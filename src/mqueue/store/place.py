"""Where the messages of a publish call go: duplicates filtered, partitions chosen, rows sorted and cut into frames.

All of it is worked out before anything is written, so a call that fails has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from mqueue.heart.dedup import Claim, digest
from mqueue.heart.topic import Topic
from mqueue.model.errors import BadPriority, Conflict
from mqueue.model.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX, PRIORITIES_ALIVE_MAX
from mqueue.model.message import Receipt
from mqueue.policy.routing import partitions_of
from mqueue.wire.arrow import largest, total
from mqueue.wire.frame import Frame, one_or_many
from mqueue.wire.rows import Numbers, Rows

_ROW_BYTES = 1024
"""What a row of a table takes at most beside its payload."""


class Placed(Struct):
    """A frame, and which rows of the call its rows are (None: these from `first` on, in order)."""

    frame: Frame
    first: int
    order: NDArray[np.intp] | None


class Known(Struct, frozen=True):
    """What idempotency keys say of a call: rows that are there already, rows that repeat an earlier row, the rest."""

    claims: dict[int, Claim]
    repeats: dict[int, int]
    fresh: list[int]


def place(topic: Topic, rows: Rows, robin: int, now: int) -> list[Placed]:
    """Cut a call into frames: per partition, sorted by (priority, due), of at most 4096 rows and 8 MiB."""
    count = len(rows)
    partitions = len(topic.partitions)
    if partitions > 1 and rows.key is not None:
        targets = partitions_of(rows.key, partitions, robin)
        groups: list[tuple[int, NDArray[np.intp] | None]] = [
            (int(number), np.flatnonzero(targets == number)) for number in np.unique(targets)
        ]
    else:
        groups = [(robin, None)]
    placed = []
    for number, members in groups:
        part = rows if members is None else rows.take(members)
        order = part.order(now)
        if order is not None:
            part = part.take(order)
        whole = members if order is None else order if members is None else members[order]
        if len(part) <= FRAME_ROWS_MAX and part.size <= FRAME_BYTES_MAX // 2:
            placed.append(Placed(Frame.of_rows(topic.id, number, part), 0, whole))
            continue
        for start, stop in _cuts(part):
            numbers = range(start, stop)
            piece = Frame.of_rows(topic.id, number, part.take(numbers))
            placed.append(Placed(piece, start, None if whole is None else whole[start:stop]))
    assert sum(piece.frame.count for piece in placed) == count
    return placed


def place_batch(
    topic: Topic, body: pa.RecordBatch, rows: Rows, robin: int, now: int
) -> Iterator[tuple[Frame, NDArray[np.intp] | range]]:
    """Frames of at most 4096 rows and 8 MiB per partition, sorted by (priority, due), with the table's rows in each."""
    count = body.num_rows
    step = _rows_per_frame(body.column("payload"))
    for number, members in _members(topic, body, robin):
        chosen = _ordered(rows, members, count, now)
        part = body if chosen is None else body.take(pa.array(chosen))
        for start in range(0, part.num_rows, step):
            piece = part.slice(start, step)
            places = range(start, start + piece.num_rows) if chosen is None else chosen[start : start + step]
            columns = (_picked(column, places) for column in (rows.priority, rows.deliver_at, rows.expires_at))
            yield Frame.of_batch(topic.id, number, piece, *columns), places


def _rows_per_frame(payload: pa.Array) -> int:
    """So many rows of a table fit one frame, whichever they are."""
    if total(payload) + _ROW_BYTES * len(payload) <= FRAME_BYTES_MAX:
        return FRAME_ROWS_MAX
    return max(1, min(FRAME_ROWS_MAX, FRAME_BYTES_MAX // (largest(payload) + _ROW_BYTES)))


def _members(topic: Topic, body: pa.RecordBatch, robin: int) -> list[tuple[int, NDArray[np.intp] | None]]:
    """Which rows go to which partition; None: all."""
    if len(topic.partitions) == 1 or "key" not in body.schema.names:
        return [(robin, None)]
    targets = partitions_of(body.column("key").to_pylist(), len(topic.partitions), robin)
    return [(int(number), np.flatnonzero(targets == number)) for number in np.unique(targets)]


def _ordered(rows: Rows, members: NDArray[np.intp] | None, count: int, now: int) -> NDArray[np.intp] | None:
    """Some rows in the order of delivery; None: all rows as they stand."""
    if isinstance(rows.priority, int) and isinstance(rows.deliver_at, int):
        return members
    chosen = np.arange(count) if members is None else members
    urgent = np.broadcast_to(np.asarray(rows.priority, np.int64), count)[chosen]
    due = np.maximum(np.broadcast_to(np.asarray(rows.deliver_at, np.int64), count)[chosen], now)
    order = np.lexsort((due, urgent))
    return members if np.array_equal(order, np.arange(len(chosen))) else chosen[order]


def _picked(column: Numbers, places: NDArray[np.intp] | range) -> Numbers:
    if isinstance(column, int):
        return column
    values = np.asarray(column, np.int64)
    return one_or_many(values[places.start : places.stop] if isinstance(places, range) else values[places])


def check_priority(topic: Topic, priority: int) -> None:
    """The same for one message; mostly its lane is there."""
    if not all(priority in partition.lanes for partition in topic.partitions):
        check_priorities(topic, Rows([], priority=priority))


def check_priorities(topic: Topic, rows: Rows) -> None:
    """No topic has more than 256 distinct priorities alive."""
    wanted = {rows.priority} if isinstance(rows.priority, int) else set(np.unique(np.asarray(rows.priority)).tolist())
    alive = wanted.union(*(partition.lanes for partition in topic.partitions))
    if len(alive) > PRIORITIES_ALIVE_MAX:
        raise BadPriority(
            f"topic {topic.name!r} would have {len(alive)} priorities alive; {PRIORITIES_ALIVE_MAX} are allowed"
        )


def recognise(rows: Rows, find: Callable[[bytes], Claim | None]) -> Known:
    """Look up the idempotency keys of a call, by their digests. The same key with another payload is a conflict."""
    claims: dict[int, Claim] = {}
    repeats: dict[int, int] = {}
    fresh: list[int] = []
    first: dict[str, int] = {}
    for row, key in enumerate(rows.idempotency_key or ()):
        if key is None:
            fresh.append(row)
            continue
        claim = find(digest(key.encode()))
        if claim is not None:
            if claim.digest != digest(rows.payload[row]):
                used = Conflict(f"idempotency key {key!r:.80} was used with another payload, for message {claim.id}")
                used.first = claim.id
                raise used
            claims[row] = claim
        elif key in first:
            if rows.payload[first[key]] != rows.payload[row]:
                raise Conflict(f"idempotency key {key!r:.80} stands twice in one call, with different payloads")
            repeats[row] = first[key]
        else:
            first[key] = row
            fresh.append(row)
    return Known(claims, repeats, fresh)


def receipts(topic: Topic, placed: list[Placed], count: int, durability: str) -> list[Receipt]:
    """Receipts in the order of the call's rows."""
    found: list[Receipt] = []
    rows: list[int] = []
    name, fresh, level = repeat(topic.name), repeat(False), repeat(durability)
    for piece in placed:
        frame = piece.frame
        ids, offsets = range(frame.ids[0], frame.ids[0] + frame.count), range(frame.base, frame.stop)
        found += map(Receipt, ids, name, repeat(frame.partition), offsets, fresh, level)
        if piece.order is not None:
            rows += piece.order.tolist()
    if not rows:
        return found
    ordered: list[Receipt] = [found[0]] * count
    for row, receipt in zip(rows, found, strict=True):
        ordered[row] = receipt
    return ordered


def _cuts(rows: Rows) -> Iterator[tuple[int, int]]:
    """Stretches of rows that fit a frame."""
    start = size = 0
    for row, payload in enumerate(rows.payload):
        weight = len(payload)
        if row - start >= FRAME_ROWS_MAX or (row > start and size + weight > FRAME_BYTES_MAX // 2):
            yield start, row
            start, size = row, 0
        size += weight
    yield start, len(rows.payload)
