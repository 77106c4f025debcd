"""The batch reader: what topics hold between two bounds, frozen when Spark plans the query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mqueue.pipeline.horizon import Reach, firsts, reach, resolved, tell_loss, whole
from mqueue.pipeline.offsets import Range, ranges_between, split
from mqueue.pipeline.options import Bound, Options
from mqueue.pipeline.plain import plainly
from mqueue.pipeline.reading import Reading, read, stretches

if TYPE_CHECKING:
    from mqueue.client.sync import Client


class MqueueReader(DataSourceReader):
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


def planned(client: Client, options: Options, there: Reach) -> list[Range]:
    """The ranges of a batch. What was asked for by number must be there; a word or a time begins where something is."""
    start = resolved(client, options, there, start=True)
    stop = resolved(client, options, there, start=False)
    exempt = start if _by_time(options.start) else firsts(there)
    for topic, partitions in start.items():
        for number, offset in partitions.items():
            if offset > there[topic][number].next:
                tell_loss(f"{topic}/{number} ends at {there[topic][number].next}, before its start {offset}", options)
    return whole(ranges_between(start, stop), there, client, options, exempt)


def _by_time(bound: Bound) -> bool:
    return bound.time_ms is not None or bound.times_ms is not None
