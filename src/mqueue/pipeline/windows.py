"""Where a replay reads: a window of time of a topic, in its log or in a lake, in chunks that are the same each time.

Both show the same columns. Does not know what becomes of the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, json

from mqueue.lake.files import STORED, DataFile
from mqueue.model.errors import NotFound
from mqueue.model.times import to_datetime
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.offsets import Range
from mqueue.pipeline.runs import chunks
from mqueue.pipeline.schema import MESSAGES, whole_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqueue.lake.lake import Lake


class Window(Struct, frozen=True):
    """What was published to `topic` from `from_ms` on and before `to_ms`."""

    topic: str
    from_ms: int
    to_ms: int
    chunk: int
    """So many offsets of each partition."""


class Origin(Protocol):
    def chunks(self) -> dict[int, list[Range]]:
        """By number, what there is to read."""

    def read(self, spark: SparkSession, pieces: list[Range]) -> DataFrame: ...

    def hold(self, name: str) -> None:
        """Keep it there until `let_go`, or for a week."""

    def let_go(self, name: str) -> None: ...


class LogWindow:
    """As the log has it. Held, retention does not drop it."""

    def __init__(self, window: Window, connection: Connection, options: Mapping[str, str]) -> None:
        self._window = window
        self._connection = connection
        self._options = options
        with connection.open() as client:
            first = client.offsets(window.topic, to_datetime(window.from_ms))
            last = client.offsets(window.topic, to_datetime(window.to_ms))
        self._starts = {each.partition: each.at or 0 for each in first}
        self._stops = {each.partition: each.at or 0 for each in last}

    def chunks(self) -> dict[int, list[Range]]:
        return chunks(self._starts, self._stops, self._window.topic, self._window.chunk)

    def read(self, spark: SparkSession, pieces: list[Range]) -> DataFrame:
        topic = self._window.topic
        options = {
            **self._options,
            "assign": _json({topic: [piece.partition for piece in pieces]}),
            "startingOffsets": _json({topic: {str(piece.partition): piece.start for piece in pieces}}),
            "endingOffsets": _json({topic: {str(piece.partition): piece.stop for piece in pieces}}),
            "failOnDataLoss": "false",  # a window of time is what is there of it, and that is held
            "maxRecordsPerPartition": str(self._window.chunk),  # one task for a partition: its order stays
        }
        return spark.read.format("mqueue").options(**options).schema(whole_schema(MESSAGES)).load()

    def hold(self, name: str) -> None:
        with self._connection.open() as client:
            client.set_cursor(self._window.topic, name, self._starts)

    def let_go(self, name: str) -> None:
        with self._connection.open() as client, suppress(NotFound):  # it has expired
            client.delete_cursor(self._window.topic, name)


class LakeWindow:
    """As a version of a lake has it."""

    def __init__(self, window: Window, lake: Lake, version: int, namespace: str) -> None:
        self._window = window
        self._url = lake.url
        files = lake.files(version, namespace=namespace, topic=window.topic)
        if not files:
            raise NotFound(f"the lake {lake.url} has no messages of topic {window.topic!r} in {namespace!r}")
        self._files = [file for file in files if file.last_ms >= window.from_ms and file.first_ms < window.to_ms]

    def chunks(self) -> dict[int, list[Range]]:
        starts: dict[int, int] = {}
        stops: dict[int, int] = {}
        for file in self._files:
            starts[file.partition] = min(starts.get(file.partition, file.first), file.first)
            stops[file.partition] = max(stops.get(file.partition, 0), file.next)
        cut = chunks(starts, stops, self._window.topic, self._window.chunk)
        return {number: pieces for number, pieces in cut.items() if any(map(self._files_of, pieces))}

    def read(self, spark: SparkSession, pieces: list[Range]) -> DataFrame:
        from pyspark.sql import functions as sf

        paths = dict.fromkeys(f"{self._url}/{file.path}" for piece in pieces for file in self._files_of(piece))
        window = self._window
        time = sf.unix_millis("timestamp").between(window.from_ms, window.to_ms - 1)
        places = " or ".join(
            f"(partition = {piece.partition} and offset >= {piece.start} and offset < {piece.stop})" for piece in pieces
        )
        found = spark.read.schema(stored_columns()).parquet(*paths).where(places).where(time)
        in_order = found.repartition(len(pieces), "partition").sortWithinPartitions("partition", "offset")
        return in_order.withColumn("topic", sf.lit(window.topic))

    def hold(self, name: str) -> None:
        """A version of a lake stays as it is."""

    def let_go(self, name: str) -> None:
        """Nothing was held."""

    def _files_of(self, piece: Range) -> list[DataFile]:
        here = (file for file in self._files if file.partition == piece.partition)
        return [file for file in here if file.reaches(piece.start, piece.stop)]


def stored_columns() -> str:
    """The columns that are in files of a lake, as Spark takes them."""
    columns = whole_schema(MESSAGES).split(", ")
    return ", ".join(column for column in columns if column.split("`")[1] in STORED)


def _json(value: object) -> str:
    return json.encode(value).decode()
