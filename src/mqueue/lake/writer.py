"""Record batches → Parquet files of a lake. Any process may write; nothing is in the lake until it is appended.

Rows are gathered by namespace, topic, day and partition, and written group by group, in the order of their offsets.
Rows that come in that order, as they do from a log, go straight into one file until it is full; where an offset goes
back, a new file is begun. A writer holds at most `HELD_BYTES` of rows, whatever their order.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mqueue.lake.files import STORED, SUFFIX, DataFile, directory
from mqueue.lake.place import Place
from mqueue.lake.schema import LAKE
from mqueue.model.errors import BadFrame, BadName
from mqueue.model.names import check_name

FILE_BYTES = 256 << 20
"""How large a file gets by default, in bytes on disk."""
GROUP_BYTES = 32 << 20
"""A row group has about so many bytes of rows, before they are packed."""
GROUP_ROWS = 1 << 18
HELD_BYTES = 256 << 20
OPEN_FILES = 32
"""More files than this are never open at once: the one that was not written to for longest is finished."""

NAMESPACE_LENGTH_MAX = 255 - len("namespace=")
"""File systems know no longer names; any topic fits."""

_Group = tuple[str, str, str, int]
"""Namespace, topic, day, partition."""

_RISING = ("offset", "timestamp", "id")
_PLAIN = ("key", "value", "deliver_at", "expires_at", "idempotency_key")


class Writer:
    """Made by a lake, pickled to wherever the rows are."""

    def __init__(self, place: Place, *, whole: bool, file_bytes: int = FILE_BYTES) -> None:
        """`whole`: the columns of the path are also in the file."""
        self._place = place
        self._names = tuple(LAKE.names) if whole else STORED
        self._file_bytes = file_bytes

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Rows of the schema `LAKE` as files that outlast a loss of power. If it fails, it leaves none behind."""
        writing = _Writing(self._place, self._names, self._file_bytes)
        try:
            for batch in batches:
                writing.add(batch)
            files = writing.finish()
            self._place.keep([file.path for file in files])
        except BaseException:
            writing.discard()
            raise
        return files


def remove_all(place: Place, files: Iterable[DataFile | _File]) -> None:
    """Files that nobody will append."""
    for file in files:
        if place.size(file.path) is not None:
            place.remove(file.path)


class _Writing:
    def __init__(self, place: Place, names: tuple[str, ...], file_bytes: int) -> None:
        self._place = place
        self._names = names
        self._file_bytes = file_bytes
        self._held: dict[_Group, list[pa.RecordBatch]] = {}
        self._bytes: dict[_Group, int] = {}
        self._open: dict[_Group, _File] = {}
        self._done: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for group, rows in grouped(checked(batch)):
            self._held.setdefault(group, []).append(rows)
            size = self._bytes[group] = self._bytes.get(group, 0) + rows.nbytes
            if size >= GROUP_BYTES or sum(held.num_rows for held in self._held[group]) >= GROUP_ROWS:
                self._flush(group)
        while sum(self._bytes.values()) > HELD_BYTES:
            self._flush(max(self._bytes, key=self._bytes.__getitem__))

    def finish(self) -> list[DataFile]:
        for group in list(self._held):
            self._flush(group)
        for group in list(self._open):
            self._close(group)
        return self._done

    def discard(self) -> None:
        for file in self._open.values():
            file.abandon()
        remove_all(self._place, [*self._open.values(), *self._done])

    def _flush(self, group: _Group) -> None:
        rows = pa.Table.from_batches(self._held.pop(group))
        del self._bytes[group]
        offsets = rows.column("offset").to_numpy()
        if np.any(offsets[1:] < offsets[:-1]):
            order = np.argsort(offsets, kind="stable")
            rows, offsets = rows.take(pa.array(order)), offsets[order]
        file = self._open.pop(group, None)
        if file is not None and offsets[0] <= file.last:
            self._open[group] = file
            self._close(group)
            file = None
        while file is None and len(self._open) >= OPEN_FILES:
            self._close(next(iter(self._open)))
        file = file or _File(self._place, group, self._names)
        self._open[group] = file  # at the end: it was written to last
        file.write(rows, offsets)
        if file.size >= self._file_bytes:
            self._close(group)

    def _close(self, group: _Group) -> None:
        file = self._open[group]
        self._done.append(file.close())
        del self._open[group]


