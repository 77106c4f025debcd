"""Dead letters, grouped by what killed them: how many, since when, an example of each; and which to bring back.

    mqueue pipeline dlq --topic orders
    mqueue pipeline dlq --topic orders --redrive 3f2a90c1d4e5 --rate 100

Errors that differ in numbers, ids, addresses and times only are one group. A group whose error is likely to pass by
itself is proposed for a redrive; `--redrive` runs it, for exactly the messages of that group.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from mqueue.model.clock import SystemClock
from mqueue.model.errors import NotFound, Refused
from mqueue.model.names import dlq_name
from mqueue.model.times import duration_ms, rfc3339
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.pace import Pace, check_rate
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.report import Report, Value
from mqueue.policy.filter import FILTER_LENGTH_MAX
from mqueue.policy.fingerprint import FINGERPRINT_LENGTH, PATTERNS, TEXT_MAX, TRANSIENT, TRANSIENT_REASONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ID_DIGITS_MAX = 19
_ASK = "id in "
IDS_MAX = (FILTER_LENGTH_MAX - len(_ASK)) // (ID_DIGITS_MAX + 1)
"""So many ids fit into one filter."""
_ENDED = ("CANCELLED", "EXPIRED")
_ACKED, _READER = "ACKNOWLEDGED", "default"


class DlqSettings(Settings, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="Whose dead letters.")]
    redrive: Annotated[str, Meta(description="Bring back the messages of the group with this fingerprint.")] = ""
    dry_run: Annotated[bool, Meta(description="Only say what a redrive would do.")] = False
    rate: Annotated[float | None, Meta(description="At most so many messages a second.")] = None
    quiet: Annotated[str, Meta(description="What killed nothing for so long is taken to be over.")] = "5m"


def transform(dead: DataFrame, settled: DataFrame) -> DataFrame:
    """Dead letters that nobody has dealt with, with `fingerprint`, `pattern` and `transient`.

    `settled`: what happened to them in the dead-letter queue, as the view `trace` shows it.
    """
    from pyspark.sql import functions as sf

    over = settled.where(
        sf.col("event").isin(*_ENDED) | ((sf.col("event") == _ACKED) & (sf.col("group") == _READER))
    ).select("partition", "offset")
    reason, error = sf.coalesce("reason", sf.lit("")), sf.coalesce("error", sf.lit(""))
    open = dead.join(over.distinct(), ["partition", "offset"], "left_anti")
    named = open.withColumns({"reason": reason, "error": error}).withColumn("pattern", _normalised(sf.col("error")))
    return named.withColumns(
        {
            "fingerprint": sf.left(
                sf.sha2(sf.concat_ws("\n", "reason", "pattern").cast("binary"), 256), sf.lit(FINGERPRINT_LENGTH)
            ),
            "transient": sf.col("reason").isin(*TRANSIENT_REASONS) | sf.lower("error").rlike(TRANSIENT),
        }
    )


def grouped(letters: DataFrame) -> DataFrame:
    """A row for each fingerprint, those with most messages first."""
    from pyspark.sql import functions as sf

    rows = letters.groupBy("fingerprint").agg(
        sf.count(sf.lit(1)).alias("messages"),
        sf.min("timestamp").alias("first"),
        sf.max("timestamp").alias("last"),
        sf.first("reason").alias("reason"),
        sf.first("pattern").alias("pattern"),
        sf.array_join(sf.array_sort(sf.collect_set("group")), ", ").alias("groups"),
        sf.min_by("error", "offset").alias("example"),
        sf.min_by("id", "offset").alias("example_id"),
        sf.bool_or("transient").alias("transient"),
    )
    return rows.orderBy(sf.desc("messages"), "fingerprint")


def _normalised(error: Column) -> Column:
    from pyspark.sql import functions as sf

    for pattern, stands_for in PATTERNS:
        error = sf.regexp_replace(error, pattern, stands_for)
    return sf.left(sf.trim(error), sf.lit(TEXT_MAX))


def proposal(transient: bool, last_ms: int, now: int, quiet_ms: int) -> str:
    """What to do about a group."""
    if not transient:
        return "find the cause first"
    return "redrive" if now - last_ms >= quiet_ms else "still dying: wait, then redrive"


def run(spark: SparkSession, settings: DlqSettings, progress: Progress) -> Report:
    began = time.perf_counter()
    check_rate(settings.rate)
    quiet_ms = duration_ms(settings.quiet, "quiet")
    letters = read(spark, settings)
    if letters is None:
        if settings.redrive:
            raise NotFound(f"nothing of topic {settings.topic!r} is dead: there is no {settings.redrive!r:.80}")
        return Report("dlq", {"topic": settings.topic, "dead messages": 0, "groups": 0})
    if settings.redrive:
        return _redrive(letters, settings, progress, began)
    progress.step("dlq")
    groups = grouped(letters).collect()
    now = SystemClock().now()
    return Report(
        "dlq",
        {
            "topic": settings.topic,
            "dead messages": sum(group.messages for group in groups),
            "groups": len(groups),
            "seconds": round(time.perf_counter() - began, 1),
        },
        tuple(_finding(group, now, quiet_ms) for group in groups),
    )


def read(spark: SparkSession, settings: DlqSettings) -> DataFrame | None:
    """The dead letters of a topic that are open; None if there never were any."""
    from pyspark.sql import functions as sf

    from mqueue.pipeline.load import read

    with settings.connection().open() as client:
        told = client.settings(settings.topic)["dlq"]
        if told is False:
            raise Refused(f"topic {settings.topic!r} has no dead-letter queue", code="bad_option")
        queue = told if isinstance(told, str) else dlq_name(settings.topic)
        if queue not in client.topics():
            return None
    dead = read(spark, **settings.options(), subscribe=settings.topic, view="dlq")
    settled = read(spark, **settings.options(), subscribe=queue, view="trace")
    return transform(dead.where(sf.col("source_topic") == settings.topic), settled)


def _finding(group: Any, now: int, quiet_ms: int) -> dict[str, Value]:
    first, last = _ms(group.first), _ms(group.last)
    return {
        "fingerprint": group.fingerprint,
        "messages": group.messages,
        "proposal": proposal(group.transient, last, now, quiet_ms),
        "reason": group.reason,
        "error": group.pattern,
        "first": rfc3339(first),
        "last": rfc3339(last),
        "groups": group.groups,
        "example": group.example,
        "example id": str(group.example_id),
    }


def _ms(time: datetime) -> int:
    """Of a time as Spark gives it: without a zone, in that of this process."""
    return round(time.timestamp() * 1000)


def _redrive(letters: DataFrame, settings: DlqSettings, progress: Progress, began: float) -> Report:
    from pyspark.sql import functions as sf

    chosen = letters.where(sf.col("fingerprint") == settings.redrive).select("id").orderBy("id")
    ids = [row.id for row in chosen.collect()]
    if not ids:
        raise NotFound(f"no dead message of topic {settings.topic!r} has the fingerprint {settings.redrive!r:.80}")
    pace = Pace(None if settings.dry_run else settings.rate)
    matched = redriven = 0
    progress.step("redrive", len(ids))
    with settings.connection().open() as client:
        for text, count in filters(ids, IDS_MAX if settings.rate is None else max(1, int(settings.rate))):
            done = client.dlq(settings.topic).redrive(filter=text, dry_run=settings.dry_run)
            matched, redriven = matched + done.matched, redriven + done.redriven
            progress.advance(count)
            pace.spend(done.redriven)
    numbers: dict[str, Value] = {
        "topic": settings.topic,
        "fingerprint": settings.redrive,
        "dead messages": len(ids),
        "matched": matched,
        "redriven": redriven,
        "seconds": round(time.perf_counter() - began, 1),
    }
    missed = len(ids) - matched
    remarks = (f"{missed} were dealt with by somebody else meanwhile.",) if missed else ()
    return Report("dlq", numbers, remarks=remarks)


def filters(ids: Sequence[int], size: int) -> Iterator[tuple[str, int]]:
    """Filters that name these messages and no others, and how many each names."""
    size = min(size, IDS_MAX)
    for start in range(0, len(ids), size):
        some = ids[start : start + size]
        yield _ASK + ",".join(map(str, some)), len(some)


JOB = Job("dlq", __doc__, DlqSettings, run)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
