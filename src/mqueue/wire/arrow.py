"""Columns of messages as Arrow arrays, and back. The only module that knows Arrow types of message columns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from mqueue.wire.rows import Headers, Rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BODY = {
    "payload": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "idempotency_key": pa.string(),
    "fairness_key": pa.string(),
}


def warm_up() -> None:
    """Make an array. For the first one Arrow looks for pandas, and where that is there loads it: a third of a second
    that nobody should wait for who has a lock, or a deadline."""
    pa.array((), pa.binary())


def encode(rows: Rows) -> pa.RecordBatch:
    """The body of a frame: the columns that are there. Numbers stay with the frame."""
    names, arrays = ["payload"], [pa.array(rows.payload, pa.binary())]
    for name in ("key", "headers", "idempotency_key", "fairness_key"):
        column = getattr(rows, name)
        if column is not None:
            names.append(name)
            arrays.append(pa.array([_pairs(item) for item in column] if name == "headers" else column, BODY[name]))
    return pa.RecordBatch.from_arrays(arrays, names)


def decode(batch: pa.RecordBatch) -> Rows:
    """The body of a frame as plain values."""
    columns: dict[str, Any] = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    if "headers" in columns:
        columns["headers"] = [_headers(pairs) for pairs in columns["headers"]]
    return Rows(**columns)


@lru_cache(maxsize=256)
def constant(value: int | None, count: int, type: pa.DataType) -> pa.Array:
    """The same value in every row. Batches tend to have one size, so it is mostly there already."""
    return pa.nulls(count, type) if value is None else pa.repeat(pa.scalar(value, type), count)


def largest(column: pa.Array) -> int:
    """The length of the longest value of a binary column without nulls, from its offsets."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, column.offset + len(column) + 1)[column.offset :]
    return int(np.diff(offsets).max(initial=0))


def total(column: pa.Array) -> int:
    """How many bytes the values of a column of binary or text have together."""
    if not len(column):
        return 0
    offsets = np.frombuffer(column.buffers()[1], np.int32, column.offset + len(column) + 1)[column.offset :]
    return int(offsets[-1]) - int(offsets[0])


def _pairs(headers: Headers | None) -> list[tuple[str, bytes]] | None:
    if not headers:
        return None
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers.items()]


def _headers(pairs: list[dict[str, Any]] | None) -> Headers | None:
    return {pair["key"]: text(pair["value"]) for pair in pairs} if pairs else None


def text(value: bytes) -> str | bytes:
    """A header value as users see it: text where the bytes are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
