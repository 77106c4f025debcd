"""Topics as a Spark source, by batch: bounds, projections, views, SQL, and errors in one sentence. Real Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import mqueue
from mqueue.config import Config, Jwt, Metrics, Secret, Security
from mqueue.pipeline.load import read
from mqueue.pipeline.schema import VIEWS, whole_schema
from mqueue.server.security.tokens import issue
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECRET = "a secret of a test, long enough for HS256"


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[str, mqueue.Client, ManualClock]]:
    """A server whose time is moved by hand; in two partitions of `orders` are ten messages a day, for three days."""
    clock = ManualClock("2026-01-01")
    with (
        RunningServer(Config(metrics=Metrics(enabled=False)), clock=clock) as server,
        mqueue.Client(server.url) as client,
    ):
        client.configure("orders", partitions=2)
        for day in range(3):
            drafts = [
                mqueue.Draft(
                    b"%d" % (10 * day + n),
                    key=f"k{n}",
                    headers={"day": str(day)} if n % 2 else None,
                    priority="high" if n == 3 else None,
                )
                for n in range(10)
            ]
            client.publish_many("orders", drafts)
            clock.advance("24h")
        client.publish_many("refunds", [b"r0", b"r1"])
        yield server.url, client, clock


def load(spark: SparkSession, url: str, columns: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("mqueue").option("servers", url)
    for name, value in options.items():
        reader = reader.option(name, value)  # type: ignore[arg-type]
    return (reader.schema(columns) if columns else reader).load()


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row["value"]) for row in frame.select("value").collect())


def expected(start: int, stop: int) -> list[bytes]:
    return sorted(b"%d" % n for n in range(start, stop))


def test_all_columns_as_the_client_sees_them(spark: SparkSession, place: Any) -> None:
    url, client, _ = place
    frame = load(spark, url, whole_schema("messages"), subscribe="orders", minPartitions=5)
    assert frame.columns == list(VIEWS["messages"])
    rows = {(row["partition"], row["offset"]): row for row in frame.collect()}
    assert len(rows) == 30
    for message in client.scan("orders"):
        row = rows[message.partition, message.offset]
        assert (bytes(row["value"]), bytes(row["key"]), row["id"]) == (message.payload, message.key, message.id)
        assert (row["topic"], row["namespace"], row["timestampType"]) == ("orders", "default", 1)
        assert (row["priority"], row["deliver_at"]) == (message.priority, None)
        assert row["timestamp"].timestamp() == message.published_at.timestamp()
        assert {h["key"]: bytes(h["value"]).decode() for h in row["headers"] or ()} == dict(message.headers)
    assert frame.rdd.getNumPartitions() >= 5


def test_without_a_schema_there_are_the_columns_of_kafka_and_ours(spark: SparkSession, place: Any) -> None:
    kafka = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    ours = ["namespace", "id", "priority", "deliver_at", "idempotency_key"]
    assert load(spark, place[0], subscribe="orders").columns == kafka + ours
    assert load(spark, place[0], subscribe="orders", includeHeaders="true").columns == [*kafka, "headers", *ours]


def test_bounds_by_offset_time_pattern_and_assignment(spark: SparkSession, place: Any) -> None:
    url, client, _ = place
    ends = {each.partition: each.next for each in client.offsets("orders")}
    day = 86_400_000
    first = 1_767_225_600_000  # 2026-01-01
    assert values(load(spark, url, subscribe="orders", startingTimestamp=first + day)) == expected(10, 30)
    assert values(load(spark, url, subscribe="orders", endingTimestamp="2026-01-02")) == expected(0, 10)
    part = load(
        spark,
        url,
        assign='{"orders": [1]}',
        startingOffsets='{"orders": {"1": 2}}',
        endingOffsets='{"orders": {"1": -1}}',
    )
    assert part.count() == ends[1] - 2
    both = load(spark, url, "topic string, value binary", subscribePattern="(orders|refunds)")
    assert {row["topic"]: row["count"] for row in both.groupBy("topic").count().collect()} == {
        "orders": 30,
        "refunds": 2,
    }
    assert load(spark, url, subscribePattern="nothing").count() == 0
    assert values(load(spark, url, subscribe="orders", priorities="high")) == [b"13", b"23", b"3"]


def test_the_schema_is_the_projection_and_sql_reads_a_view(spark: SparkSession, place: Any) -> None:
    url, _, _ = place
    frame = load(spark, url, "offset bigint, partition int", subscribe="orders")
    assert frame.columns == ["offset", "partition"]
    assert frame.agg({"offset": "sum"}).collect()[0][0] == sum(
        n for each in place[1].offsets("orders") for n in range(each.next)
    )
    spark.sql(f"CREATE TEMPORARY VIEW o USING mqueue OPTIONS (servers '{url}', subscribe 'orders')")
    try:
        assert spark.sql("SELECT count(*), max(CAST(CAST(value AS STRING) AS INT)) FROM o").collect()[0][:] == (30, 29)
    finally:
        spark.catalog.dropTempView("o")


def test_the_dead_and_what_happened_are_views(spark: SparkSession, place: Any) -> None:
    url, client, _ = place
    client.configure("work", max_retries=0)
    client.publish_many("work", [b"good", b"bad"])
    assert load(spark, url, subscribe="work", view="dlq").count() == 0
    for message in client.receive("work", 2):
        if message.payload == b"bad":
            message.nack(error="out of paper")
        else:
            message.ack()
    (dead,) = load(spark, url, subscribe="work", view="dlq").collect()
    assert (bytes(dead["value"]), dead["topic"], dead["source_topic"]) == (b"bad", "work.dlq", "work")
    assert (dead["group"], dead["attempts"], dead["error"]) == ("default", 1, "out of paper")
    story = load(spark, url, subscribe="work", view="trace").select("offset", "event", "group", "error").collect()
    assert {(row["offset"], row["event"]) for row in story} >= {(0, "PUBLISHED"), (1, "PUBLISHED"), (0, "DELIVERED")}
    assert [row["error"] for row in story if row["error"]] == ["out of paper"] * sum(bool(r["error"]) for r in story)


# Errors


def sentence_of(call: Any) -> str:
    """What a user reads who makes a mistake."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as told:
        call()
    text = str(told.value)
    assert "Traceback" not in text
    assert 'File "' not in text
    return text


