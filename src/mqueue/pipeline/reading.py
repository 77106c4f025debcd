"""One task of a read: the messages of a range of offsets as record batches, out of the log as it lies.

Runs in executors. What a task is to read was decided on the driver; the same range gives the same rows, however often
it is read. Connections are opened when a task begins, and closed with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from mqueue.pipeline.bulk import frames
from mqueue.pipeline.columns import Columns
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.horizon import Reach, compacted, tell_loss
from mqueue.pipeline.offsets import Range
from mqueue.pipeline.options import Options
from mqueue.pipeline.plain import told_plainly
from mqueue.pipeline.schema import TRACE
from mqueue.pipeline.tracing import trace_batches
from mqueue.wire.frame import Frame


class Reading(Struct, frozen=True):
    """What all tasks of a read share. Pickled into each of them."""

    connection: Connection
    options: Options
    columns: tuple[str, ...]


class Stretch(InputPartition):
    """What one task reads; nothing, if `range` is None. From `floor` on everything was there when it was planned."""

    def __init__(self, range: Range | None, floor: int = 0) -> None:
        self.range = range
        self.floor = floor

    def __repr__(self) -> str:
        return f"Stretch({self.range}, {self.floor})"


def stretches(ranges: list[Range], reach: Reach) -> list[InputPartition]:
    """A task for each range. Never none: Spark would make one up that says nothing."""
    return [Stretch(each, reach[each.topic][each.partition].floor) for each in ranges] or [Stretch(None)]


def read(reading: Reading, stretch: InputPartition) -> Iterator[pa.RecordBatch]:
    """The batches of one task."""
    assert isinstance(stretch, Stretch)
    if stretch.range is None:
        return
    connection, options, names = reading.connection, reading.options, list(reading.columns)
    with told_plainly():
        if options.view == TRACE:
            yield from trace_batches(connection, stretch.range, names)
        else:
            asked = stretch.range
            columns = Columns(options.view, names, connection.namespace, asked.topic, asked.partition)
            yield from columns.batches(_frames(reading, asked, stretch.floor), options.priorities)


def _frames(reading: Reading, asked: Range, floor: int) -> Iterator[Frame]:
    """The frames of a range. Rows that were there when it was planned and are not now are a loss."""
    due = max(asked.start, floor)
    missing = max(0, asked.stop - due)
    for frame in frames(reading.connection, asked):
        missing -= max(0, frame.stop - max(frame.base, due))
        yield frame
    if missing > 0 and not _compacted(reading.connection, asked.topic):
        place = f"{asked.topic}/{asked.partition}"
        tell_loss(
            f"{missing} messages of {place} from offset {due} on were dropped while they were read", reading.options
        )


def _compacted(connection: Connection, topic: str) -> bool:
    with connection.open() as client:
        return compacted(client, topic)
