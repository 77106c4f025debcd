"""The stream writer of Spark's data source: `df.writeStream.format("mqueue")`. A batch of a query is published once.

Spark makes a new one for every call on the driver, so it remembers nothing: which query and which batch it is about,
tasks learn from Spark, and the driver from what tasks tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from mqueue.model.errors import BadSetting
from mqueue.pipeline.plain import plainly
from mqueue.pipeline.ship import Carried
from mqueue.pipeline.sink import drop, family_before, family_of, find, forget, publish, stage
from mqueue.pipeline.writer import StagedMessage, checked_sink, staged_in, task_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties of a task: the query keeps its id over restarts, and counts its batches."""
REMEMBERED = 500
"""So many batches of a query are remembered. Spark writes none again but the last two; a driver that is taken for dead
and is not may wake up in an earlier one, and must find that it is published."""


class MqueueStreamWriter(Carried, DataSourceStreamArrowWriter):
    """The rows of a batch are published together, and once, whatever fails and whoever starts again."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, overwrite: bool, token: str | None = None
    ) -> None:
        self.sink = checked_sink(options, schema, overwrite, token)
        if self.sink.txn_id is not None:
            raise BadSetting("option txnId is for batches: a stream is published once per query and batch as it is")

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with self.sink.connection.open() as client:
            place = find(client, _family())
            return StagedMessage(stage(client, self.sink, place, task_name(), iterator))

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's word
        staged = staged_in(messages)
        with self.sink.connection.open() as client:
            publish(client, staged)
            if staged and batchId >= REMEMBERED:
                forget(client, family_before(staged[0].place.transaction, batchId - REMEMBERED))

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's word
        with self.sink.connection.open() as client:
            drop(client, [staged.place.transaction for staged in staged_in(messages)])


def _family() -> str:
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
    assert query is not None, "a stream has a query"
    assert batch is not None, "a stream has batches"
    return family_of(query, batch)
