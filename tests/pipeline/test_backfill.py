"""Backfill: tables of files and of a database into a topic, each block once, bad rows as the user wished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mqueue
from mqueue.model.errors import Refused
from mqueue.pipeline.blocks import BLOCK, FAULT, Blocks, Tally, by_block
from mqueue.pipeline.jobs.backfill import JOB, BackfillSettings, told_of
from mqueue.pipeline.jobs.backfill import run as backfill
from mqueue.pipeline.progress import progress_of
from mqueue.pipeline.tables import BLOCKS_MAX, block_starts, quoted, reader_options
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqueue.pipeline.report import Report

ROWS = 300


def batch(blocks: list[str], faults: list[str | None] | None = None) -> pa.RecordBatch:
    faults = faults or [None] * len(blocks)
    values = [f"{block}{row}".encode() for row, block in enumerate(blocks)]
    return pa.record_batch({"value": values, BLOCK: blocks, FAULT: pa.array(faults, pa.string())})


def test_neighbours_of_a_block_come_together_over_batches() -> None:
    batches = iter([batch(["a", "a", "b"]), batch([]), batch(["b", "b"]), batch(["c"])])
    found = {name: sum(piece.num_rows for piece in rows) for name, rows in by_block(batches)}
    assert found == {"a": 2, "b": 3, "c": 1}
    assert list(by_block(iter([]))) == []


def test_rows_with_a_fault_are_counted_and_skipped_refused_or_kept() -> None:
    rows = batch(["a"] * 4, [None, "no value", None, "no value"])
    skipping = Tally("a", "skip")
    assert skipping.taken(rows).column("value").to_pylist() == [b"a0", b"a2"]
    [told] = skipping.done(before=False).to_pylist()
    assert told == {"block": "a", "rows": 2, "bad": 2, "faults": [("no value", 2)], "before": False}
    assert Tally("a", "dlq").taken(rows).num_rows == 4
    with pytest.raises(Refused, match="2 rows of a block cannot be published: no value") as caught:
        Tally("a", "fail").taken(rows)
    assert caught.value.code == "bad_rows"


def test_blocks_of_numbers_begin_at_multiples() -> None:
    assert block_starts(7, 31, 10) == [0, 10, 20, 30]
    assert block_starts(-1, 0, 10) == [-10, 0]
    assert block_starts(None, None, 10) == []
    with pytest.raises(Refused, match=f"at most {BLOCKS_MAX}"):
        block_starts(0, 10 * BLOCKS_MAX, 10)


def test_runs_of_two_databases_are_two_and_who_logs_in_makes_no_difference() -> None:
    def told(path: str, *option: str) -> dict[str, Any]:
        return told_of(BackfillSettings(path=path, format="jdbc", table="orders", topic="t", option=option))

    first = told("jdbc:postgresql://one/shop", "user=a", "password=b", "fetchsize=10")
    assert told("jdbc:postgresql://two/shop", "user=a", "password=b", "fetchsize=10") != first
    assert told("jdbc:postgresql://one/shop?password=c", "fetchsize=10") == first
    assert told("jdbc:postgresql://one/shop", "fetchsize=20") != first
    assert "password" not in str(first)


def test_columns_are_quoted_as_the_database_does() -> None:
    assert quoted("a`b", "jdbc:mysql://h/d") == "`a``b`"
    assert quoted('a"b', "jdbc:postgresql://h/d") == '"a""b"'


def test_options_of_the_reader_may_come_from_the_environment() -> None:
    assert reader_options(("user=u", "password=env:PW"), {"PW": "s=3"}) == {"user": "u", "password": "s=3"}
    for wrong, said in (("user", "NAME=VALUE"), ("password=env:PW", "the environment has no 'PW'")):
        with pytest.raises(Refused, match=said):
            reader_options((wrong,), {})


def test_what_it_takes_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        JOB.parse(["--topic", "t", "--path", "p", "--bad-rows", "burn"])
    assert ended.value.code == 2
    assert "burn" in capsys.readouterr().err
    found = JOB.parse(["--topic", "t", "--path", "p", "--option", "sep=,", "--header-columns", "a,b"])
    assert (found.option, found.header_columns) == (("sep=,",), ("a", "b"))


# With Spark


def ran(spark: SparkSession, server: RunningServer, **given: Any) -> Report:
    with progress_of("none") as progress:
        return backfill(spark, BackfillSettings(url=server.url, **given), progress)


def test_a_parquet_table_is_published_once_whatever_is_run_again(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    for part in range(2):
        numbers = range(part * ROWS, (part + 1) * ROWS)
        table = pa.table({"id": list(numbers), "name": [f"n{n}" for n in numbers], "level": [n % 3 for n in numbers]})
        pq.write_table(table, tmp_path / f"part-{part}.parquet")
    given: dict[str, Any] = {
        "topic": "people", "path": str(tmp_path), "run": "first",
        "key_column": "name", "priority_column": "level", "header_columns": ("level",),
    }  # fmt: skip
    report = ran(spark, server, **given)
    assert report.numbers["blocks"] == 2
    assert report.numbers["messages"] == 2 * ROWS
    again = ran(spark, server, **given)
    assert again.numbers["messages"] == 0
    assert again.numbers["blocks published before"] == 2
    pq.write_table(pa.table({"id": [-1], "name": ["new"], "level": [0]}), tmp_path / "part-2.parquet")
    assert ran(spark, server, **given).numbers["messages"] == 1

    found = list(client.scan("people"))
    assert len(found) == 2 * ROWS + 1
    rows = {m.key: m for m in found}
    assert rows[b"n7"].json() == {"id": 7, "name": "n7", "level": 1}
    assert rows[b"n7"].priority == 1
    assert rows[b"n7"].headers["level"] in ("1", b"1")
    assert {row.json()["id"] for row in rows.values()} == {*range(2 * ROWS), -1}


class FailsOnce(Blocks):
    """Each task dies once, after it has published its block and before Spark has heard of it."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for done in super().__call__(batches):
            task = TaskContext.get()
            assert task is not None
            if not task.attemptNumber():
                raise RuntimeError("the task dies")
            yield done


