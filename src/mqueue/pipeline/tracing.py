"""The view `trace`: what happened to the messages of a range of offsets, a row for each event."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mqueue.pipeline.connection import Connection
from mqueue.pipeline.offsets import Range
from mqueue.pipeline.schema import TRACE, arrow_schema

_RENAMED = {"attempts": "attempt"}


def trace_batches(connection: Connection, asked: Range, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Only these columns, in this order."""
    schema = arrow_schema(TRACE, names)
    fixed = {"namespace": connection.namespace, "topic": asked.topic}
    with connection.open() as client:
        for batch in client.events(asked.topic, asked.partition, asked.start, asked.stop):
            columns = [
                pa.repeat(pa.scalar(fixed[name], schema.field(name).type), batch.num_rows)
                if name in fixed
                else batch.column(_RENAMED.get(name, name)).cast(schema.field(name).type)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
