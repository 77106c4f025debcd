"""Topics as a Spark source, by stream: what a batch admits, what a restart knows, what comes in between. Real Spark.

What needs no engine is asked of the reader itself, with a clock that is moved by hand.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import mqueue
from mqueue.config import Config, Metrics
from mqueue.pipeline.source import MqueueDataSource
from mqueue.pipeline.stream_reader import LOOK_SECONDS, MqueueStreamReader
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_SECONDS = 240
ALL = ReadAllAvailable()
FLAGS = ("true", "false")


class Place:
    """A server whose time is moved by hand, and what tests do with it."""

    def __init__(self, server: RunningServer, client: mqueue.Client, clock: ManualClock) -> None:
        self.url, self.client, self.clock = server.url, client, clock
        self.seconds = 0.0

    def publish(self, topic: str, start: int, stop: int) -> None:
        self.client.publish_many(topic, [b"%d" % n for n in range(start, stop)])

    def reader(self, **options: str) -> MqueueStreamReader:
        """The reader that Spark would hold on the driver, with a clock of its own."""
        from pyspark.sql.types import BinaryType, StructField, StructType

        source = MqueueDataSource({"servers": self.url, **options})
        made = source.streamReader(StructType([StructField("value", BinaryType())]))
        assert isinstance(made, MqueueStreamReader)
        return MqueueStreamReader(made._reading, lambda: self.seconds)

    def drop_old(self, topic: str) -> None:
        """Let retention drop everything that is there now."""
        self.clock.advance("2h")
        self.client.stats(topic)


@pytest.fixture
def place() -> Iterator[Place]:
    clock = ManualClock("2026-01-01")
    config = Config(metrics=Metrics(enabled=False))
    with RunningServer(config, clock=clock) as server, mqueue.Client(server.url) as client:
        yield Place(server, client, clock)


def values(reader: MqueueStreamReader, start: Any, end: Any) -> list[bytes]:
    """What tasks would read."""
    tasks = [pickle.loads(pickle.dumps((reader, task))) for task in reader.partitions(start, end)]
    return sorted(v for copy, task in tasks for batch in copy.read(task) for v in batch.column(0).to_pylist())


def expected(start: int, stop: int) -> list[bytes]:
    return sorted(b"%d" % n for n in range(start, stop))


# The reader by itself


def test_a_stream_begins_at_the_end_and_goes_on_from_where_it_was(place: Place) -> None:
    place.publish("t", 0, 5)
    reader = place.reader(subscribe="t")
    start = reader.initialOffset()
    assert start == {"t": {"0": 5}}
    place.publish("t", 5, 8)
    assert reader.initialOffset() == start, "asked again it says the same"
    assert reader.latestOffset(start, ALL) == start, "it does not look again at once"
    place.seconds += LOOK_SECONDS
    end = reader.latestOffset(start, ALL)
    assert end == reader.reportLatestOffset() == {"t": {"0": 8}}
    assert values(reader, start, end) == expected(5, 8)
    assert values(reader, end, end) == []
    reader.stop()


def test_batches_are_as_large_as_the_user_admits(place: Place) -> None:
    place.publish("t", 0, 100)
    reader = place.reader(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    at, sizes = reader.initialOffset(), []
    reader.prepareForTriggerAvailableNow()
    place.publish("t", 100, 150)
    place.seconds += LOOK_SECONDS
    while (end := reader.latestOffset(at, ReadMaxRows(30))) != at:
        sizes.append(end["t"]["0"] - at["t"]["0"])
        at = end
    assert sizes == [30, 30, 30, 10], "what came after the trigger is for the next one"
    assert reader.reportLatestOffset() == {"t": {"0": 150}}
    assert reader.latestOffset(at, ALL) == at
    reader.stop()


def test_dead_letters_are_assigned_by_the_topic_that_they_come_from(place: Place) -> None:
    for topic in ("work", "work.dlq"):
        place.publish(topic, 0, 3)
    for assigned in ('{"work": [0]}', '{"work.dlq": [0]}'):
        reader = place.reader(assign=assigned, view="dlq", startingOffsets="earliest")
        start = reader.initialOffset()
        assert start == {"work.dlq": {"0": 0}}
        assert values(reader, start, reader.latestOffset(start, ALL)) == expected(0, 3)
    with pytest.raises(mqueue.NotFound, match=r"topic 'work\.dlq' has partitions 0 to 0, not 7"):
        place.reader(assign='{"work": [7]}', view="dlq").initialOffset()


def test_a_batch_waits_for_enough_but_not_for_ever(place: Place) -> None:
    place.publish("t", 0, 1)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    reader = place.reader(subscribe="t", **options)
    at = reader.initialOffset()
    first = reader.latestOffset(at, ALL)
    assert first == {"t": {"0": 1}}, "the first batch does not wait"
    place.publish("t", 1, 5)
    place.seconds += 30
    assert reader.latestOffset(first, ALL) == first
    place.seconds += 31
    second = reader.latestOffset(first, ALL)
    assert second == {"t": {"0": 5}}, "it has waited long enough"
    place.publish("t", 5, 20)
    place.seconds += 1
    assert reader.latestOffset(second, ALL) == {"t": {"0": 20}}, "there is enough"
    reader.stop()


def test_new_topics_and_new_partitions_are_read_from_their_beginning(place: Place) -> None:
    place.publish("a1", 0, 2)
    reader = place.reader(subscribePattern="a.*")
    start = reader.initialOffset()
    place.publish("a2", 10, 13)
    place.client.configure("a1", partitions=2)
    place.client.publish_many("a1", [mqueue.Draft(b"%d" % n, key=str(n)) for n in range(2, 10)])
    place.seconds += LOOK_SECONDS
    end = reader.latestOffset(start, ALL)
    assert set(end) == {"a1", "a2"}
    assert set(end["a1"]) == {"0", "1"}
    assert values(reader, start, end) == sorted(expected(2, 10) + expected(10, 13))
    reader.stop()


def test_what_retention_dropped_before_it_was_read_is_an_error_or_left_out(place: Place) -> None:
    place.client.configure("t", retention={"hours": 1})
    place.publish("t", 0, 10)
    strict = place.reader(subscribe="t", startingOffsets="earliest")
    lenient = place.reader(subscribe="t", startingOffsets="earliest", failOnDataLoss="false")
    start = strict.initialOffset()
    place.drop_old("t")
    place.publish("t", 10, 12)
    place.seconds += LOOK_SECONDS
    end = strict.latestOffset(start, ALL)
    with pytest.raises(
        mqueue.NotFound, match="offsets 0 to 11 of t/0 are not all there: retention has dropped"
    ) as lost:
        strict.partitions(start, end)
    assert lost.value.code == "offset_gone"
    assert values(lenient, start, end) == expected(10, 12)
    place.client.delete_topic("t")
    place.publish("t", 0, 1)
    place.seconds += LOOK_SECONDS
    anew = lenient.latestOffset(end, ALL)
    assert anew == {"t": {"0": 1}}
    with pytest.raises(mqueue.NotFound, match="t/0 was read up to 12, and is gone or begins anew"):
        strict.partitions(end, anew)
    assert values(lenient, end, anew) == []
    strict.stop()
    lenient.stop()


def test_a_topic_that_was_made_anew_is_no_continuation(place: Place) -> None:
    place.publish("t", 0, 5)
    strict, lenient = (place.reader(subscribe="t", startingOffsets="earliest", failOnDataLoss=f) for f in FLAGS)
    for reader in (strict, lenient):
        reader.initialOffset()
        reader.partitions({"t": {"0": 0}}, {"t": {"0": 5}})
    place.client.delete_topic("t")
    place.clock.advance("1s")
    place.publish("t", 0, 9)  # it has come further than the first one
    batch = ({"t": {"0": 5}}, {"t": {"0": 9}})
    with pytest.raises(mqueue.NotFound, match=r"topic 't' was deleted and made anew while it was read") as told:
        strict.partitions(*batch)
    assert told.value.code == "offset_gone"
    assert values(lenient, *batch) == expected(5, 9)


def test_what_was_dropped_before_a_stream_began_is_no_loss(place: Place) -> None:
    place.client.configure("t", retention={"hours": 1})
    place.client.publish("t", b"0", delay="48h")
    place.publish("t", 1, 5000)
    place.clock.advance("2h")
    place.publish("t", 5000, 5010)
    place.drop_old("t")
    (there,) = place.client.offsets("t")
    assert there.first == 0
    assert there.floor > 100, "one message is kept below the floor"
    reader = place.reader(subscribe="t", startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {"t": {"0": 0}}
    middle = reader.latestOffset(start, ReadMaxRows(50))
    assert values(reader, start, middle) == [b"0"]
    assert values(reader, middle, reader.latestOffset(middle, ReadMaxRows(50))) == []
    reader.stop()


def test_a_subscription_holds_retention_back_and_answers_the_same(place: Place) -> None:
    place.client.configure("t", retention={"hours": 1})
    place.publish("t", 0, 10)
    first = place.reader(subscribe="t", startingOffsets="earliest", subscription="etl")
    start = first.initialOffset()
    first.stop()
    place.drop_old("t")
    place.publish("t", 10, 20)
    again = place.reader(subscribe="t", startingOffsets="latest", subscription="etl")
    assert again.initialOffset() == start == {"t": {"0": 0}}, "the cursor, not the option, says where it begins"
    end = again.latestOffset(start, ALL)
    assert values(again, start, end) == expected(0, 20)
    again.commit({"t": {"0": 10}})
    assert place.client.cursors("t")[0].offsets == {0: 10}
    place.drop_old("t")
    (there,) = place.client.offsets("t")
    assert there.floor == 10, "what is done may go, what is not stays"
    expires = place.client.cursors("t")[0].expires_at
    place.clock.advance("1h")
    place.seconds += 7200
    again.latestOffset(end, ALL)
    assert place.client.cursors("t")[0].expires_at > expires, "a stream that runs keeps its cursor alive"
    again.stop()


# With Spark


def stream(spark: SparkSession, place: Place, **options: object) -> DataFrame:
    reader = spark.readStream.format("mqueue").option("servers", place.url)
    for name, value in options.items():
        reader = reader.option(name, value)  # type: ignore[arg-type]
    return reader.load().selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")


def run(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """All that is there, by batches into files; what Spark tells of each batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_SECONDS)
    return [json.loads(progress.json) for progress in query.recentProgress]