def test_a_task_that_dies_after_it_has_published_publishes_nothing_twice(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mqueue.pipeline.jobs.backfill.Blocks", FailsOnce)
    pq.write_table(pa.table({"id": range(ROWS)}), tmp_path / "t.parquet")
    report = ran(spark, server, topic="once", path=str(tmp_path))
    assert report.numbers["blocks published before"] == 1
    assert sorted(m.json()["id"] for m in client.scan("once")) == list(range(ROWS))


def test_bad_rows_of_csv_go_where_the_user_wishes(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    lines = ["id,text", *(f"{n},t{n}" for n in range(20)), "x,y,z,too many", "21,"]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    schema = {"topic": "csv", "path": str(file), "format": "csv", "value_column": "text"}
    with pytest.raises(Exception, match="cannot be published"):
        ran(spark, server, **schema)
    assert "csv" not in client.topics() or not list(client.scan("csv"))

    report = ran(spark, server, bad_rows="skip", run="skip", **schema)
    assert (report.numbers["messages"], report.numbers["bad rows"]) == (20, 2)
    assert {row["fault"] for row in report.findings} == {"it cannot be read", "it has no value"}
    assert sorted(m.text() for m in client.scan("csv")) == sorted(f"t{n}" for n in range(20))

    report = ran(spark, server, bad_rows="dlq", run="dlq", **{**schema, "topic": "csv2"})
    assert (report.numbers["messages"], report.numbers["bad rows"]) == (20, 2)
    dead = client.dlq("csv2").messages()
    assert {one.error for one in dead} == {"it cannot be read", "it has no value"}
    assert "x,y,z,too many" in {one.text() for one in dead}


def test_a_large_file_is_cut_and_json_keeps_its_fields(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    file = tmp_path / "t.json"
    file.write_text("".join(json.dumps({"n": n, "s": "ü" * 20}) + "\n" for n in range(200)), encoding="utf-8")
    report = ran(spark, server, topic="lines", path=str(file), format="json", block_bytes=4000)
    assert report.numbers["messages"] == 200
    assert int(str(report.numbers["blocks"])) > 2
    assert sorted(m.json()["n"] for m in client.scan("lines")) == list(range(200))
    assert spark.conf.get("spark.sql.files.maxPartitionBytes") != "4000"


def test_a_table_of_a_database_is_cut_by_a_column(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = "jdbc:derby:memory:backfill;create=true"
    spark.range(250).selectExpr("cast(id as int) id", "concat('n', id) name").write.jdbc(url, "people")
    given = {"topic": "rows", "path": url, "format": "jdbc", "table": "people", "partition_column": "id"}
    report = ran(spark, server, block_rows=100, run="db", **given)
    assert (report.numbers["messages"], report.numbers["blocks"]) == (250, 3)
    assert ran(spark, server, block_rows=100, run="db", **given).numbers["messages"] == 0
    assert sorted(m.json()["id"] for m in client.scan("rows")) == list(range(250))
    with pytest.raises(Refused, match="column 'age' is not there"):
        ran(spark, server, key_column="age", **given)
