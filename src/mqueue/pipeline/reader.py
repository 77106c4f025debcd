"""The batch reader: what topics hold between two bounds, frozen when Spark plans the query."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mqueue.pipeline.horizon import planned, reach
from mqueue.pipeline.offsets import split
from mqueue.pipeline.plain import plainly
from mqueue.pipeline.reading import Reading, read, stretches
from mqueue.pipeline.ship import Carried


class MqueueReader(Carried, DataSourceReader):
    """Has no `pushFilters` on purpose: Spark would share a filtered plan among queries on one DataFrame."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    @plainly
    def partitions(self) -> list[InputPartition]:
        options = self._reading.options
        with self._reading.connection.open() as client:
            there = reach(client, options)
            ranges = planned(client, options, there)
        cut = split(ranges, os.cpu_count() or 1, options.partitions_min, options.records_max)
        return stretches(cut, there)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._reading, partition)
