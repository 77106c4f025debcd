"""The archive: what is in the log comes into the lake, each message once, whatever breaks off where."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mqueue
from mqueue.config import Config, Metrics
from mqueue.lake import Lake, open_lake
from mqueue.lake.writer import Writer
from mqueue.pipeline.archiving import Round
from mqueue.pipeline.book import book_of
from mqueue.pipeline.jobs import archive
from mqueue.pipeline.progress import progress_of
from mqueue.pipeline.report import Report
from mqueue.pipeline.subscription import Subscription
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.pipeline.archives import fill, in_lake, in_log, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, server: RunningServer, lake: Path, **more: Any) -> Report:
    return archive.run(spark, settings(server.url, lake, **more), progress_of("none"))


def cursor(client: mqueue.Client, topic: str) -> dict[int, int]:
    return next(each.offsets for each in client.cursors(topic) if each.name == "archive")


def ends(client: mqueue.Client, topic: str) -> dict[int, int]:
    return {place.partition: place.next for place in client.offsets(topic)}


@pytest.mark.parametrize("format", ["delta", "parquet", "iceberg"])
def test_everything_is_copied_once_and_the_cursor_follows(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path, format: str
) -> None:
    client.configure("orders", partitions=3)
    fill(client, "orders", 500)
    fill(client, "single", 40)
    first = run(spark, server, tmp_path / "lake", lake_format=format)
    assert (first.numbers["messages"], first.clean) == (540, True)
    assert run(spark, server, tmp_path / "lake", lake_format=format).numbers["messages"] == 0
    fill(client, "orders", 60, first=500)
    again = run(spark, server, tmp_path / "lake", lake_format=format, batch_rows=25)
    assert (again.numbers["messages"], again.numbers["rounds"]) == (60, 3)
    for topic in ("orders", "single"):
        assert in_lake(tmp_path / "lake", topic, format) == in_log(client, topic)
        assert cursor(client, topic) == ends(client, topic)


class Killed(BaseException):
    """The driver ends here."""


@pytest.mark.parametrize("where", ["before the append", "after the append"])
def test_a_run_that_breaks_off_is_gone_on_with(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    fill(client, "orders", 100)
    run(spark, server, tmp_path / "lake")
    fill(client, "orders", 100, first=100)

    def killed(*given: object, **named: object) -> None:
        raise Killed

    place = (Lake, "append") if where == "before the append" else (Subscription, "advance")
    with monkeypatch.context() as patch:
        patch.setattr(*place, killed)
        with pytest.raises(Killed):
            run(spark, server, tmp_path / "lake")
    assert cursor(client, "orders") == {0: 100}  # nothing that is not in the lake for good was let go
    done = run(spark, server, tmp_path / "lake")
    assert done.numbers["messages"] == (100 if where == "before the append" else 0)
    assert in_lake(tmp_path / "lake", "orders") == in_log(client, "orders")
    assert cursor(client, "orders") == {0: 200}


def test_of_two_archives_at_once_one_copies(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(client, "orders", 100)
    append = Lake.append
    others: list[Report] = []

    def overtaken(self: Lake, *given: Any) -> Any:
        if not others:
            others.append(Report("archive", {}))
            others.append(run(spark, server, tmp_path / "lake"))
        return append(self, *given)

    monkeypatch.setattr(Lake, "append", overtaken)
    mine = run(spark, server, tmp_path / "lake")
    assert (others[1].numbers["messages"], mine.numbers["messages"]) == (100, 0)
    assert mine.numbers["rounds lost to another archive"] == 1
    assert in_lake(tmp_path / "lake", "orders") == in_log(client, "orders")


class Stumbling(Writer):
    """Fails the first time that it is used anywhere, after it has written."""

    stone: Path

    def write(self, batches: Any) -> Any:
        files = super().write(batches)
        try:
            self.stone.open("x").close()
        except FileExistsError:
            return files
        raise OSError("the executor is lost")


def test_a_task_that_fails_is_done_again(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(client, "orders", 100)
    writer = Lake.writer

    def stumbling(self: Lake) -> Writer:
        made = writer(self)
        made.__class__ = Stumbling
        made.stone = tmp_path / "stone"  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(Lake, "writer", stumbling)
    assert run(spark, server, tmp_path / "lake").numbers["messages"] == 100
    assert (tmp_path / "stone").exists()
    assert in_lake(tmp_path / "lake", "orders") == in_log(client, "orders")
    assert len(open_lake(str(tmp_path / "lake")).vacuum("0s")) == 1  # what the first attempt left


def test_a_continuous_archive_takes_up_what_comes_and_ends_when_told(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    stop = threading.Event()
    told: list[Report] = []
    words = settings(server.url, tmp_path / "lake", continuous=True, every="100ms", pattern="orders.*")
    thread = threading.Thread(target=lambda: told.append(archive.run(spark, words, progress_of("none"), stop)))
    fill(client, "orders", 50)
    thread.start()
    try:
        _until(lambda: (tmp_path / "lake").exists() and len(in_lake(tmp_path / "lake", "orders")) == 50)
        fill(client, "orders.new", 20)
        _until(lambda: len(in_lake(tmp_path / "lake", "orders.new")) == 20)
    finally:
        stop.set()
        thread.join(120)
    assert told[0].numbers["messages"] == 70


class Away:
    """An archive whose server is away at first."""

    def __init__(self, stop: threading.Event, errors: list[mqueue.Error]) -> None:
        self._stop = stop
        self._errors = errors

    def round(self, client: Any) -> Round:
        if self._errors:
            raise self._errors.pop(0)
        self._stop.set()
        return Round(rows=3)


def test_a_continuous_archive_waits_for_a_server_that_is_away() -> None:
    tally, stop = archive.Tally(), threading.Event()
    away: Any = Away(stop, [mqueue.Unavailable("nobody is there"), mqueue.Unavailable("nobody is there")])
    archive.go_on(away, None, progress_of("none"), tally, stop, 0.01)  # type: ignore[arg-type]
    assert tally.rows == 3
    refused: Any = Away(stop, [mqueue.Forbidden("not you")])
    with pytest.raises(mqueue.Forbidden):
        archive.go_on(refused, None, progress_of("none"), tally, threading.Event(), 0.01)  # type: ignore[arg-type]


def _until(condition: Any) -> None:
    for _ in range(1200):
        try:
            if condition():
                return
        except mqueue.NotFound:
            pass  # the lake is not made yet
        threading.Event().wait(0.1)
    raise AssertionError("it did not come to pass")


def test_retention_takes_what_is_archived_and_a_loss_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock()
    with (
        RunningServer(Config(metrics=Metrics(enabled=False)), clock) as server,
        mqueue.Client(server.url) as client,
    ):
        client.configure("orders", retention={"hours": 1})
        client.publish_many("orders", [b"old"] * 5000)
        run(spark, server, tmp_path / "lake")
        client.publish_many("orders", [b"new"] * 5000)
        clock.advance("2h")
        assert client.offsets("orders")[0].floor <= 5000  # what is not archived is held
        run(spark, server, tmp_path / "lake")
        clock.advance("2s")
        client.publish("orders", b"last")
        assert client.offsets("orders")[0].floor == 10_000
        assert len(in_lake(tmp_path / "lake", "orders")) == 10_000

        client.delete_cursor("orders", "archive")
        clock.advance("2h")
        client.publish("orders", b"later")
        assert client.offsets("orders")[0].first == 10_001
        with pytest.raises(mqueue.NotFound, match="offsets 10000 to 10001 of orders/0") as lost:
            run(spark, server, tmp_path / "lake")
        assert lost.value.code == "offset_gone"
        assert run(spark, server, tmp_path / "lake", allow_loss=True).numbers["messages"] == 1
        assert book_of(open_lake(str(tmp_path / "lake")), "default").marks["orders"][0].stop == 10_002


@pytest.mark.parametrize("count", [10, 70])
def test_a_topic_that_was_made_anew_is_skipped_and_told_of(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path, count: int
) -> None:
    fill(client, "orders", 50)
    run(spark, server, tmp_path / "lake")
    before = in_lake(tmp_path / "lake", "orders")
    client.delete_topic("orders")
    fill(client, "orders", count)  # also where it has come further than the first one
    fill(client, "others", 10)
    report = run(spark, server, tmp_path / "lake")
    assert (report.numbers["messages"], report.clean) == (10, False)
    assert "topic orders was skipped" in report.remarks[0]
    assert in_lake(tmp_path / "lake", "orders") == before
    assert cursor(client, "orders") == {0: 0}  # nothing of it is archived, so nothing may go


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--topics", "nope"], 3, "topic 'nope' is not there"),
        (["--topics", "a", "--pattern", "b"], 4, "--topics and --pattern: give one of them"),
        (["--pattern", "("], 4, "is no regular expression"),
        (["--every", "soon"], 4, "every 'soon' is not a duration"),
        (["--url", "http://127.0.0.1:1", "--timeout", "1s"], 5, "cannot be reached"),
        (["--lake", "/dev/null/lake"], 5, "lake"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    why: str,
) -> None:
    told = ["--url", server.url, "--lake", str(tmp_path / "lake"), "--progress", "none", *words]
    assert archive.main(told) == code
    complaint = capsys.readouterr().err.splitlines()
    assert len(complaint) == 1
    assert complaint[0].startswith("mqueue: ")
    assert why in complaint[0]
    assert client.topics() == []


def test_the_report_of_a_run_is_json_for_programs(
    spark: SparkSession,
    server: RunningServer,
    client: mqueue.Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(client, "orders", 10)
    told = ["--url", server.url, "--lake", str(tmp_path / "lake"), "--progress", "none", "--output", "json"]
    assert archive.main(told) == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["messages"] == 10
