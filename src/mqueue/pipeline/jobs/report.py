"""Report: how long messages took from publish to ack, how often they were delivered again, how many there were.

    mqueue pipeline report --topic orders,refunds --since 24h --html report.html

Per topic and hour, from what happened to every message. The page stands alone: its plots are in it. Messages that were
to be delivered later are counted, but their waiting is no latency.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from mqueue.model.clock import SystemClock
from mqueue.model.errors import NotFound, Refused
from mqueue.model.lifecycle import Kind
from mqueue.model.names import is_dlq
from mqueue.model.times import duration_ms, instant
from mqueue.pipeline.hours import COUNTS, PERCENTILES, Findings, GroupLatency, Hour, Latency
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.page import page
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.report import Report, Value
from mqueue.pipeline.watching import tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVENTS = (
    Kind.PUBLISHED, Kind.SCHEDULED, Kind.DELIVERED, Kind.REDELIVERED, Kind.ACKNOWLEDGED, Kind.NACKED, Kind.TIMED_OUT,
    Kind.DEAD, Kind.EXPIRED,
)  # fmt: skip
"""What is counted, in the order of `COUNTS`."""
_MESSAGE = ("topic", "partition", "offset")
_COLUMNS = "topic string, partition int, offset bigint, event string, time timestamp, `group` string"


class ReportSettings(Settings, frozen=True, kw_only=True):
    topic: Annotated[tuple[str, ...], Meta(description="Which topics; all but dead-letter queues by default.")] = ()
    since: Annotated[str, Meta(description="Published since a time, or within a duration such as 24h.")] = ""
    html: Annotated[str, Meta(description="Write a page with plots to this file.")] = ""


def counts(trace: DataFrame) -> DataFrame:
    """How often each thing happened, per topic and hour in which it did."""
    from pyspark.sql import functions as sf

    tallies = [
        sf.count_if(sf.col("event") == event.value).alias(name) for name, event in zip(COUNTS, _EVENTS, strict=True)
    ]
    hours = trace.withColumn("hour", sf.date_trunc("hour", "time"))
    return hours.groupBy("topic", "hour").agg(*tallies).orderBy("topic", "hour")


def transform(trace: DataFrame) -> DataFrame:
    """A row for each message and group that acked it.

    `seconds` lie between publish and ack, `first_seconds` between publish and the first delivery. Of a message that was
    acked more than once (sent back by a seek) the first time counts.
    """
    from pyspark.sql import functions as sf

    born = trace.where(sf.col("event") == "PUBLISHED").select(*_MESSAGE, sf.col("time").alias("published"))
    later = trace.where(sf.col("event") == "SCHEDULED").select(*_MESSAGE).distinct()
    handled = (
        trace.where(sf.col("event").isin("DELIVERED", "REDELIVERED", "ACKNOWLEDGED"))
        .groupBy(*_MESSAGE, "group")
        .agg(
            sf.min(sf.when(sf.col("event") == "ACKNOWLEDGED", sf.col("time"))).alias("acked"),
            sf.min(sf.when(sf.col("event") != "ACKNOWLEDGED", sf.col("time"))).alias("delivered"),
            sf.count_if(sf.col("event") == "REDELIVERED").alias("redeliveries"),
        )
        .where(sf.col("acked").isNotNull())
    )
    joined = handled.join(born, list(_MESSAGE)).join(later, list(_MESSAGE), "left_anti")
    since = sf.unix_micros("published")
    return joined.select(
        *_MESSAGE,
        "group",
        sf.date_trunc("hour", "published").alias("hour"),
        ((sf.unix_micros("acked") - since) / 1e6).alias("seconds"),
        ((sf.unix_micros("delivered") - since) / 1e6).alias("first_seconds"),
        "redeliveries",
    )


def latencies(handled: DataFrame, *by: str) -> DataFrame:
    """Percentiles of latency, for each value of these columns."""
    from pyspark.sql import functions as sf

    count = sf.count(sf.lit(1))
    figures = (
        count.alias("messages"),
        sf.percentile_approx("seconds", list(PERCENTILES), 10_000).alias("percentiles"),
        sf.max("seconds").alias("longest"),
        sf.percentile_approx("first_seconds", 0.5, 10_000).alias("first"),
        (sf.count_if(sf.col("redeliveries") > 0) / count).alias("again"),
    )
    return handled.groupBy(*by).agg(*figures).orderBy(*by)


def run(spark: SparkSession, settings: ReportSettings, progress: Progress) -> Report:
    began = time.perf_counter()
    now = SystemClock().now()
    since = since_of(settings.since, now)
    _check_file(settings.html)
    progress.step("report")
    with tasks(spark, progress):
        found = collected(_trace(spark, settings, since), since, now)
    if settings.html:
        Path(settings.html).write_text(page(found), encoding="utf-8")
    numbers: dict[str, Value] = {
        "topics": len(found.topics()),
        "hours": len({hour.start_ms for hour in found.hours}),
        **{name.replace("_", " "): found.total(name) for name in COUNTS},
        "seconds": round(time.perf_counter() - began, 1),
    }
    remarks = (f"The page is {settings.html}.",) if settings.html else ()
    return Report("report", numbers, tuple(map(_finding, found.groups)), remarks)


def collected(trace: DataFrame, since_ms: int | None, now: int) -> Findings:
    """What a trace comes to. It is read once, and kept while it is looked at from several sides."""
    trace = trace.persist()
    try:
        handled = transform(trace).persist()
        by_hour = {(row.topic, row.hour): _latency(row) for row in latencies(handled, "topic", "hour").collect()}
        groups = latencies(handled, "topic", "group").collect()
        hours = counts(trace).collect()
        handled.unpersist()
    finally:
        trace.unpersist()
    return Findings(
        tuple(
            Hour(row.topic, _ms(row.hour), {name: row[name] for name in COUNTS}, by_hour.get((row.topic, row.hour)))
            for row in hours
        ),
        tuple(GroupLatency(row.topic, row.group, _latency(row)) for row in groups),
        since_ms,
        now,
    )


def since_of(text: str, now: int) -> int | None:
    """A time, or that long before now; None: from the beginning."""
    if not text:
        return None
    if "-" in text:
        return instant(text, "since")
    return max(0, now - duration_ms(text, "since"))


def _trace(spark: SparkSession, settings: ReportSettings, since: int | None) -> DataFrame:
    from mqueue.pipeline.load import read

    with settings.connection().open() as client:
        topics = settings.topic or tuple(topic for topic in client.topics() if not is_dlq(topic))
    if not topics:
        raise NotFound(f"namespace {settings.options()['namespace']!r} has no topics")
    start = {} if since is None else {"startingTimestamp": since, "startingOffsetsByTimestampStrategy": "latest"}
    return read(spark, schema=_COLUMNS, **settings.options(), subscribe=",".join(topics), view="trace", **start)


def _check_file(name: str) -> None:
    """Said before the work, not after it."""
    if name and not Path(name).absolute().parent.is_dir():
        raise Refused(f"--html {name!r:.200}: there is no such directory", code="bad_option")


def _latency(row: Any) -> Latency:
    return Latency(row.messages, tuple(row.percentiles), row.longest, row.first or 0.0, row.again)


def _finding(group: GroupLatency) -> dict[str, Value]:
    latency = group.latency
    shares = {f"p{share * 100:g} s": round(value, 4) for share, value in zip(PERCENTILES, latency.seconds, strict=True)}
    return {
        "topic": group.topic,
        "group": group.group,
        "acked": latency.messages,
        **shares,
        "longest s": round(latency.longest, 4),
        "delivered again %": round(100 * latency.again, 2),
    }


def _ms(time: datetime) -> int:
    """Of a time as Spark gives it: without a zone, in that of this process."""
    return round(time.timestamp() * 1000)


JOB = Job("report", __doc__, ReportSettings, run)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
