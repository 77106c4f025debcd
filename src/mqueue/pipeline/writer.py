"""The batch writer of Spark's data source: `df.write.format("mqueue").mode("append").save()`.

The driver makes it, pickles of it stage rows in tasks, and one more pickle publishes, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mqueue.model.errors import Refused
from mqueue.pipeline.plain import plainly
from mqueue.pipeline.rows import check_columns
from mqueue.pipeline.ship import Carried
from mqueue.pipeline.sink import Sink, Staged, drop, family_of, find, publish, sink_of, stage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task tells the driver."""

    staged: Staged


def checked_sink(options: Mapping[str, str], schema: StructType, overwrite: bool, token: str | None = None) -> Sink:
    """The sink that options name, for rows of a schema; or an error in one sentence, before anything is staged."""
    if overwrite:
        raise Refused(
            "a topic is not overwritten: write with mode append (a stream with outputMode append)", code="overwrite"
        )
    sink = sink_of({name.lower(): value for name, value in options.items()}, token)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, sink.topic)
    return sink


def task_name() -> str:
    """The partition and the attempt that runs here."""
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    return f"{task.partitionId()}.{task.taskAttemptId()}"


class MqueueWriter(Carried, DataSourceArrowWriter):
    """All rows of a write are published together. With a `txnId`, only once, however often they are written."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, overwrite: bool, token: str | None = None
    ) -> None:
        self.sink = checked_sink(options, schema, overwrite, token)
        with self.sink.connection.open() as client:
            self.place = find(client, family_of(self.sink.txn_id or uuid4().hex))

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with self.sink.connection.open() as client:
            return StagedMessage(stage(client, self.sink, self.place, task_name(), iterator))

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with self.sink.connection.open() as client:
            publish(client, staged_in(messages))

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with self.sink.connection.open() as client:
            drop(client, [self.place.transaction])


def staged_in(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """What tasks told; those that failed told nothing."""
    return [message.staged for message in messages if isinstance(message, StagedMessage)]
