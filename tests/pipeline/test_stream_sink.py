"""Writing streams of Spark: each row once, over task failures, crashes between publish and commit, and restarts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import mqueue
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.sink import Sink, family_of, find, stage
from mqueue.pipeline.stream_writer import REMEMBERED, MqueueStreamWriter
from mqueue.pipeline.writer import StagedMessage


class Run:
    """A stream of files into topic t, each file a batch of its own; run after run from one checkpoint."""

    def __init__(self, spark: Any, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder
        self.files = folder / "in"
        self.checkpoint = folder / "checkpoint"
        self.files.mkdir()

    def add(self, start: int, stop: int) -> None:
        """A file of numbers."""
        lines = "\n".join(json.dumps({"n": n}) for n in range(start, stop))
        draft = self.folder / "draft"
        draft.write_text(lines, encoding="utf-8")
        draft.rename(self.files / f"{start:08}.json")

    def go(self, value: str = "cast(n as string)") -> None:
        """Until all files are read."""
        frame = self.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(self.files))
        frame = frame.repartition(2).selectExpr(f"{value} as value")
        write = frame.writeStream.format("mqueue").options(servers=self.url, topic="t")
        write = write.option("checkpointLocation", str(self.checkpoint)).outputMode("append").queryName("numbers")
        query = write.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_last_commit(self) -> int:
        """As if the driver had died between publishing a batch and noting that it did."""
        last = max(int(file.name) for file in (self.checkpoint / "commits").iterdir() if file.name.isdigit())
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
        return last


@pytest.fixture
def run(spark, server, tmp_path: Path) -> Run:
    return Run(spark, server.url, tmp_path)


def numbers(client: mqueue.Client) -> list[int]:
    if "t" not in client.topics():
        return []
    return sorted(int(value) for table in client.scan_arrow("t") for value in table.column("payload").to_pylist())


def test_a_batch_that_was_published_before_a_crash_is_not_published_again(run, client) -> None:
    run.add(0, 500)
    run.add(500, 900)
    run.go()
    assert numbers(client) == list(range(900))
    assert run.forget_last_commit() == 1
    run.add(900, 1000)
    run.go()
    assert numbers(client) == list(range(1000))


def test_a_batch_that_fails_leaves_nothing_and_is_whole_after_a_restart(run, client, spark, tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.touch()
    told = str(failing)

    def broken(n: int) -> str:
        if n == 700 and os.path.exists(told):
            raise RuntimeError("injected")
        return str(n)

    spark.udf.register("broken", broken, "string")
    run.add(0, 500)
    run.add(500, 1000)
    with pytest.raises(Exception, match="injected"):
        run.go("broken(n)")
    assert numbers(client) == list(range(500))
    failing.unlink()
    run.go("broken(n)")
    assert numbers(client) == list(range(1000))


def test_a_driver_that_was_taken_for_dead_publishes_nothing_again(server, client) -> None:
    sink = Sink(Connection(server.url), "t")

    def write(batch: int) -> None:
        """As the tasks of a batch and its driver do it, in no matter which process."""
        row = pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % batch], pa.binary())})
        staged = stage(client, sink, find(client, family_of("q", batch)), f"0.{batch}", [row])
        MqueueStreamWriter({"servers": server.url, "topic": "t"}, StructType().add("value", "binary"), False).commit(
            [StagedMessage(staged)], batch
        )

    for batch in range(5):
        write(batch)
    write(1)
    assert numbers(client) == [0, 1, 2, 3, 4]
    write(REMEMBERED)  # a stream has many batches: the first of them is not remembered for ever
    assert [find(client, family_of("q", batch)).over for batch in (0, 1, REMEMBERED)] == [False, True, True]


@pytest.mark.parametrize(
    ("options", "type", "overwrite", "why"),
    [
        ({"topic": "t", "txnId": "x"}, "string", False, "option txnId is for batches"),
        ({"topic": "no such/name"}, "string", False, "does not match"),
        ({"topci": "t"}, "string", False, "did you mean topic"),
        ({"topic": "t"}, "integer", False, "column value is of type int; it takes binary or string"),
        ({"topic": "t"}, "string", True, "a topic is not overwritten"),
        ({}, "string", False, "give the option topic"),
    ],
)
def test_what_is_no_stream_is_told_before_it_begins(options, type, overwrite, why) -> None:
    given = {"servers": "http://127.0.0.1:9", "checkpointLocation": "/x", "queryName": "q", **options}
    with pytest.raises(mqueue.Refused, match=why):
        MqueueStreamWriter(given, StructType().add("value", type), overwrite)
