"""What the source and the sink are held against: the same done with rows, as one writes it first.

A source that yields tuples, which are there before it is asked, so that only handing them over is timed. A writer that
takes row by row, and publishes by a thousand. Both run in processes of Spark, which find them by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from mqueue import Client
from mqueue.pipeline.schema import MESSAGES, spark_schema

AT_ONCE = 1000
_MADE = 10_000
_VALUE = b"x" * 100
_CELLS: dict[str, Any] = {
    "value": _VALUE,
    "topic": "rows",
    "namespace": "default",
    "partition": 0,
    "offset": 1_000_000,
    "id": 1_000_000_000_000,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "timestampType": 1,
    "priority": 0,
}
"""What a message has that has nothing but a value; the rest is null."""


class PlainSource(DataSource):
    """`rows`: how many are read. `url` and `topic`: where they are written to."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return spark_schema(MESSAGES, include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(int(self.options["rows"]), tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RowWriter(dict(self.options))


class TupleReader(DataSourceReader):
    def __init__(self, rows: int, names: tuple[str, ...]) -> None:
        self._rows = rows
        self._names = names

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // 2), InputPartition(self._rows - self._rows // 2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        made = [tuple(_CELLS.get(name) for name in self._names) for _ in range(_MADE)]
        left: int = partition.value
        while left > 0:
            yield from made[:left]
            left -= _MADE


class RowWriter(DataSourceWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._url = options["url"]
        self._topic = options["topic"]

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        gathered: list[bytes] = []
        with Client(self._url) as client:
            for row in iterator:
                gathered.append(bytes(row["value"]))
                if len(gathered) == AT_ONCE:
                    client.publish_many(self._topic, gathered)
                    gathered = []
            if gathered:
                client.publish_many(self._topic, gathered)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was published is published."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """And stays so."""
