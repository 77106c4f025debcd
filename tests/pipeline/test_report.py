"""The job `report`: percentiles and counts out of what happened to messages, and a page that stands alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

import mqueue
from mqueue.model.errors import Error, NotFound, Refused
from mqueue.model.times import instant
from mqueue.pipeline.hours import COUNTS, Findings, GroupLatency, Hour, Latency
from mqueue.pipeline.jobs.report import ReportSettings, collected, run, since_of
from mqueue.pipeline.page import page
from mqueue.pipeline.progress import progress_of
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
START = instant("2026-01-01T10:00:00Z")
LATENCY = Latency(90, (0.01, 0.1, 2.0), 9.5, 0.004, 0.25)


def findings(topics: int, hours: int, latency: Latency | None = LATENCY) -> Findings:
    numbers = dict.fromkeys(COUNTS, 3) | {"published": 100}
    rows = [Hour(f"t{t}", START + h * HOUR_MS, numbers, latency) for t in range(topics) for h in range(hours)]
    groups = (GroupLatency("t0", "a<b>&c", LATENCY),) if latency else ()
    return Findings(tuple(rows), groups, None, START + hours * HOUR_MS)


def test_the_page_stands_alone_and_its_plots_are_drawings() -> None:
    text = page(findings(2, 26))
    assert not re.search(r"""(src|href)=["'](?!#)""", text)
    assert "<script" not in text
    assert "a&lt;b&gt;&amp;c" in text
    assert "prefers-color-scheme: dark" in text
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) == 2
    for drawn in plots:
        ElementTree.fromstring(drawn)
        assert "currentColor" in drawn
        assert "messages an hour" in drawn
        assert "p99" in drawn
    assert "25.0%" in text
    assert page(findings(2, 26)) == text


@pytest.mark.parametrize("given", [findings(1, 1), findings(1, 3, None), Findings((), (), START, START)])
def test_little_or_nothing_has_a_page_too(given: Findings) -> None:
    assert page(given).count("</html>") == 1


def test_many_topics_have_no_plots_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.pipeline.page.TOPICS_MAX", 1)
    text = page(findings(3, 1))
    assert text.count("<svg") == 1
    assert "2 more topics" in text


def test_since_is_a_time_or_a_duration() -> None:
    assert since_of("", START) is None
    assert since_of("2h", START) == START - 2 * HOUR_MS
    assert since_of("2026-01-01", START) == instant("2026-01-01")
    with pytest.raises(Error, match="since"):
        since_of("lately", START)


# With Spark


def stories() -> Iterator[tuple[Any, ...]]:
    """A hundred messages: n ms to the first delivery, n s to the ack; every tenth is delivered twice; one was late."""
    began = datetime(2026, 1, 1, 10, tzinfo=UTC)
    for n in range(1, 101):
        published = began + timedelta(minutes=n - 1)
        yield "t", 0, n, "PUBLISHED", published, None
        if n == 100:
            yield "t", 0, n, "SCHEDULED", published, None
        yield "t", 0, n, "DELIVERED", published + timedelta(milliseconds=n), "g"
        if n % 10 == 0:
            yield "t", 0, n, "NACKED", published + timedelta(milliseconds=n + 1), "g"
            yield "t", 0, n, "REDELIVERED", published + timedelta(milliseconds=n + 2), "g"
        yield "t", 0, n, "ACKNOWLEDGED", published + timedelta(seconds=n), "g"
    yield "u", 0, 1, "PUBLISHED", began, None
    yield "u", 0, 1, "DEAD", began, "g"


def test_numbers_come_out_of_the_story(spark: SparkSession) -> None:
    columns = "topic string, partition int, offset bigint, event string, time timestamp, `group` string"
    found = collected(spark.createDataFrame(list(stories()), columns), None, START)
    assert found.topics() == ["t", "u"]
    first, second, other = found.hours
    assert (first.start_ms, second.start_ms, other.topic) == (START, START + HOUR_MS, "u")
    assert (first.counts["published"], second.counts["published"]) == (60, 40)
    assert found.total("acked") == 100
    assert found.total("redelivered") == found.total("failed") == 10
    assert (other.counts["dead"], other.latency) == (1, None)
    [group] = found.groups
    assert (group.topic, group.group, group.latency.messages) == ("t", "g", 99)
    assert group.latency.seconds == (50.0, 90.0, 99.0)
    assert group.latency.longest == 99.0
    assert group.latency.first == pytest.approx(0.05)
    assert group.latency.again == pytest.approx(9 / 99)
    assert first.latency is not None
    assert first.latency.longest == 60.0


def test_a_server_is_reported_on(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    with progress_of("none") as progress:
        with pytest.raises(NotFound, match="has no topics"):
            run(spark, ReportSettings(url=server.url), progress)
        with pytest.raises(Refused, match="no such directory"):
            run(spark, ReportSettings(url=server.url, html=str(tmp_path / "a/b.html")), progress)
        client.publish_many("orders", [b"x"] * 20)
        client.ack(client.receive("orders", limit=15, wait="60s"))
        client.reject(client.receive("orders", limit=5, wait="60s"), error="no")
        file = tmp_path / "report.html"
        report = run(spark, ReportSettings(url=server.url, html=str(file), since="1h"), progress)
    assert report.numbers["topics"] == 1
    assert (report.numbers["published"], report.numbers["acked"], report.numbers["dead"]) == (20, 15, 5)
    [row] = report.findings
    assert (row["topic"], row["group"], row["acked"]) == ("orders", "default", 15)
    assert "orders" in file.read_text(encoding="utf-8")