class _File:
    """One that is being written."""

    def __init__(self, place: Place, group: _Group, names: tuple[str, ...]) -> None:
        self._group = group
        namespace, topic, day, partition = group
        self.path = f"{directory(namespace, topic, day)}/part-{partition:05d}-{uuid.uuid4().hex}{SUFFIX}"
        self._names = [*names]
        self._sink = place.sink(self.path)
        self._parquet = pq.ParquetWriter(
            self._sink,
            pa.schema([LAKE.field(name) for name in names]),
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in names if name not in (*_RISING, *_PLAIN, "headers")],
            column_encoding=dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
            write_statistics=[name for name in names if name not in ("key", "value", "headers")],
            store_schema=False,
        )
        self._rows = 0
        self.first = self.last = self._first_us = self._last_us = 0

    @property
    def size(self) -> int:
        size: int = self._sink.tell()
        return size

    def write(self, rows: pa.Table, offsets: NDArray[np.int64]) -> None:
        times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
        if not self._rows:
            self.first, self._first_us, self._last_us = int(offsets[0]), times["min"], times["max"]
        self.last = int(offsets[-1])
        self._first_us, self._last_us = min(self._first_us, times["min"]), max(self._last_us, times["max"])
        self._rows += rows.num_rows
        self._parquet.write_table(rows.select(self._names), row_group_size=rows.num_rows)

    def close(self) -> DataFile:
        self._parquet.close()
        size = self.size
        self._sink.close()
        namespace, topic, day, partition = self._group
        times = self._first_us // 1000, -(-self._last_us // 1000)
        return DataFile(self.path, size, self._rows, namespace, topic, day, partition, self.first, self.last, *times)

    def abandon(self) -> None:
        """What could not be written need not be finished: the first failure is the one to tell."""
        for end in (self._parquet, self._sink):
            with suppress(OSError, pa.ArrowException):
                end.close()


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in the order and the types of `LAKE`, or `BadFrame`. `date` may be left out: `timestamp` tells it."""
    if strange := [name for name in batch.schema.names if name not in LAKE.names]:
        raise BadFrame(f"column {strange[0]!r:.80} has no place in a lake: it takes {', '.join(LAKE.names)}")
    if missing := [name for name in LAKE.names if name not in (*batch.schema.names, "date")]:
        raise BadFrame(f"column {missing[0]!r} is missing: a lake takes {', '.join(LAKE.names)}")
    if not batch.schema.equals(LAKE):
        batch = _cast(batch)
    for name in ("namespace", "topic", "partition", "offset", "timestamp", "date"):
        if batch.column(name).null_count:
            raise BadFrame(f"column {name!r} has nulls: it says where a message belongs")
    return batch


def _cast(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns: list[Any] = []
    for field in LAKE:
        given = field.name if field.name in batch.schema.names else "timestamp"
        column = batch.column(given)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            raise BadFrame(f"column {given!r} is {column.type}: a lake keeps it as {field.type}") from problem
    return pa.RecordBatch.from_arrays(columns, schema=LAKE)


def grouped(batch: pa.RecordBatch) -> list[tuple[_Group, pa.RecordBatch]]:
    """The rows by namespace, topic, day and partition, in their order."""
    if not batch.num_rows:
        return []
    codes = np.zeros(batch.num_rows, np.int64)
    for name in ("namespace", "topic", "date", "partition"):
        column = batch.column(name)
        ends = pc.min_max(column)
        if ends["min"] != ends["max"]:
            ranks = column.dictionary_encode()
            codes = codes * len(ranks.dictionary) + ranks.indices.to_numpy()
            codes = np.unique(codes, return_inverse=True)[1]  # small again, so that the product never overflows
    if not codes.any():
        return [(_group(batch), batch)]
    order = np.argsort(codes, kind="stable")
    batch, codes = batch.take(pa.array(order)), codes[order]
    cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), batch.num_rows]
    pieces = [batch.slice(start, stop - start) for start, stop in pairwise(cuts)]
    return [(_group(piece), piece) for piece in pieces]


def _group(batch: pa.RecordBatch) -> _Group:
    namespace, topic, day, partition = (
        batch.column(name)[0].as_py() for name in ("namespace", "topic", "date", "partition")
    )
    if len(check_name(namespace, "namespace")) > NAMESPACE_LENGTH_MAX:
        raise BadName(
            f"namespace name {namespace!r:.80} has {len(namespace)} characters: in a lake it names a directory, with"
            f" at most {NAMESPACE_LENGTH_MAX}"
        )
    return namespace, check_name(topic, "topic"), day.isoformat(), partition
