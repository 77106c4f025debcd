"""Publish what a snapshot holds into new topics: payload, key, headers, priority, and the order of each partition.

A chunk of a topic is one transaction, so it is published once. Whoever runs the same restore again goes on with the
first chunk that is missing. Before anything is published the messages are read and compared with the ledger that the
snapshot has of them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta, Struct

from mqueue.lake import open_lake
from mqueue.lake.place import Place
from mqueue.model.errors import Conflict, Corrupt, NotFound
from mqueue.model.names import check_name
from mqueue.pipeline.archiving import cores
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.jobs.archive import topics_of
from mqueue.pipeline.ledger import HASHED, NAME, Sum, sum_of
from mqueue.pipeline.offsets import Range, split
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.report import Report, Value, rate
from mqueue.pipeline.runs import chunks, prefix_of
from mqueue.pipeline.sink import Place as Transaction
from mqueue.pipeline.sink import Sink, Staged, family_of, find, publish, stage
from mqueue.pipeline.snapshots import Snapshot, TopicKept, load
from mqueue.pipeline.spread import answers, done, errands

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqueue.client.sync import Client

COLUMNS = ["value", "key", "headers", "priority", "deliver_at", "fairness_key"]
"""What is published again. When a message would have run out is left behind: it would be over at once."""
CHUNK_ROWS = 100_000


class RestoreSettings(Settings, frozen=True, kw_only=True):
    lake: Annotated[str, Meta(description="The lake that keeps the snapshot.")]
    lake_format: Annotated[Literal["delta", "iceberg", "parquet"], Meta(description="Its format: delta.")] = "delta"
    name: Annotated[str, Meta(description="Which snapshot.")]
    topics: Annotated[tuple[str, ...], Meta(description="Which of its topics; all, unless they are named.")] = ()
    pattern: Annotated[str, Meta(description="Or those whose names match: a regular expression.")] = ""
    suffix: Annotated[str, Meta(description="Put behind the names of the topics, such as .restored.")] = ""
    chunk_rows: Annotated[int, Meta(ge=1, description="Messages of a transaction: 100000.")] = CHUNK_ROWS


class Summed(Struct, frozen=True):
    range: Range
    sum: Sum


class Lakeside:
    """What tasks need to read a range of the snapshot's messages."""

    def __init__(self, settings: RestoreSettings, snapshot: Snapshot, connection: Connection) -> None:
        self._url, self._format = settings.lake, settings.lake_format
        self._namespace = snapshot.namespace
        self._connection = connection

    def summed(self, range: Range) -> Summed:
        return Summed(range, sum(map(sum_of, self._rows(range, HASHED)), Sum()))

    def staged(self, errand: Errand) -> Staged:
        with self._connection.open() as client:
            sink = Sink(self._connection, errand.target)
            task = f"{errand.range.partition}.{errand.range.start}"
            return stage(client, sink, errand.transaction, task, self._rows(errand.range, COLUMNS))

    def _rows(self, range: Range, columns: list[str]) -> Iterator[pa.RecordBatch]:
        lake = open_lake(self._url, self._format)
        return lake.scan(self._namespace, range.topic, range.partition, range.start, range.stop, columns=columns)


class Errand(Struct, frozen=True):
    """A range of the lake on its way to a topic."""

    range: Range
    target: str
    transaction: Transaction


def transform(pieces: DataFrame, lakeside: Lakeside) -> DataFrame:
    """Ranges of the lake in, what is staged of them out. Nobody sees that before the driver commits it."""
    return done(pieces, Errand, lakeside.staged)


def run(spark: SparkSession, settings: RestoreSettings, progress: Progress) -> Report:
    began = time.perf_counter()
    snapshot = load(Place(settings.lake), settings.name)
    chosen = _chosen(snapshot, settings)
    connection = settings.connection()
    messages = sum(mark.rows or 0 for kept in chosen.values() for mark in kept.partitions.values())
    with connection.open() as client:
        for topic, kept in chosen.items():
            _check_room(client, topic, kept, snapshot, settings)
        restoring = Restoring(spark, client, Lakeside(settings, snapshot, connection), snapshot, settings, progress)
        progress.step("verify", messages)
        for topic, kept in chosen.items():
            restoring.verify(topic, kept)
        progress.step("restore", messages)
        for topic, kept in chosen.items():
            client.configure(_target(topic, settings), **kept.settings)
            restoring.publish(topic, kept)
    return restoring.report(len(chosen), time.perf_counter() - began)


