"""A ledger of messages: how many there are and what they hash to, so that two places can be compared.

The hash of a message is of all that it has: value, key, headers, times, priority, id, place. The hash of many is the
sum of theirs, so it is the same in whatever order and pieces they come, a message that is there twice shows, and the
ledgers of two ranges are added. The hash finds faults and mishaps; it is none against somebody who forges messages.

    column      hash of a value, 64 bits
    bytes,text  SipHash of the bytes (pandas), a constant for null
    numbers     splitmix64
    headers     of each: mix(key) + 3 mix(value), mixed with its place; summed up
    message     columns by name, each mixed with its place among the names, summed up, mixed

Everything is whole columns. Persisted in lakes: whoever changes a line of this changes NAME.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from mqueue.lake.schema import LAKE

NAME = "sum-siphash-1"

HASHED = sorted(name for name in LAKE.names if name not in ("namespace", "topic", "date"))
"""What is hashed. Namespace and topic are what a ledger is about; the date follows from the time."""

Hashes = NDArray[np.uint64]

_ROWS = 16_384
"""Rows hashed at a time: the objects that pandas wants stay in the caches."""
_NULL = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


class Sum(Struct, frozen=True):
    """So many messages, which hash to so much."""

    rows: int = 0
    hash: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.rows + other.rows, (self.hash + other.hash) & _MASK)


def sum_of(batch: pa.RecordBatch) -> Sum:
    return sum_of_hashes(hashes(batch))


def sum_of_hashes(found: Hashes) -> Sum:
    return Sum(len(found), int(found.sum(dtype=np.uint64)))


def hashes(batch: pa.RecordBatch) -> Hashes:
    """Of each message. The batch has at least the columns that are hashed."""
    pieces = [_hashed(batch.slice(start, _ROWS)) for start in range(0, batch.num_rows, _ROWS)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def _hashed(batch: pa.RecordBatch) -> Hashes:
    total = np.zeros(batch.num_rows, np.uint64)
    for place, name in enumerate(HASHED):
        total += _mixed(_column(batch.column(name)) + np.uint64(place))
    return _mixed(total)


def _column(column: pa.Array) -> Hashes:
    if column.null_count == len(column):
        return np.full(len(column), _NULL, np.uint64)
    if pa.types.is_list(column.type):
        found = _lists(column)
    elif pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
        found = _mixed(_filled(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64))
    else:
        found = _bytes(column.cast(pa.binary()))
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _bytes(column: pa.Array) -> Hashes:
    from pandas.util import hash_array  # type: ignore[import-untyped]

    found: Hashes = hash_array(_filled(column, b"").to_numpy(zero_copy_only=False), categorize=False)
    return found


def _lists(column: pa.Array) -> Hashes:
    """Of headers: their keys, values and places. A null list is nobody's business here."""
    lengths = _filled(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    items = column.flatten()
    places = np.arange(len(items), dtype=np.int64) - np.repeat(starts, lengths)
    parts = [_column(items.field(place)) for place in range(items.type.num_fields)]
    weighed = sum(
        (_mixed(part) * np.uint64(2 * n + 1) for n, part in enumerate(parts)), np.zeros(len(items), np.uint64)
    )
    each = _mixed(weighed + places.view(np.uint64))
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)])
    summed: Hashes = running[starts + lengths] - running[starts]
    return _mixed(summed + lengths.view(np.uint64))


def _mixed(numbers: Hashes) -> Hashes:
    """splitmix64: every bit of a number moves every bit of its hash."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _filled(column: pa.Array, value: Any) -> pa.Array:
    return column.fill_null(value) if column.null_count else column
