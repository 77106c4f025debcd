"""Frames from outside: bytes that a client packed, taken apart with no trust in any of them.

What comes out is safe to read and inside all limits, or `BadFrame` says which value broke which. Nothing is
decompressed, and nothing is copied but columns of priorities: a frame never takes more than a small multiple of its
bytes. Its topic and partition are the client's word, its rows stand in the client's order, and it has no stamps: the
caller knows the topic and the time. What depends on these (delays, time to live, room, quota) is checked there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqueue.model.errors import BadFrame, BadName, Corrupt
from mqueue.model.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX, IDEMPOTENCY_KEY_LENGTH_MAX, TIME_MS_MAX, Limits
from mqueue.model.names import check_name
from mqueue.wire.frame import Frame
from mqueue.wire.head import Head, head_of
from mqueue.wire.message import Declared, declared
from mqueue.wire.pack import framed, schema_of

_PADDING_MAX = 64
"""Between two buffers; Arrow pads to 8 or to 64."""


def accept(data: bytes | memoryview, limits: Limits) -> Frame:
    """The frame that a client packed, sealed and without stamps."""
    head = _head(data)
    body = pa.py_buffer(data).slice(head.head_length)
    if google_crc32c.value(body) != head.body_crc:
        raise BadFrame("the checksum of the body is wrong")
    batch = _batch(head, body)
    _check_values(batch, limits)
    frame = framed(head, batch, None)
    _check_numbers(frame)
    return frame


def _head(data: bytes | memoryview) -> Head:
    if len(data) > FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {len(data)} bytes; {FRAME_BYTES_MAX} are allowed")
    try:
        head = head_of(data)
    except Corrupt as error:
        raise BadFrame(error.message) from error
    if head.length != len(data):
        raise BadFrame(f"a frame of {head.length} bytes in {len(data)} bytes")
    if head.stamps or head.base or head.id or head.at:
        raise BadFrame(
            f"{head.stamps} stamps from offset {head.base}; places, ids and times are not a client's to give"
        )
    if head.count > FRAME_ROWS_MAX:
        raise BadFrame(f"{head.count} rows; {FRAME_ROWS_MAX} are allowed")
    return head


def _batch(head: Head, body: pa.Buffer) -> pa.RecordBatch:
    """The columns, every offset and every text in them proven."""
    try:
        schema = schema_of(head.columns)
    except ValueError as error:
        raise BadFrame(str(error)) from error
    found = declared(memoryview(body))
    _check_declared(found, head)
    try:
        batch = pa.ipc.read_record_batch(body, schema)
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise BadFrame(f"the body does not hold its columns: {error!s:.500}") from error
    if batch.num_rows != head.count:
        raise BadFrame(f"{batch.num_rows} rows in the body, {head.count} in the head")
    unused = found.buffers_length - batch.nbytes
    if unused > _PADDING_MAX * len(found.buffers):
        raise BadFrame(f"{unused} bytes of the body are in no row; {_PADDING_MAX} for each buffer are allowed")
    return batch


def _check_declared(found: Declared, head: Head) -> None:
    nodes, buffers = _parts_of(head.columns)
    if (len(found.nodes), len(found.buffers)) != (nodes, buffers):
        raise BadFrame(
            f"{len(found.nodes)} nodes and {len(found.buffers)} buffers; the columns have {nodes}, {buffers}"
        )
    if found.rows != head.count:
        raise BadFrame(f"{found.rows} rows in the body, {head.count} in the head")
    for length, nulls in found.nodes:
        if not 0 <= nulls <= length <= max(found.buffers_length, head.count):
            raise BadFrame(f"a column of {length} values, {nulls} of them null, in {found.buffers_length} bytes")
    end = 0
    for start, length in found.buffers:
        inside = 0 <= start <= found.buffers_length and 0 <= length <= found.buffers_length - start
        if not inside or (length and (start < end or start % 8)):
            raise BadFrame(f"a buffer of {length} bytes at {start}, after {end} of {found.buffers_length} bytes")
        end = max(end, start + length)


@lru_cache(maxsize=256)
def _parts_of(columns: int) -> tuple[int, int]:
    parts = [_parts(field.type) for field in schema_of(columns)]
    return sum(nodes for nodes, _ in parts), sum(buffers for _, buffers in parts)


def _parts(type: pa.DataType) -> tuple[int, int]:
    """How many nodes and buffers a column of a type has."""
    if pa.types.is_list(type) or pa.types.is_struct(type):
        below = [_parts(type.field(number).type) for number in range(type.num_fields)]
        own = 2 if pa.types.is_list(type) else 1
        return 1 + sum(nodes for nodes, _ in below), own + sum(buffers for _, buffers in below)
    return 1, 2 if pa.types.is_integer(type) else 3


def _check_values(batch: pa.RecordBatch, limits: Limits) -> None:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in ("payload", "priority", "deliver_at", "expires_at"):
        if name in columns and columns[name].null_count:
            raise BadFrame(f"{columns[name].null_count} values of {name} are null; none may be")
    for name, most in (("payload", limits.payload_bytes_max), ("key", limits.key_bytes_max)):
        if name in columns:
            _check_longest(name, _lengths(_ends(columns[name])), most)
    if "headers" in columns:
        _check_headers(columns["headers"], limits.headers_bytes_max)
    if "idempotency_key" in columns:
        _check_idempotency_keys(columns["idempotency_key"])
    if "fairness_key" in columns:
        _check_fairness_keys(columns["fairness_key"])


def _check_longest(name: str, lengths: NDArray[Any], most: int) -> None:
    longest = int(lengths.max())
    if longest > most:
        raise BadFrame(f"{name} of {longest} bytes; {most} are allowed")


def _check_headers(column: pa.Array, most: int) -> None:
    pairs = column.values
    names, values = pairs.field(0), pairs.field(1)
    if pairs.null_count or names.null_count or values.null_count:
        raise BadFrame("a header has no name or no value")
    before = _ends(names).astype(np.int64) + _ends(values)  # bytes of all headers up to one
    _check_longest("headers", _lengths(before[_ends(column)]), most)


def _check_idempotency_keys(column: pa.Array) -> None:
    lengths = pc.min_max(pc.utf8_length(column)).as_py()
    if lengths["min"] is not None and not 0 < lengths["min"] <= lengths["max"] <= IDEMPOTENCY_KEY_LENGTH_MAX:
        raise BadFrame(
            f"idempotency keys of {lengths['min']} to {lengths['max']} characters; "
            f"1 to {IDEMPOTENCY_KEY_LENGTH_MAX} are allowed"
        )


def _check_fairness_keys(column: pa.Array) -> None:
    try:
        for key in column.unique().to_pylist():
            if key is not None:
                check_name(key, "fairness key")
    except BadName as error:
        raise BadFrame(error.message) from error


def _check_numbers(frame: Frame) -> None:
    for name in ("deliver_at", "expires_at"):
        times = getattr(frame, name)
        low, high = (times, times) if isinstance(times, int) else (int(times.min()), int(times.max()))
        if low < 0 or high > TIME_MS_MAX:
            raise BadFrame(f"{name} {low if low < 0 else high} is outside 0 to {TIME_MS_MAX}")
    if not isinstance(frame.expires_at, int) or frame.expires_at:
        expires_at = np.asarray(frame.expires_at, np.int64)
        if np.any((expires_at != 0) & (expires_at <= np.asarray(frame.deliver_at, np.int64))):
            raise BadFrame("an expires_at is not after its deliver_at")


def _ends(column: pa.Array) -> NDArray[np.int32]:
    """Where each value begins, and where the last one ends, of a column as it was read: not a slice."""
    if not len(column):  # then there need not be any
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)


def _lengths(ends: NDArray[Any]) -> NDArray[Any]:
    lengths: NDArray[Any] = ends[1:] - ends[:-1]
    return lengths
