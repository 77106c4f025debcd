"""Snapshots: what a namespace had at a moment comes back as it was, also when neither log nor topic has it any more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mqueue
from mqueue.config import Config, Metrics
from mqueue.lake import open_lake
from mqueue.lake.place import Place
from mqueue.pipeline import sink
from mqueue.pipeline.book import Mark
from mqueue.pipeline.jobs import restore, snapshot
from mqueue.pipeline.jobs.restore import RestoreSettings
from mqueue.pipeline.jobs.snapshot import SnapshotSettings
from mqueue.pipeline.progress import progress_of
from mqueue.pipeline.report import Report
from mqueue.pipeline.snapshots import Snapshot, TopicKept, load, names, save
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.pipeline.archives import fill, in_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def take(spark: SparkSession, url: str, lake: Path, name: str, **more: Any) -> Report:
    words = SnapshotSettings(url=url, lake=str(lake), name=name, progress="none", **more)
    return snapshot.run(spark, words, progress_of("none"))


def bring_back(spark: SparkSession, url: str, lake: Path, name: str, **more: Any) -> Report:
    words = RestoreSettings(url=url, lake=str(lake), name=name, progress="none", **more)
    return restore.run(spark, words, progress_of("none"))


def kept(client: mqueue.Client, topic: str) -> dict[tuple[Any, Any], list[tuple[Any, ...]]]:
    """What is the same in a restored topic: all that a message says, in the order of each key and priority."""
    found: dict[tuple[Any, Any], list[tuple[Any, ...]]] = {}
    for _, _, _, value, key, headers, priority, *_ in in_log(client, topic):
        found.setdefault((key, priority), []).append((value, headers))
    return found


def test_a_snapshot_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    clock, lake = ManualClock(), tmp_path / "lake"
    with (
        RunningServer(Config(metrics=Metrics(enabled=False)), clock) as server,
        mqueue.Client(server.url) as client,
    ):
        client.configure("orders", retention={"hours": 1}, max_retries=7)
        fill(client, "orders", 300)
        client.configure("parts", partitions=3, visibility="2m")
        client.publish_many("parts", [mqueue.Draft(b"%d" % n, key=f"k{n % 5}") for n in range(200)])
        (far,) = client.publish_many("parts", [mqueue.Draft(b"far", key="far", delay="30d")])
        due = next(m.deliver_at for m in client.scan("parts") if m.id == far.id)
        client.configure("empty", partitions=2)
        before = {topic: kept(client, topic) for topic in ("orders", "parts")}
        taken = take(spark, server.url, lake, "first")
        assert (taken.numbers["messages in the snapshot"], taken.numbers["topics"]) == (501, 3)
        fill(client, "orders", 50, first=300)  # is not in it
        take(spark, server.url, lake, "second")
        clock.advance("3h")
        client.publish("orders", b"later")
        client.delete_topic("parts")
        open_lake(str(lake)).compact("default", "orders")

        done = bring_back(spark, server.url, lake, "first", suffix=".back", chunk_rows=120)
        assert (done.numbers["messages"], done.numbers["topics"]) == (501, 3)
        assert {topic: kept(client, f"{topic}.back") for topic in before} == before
        assert [m.deliver_at for m in client.scan("parts.back") if m.payload == b"far"] == [due]
        assert client.settings("orders.back")["max_retries"] == 7
        assert len(client.offsets("empty.back")) == 2
        again = bring_back(spark, server.url, lake, "first", suffix=".back", chunk_rows=120)
        assert (again.numbers["messages"], again.numbers["chunks of an earlier run"]) == (0, done.numbers["chunks"])
        assert {topic: kept(client, f"{topic}.back") for topic in before} == before


class Killed(BaseException):
    """The driver ends here."""


def test_a_restore_that_breaks_off_is_gone_on_with(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = tmp_path / "lake"
    client.publish_many("orders", [b"%d" % n for n in range(100)])
    take(spark, server.url, lake, "s")
    calls = []
    publish = sink.publish

    def killed_once(*given: Any) -> int:
        """The third chunk is staged and not published; the second is published, and nobody hears of it."""
        calls.append(given)
        if len(calls) == 3:
            raise Killed
        rows = publish(*given)
        if len(calls) == 2:
            raise Killed
        return rows

    monkeypatch.setattr(restore, "publish", killed_once)
    for _ in range(2):
        with pytest.raises(Killed):
            bring_back(spark, server.url, lake, "s", suffix=".back", chunk_rows=20)
    done = bring_back(spark, server.url, lake, "s", suffix=".back", chunk_rows=20)
    assert (done.numbers["chunks of an earlier run"], done.numbers["chunks"]) == (2, 3)
    assert [m.payload for m in client.scan("orders.back")] == [b"%d" % n for n in range(100)]


def test_bad_words_are_one_line_and_change_nothing(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = tmp_path / "lake"
    fill(client, "orders", 20)
    take(spark, server.url, lake, "s")
    words = ["--url", server.url, "--lake", str(lake), "--progress", "none"]

    def complaint(job: Any, *more: str) -> tuple[int, str]:
        code = job.main([*words, *more])
        (line,) = capsys.readouterr().err.splitlines()
        return code, line

    there = f"mqueue: snapshot 's' is there already in the lake {lake}: a snapshot never changes"
    assert complaint(snapshot, "--name", "s") == (1, there)
    assert complaint(snapshot, "--name", "a/b")[0] == 4
    unknown = f"mqueue: snapshot 'x' is not there in the lake {lake}; there are: s"
    assert complaint(restore, "--name", "x") == (3, unknown)
    code, line = complaint(restore, "--name", "s")
    assert (code, "topic 'orders' has messages already" in line) == (1, True)
    assert complaint(restore, "--name", "s", "--topics", "nope") == (3, "mqueue: topic 'nope' is not in snapshot 's'")
    for path in lake.glob("namespace=*/**/*.parquet"):
        path.write_bytes(path.read_bytes()[:-100])
    code, _ = complaint(restore, "--name", "s", "--suffix", ".back")
    assert code == 1
    assert client.topics() == ["orders"]


def test_a_snapshot_of_what_the_lake_no_longer_has_is_refused(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    fill(client, "orders", 20)
    take(spark, server.url, lake, "s")
    kept = load(Place(str(lake)), "s")
    mark = kept.topics["orders"].partitions[0]
    assert mark.rows == 20
    more = Mark(mark.start, mark.stop, 21, mark.hash)
    told = Snapshot("t", "default", kept.taken_at, kept.lake_version, kept.ledger, {"orders": TopicKept({}, {0: more})})
    save(Place(str(lake)), told)
    assert names(Place(str(lake))) == ["s", "t"]
    with pytest.raises(mqueue.Corrupt, match="has 20 messages of snapshot 't', not the 21") as refused:
        bring_back(spark, server.url, lake, "t", suffix=".back")
    assert refused.value.code == "snapshot_changed"
    assert client.topics() == ["orders"]
    with pytest.raises(mqueue.Conflict, match="never changes"):
        save(Place(str(lake)), told)
