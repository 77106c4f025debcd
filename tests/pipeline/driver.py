"""A Spark driver that does what it is told: an order on each line of its input, an answer on each line of its output.

    {"work": "stream", "words": {"url": "http://…", "folder": "/…", …}}      {"answer": {…}} or {"error": "…"}

It has one session for all orders, local or in a cluster, as the words of its command line say. What may break is broken
as the plan in `breaking` says. The other end is `driving`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from mqueue.lake import open_lake
from mqueue.lake.table import Change
from mqueue.model.times import to_datetime
from mqueue.pipeline import archiving, get_session
from mqueue.pipeline.jobs import archive, audit
from mqueue.pipeline.options import options_of
from mqueue.pipeline.progress import progress_of
from mqueue.pipeline.subscription import Subscription
from tests.pipeline import breaking
from tests.pipeline.breaking import DRIVER, BreakingFiling, BreakingSource, Folder, passed

Answer = dict[str, Any]
COLUMNS = "key binary, value binary, headers array<struct<key:string,value:binary>>, priority int"


def stream(spark: SparkSession, words: Answer) -> Answer:
    """From topic `from` to topic `to`, as far as it is filled, in batches of `rows`."""
    connection = {"servers": words["url"], "namespace": words["namespace"]}
    read = spark.readStream.format("breaking").options(**connection).schema(COLUMNS)
    read = read.options(subscribe=words["from"], startingOffsets="earliest", maxOffsetsPerTrigger=str(words["rows"]))
    write = read.load().writeStream.format("breaking").options(**connection).option("topic", words["to"])
    write = write.option("checkpointLocation", words["folder"]).outputMode("append")
    query = write.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        return {"batches": len(query.recentProgress)}
    finally:
        query.stop()


def archived(spark: SparkSession, words: Answer) -> Answer:
    """All topics of the namespace into a lake, in rounds of `rows`."""
    breaking.ACTS["overtake"] = lambda folder: _overtake(spark, words)
    breaking.ACTS["intrude"] = lambda folder: _intrude(words)
    breaking.ACTS["compact"] = lambda folder: _compact(words)
    settings = archive.ArchiveSettings(batch_rows=words["rows"], **_lake(words))
    return archive.run(spark, settings, progress_of("none")).numbers


def audited(spark: SparkSession, words: Answer) -> Answer:
    report = audit.run(spark, audit.AuditSettings(**_lake(words)), progress_of("none"))
    return {"clean": report.clean, **report.numbers}


def batch(spark: SparkSession, words: Answer) -> Answer:
    """How many rows a batch read finds, and in which directories its tasks ran: each executor has its own."""
    read = spark.read.format("mqueue").options(servers=words["url"], namespace=words["namespace"])
    frame = read.option("subscribe", words["from"]).load()

    def where(batches: Any) -> Any:
        for each in batches:
            yield pa.RecordBatch.from_pydict({"place": [os.getcwd()], "rows": [each.num_rows]})

    rows = frame.mapInArrow(where, "place string, rows long").collect()
    return {"rows": sum(row.rows for row in rows), "places": sorted({row.place for row in rows})}


def write(spark: SparkSession, words: Answer) -> Answer:
    """Numbers into a topic, by two tasks."""
    frame = spark.range(0, words["rows"], 1, 2).selectExpr("cast(id as string) as value")
    write = frame.write.format("mqueue").options(servers=words["url"], namespace=words["namespace"])
    write.option("topic", words["to"]).mode("append").save()
    return {}


def tasks(spark: SparkSession, words: Answer) -> Answer:
    """How many tasks each executor has ended so far."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    found = [executors.apply(place) for place in range(executors.size())]
    return {one.id(): one.completedTasks() for one in found if one.id() != "driver"}


WORKS: dict[str, Callable[[SparkSession, Answer], Answer]] = {
    "stream": stream,
    "archive": archived,
    "audit": audited,
    "batch": batch,
    "write": write,
    "tasks": tasks,
}


def _lake(words: Answer) -> Answer:
    names = {"url": words["url"], "namespace": words["namespace"]}
    return {**names, "lake": words["folder"], "lake_format": words["format"]}


# Others who change the lake at the same moment


def _overtake(spark: SparkSession, words: Answer) -> None:
    """Another archive of the same topics is as far, and a little faster."""
    settings = archive.ArchiveSettings(**_lake(words))
    lake = open_lake(words["folder"], words["format"])
    options = options_of({"subscribepattern": ".*"}, streaming=False)
    other = archiving.Archive(spark, lake, settings.connection(), options, "archive", words["rows"])
    with settings.connection().open() as client:
        other.round(client)


def _intrude(words: Answer) -> None:
    """Somebody else appends to the same table."""
    lake = open_lake(words["folder"], words["format"])
    row = {"namespace": "elsewhere", "topic": "t", "partition": 0, "offset": 0, "timestamp": to_datetime(1), "id": 1}
    empty = {"key": None, "value": b"v", "headers": None, "priority": 1, "deliver_at": None, "expires_at": None}
    made = pa.RecordBatch.from_pylist([{**row, **empty, "date": to_datetime(1).date()}], _schema())
    lake.append(lake.writer().write([made]), "elsewhere", (lake.version_of("elsewhere") or 0) + 1)


def _compact(words: Answer) -> None:
    lake = open_lake(words["folder"], words["format"])
    for namespace, topic in lake.topics():
        lake.compact(namespace, topic)


def _schema() -> pa.Schema:
    from mqueue.lake.schema import LAKE

    return LAKE


def _break_archives() -> None:
    """Have the archive of this process pass by the places at which it may break."""
    from mqueue.lake.delta import DeltaLake
    from mqueue.lake.iceberg import IcebergLake
    from mqueue.lake.parquet import ParquetLake

    for kind in (DeltaLake, IcebergLake, ParquetLake):
        _break_commits(kind)
    archiving.Filing = BreakingFiling
    real = Subscription.advance

    def advance(self: Subscription, *args: Any) -> None:
        passed("let go")
        real(self, *args)

    Subscription.advance = advance  # type: ignore[method-assign]


def _break_commits(kind: Any) -> None:
    real = kind.commit

    def commit(self: Any, change: Change) -> int:
        if change.app.startswith("mqueue/"):
            passed("append")
        version: int = real(self, change)
        if change.app.startswith("mqueue/"):
            passed("appended")
        return version

    kind.commit = commit


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no answer
    if folder := Folder.here():
        folder.write(DRIVER, str(os.getpid()))
    spark = get_session("orders", json.loads(sys.argv[1]))
    spark.dataSource.register(BreakingSource)
    _break_archives()
    print(json.dumps({"answer": "ready"}), file=out, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = {"answer": WORKS[order["work"]](spark, order["words"])}
        except Exception as error:
            traceback.print_exc()
            told = {"error": str(error)}
        print(json.dumps(told), file=out, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
