"""The frame: what is stored and travels. Up to 4096 messages of one partition, as columns.

A frame is *open* while single messages are still added to it: then its columns are plain lists. Sealed, it is one
Arrow record batch; the lists are made from it again when somebody asks for single messages. Columns that all rows
leave at their default are absent; a number that all rows share is kept once.

Offsets run from `base`. Ids and append times are kept as *stamps*: rows that came in one commit share a time and have
ids in sequence, so a stamp is a first row, its id, and the time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqueue.model.priority import NORMAL
from mqueue.wire.arrow import decode, encode
from mqueue.wire.rows import Extras, Numbers, Rows, stretches, weight

_FEW_ROWS = 16
_ROW_BYTES = 64
"""What a row weighs besides its payload, key and headers."""


class Frame:
    __slots__ = (
        "_batch",
        "_next_id",
        "_now",
        "_rows",
        "_used",
        "at",
        "base",
        "count",
        "deliver_at",
        "delivered",
        "expires_at",
        "first_rows",
        "ids",
        "open",
        "partition",
        "priority",
        "size",
        "topic",
    )

    def __init__(self, topic: int, partition: int, base: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.base = base
        self.count = 0
        self.size = 0
        self.first_rows: list[int] = []
        self.ids: list[int] = []
        self.at: list[int] = []
        self.priority: Numbers = NORMAL
        self.deliver_at: Numbers = 0
        self.expires_at: Numbers = 0
        self.open = False
        self._used: list[tuple[list[Any], Any]] = []
        """The columns of an open frame besides the payload, with what stands in them by default."""
        self.delivered: pa.RecordBatch | None = None
        """All columns as consumers see them: made by whoever needs it first, kept while the frame is warm."""
        self._now = self._next_id = -1
        self._rows: Rows | None = None
        self._batch: pa.RecordBatch | None = None

    @classmethod
    def opened(cls, topic: int, partition: int, base: int) -> Frame:
        """An empty frame that single messages are added to."""
        frame = cls(topic, partition, base)
        frame._rows = Rows([])
        frame.open = True
        return frame

    @classmethod
    def of_rows(cls, topic: int, partition: int, rows: Rows) -> Frame:
        frame = cls(topic, partition)
        frame.count = len(rows.payload)
        frame.size = rows.size + _ROW_BYTES * frame.count
        frame.priority, frame.deliver_at, frame.expires_at = rows.priority, rows.deliver_at, rows.expires_at
        frame._rows = rows
        return frame

    @classmethod
    def of_batch(
        cls,
        topic: int,
        partition: int,
        batch: pa.RecordBatch,
        priority: Numbers,
        deliver_at: Numbers,
        expires_at: Numbers,
        *,
        size: int | None = None,
    ) -> Frame:
        frame = cls(topic, partition)
        frame.count = batch.num_rows
        frame.size = batch.nbytes + _ROW_BYTES * frame.count if size is None else size
        frame.priority, frame.deliver_at, frame.expires_at = priority, deliver_at, expires_at
        frame._batch = batch
        return frame

    @property
    def stop(self) -> int:
        return self.base + self.count

    @property
    def rows(self) -> Rows:
        """The columns as plain lists; kept until `chill`."""
        rows = self._rows
        if rows is None:
            assert self._batch is not None
            rows = self._rows = decode(self._batch)
        return rows

    def payload_of(self, row: int) -> bytes:
        """One payload, without unpacking the rest: what is scheduled is listed out of many frames, one of each."""
        if self._rows is not None:
            return self._rows.payload[row]
        assert self._batch is not None
        found: bytes = self._batch.column("payload")[row].as_py()
        return found

    @property
    def is_unpacked(self) -> bool:
        """Whether the plain lists are there, so that nothing has to be unpacked for a few rows."""
        return self._rows is not None

    @property
    def batch(self) -> pa.RecordBatch:
        """The columns of a sealed frame as Arrow, without the numbers. An open one still changes: seal it first."""
        assert not self.open, "an open frame has no batch"
        rows = self._rows
        if self._batch is None:
            assert rows is not None
            self._batch = encode(rows)
        return self._batch

    @property
    def payloads(self) -> list[bytes] | None:
        """The payloads of a frame whose rows have nothing else and were not made into Arrow so far; else None."""
        rows = self._rows
        if self._batch is not None or rows is None:
            return None
        plain = rows.key is None and rows.headers is None and rows.idempotency_key is None and rows.fairness_key is None
        return rows.payload if plain else None

    def chill(self) -> None:
        """Keep the compact form only. Of few rows that is lists: one row in Arrow takes 4 KB."""
        if self._batch is None and self.count < _FEW_ROWS:
            self.delivered = None
        elif not self.open:
            self._batch = self.batch
            self._rows = self.delivered = None

    def close(self) -> None:
        """No more messages are added. A number that turned out to be the same in all rows is kept once."""
        self.open = False
        self._used.clear()
        self.priority, self.deliver_at, self.expires_at = (
            one_or_many(column) for column in (self.priority, self.deliver_at, self.expires_at)
        )

    def seal(self) -> None:
        """No more messages are added, and what there is becomes compact."""
        self.close()
        self.chill()

    def uses(self, name: str) -> bool:
        """Whether any row may have a value in a column; the rows are not unpacked for it."""
        if self._rows is not None:
            return getattr(self._rows, name) is not None
        return name in self.batch.schema.names

    def stamp(self, base: int, id: int, at: int) -> None:
        """The frame as a whole is appended: its place, its first id, its time."""
        self.base = base
        self.first_rows, self.ids, self.at = [0], [id], [at]

    def add(self, payload: bytes, extras: Extras | None, id: int, at: int) -> None:
        """Add one message to an open frame. `extras`: what it has besides its payload."""
        row = self.count
        if at != self._now or id != self._next_id:
            self.first_rows.append(row)
            self.ids.append(id)
            self.at.append(at)
            self._now = at
        self._next_id = id + 1
        rows = self._rows
        assert rows is not None
        rows.payload.append(payload)
        self.size += len(payload) + _ROW_BYTES
        if extras:
            self._add_extras(row, extras)
        for column, default in self._used:
            if len(column) == row:
                column.append(default)
        self.count = row + 1

    def id_of(self, row: int) -> int:
        stamp = bisect_right(self.first_rows, row) - 1
        return self.ids[stamp] + row - self.first_rows[stamp]

    def at_of(self, row: int) -> int:
        return self.at[bisect_right(self.first_rows, row) - 1]

    def row_of(self, id: int) -> int | None:
        """The row with an id, if it is here."""
        stamp = bisect_right(self.ids, id) - 1
        if stamp < 0:
            return None
        row = self.first_rows[stamp] + id - self.ids[stamp]
        end = self.first_rows[stamp + 1] if stamp + 1 < len(self.first_rows) else self.count
        return row if row < end else None

    def row_at(self, at: int) -> int:
        """The first row that was appended at `at` or later; `count` if none was."""
        stamp = bisect_left(self.at, at)
        return self.first_rows[stamp] if stamp < len(self.at) else self.count

    def number(self, name: str, row: int) -> int:
        """priority, deliver_at or expires_at of a row."""
        column = getattr(self, name)
        return column if isinstance(column, int) else int(column[row])

    def stretches(self, stamp: int) -> list[tuple[int, int, int, int, int]]:
        """(start, stop, priority, due, expires) of the rows of one stamp, neighbours that agree put together."""
        first = self.first_rows[stamp]
        last = self.first_rows[stamp + 1] if stamp + 1 < len(self.first_rows) else self.count
        columns = (self.priority, self.deliver_at, self.expires_at)
        cut = [column if isinstance(column, int) else column[first:last] for column in columns]
        return stretches(self.base + first, last - first, *cut)

    def slice(self, first: int, last: int) -> Frame:
        """The rows from `first` to before `last` as a frame of their own: same offsets, ids, times and bytes.

        Nothing of this frame is held on to, so that its memory is free once nobody needs it.
        """
        stamp = bisect_right(self.first_rows, first) - 1
        end = bisect_left(self.first_rows, last)
        priority, deliver_at, expires_at = (
            column if isinstance(column, int) else one_or_many(np.array(column[first:last], np.int64))
            for column in (self.priority, self.deliver_at, self.expires_at)
        )
        if last - first < _FEW_ROWS:
            rows = self.rows.take(range(first, last))
            rows.priority, rows.deliver_at, rows.expires_at = priority, deliver_at, expires_at
            piece = Frame.of_rows(self.topic, self.partition, rows)
        else:
            batch = self.batch.take(pa.array(np.arange(first, last)))
            piece = Frame.of_batch(self.topic, self.partition, batch, priority, deliver_at, expires_at)
        piece.base = self.base + first
        piece.first_rows = [max(0, row - first) for row in self.first_rows[stamp:end]]
        piece.ids = [self.id_of(first), *self.ids[stamp + 1 : end]]
        piece.at = self.at[stamp:end]
        return piece

    def keys(self) -> list[bytes | None]:
        """The keys of all rows; no other column is unpacked for it."""
        if self._rows is not None:
            return self._rows.key or [None] * self.count
        batch = self.batch
        keys: list[bytes | None] = (
            batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * self.count
        )
        return keys

    def column_ids(self) -> NDArray[np.int64]:
        """The ids of all rows."""
        return self._stamped(self.ids, 1)

    def column_at(self) -> NDArray[np.int64]:
        """The append times of all rows."""
        return self._stamped(self.at, 0)

    def _stamped(self, values: list[int], step: int) -> NDArray[np.int64]:
        rows = np.arange(self.count, dtype=np.int64)
        if len(values) == 1:
            return rows * step + values[0]
        first = np.array(self.first_rows, np.int64)
        stamp = np.searchsorted(first, rows, side="right") - 1
        return np.array(values, np.int64)[stamp] + (rows - first[stamp]) * step

    def _add_extras(self, row: int, extras: Extras) -> None:
        """Put values into their columns; a column that nobody has used so far begins with defaults."""
        for name, value in extras.items():
            owner = self if name in _NUMBERS else self.rows
            column = getattr(owner, name)
            if not isinstance(column, list):
                default = _NUMBERS.get(name)
                column = [default] * row
                setattr(owner, name, column)
                self._used.append((column, default))
            column.append(value)
        self.size += weight(extras)


_NUMBERS = {"priority": NORMAL, "deliver_at": 0, "expires_at": 0}


def one_or_many(column: Numbers) -> Numbers:
    """One number if all rows have the same."""
    if isinstance(column, int):
        return column
    values = np.asarray(column, np.int64)
    return int(values[0]) if (values == values[0]).all() else values