class Restoring:
    """One run: what it works with, and what it has done."""

    def __init__(
        self,
        spark: SparkSession,
        client: Client,
        lakeside: Lakeside,
        snapshot: Snapshot,
        settings: RestoreSettings,
        progress: Progress,
    ) -> None:
        self._spark = spark
        self._client = client
        self._lakeside = lakeside
        self._snapshot = snapshot
        self._settings = settings
        self._progress = progress
        self._messages = self._chunks = self._earlier = 0

    def verify(self, topic: str, kept: TopicKept) -> None:
        """What the lake has must be what the snapshot says."""
        whole = [Range(topic, n, mark.start, mark.stop) for n, mark in kept.partitions.items()]
        pieces = split(whole, cores(self._spark), None, None)
        found: dict[int, Sum] = {}
        summed = done(errands(self._spark, pieces), Range, self._lakeside.summed)
        for one in answers(summed, Summed) if pieces else []:
            found[one.range.partition] = found.get(one.range.partition, Sum()) + one.sum
            self._progress.advance(one.sum.rows)
        for n, mark in kept.partitions.items():
            there, known = found.get(n, Sum()), mark.sum
            if known is not None and self._snapshot.ledger == NAME and there != known:
                raise Corrupt(
                    f"{topic}/{n} in the lake has {there.rows} messages of snapshot {self._snapshot.name!r}, not the"
                    f" {known.rows} that it had, or others; nothing is restored (the job audit says more)",
                    code="snapshot_changed",
                )

    def publish(self, topic: str, kept: TopicKept) -> None:
        """Chunk after chunk, each once. The tasks of a chunk have a partition each, so its order stays."""
        prefix, target = _prefix(topic, self._snapshot, self._settings), _target(topic, self._settings)
        for number, ranges in _chunks(topic, kept, self._settings).items():
            transaction = find(self._client, family_of(prefix, number))
            if transaction.over:
                self._earlier += 1
                continue
            pieces = [Errand(each, target, transaction) for each in ranges]
            staged = answers(transform(errands(self._spark, pieces), self._lakeside), Staged)
            rows = publish(self._client, staged)
            self._messages += rows
            self._chunks += 1
            self._progress.advance(rows)

    def report(self, topics: int, seconds: float) -> Report:
        numbers: dict[str, Value] = {
            "topics": topics,
            "messages": self._messages,
            "chunks": self._chunks,
            "chunks of an earlier run": self._earlier,
            "seconds": round(seconds, 1),
            "messages a second": rate(self._messages, seconds),
        }
        return Report("restore", numbers)


def _chosen(snapshot: Snapshot, settings: RestoreSettings) -> dict[str, TopicKept]:
    choice = topics_of(settings.topics, settings.pattern).choice
    for topic in choice.names:
        if topic not in snapshot.topics:
            raise NotFound(f"topic {topic!r:.80} is not in snapshot {snapshot.name!r}")
    matches = re.compile(choice.pattern or "").fullmatch
    return {
        topic: kept
        for topic, kept in sorted(snapshot.topics.items())
        if (topic in choice.names if choice.names else matches(topic))
    }


def _target(topic: str, settings: RestoreSettings) -> str:
    return check_name(topic + settings.suffix, "topic")


def _prefix(topic: str, snapshot: Snapshot, settings: RestoreSettings) -> str:
    """Of the transactions of one topic: the same for the same snapshot, target and chunks."""
    told = {
        "snapshot": msgspec.to_builtins(snapshot, str_keys=True),
        "topic": topic,
        "target": _target(topic, settings),
        "chunk_rows": settings.chunk_rows,
    }
    return prefix_of("restore", snapshot.name[:80], told)


def _chunks(topic: str, kept: TopicKept, settings: RestoreSettings) -> dict[int, list[Range]]:
    starts = {n: mark.start for n, mark in kept.partitions.items()}
    stops = {n: mark.stop for n, mark in kept.partitions.items()}
    return chunks(starts, stops, topic, max(1, settings.chunk_rows // max(1, len(stops))))


def _check_room(client: Client, topic: str, kept: TopicKept, snapshot: Snapshot, settings: RestoreSettings) -> None:
    """The topic has to be new or empty, unless this very restore has begun to fill it."""
    target = _target(topic, settings)
    if target not in client.topics() or not any(place.next for place in client.offsets(target)):
        return
    first = next(iter(_chunks(topic, kept, settings)), None)
    if first is None or not find(client, family_of(_prefix(topic, snapshot, settings), first)).over:
        raise Conflict(
            f"topic {target!r} has messages already: restore into another one with --suffix, such as .restored",
            code="topic_not_empty",
        )


JOB = Job("restore", __doc__, RestoreSettings, run)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