def written(spark: SparkSession, folder: Path) -> list[int]:
    rows = spark.read.parquet(str(folder / "out")).collect()
    assert len({(row["topic"], row["partition"], row["offset"]) for row in rows}) == len(rows)
    return sorted(int(row["value"]) for row in rows)


def test_batches_restarts_and_new_topics_lose_and_double_nothing(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    place.publish("s1", 0, 10)
    options = {"subscribePattern": "s.", "startingOffsets": "earliest", "subscription": "etl"}
    told = run(stream(spark, place, maxOffsetsPerTrigger=4, **options), tmp_path)
    assert [each["numInputRows"] for each in told if each["numInputRows"]] == [4, 4, 2]
    source = told[0]["sources"][0]
    assert (source["endOffset"], source["latestOffset"]) == ({"s1": {"0": 4}}, {"s1": {"0": 10}}), "the lag can be seen"
    assert written(spark, tmp_path) == list(range(10))

    place.publish("s1", 10, 13)
    place.publish("s2", 13, 15)
    (tmp_path / "checkpoint" / "commits" / "2").unlink()  # as if the driver had died before it noted the last batch
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink()
    run(stream(spark, place, **options), tmp_path)
    assert written(spark, tmp_path) == list(range(15))
    assert place.client.cursors("s1")[0].offsets[0] >= 8
    assert place.client.cursors("s2")[0].name == "etl"


def test_a_stream_that_lost_data_says_so_in_a_sentence(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    place.client.configure("t", retention={"hours": 1})
    place.publish("t", 0, 4)
    options = {"subscribe": "t", "startingOffsets": "earliest"}
    run(stream(spark, place, **options), tmp_path)
    place.publish("t", 4, 8)
    place.drop_old("t")
    place.publish("t", 8, 9)
    with pytest.raises(StreamingQueryException) as lost:
        run(stream(spark, place, **options), tmp_path)
    assert "offsets 4 to 8 of t/0 are not all there: retention has dropped what lies before 8" in str(lost.value)
    assert "Traceback" not in str(lost.value)
    run(stream(spark, place, failOnDataLoss="false", **options), tmp_path)
    assert written(spark, tmp_path) == [0, 1, 2, 3, 8]
