"""The audit: a lake that has what the log had is clean; of any other it says what is wrong, and at which offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mqueue
from mqueue.config import Config, Metrics
from mqueue.lake import open_lake
from mqueue.pipeline.jobs import archive, audit
from mqueue.pipeline.jobs.audit import AuditSettings
from mqueue.pipeline.progress import progress_of
from mqueue.pipeline.report import Report
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.pipeline.archives import fill, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, url: str, lake: Path, **more: Any) -> Report:
    words = AuditSettings(url=url, lake=str(lake), lake_format="parquet", progress="none", **more)
    return audit.run(spark, words, progress_of("none"))


def copy(spark: SparkSession, url: str, lake: Path) -> None:
    archive.run(spark, settings(url, lake, lake_format="parquet"), progress_of("none"))


def faults(report: Report) -> list[tuple[Any, ...]]:
    return [(one["topic"], one["partition"], one["fault"], one["first"], one["last"]) for one in report.findings]


def rewrite(lake: Path, topic: str, change: Any) -> None:
    """What somebody else does to a file behind everybody's back."""
    (path,) = lake.glob(f"namespace=default/topic={topic}/*/*.parquet")
    with pq.ParquetFile(path) as file:
        table = file.read()
    pq.write_table(change(table), path)


def without(table: pa.Table, first: int, count: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, first), table.slice(first + count)])


def forged(table: pa.Table, row: int) -> pa.Table:
    values = table.column("value").to_pylist()
    values[row] = b"forged"
    place = table.schema.get_field_index("value")
    return table.set_column(place, "value", pa.array(values, pa.binary()))


def test_an_archive_is_clean_and_what_is_changed_behind_its_back_is_named(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    client.configure("orders", partitions=2)
    fill(client, "orders", 400)
    for topic in ("lost", "doubled", "forged", "fine"):
        fill(client, topic, 100)
    copy(spark, server.url, lake)
    fill(client, "fine", 7)
    clean = run(spark, server.url, lake)
    assert (clean.clean, clean.findings, clean.remarks) == (True, (), ())
    assert (clean.numbers["in the lake"], clean.numbers["in the log as well"]) == (800, 800)
    assert (clean.numbers["archived"], clean.numbers["not archived yet"]) == (800, 7)
    assert run(spark, server.url, lake, fast=True).clean

    rewrite(lake, "lost", lambda table: without(table, 10, 3))
    rewrite(lake, "doubled", lambda table: pa.concat_tables([table.slice(0, 50), table.slice(49)]))
    rewrite(lake, "forged", lambda table: forged(table, 77))
    found = run(spark, server.url, lake)
    assert not found.clean
    assert faults(found) == [
        ("doubled", 0, "doubled", 49, 49),
        ("forged", 0, "different", 77, 77),
        ("lost", 0, "missing", 10, 12),
    ]
    ids = {(one["topic"], one["first"]): one["id"] for one in found.findings}
    messages = {(topic, m.offset): m.id for topic in ("lost", "doubled", "forged") for m in client.scan(topic)}
    assert ids == {place: messages[place] for place in ids}
    assert (found.numbers["missing"], found.numbers["doubled"], found.numbers["different"]) == (3, 1, 1)
    assert run(spark, server.url, lake, topics=("fine",)).clean


def test_what_the_log_no_longer_has_is_compared_with_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    clock, lake = ManualClock(), tmp_path / "lake"
    with (
        RunningServer(Config(metrics=Metrics(enabled=False)), clock) as server,
        mqueue.Client(server.url) as client,
    ):
        for topic in ("lost", "forged", "fine"):
            client.configure(topic, retention={"hours": 1})
            client.publish_many(topic, [b"%d" % n for n in range(100)])
        copy(spark, server.url, lake)
        clock.advance("2h")
        for topic in ("lost", "forged"):
            client.publish(topic, b"later")
        client.delete_topic("fine")
        assert client.offsets("lost")[0].first == 100
        clean = run(spark, server.url, lake)
        assert clean.clean
        assert (clean.numbers["in the lake"], clean.numbers["in the log as well"]) == (300, 0)
        assert clean.remarks == ("fine/0: not in the log any more; compared with the ledger of the archive",)
        rewrite(lake, "lost", lambda table: without(table, 30, 5))
        rewrite(lake, "forged", lambda table: forged(table, 3))
        found = run(spark, server.url, lake)
        assert faults(found) == [("forged", 0, "different", 0, 99), ("lost", 0, "holes", 30, 34)]
        client.delete_cursor("forged", "archive")
        clock.advance("2h")
        client.publish("forged", b"when nobody archived it")
        assert ("forged", 0, "too late", 100, 100) in faults(run(spark, server.url, lake, fast=True))


def test_by_numbers_alone_lost_and_stray_files_show(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    for _ in range(3):
        fill(client, "orders", 50)
        copy(spark, server.url, lake)
    opened = open_lake(str(lake), "parquet")
    first, middle, last = opened.files()
    rows = next(iter(opened.scan("default", "orders", start=middle.first, stop=middle.next)))
    opened.append(opened.writer().write([rows]), "somebody", 0)
    found = run(spark, server.url, lake, fast=True)
    assert faults(found) == [("orders", 0, "doubled", 50, 99)]
    beyond = rows.set_column(rows.schema.get_field_index("offset"), "offset", pa.array(range(200, 250), pa.int64()))
    opened.append(opened.writer().write([beyond]), "somebody", 1)
    assert ("orders", 0, "stray", 200, 249) in faults(run(spark, server.url, lake, fast=True))
    assert (first.first, last.last) == (0, 149)


def test_an_audit_that_finds_something_ends_with_1_and_bad_words_with_a_line(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = tmp_path / "lake"
    fill(client, "orders", 30)
    copy(spark, server.url, lake)
    words = ["--url", server.url, "--lake", str(lake), "--lake-format", "parquet", "--progress", "none"]
    assert audit.main([*words, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["clean"]
    rewrite(lake, "orders", lambda table: without(table, 0, 1))
    assert audit.main(words) == 1
    assert "missing" in capsys.readouterr().out
    assert audit.main([*words, "--topics", "nope"]) == 3
    assert capsys.readouterr().err == f"mqueue: topic 'nope' is not in the lake {lake}: nothing of it was archived\n"
    (path,) = lake.glob("namespace=default/topic=orders/*/*.parquet")
    path.unlink()
    assert audit.main(words) == 1
    (complaint,) = capsys.readouterr().err.splitlines()
    assert "is missing" in complaint
