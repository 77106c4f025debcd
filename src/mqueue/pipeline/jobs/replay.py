"""Replay: publish messages of a topic once more, out of its log or out of a lake, to that topic or to another.

    mqueue pipeline replay --topic orders --from-time 2026-01-14 --to-time 2026-01-15 --to orders.again --rate 1000

Chosen by a window of time and by a condition of SQL over the columns of messages. It goes chunk by chunk, each of them
published once: a run that was interrupted goes on where it was if it is given the same name and the same words.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from mqueue.lake.opening import open_lake
from mqueue.model.clock import SystemClock
from mqueue.model.errors import BadTime, Refused
from mqueue.model.names import check_name
from mqueue.model.times import instant, rfc3339
from mqueue.pipeline.headers import TYPE, headers
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.offsets import Range
from mqueue.pipeline.pace import Pace, check_rate
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.register import register
from mqueue.pipeline.report import Report, Value, rate
from mqueue.pipeline.runs import prefix_of, run_name
from mqueue.pipeline.schema import MESSAGES, whole_schema
from mqueue.pipeline.sink import family_of, find
from mqueue.pipeline.windows import LakeWindow, LogWindow, Origin, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FROM = "x-mqueue-replayed-from"
CHUNK = 100_000
"""So many offsets of each partition are published at once. Where that would take longer than this, it is less."""
CHUNK_SECONDS = 5
AHEAD_MS_MAX = 60_000
"""So far may the clocks of a driver and a server differ."""


class ReplaySettings(Settings, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="Whose messages.")]
    to: Annotated[str, Meta(description="Where they go; the same topic if it is not said.")] = ""
    from_time: Annotated[str, Meta(description="Published at this time or later.")] = ""
    to_time: Annotated[str, Meta(description="Published before this time; now if it is not said.")] = ""
    where: Annotated[str, Meta(description="A condition of SQL over the columns of messages.")] = ""
    rate: Annotated[float | None, Meta(description="At most so many messages a second.")] = None
    chunk: (
        Annotated[int, Meta(ge=1, le=1_000_000, description="So many offsets of each partition: 100000, or less.")]
        | None
    ) = None
    run: Annotated[str, Meta(description="A name to go on with; needs --to-time.")] = ""
    plain: Annotated[bool, Meta(description=f"Without the header {FROM}.")] = False
    lake: Annotated[str, Meta(description="Read this lake instead of the log.")] = ""
    lake_format: Annotated[Literal["delta", "iceberg", "parquet"], Meta(description="What the lake is.")] = "delta"
    at: Annotated[int | None, Meta(description="A version of the lake; the newest if it is not said.")] = None


def transform(messages: DataFrame, settings: ReplaySettings) -> DataFrame:
    """Messages as a source shows them, as a sink takes them. What was due or ran out then is not so now."""
    from pyspark.sql import functions as sf

    chosen = messages.where(settings.where) if settings.where else messages
    kept = chosen.select("key", "value", "headers", "priority", "fairness_key", "topic", "partition", "offset")
    if not settings.plain:
        place = sf.concat_ws("/", "topic", sf.col("partition").cast("string"), sf.col("offset").cast("string"))
        came = sf.coalesce(sf.col("headers"), sf.array().cast(TYPE))
        others = sf.filter(came, lambda header: header.key != FROM)
        kept = kept.withColumn("headers", sf.concat(others, headers({FROM: place})))
    return kept.drop("topic", "partition", "offset")


def run(spark: SparkSession, settings: ReplaySettings, progress: Progress) -> Report:
    began = time.perf_counter()
    check_rate(settings.rate)
    run = run_name(settings.run)
    window = window_of(settings, SystemClock().now())
    origin, version = _origin(settings, window)
    work = origin.chunks()
    told = _told(settings, window, version)
    progress.say(_to_go_on(run, window, version))
    register(spark)
    transform(spark.createDataFrame([], whole_schema(MESSAGES)), settings)  # is it SQL at all?
    origin.hold(f"replay.{run}")
    published, before = _chunks(spark, settings, origin, work, prefix_of("replay", run, told), progress)
    origin.let_go(f"replay.{run}")
    seconds = time.perf_counter() - began
    numbers: dict[str, Value] = {
        "run": run,
        "chunks": len(work),
        "chunks published before": before,
        "messages": published,
        "seconds": round(seconds, 1),
        "messages a second": rate(published, seconds),
    }
    return Report("replay", numbers)


def window_of(settings: ReplaySettings, now: int) -> Window:
    """The window that was asked for, or an error that says why there is none."""
    check_name(settings.topic, "topic")
    check_name(settings.to or settings.topic, "topic")
    start = instant(settings.from_time, "from_time") if settings.from_time else 0
    stop = instant(settings.to_time, "to_time") if settings.to_time else now
    if start >= stop:
        raise BadTime(f"--from-time {rfc3339(start)} is not before --to-time {rfc3339(stop)}")
    if stop > now + AHEAD_MS_MAX:
        raise BadTime(f"--to-time {rfc3339(stop)} is still to come: a replay has an end before it begins")
    if settings.run and not settings.to_time:
        raise Refused("--run needs --to-time: a run that is gone on with has to end where it ended", code="bad_option")
    if settings.at is not None and not settings.lake:
        raise Refused("--at is a version of a lake: give --lake as well", code="bad_option")
    return Window(settings.topic, start, stop, settings.chunk or chunk_of(settings.rate))


def chunk_of(rate: float | None) -> int:
    """Small enough that a rate is kept within seconds, not only on the whole."""
    return CHUNK if rate is None else max(1, min(CHUNK, int(rate * CHUNK_SECONDS)))


def _origin(settings: ReplaySettings, window: Window) -> tuple[Origin, int | None]:
    """Where to read, and which version of it."""
    if not settings.lake:
        return LogWindow(window, settings.connection(), settings.options()), None
    lake = open_lake(settings.lake, settings.lake_format)
    version = lake.version() if settings.at is None else settings.at
    return LakeWindow(window, lake, version, settings.options()["namespace"]), version


def _chunks(
    spark: SparkSession,
    settings: ReplaySettings,
    origin: Origin,
    work: dict[int, list[Range]],
    prefix: str,
    progress: Progress,
) -> tuple[int, int]:
    """Publish chunk by chunk, no faster than asked; how many messages, and how many chunks were there already."""
    pace = Pace(settings.rate)
    published = before = 0
    progress.step("replay", sum(len(piece) for pieces in work.values() for piece in pieces))
    with settings.connection().open() as client:
        for number, pieces in work.items():
            name = f"{prefix}/{number}"
            if find(client, family_of(name)).over:
                before += 1
            else:
                rows = _publish(transform(origin.read(spark, pieces), settings), settings, name)
                published += rows
                pace.spend(rows)
            progress.advance(sum(map(len, pieces)), published=published)
    return published, before


def _publish(messages: DataFrame, settings: ReplaySettings, name: str) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    counted = Observation()
    write = messages.observe(counted, sf.count(sf.lit(1)).alias("rows")).write.format("mqueue").mode("append")
    write.options(**settings.options(), topic=settings.to or settings.topic, txnId=name).save()
    return int(counted.get["rows"])


def _told(settings: ReplaySettings, window: Window, version: int | None) -> dict[str, Value]:
    """What decides what is published, and in which chunks."""
    return {
        "namespace": settings.options()["namespace"],
        "topic": window.topic,
        "to": settings.to or window.topic,
        "from": window.from_ms,
        "until": window.to_ms,
        "where": settings.where,
        "chunk": window.chunk,
        "plain": settings.plain,
        "lake": settings.lake,
        "version": version,
    }


def _to_go_on(run: str, window: Window, version: int | None) -> str:
    at = "" if version is None else f" --at {version}"
    words = f"--run {run} --to-time {rfc3339(window.to_ms)} --chunk {window.chunk}{at}"
    return f"to go on with this run: {words}, and all else as it was"


JOB = Job("replay", __doc__, ReplaySettings, run)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
