"""Writing batches of Spark: what arrives, what is refused before anything is staged, and that a write happens once."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import mqueue
from mqueue.model.priority import NORMAL
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.rows import ROWS_MAX
from mqueue.pipeline.sink import Place, Sink, Staged, drop, find, publish, sink_of, stage

SOON = datetime(2031, 7, 1, 12, tzinfo=UTC)
LATER = datetime(2032, 7, 1, 12, tzinfo=UTC)
EVERY = (
    "value binary, key binary, headers array<struct<key:string,value:binary>>, topic string, priority int,"
    " deliver_at timestamp, expires_at timestamp, fairness_key string"
)


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def payloads(client: mqueue.Client, topic: str) -> list[bytes]:
    return [message.payload for message in client.scan(topic)] if topic in client.topics() else []


# Without Spark: the steps of a write


@pytest.fixture
def sink(server) -> Sink:
    return Sink(Connection(server.url), "t")


def test_rows_of_a_task_keep_their_order_over_its_parts(client, sink) -> None:
    values = [b"%d" % n for n in range(2 * ROWS_MAX + 5)]
    place = find(client, "spark/w")
    done = stage(
        client, sink, place, "0.0", [rows(*values[:7]), rows(*values[7 : ROWS_MAX + 9]), rows(*values[ROWS_MAX + 9 :])]
    )
    assert len(done.parts) == 3
    assert publish(client, [done]) == done.rows == len(values)
    assert payloads(client, "t") == values


def test_only_parts_that_are_named_are_published(client, sink) -> None:
    place = find(client, "spark/w")
    lost = stage(client, sink, place, "0.0", [rows(b"1", b"2")])
    done = stage(client, sink, place, "0.1", [rows(b"1", b"2")])
    other = stage(client, sink, place, "1.2", [rows(b"3")])
    assert set(lost.parts).isdisjoint(done.parts)
    assert payloads(client, "t") == []
    assert publish(client, [done, other, Staged(place)]) == 3
    assert payloads(client, "t") == [b"1", b"2", b"3"]


def test_what_is_published_is_found_and_not_written_again(client, sink) -> None:
    place = find(client, "spark/w")
    told = [stage(client, sink, place, "0.0", [rows(b"1")])]
    late = stage(client, sink, place, "0.1", [rows(b"1")])
    publish(client, told)
    publish(client, told)
    assert find(client, "spark/w") == Place("spark/w", over=True)
    assert stage(client, sink, find(client, "spark/w"), "0.2", [rows(b"1")]) == Staged(Place("spark/w", over=True))
    again = stage(client, sink, place, "0.3", [rows(b"1")])  # by a task that began before
    assert again.place.over
    assert publish(client, [late, again]) == 0
    drop(client, ["spark/w"])
    assert payloads(client, "t") == [b"1"]


def test_whoever_writes_again_after_a_failure_begins_afresh(client, sink) -> None:
    for n in range(6):
        place = find(client, "spark/w")
        assert place == Place(f"spark/w/{n}" if n else "spark/w")
        stage(client, sink, place, "0.0", [rows(b"%d" % n)])
        drop(client, [place.transaction])
    place = find(client, "spark/w")
    publish(client, [stage(client, sink, place, "0.0", [rows(b"6")])])
    assert find(client, "spark/w") == Place("spark/w/6", over=True)
    assert payloads(client, "t") == [b"6"]


def test_rows_in_two_transactions_are_not_published(client, sink) -> None:
    first = stage(client, sink, find(client, "spark/w"), "0.0", [rows(b"1")])
    drop(client, ["spark/w"])
    second = stage(client, sink, find(client, "spark/w"), "1.1", [rows(b"2")])
    with pytest.raises(mqueue.Conflict, match="staged in 2 transactions") as refused:
        publish(client, [first, second])
    assert refused.value.code == "several_transactions"
    assert payloads(client, "t") == []


def test_nothing_is_written_by_a_write_of_no_rows(client, sink) -> None:
    place = find(client, "spark/w")
    assert publish(client, [stage(client, sink, place, "0.0", [])]) == 0
    assert client.topics() == []


def test_a_write_that_is_too_large_says_what_to_do(sink) -> None:
    from mqueue.config import Config
    from mqueue.model.limits import Limits
    from mqueue.testing.server import RunningServer

    config = Config(limits=Limits(transaction_parts_max=2))
    with RunningServer(config) as server, mqueue.Client(server.url) as client:
        place = find(client, "spark/w")
        for attempt in range(2):  # of which nothing is left but parts
            stage(client, sink, place, f"0.{attempt}", [rows(b"1")])
        with pytest.raises(mqueue.TooLarge, match=r"as many as allowed; write less at once: .*maxOffsetsPerTrigger"):
            stage(client, sink, place, "0.2", [rows(b"1")])
        with pytest.raises(mqueue.Conflict, match=r"another task of this write has failed.*maxOffsetsPerTrigger"):
            stage(client, sink, place, "0.3", [rows(b"1")])  # Spark tries again, and shows what was said last
        assert find(client, "spark/w") == Place("spark/w/1")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"servers": "http://127.0.0.1:1", "topci": "t"}, "did you mean topic"),
        ({"servers": "http://127.0.0.1:1", "topic": "no such/name"}, "does not match"),
        ({"servers": "http://127.0.0.1:1", "txnid": ""}, "txnId ''"),
        ({"servers": "ftp://x"}, "it takes http or https"),
    ],
)
def test_options_that_are_refused(options, why) -> None:
    with pytest.raises(mqueue.Refused, match=why):
        sink_of(options)


def test_the_token_is_not_shown() -> None:
    sink = sink_of({"servers": "http://127.0.0.1:1", "token": "s3cret"})
    assert sink.connection.token == "s3cret"
    assert "s3cret" not in repr(sink)


# With Spark


def test_every_column_arrives_as_it_was(spark, server, client) -> None:
    given = [
        (b"\x00\xff", b"k", [("h", b"\x01"), ("i", b"2")], "a", 0, SOON, LATER, "f"),
        (b"", None, None, "b", None, None, None, None),
        (b"3", None, None, "a", 0, SOON, LATER, "f"),
    ]
    frame = spark.createDataFrame(given, EVERY).coalesce(1)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame.write.format("mqueue").option("servers", server.url).mode("append").save()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert client.topics() == ["a", "b"]
    first, third = client.scan("a")
    assert (first.payload, third.payload) == (b"\x00\xff", b"3")
    assert (first.key, first.headers, first.priority) == (b"k", {"h": "\x01", "i": "2"}, 0)
    assert (first.deliver_at, first.expires_at, first.fairness_key) == (SOON, LATER, "f")
    [second] = client.scan("b")
    assert (second.payload, second.key, second.headers, second.priority) == (b"", None, {}, NORMAL)


def test_many_rows_go_in_several_calls_and_the_option_wins_over_the_column(spark, server, client) -> None:
    count = 2 * ROWS_MAX + 10
    frame = spark.range(0, count, 1, 2).selectExpr("cast(id as string) as value", "'other' as topic")
    frame.write.format("mqueue").options(servers=server.url, topic="t").mode("append").save()
    found = [int(value) for table in client.scan_arrow("t") for value in table.column("payload").to_pylist()]
    assert sorted(found) == list(range(count))
    half = count // 2
    assert [n for n in found if n < half] == list(range(half))
    assert client.topics() == ["t"]


@pytest.mark.parametrize(
    ("expression", "mode", "options", "why"),
    [
        ("id as value", "append", {}, "column value is of type bigint; it takes binary or string"),
        ("'x' as value", "overwrite", {}, "a topic is not overwritten"),
        (
            "'x' as value",
            "append",
            {"servers": "http://127.0.0.1:9", "token": "s3cret", "timeout": "1s"},
            "127.0.0.1:9",
        ),
    ],
)
def test_what_is_no_write_is_told_in_one_sentence(spark, server, client, expression, mode, options, why) -> None:
    write = spark.range(3).selectExpr(expression).write.format("mqueue")
    with pytest.raises(Exception, match=why) as refused:
        write.options(**{"servers": server.url, "topic": "t", **options}).mode(mode).save()
    assert "s3cret" not in str(refused.value)
    assert client.topics() == []


def test_a_task_that_fails_once_loses_nothing_and_doubles_nothing(spark, server, client, tmp_path: Path) -> None:
    failing = str(tmp_path / "failed")

    def once(value: int) -> str:
        if value == 55_000:  # in the third batch of its task
            try:
                os.close(os.open(failing, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return str(value)
            raise RuntimeError("injected")
        return str(value)

    spark.udf.register("once", once, "string")
    frame = spark.range(0, 60_000, 1, 2).selectExpr("once(id) as value")
    frame.write.format("mqueue").options(servers=server.url, topic="t").mode("append").save()
    assert os.path.exists(failing)
    assert sorted(int(value) for value in payloads(client, "t")) == list(range(60_000))


def test_a_write_that_fails_leaves_nothing_and_one_with_an_id_happens_once(spark, server, client) -> None:
    def write(expression: str) -> None:
        frame = spark.range(0, 25_000, 1, 2).selectExpr(expression)
        frame.write.format("mqueue").options(servers=server.url, topic="t", txnId="fill").mode("append").save()

    with pytest.raises(Exception, match="injected"):
        write("if(id = 24000, raise_error('injected'), cast(id as string)) as value")
    assert client.topics() == []
    write("cast(id as string) as value")
    write("cast(id as string) as value")
    assert sorted(int(value) for value in payloads(client, "t")) == list(range(25_000))
