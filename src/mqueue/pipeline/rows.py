"""Rows of Spark on their way into a topic: which columns a sink takes, and Arrow batches as tables that can be staged.

Whole columns only, never row by row. Knows Arrow and the words for Spark's types; imports no Spark, connects to nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqueue.lake.schema import HEADERS, TIME
from mqueue.model.errors import Refused
from mqueue.model.limits import MIB
from mqueue.model.names import check_name

ROWS_MAX = 10_000
BYTES_MAX = 8 * MIB
HELD_BYTES_MAX = 64 * MIB
"""So much is held back at most to make whole pieces, where rows go to many topics."""

_TEXT = ("binary", "string")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_HEADERS = ("array<struct<key:string,value:binary>>", "array<struct<key:string,value:string>>")
TAKEN: dict[str, tuple[str, ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": _HEADERS,
    "topic": ("string",),
    "priority": _INTEGERS,
    "deliver_at": ("timestamp",),
    "expires_at": ("timestamp",),
    "fairness_key": ("string",),
}
"""The columns of a sink, and the types of Spark that each may have."""
IGNORED = ("partition", "offset", "timestamp", "timestampType", "id", "namespace")
"""What the log gives a message itself: rows of a source may be written back as they are."""
_STAGED = {
    "value": ("payload", pa.binary()),
    "key": ("key", pa.binary()),
    "headers": ("headers", HEADERS),
    "priority": ("priority", pa.int64()),
    "deliver_at": ("deliver_at", TIME),
    "expires_at": ("expires_at", TIME),
    "fairness_key": ("fairness_key", pa.string()),
}


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Raise Refused if rows with these columns, by Spark's word for their types, are none for a topic."""
    for name, type in columns.items():
        if name == "idempotency_key":
            raise Refused(
                "column idempotency_key: a sink takes none, a transaction is published once as it is; drop the column",
                code="bad_column",
            )
        if name not in TAKEN and name not in IGNORED:
            raise Refused(f"column {name!r:.80} is unknown to a sink; it takes {', '.join(TAKEN)}", code="bad_column")
        if name in TAKEN and type not in TAKEN[name]:
            raise Refused(
                f"column {name} is of type {type:.200}; it takes {' or '.join(TAKEN[name])}", code="bad_column"
            )
    if "value" not in columns:
        raise Refused(f"column value is missing; there are: {', '.join(columns) or 'none'}", code="bad_column")
    if topic is None and "topic" not in columns:
        raise Refused("no topic: give the option topic, or a column of that name", code="no_topic")


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch as they are staged, one batch for each topic, each in the order of the rows."""
    if not batch.num_rows:
        return
    body = _body(batch)
    if topic is not None:
        yield topic, body
        return
    column = batch.column(batch.schema.get_field_index("topic"))
    if column.null_count:
        raise Refused(
            f"{column.null_count} rows have no topic: it is null, and the option is not given", code="no_topic"
        )
    coded = column.cast(pa.string()).dictionary_encode()
    names: list[str] = [check_name(name, "topic") for name in coded.dictionary.to_pylist()]
    if len(names) == 1:
        yield names[0], body
        return
    codes = coded.indices.to_numpy()
    sorted_body = body.take(pa.array(np.argsort(codes, kind="stable")))
    start = 0
    for name, count in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
        yield name, sorted_body.slice(start, count)
        start += count


class Pieces:
    """Rows gathered until they are worth a call, and cut where they are too many for one: (topic, table) comes out."""

    def __init__(self, topic: str | None = None) -> None:
        self._topic = topic
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        for topic, rows in by_topic(batch, self._topic):
            for piece, size in _cut(rows):
                if self._rows.get(topic, 0) + piece.num_rows > ROWS_MAX or self._bytes.get(topic, 0) + size > BYTES_MAX:
                    yield from self._out(topic)
                self._held.setdefault(topic, []).append(piece)
                self._rows[topic] = self._rows.get(topic, 0) + piece.num_rows
                self._bytes[topic] = self._bytes.get(topic, 0) + size
        while sum(self._bytes.values()) > HELD_BYTES_MAX:
            yield from self._out(max(self._bytes, key=self._bytes.__getitem__))

    def rest(self) -> Iterator[tuple[str, pa.Table]]:
        """What is left, once all rows were added."""
        for topic in list(self._held):
            yield from self._out(topic)

    def _out(self, topic: str) -> Iterator[tuple[str, pa.Table]]:
        held = self._held.pop(topic, None)
        self._rows.pop(topic, None)
        self._bytes.pop(topic, None)
        if held:
            yield topic, pa.concat_tables([pa.Table.from_batches([part]) for part in held], promote_options="default")


def _body(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of messages, under their names in a queue and in UTC. One that is null all over is left out."""
    names: list[str] = []
    arrays: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "value" and column.null_count:
            raise Refused(f"{column.null_count} rows have no value: it is null", code="no_value")
        if name in _STAGED and (name == "value" or column.null_count < len(column)):
            staged, type = _STAGED[name]
            names.append(staged)
            arrays.append(column if column.type == type else column.cast(type))
    return pa.RecordBatch.from_arrays(arrays, names)


def _cut(rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Pieces that one call can carry, and about how many bytes each has."""
    if rows.num_rows <= ROWS_MAX and rows.nbytes <= BYTES_MAX:
        yield rows, rows.nbytes
        return
    ends = np.cumsum(_sizes(rows))
    start, before = 0, 0
    while start < rows.num_rows:
        fitting = int(np.searchsorted(ends, before + BYTES_MAX, side="right"))
        stop = min(max(fitting, start + 1), start + ROWS_MAX)
        yield rows.slice(start, stop - start), int(ends[stop - 1]) - before
        start, before = stop, int(ends[stop - 1])


def _sizes(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """About how many bytes each row has: values and keys as they are, of the rest its share."""
    import pyarrow.compute as pc  # takes its time, and is needed by few

    lengths: dict[str, NDArray[np.int64]] = {}
    for name in ("payload", "key"):
        if name in rows.schema.names:
            found: Any = pc.binary_length(rows.column(name)).fill_null(0).cast(pa.int64())
            lengths[name] = found.to_numpy()
    known = sum(lengths.values())
    share = max(0, rows.nbytes - int(np.sum(known))) // rows.num_rows
    total: NDArray[np.int64] = np.asarray(known, np.int64) + share
    return total