def test_mistakes_are_told_in_a_sentence(spark: SparkSession, place: Any) -> None:
    url, client, _ = place
    nobody = "http://127.0.0.1:9"
    mistakes: list[tuple[dict[str, object], str]] = [
        ({"servers": "ftp://x", "subscribe": "orders"}, "it takes http or https and a host"),
        ({"subscribe": "orders", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "nowhere"}, "nowhere"),
        ({"servers": nobody, "subscribe": "orders", "timeout": "1s"}, "cannot be reached"),
        ({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1}}'}, "startingOffsets misses orders/1"),
        (
            {"subscribe": "orders", "startingTimestamp": "2027-01-01"},
            "nothing was published to orders/0 since 2027-01-01",
        ),
        ({"assign": '{"orders": [5]}'}, "topic 'orders' has partitions 0 to 1, not 5"),
    ]
    for options, sentence in mistakes:
        assert sentence in sentence_of(lambda: load(spark, url, **options).count())  # noqa: B023 - called at once
        with pytest.raises(mqueue.Error) as plain:
            read(spark, **{"servers": url, **options})
        assert sentence in str(plain.value)
    assert "view messages has key, value" in sentence_of(
        lambda: load(spark, url, "oops int", subscribe="orders").count()
    )
    assert "it is bigint" in sentence_of(lambda: load(spark, url, "offset int", subscribe="orders").count())
    assert client.offsets("refunds")


def test_a_read_that_is_checked_first_reads_the_same(spark: SparkSession, place: Any) -> None:
    url, _, _ = place
    frame = read(spark, schema="value binary", servers=url, subscribe="orders", includeHeaders=True)
    assert values(frame) == expected(0, 30)


def test_what_retention_dropped_is_an_error_or_left_out(spark: SparkSession) -> None:
    clock = ManualClock("2026-01-01")
    with (
        RunningServer(Config(metrics=Metrics(enabled=False)), clock=clock) as server,
        mqueue.Client(server.url) as client,
    ):
        client.configure("short", retention={"hours": 1})
        client.publish_arrow("short", payloads(5000))
        clock.advance("2h")
        client.publish_many("short", [b"late"])
        clock.advance("1m")
        client.stats("short")
        (there,) = client.offsets("short")
        assert there.floor == 5000, "retention has dropped what was old"
        zero = {"subscribe": "short", "startingOffsets": '{"short": {"0": 0}}'}
        text = sentence_of(lambda: load(spark, server.url, **zero).count())
        assert "offsets 0 to 5000 of short/0 are not all there: retention has dropped what lies before 5000" in text
        assert values(load(spark, server.url, failOnDataLoss="false", **zero)) == [b"late"]
        assert values(load(spark, server.url, subscribe="short")) == [b"late"]


def test_a_token_opens_the_door_and_is_shown_nowhere(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    now = int(time.time() * 1000)
    keys = {"subject": "spark", "issuer": "mqueue", "audience": "mqueue", "now": now}
    good = issue(SECRET, "HS256", scopes=("*:*",), **keys)
    bad = issue("another secret of a test, also long", "HS256", scopes=("*:*",), **keys)
    security = Security(auth=("jwt",), jwt=Jwt(secret=Secret(SECRET), algorithms=("HS256",)))
    config = Config(metrics=Metrics(enabled=False), security=security)
    with RunningServer(config) as server:
        with mqueue.Client(server.url, token=good) as client:
            client.publish("safe", b"treasure")
        frame = load(spark, server.url, subscribe="safe", token=good)
        assert values(frame) == [b"treasure"]
        frame.explain(extended=True)
        plans = [frame._jdf.queryExecution().toString(), repr(frame)]
        refused = sentence_of(lambda: load(spark, server.url, subscribe="safe", token=bad).count())
        assert "401" in refused or "credentials" in refused.lower() or "unauthorized" in refused.lower()
        told = capfd.readouterr()
        for text in (*plans, refused, told.out, told.err):
            assert good not in text
            assert bad not in text


def payloads(count: int) -> Any:
    import pyarrow as pa

    return pa.table({"payload": pa.array([b"%d" % n for n in range(count)], pa.binary())})
