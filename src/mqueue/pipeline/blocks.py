"""Blocks of a table on their way into a topic: the task that reads a block stages its rows and publishes them, once.

A block is a piece of a file, or a range of a database table. Its name says which one it is, so that whoever comes by it
again, another attempt or another run, finds that it is published. Runs in executors, on whole record batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mqueue.model.errors import Refused
from mqueue.pipeline.sink import Sink, family_of, find, publish, stage

if TYPE_CHECKING:
    from mqueue.client.sync import Client

BLOCK, FAULT = "block", "fault"
"""Beside the columns of messages: which block a row is of, and what is wrong with it; null: nothing."""
DONE = "block string, rows bigint, bad bigint, faults map<string,bigint>, before boolean"
_DONE = pa.schema(
    [
        ("block", pa.string()),
        ("rows", pa.int64()),
        ("bad", pa.int64()),
        ("faults", pa.map_(pa.string(), pa.int64())),
        ("before", pa.bool_()),
    ]
)


class Blocks:
    """For `mapInArrow`: rows in, a row for each block out. `bad` says what becomes of rows that have a fault."""

    def __init__(self, sink: Sink, prefix: str, bad: str) -> None:
        self.sink = sink
        self.prefix = prefix
        self.bad = bad

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self.sink.connection.open() as client:
            for name, rows in by_block(batches):
                yield self._block(client, name, rows)

    def _block(self, client: Client, name: str, rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        from mqueue.pipeline.writer import task_name

        tally = Tally(name, self.bad)
        place = find(client, family_of(self.prefix, name))
        taken = map(tally.taken, rows)
        staged = stage(client, self.sink, place, task_name(), taken)
        for _ in taken:
            pass  # of a block that is published the rows are read all the same: they are counted
        publish(client, [staged])
        return tally.done(before=staged.place.over)


class Tally:
    """Counts the rows of a block, and leaves out or refuses those that have a fault."""

    def __init__(self, name: str, bad: str) -> None:
        self._name = name
        self._bad = bad
        self._rows = 0
        self._faults: dict[str, int] = {}

    def taken(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that are to be published, without the columns that are for us."""
        faults = batch.column(FAULT)
        for entry in faults.drop_null().value_counts().to_pylist():
            self._faults[entry["values"]] = self._faults.get(entry["values"], 0) + entry["counts"]
        if self._faults and self._bad == "fail":
            fault, count = next(iter(self._faults.items()))
            raise Refused(f"{count} rows of a block cannot be published: {fault}; see --bad-rows", code="bad_rows")
        if self._bad == "skip":
            batch = batch.filter(pc.is_null(faults))
        self._rows += batch.num_rows
        return batch.drop_columns([BLOCK, FAULT])

    def done(self, before: bool) -> pa.RecordBatch:
        bad = sum(self._faults.values())
        columns = [[self._name], [self._rows], [bad], [list(self._faults.items())], [before]]
        return pa.RecordBatch.from_arrays(
            [pa.array(column, type) for column, type in zip(columns, _DONE.types, strict=True)], schema=_DONE
        )


def by_block(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    """Neighbours of one block together. Each block has to be read to its end before the next is asked for."""
    pieces = (piece for batch in batches for piece in _cut(batch))
    held = next(pieces, None)

    def rows(name: str) -> Iterator[pa.RecordBatch]:
        nonlocal held
        while held is not None and held[0] == name:
            yield held[1]
            held = next(pieces, None)

    while held is not None:
        name = held[0]
        yield name, rows(name)


def _cut(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    runs = pc.run_end_encode(batch.column(BLOCK))
    start = 0
    for name, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield name, batch.slice(start, stop - start)
        start = stop
