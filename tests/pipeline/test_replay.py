"""Replay: a window of a topic once more, from the log or from a lake, chunk by chunk and each once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mqueue
from mqueue.lake.opening import open_lake
from mqueue.lake.schema import LAKE
from mqueue.model.errors import BadTime, Error, NotFound, Refused
from mqueue.model.times import instant, rfc3339
from mqueue.pipeline.jobs.replay import CHUNK, FROM, JOB, ReplaySettings, chunk_of, run, window_of
from mqueue.pipeline.progress import Progress, Silent, progress_of
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqueue.pipeline.report import Report

NOW = instant("2026-06-01")


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"from_time": "2026-02-01", "to_time": "2026-01-01"}, BadTime, "is not before"),
        ({"to_time": "2026-06-02"}, BadTime, "is still to come"),
        ({"to_time": "soon"}, BadTime, "is not a time"),
        ({"run": "a"}, Refused, "--run needs --to-time"),
        ({"at": 3}, Refused, "give --lake as well"),
        ({"to": "a/b"}, Error, "a/b"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(given: dict[str, Any], kind: type[Error], said: str) -> None:
    with pytest.raises(kind, match=said):
        window_of(ReplaySettings(topic="t", **given), NOW)


def test_a_window_ends_now_if_nobody_says_otherwise() -> None:
    window = window_of(ReplaySettings(topic="t", from_time="2026-01-01"), NOW)
    assert (window.from_ms, window.to_ms) == (instant("2026-01-01"), NOW)


def test_words_become_settings() -> None:
    found = JOB.parse(["--topic", "t", "--rate", "2.5", "--chunk", "7", "--plain", "--at", "3"])
    assert (found.rate, found.chunk, found.plain, found.at) == (2.5, 7, True, 3)
    assert JOB.parse(["--topic", "t"]).chunk is None
    with pytest.raises(SystemExit):
        JOB.parse(["--topic", "t", "--chunk", "0"])


def test_chunks_are_small_where_the_pace_is_slow() -> None:
    assert [chunk_of(rate) for rate in (None, 1e6, 100.0, 0.1)] == [CHUNK, CHUNK, 500, 1]


# With Spark


class Stopping(Progress):
    """Somebody ends the run after so many chunks."""

    def __init__(self, chunks: int) -> None:
        super().__init__(Silent())
        self._chunks = chunks

    def advance(self, by: int, **numbers: Any) -> None:
        super().advance(by, **numbers)
        self._chunks -= 1
        if not self._chunks:
            raise KeyboardInterrupt


def ran(spark: SparkSession, server: RunningServer, progress: Progress | None = None, **given: Any) -> Report:
    with progress or progress_of("none") as shown:
        return run(spark, ReplaySettings(url=server.url, **given), shown)


def published(client: mqueue.Client, topic: str, count: int) -> list[mqueue.Message]:
    client.configure(topic, partitions=2)
    drafts = [
        mqueue.Draft(f"m{n}".encode(), key=f"k{n % 7}", headers={"n": str(n), "raw": b"\xff"}, priority=n % 3)
        for n in range(count)
    ]
    client.publish_many(topic, drafts)
    return list(client.scan(topic))


def told(messages: list[mqueue.Message], *left_out: str) -> list[Any]:
    return sorted(
        (m.payload, m.key, m.priority, sorted((k, v) for k, v in m.headers.items() if k not in left_out))
        for m in messages
    )


def by_key(messages: list[mqueue.Message]) -> dict[Any, list[bytes]]:
    found: dict[Any, list[bytes]] = {}
    for message in messages:
        found.setdefault((message.key, message.priority), []).append(message.payload)
    return found


def test_a_run_that_was_ended_goes_on_and_publishes_each_message_once(
    spark: SparkSession, server: RunningServer, client: mqueue.Client
) -> None:
    originals = published(client, "orders", 50)
    end = rfc3339(max(int(m.published_at.timestamp() * 1000) for m in originals) + 1)
    given: dict[str, Any] = {"topic": "orders", "to": "again", "chunk": 10, "run": "r1", "to_time": end}
    with pytest.raises(KeyboardInterrupt):
        ran(spark, server, Stopping(2), **given)
    assert [cursor.name for cursor in client.cursors("orders")] == ["replay.r1"]
    assert 0 < len(list(client.scan("again"))) < 50
    report = ran(spark, server, rate=1e6, **given)
    assert report.numbers["chunks published before"] == 2
    again = list(client.scan("again"))
    assert told(again, FROM) == told(originals)
    assert {m.headers[FROM] for m in again} == {f"orders/{m.partition}/{m.offset}" for m in originals}
    assert by_key(again) == by_key(originals)
    assert client.cursors("orders") == []
    assert ran(spark, server, **given).numbers["messages"] == 0


def test_a_condition_chooses_and_plain_leaves_no_trace(
    spark: SparkSession, server: RunningServer, client: mqueue.Client
) -> None:
    originals = published(client, "orders", 30)
    where = "priority = 1 and cast(value as string) like 'm1%'"
    report = ran(spark, server, topic="orders", where=where, plain=True)
    chosen = [m for m in originals if m.priority == 1 and m.payload.startswith(b"m1")]
    assert report.numbers["messages"] == len(chosen) > 0
    assert told(list(client.scan("orders"))) == told([*originals, *chosen])
    with pytest.raises(NotFound, match="nowhere"):
        ran(spark, server, topic="nowhere")
    with pytest.raises(Exception, match="no_such_column"):
        ran(spark, server, topic="orders", where="no_such_column = 1")
    assert client.cursors("orders") == []


def test_a_lake_is_replayed_as_the_log_is(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    originals = published(client, "orders", 40)
    lake = open_lake(str(tmp_path / "lake"), create=True)
    rows = [row_of(message) for message in originals]
    files = lake.writer().write(pa.Table.from_pylist(rows, LAKE).to_batches())
    lake.append(files, "test", 0)
    given: dict[str, Any] = {"topic": "orders", "to": "back", "lake": str(tmp_path / "lake"), "chunk": 15}
    report = ran(spark, server, plain=True, **given)
    assert report.numbers["messages"] == 40
    back = list(client.scan("back"))
    assert told(back) == told(originals)
    assert by_key(back) == by_key(originals)
    with pytest.raises(NotFound, match="has no messages of topic 'others'"):
        ran(spark, server, topic="others", lake=str(tmp_path / "lake"))


def row_of(message: mqueue.Message) -> dict[str, Any]:
    headers = [
        {"key": key, "value": value if isinstance(value, bytes) else value.encode()}
        for key, value in message.headers.items()
    ]
    return {
        "key": message.key, "value": message.payload, "topic": message.topic, "partition": message.partition,
        "offset": message.offset, "timestamp": message.published_at, "headers": headers,
        "namespace": message.namespace, "id": message.id, "priority": message.priority,
        "date": message.published_at.date(),
    }  # fmt: skip
