"""Backfill: publish the rows of a table, files of Parquet, CSV or JSON or a table of a database, to a topic.

    mqueue pipeline backfill --format parquet --path ./orders --topic orders --key-column order_id

A row becomes a message: one of its columns is the payload, or the whole row as JSON. Tasks publish block by block (a
piece of a file, a range of a table), each once: a run that is started again under its name does only what is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from mqueue.model.errors import Refused
from mqueue.model.limits import KIB, Limits
from mqueue.model.names import check_name, dlq_name
from mqueue.model.priority import NORMAL
from mqueue.pipeline.blocks import BLOCK, DONE, FAULT, Blocks
from mqueue.pipeline.headers import TYPE, headers, story
from mqueue.pipeline.job import Job
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.report import Report, Value, rate
from mqueue.pipeline.runs import prefix_of, run_name
from mqueue.pipeline.sink import sink_of
from mqueue.pipeline.tables import CORRUPT, TableSettings, pieces_of, read
from mqueue.pipeline.watching import tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DEAD_BYTES_MAX = 64 * KIB
_TEXT = ("string", "binary")
_CREDENTIALS = ("user", "password")


class BackfillSettings(TableSettings, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="Where the rows go.")]
    value_column: Annotated[str, Meta(description="The payload; the whole row as JSON if it is not said.")] = ""
    key_column: Annotated[str, Meta(description="The key.")] = ""
    priority_column: Annotated[str, Meta(description="The priority, a whole number.")] = ""
    header_columns: Annotated[tuple[str, ...], Meta(description="Columns that become headers.")] = ()
    bad_rows: Annotated[
        Literal["fail", "skip", "dlq"], Meta(description="What becomes of rows that cannot be published.")
    ] = "fail"
    run: Annotated[str, Meta(description="A name to go on with.")] = ""


def transform(table: DataFrame, settings: BackfillSettings, block: Column) -> DataFrame:
    """Rows of a table as messages, each with its block and its fault."""
    from pyspark.sql import functions as sf

    fields = [name for name in table.columns if name != CORRUPT]
    whole = sf.to_json(sf.struct(*(sf.col(f"`{name}`") for name in fields)))
    value = _bytes(table, settings.value_column) if settings.value_column else whole.cast("binary")
    key = _bytes(table, settings.key_column) if settings.key_column else sf.lit(None).cast("binary")
    level = sf.col(f"`{settings.priority_column}`").cast("int") if settings.priority_column else sf.lit(NORMAL)
    corrupt = sf.col(CORRUPT) if CORRUPT in table.columns else sf.lit(None).cast("string")
    made = table.select(
        value.alias("value"), key.alias("key"), level.alias("priority"), _headers(settings).alias("headers"),
        block.alias(BLOCK), sf.coalesce(corrupt, whole).alias("row"), corrupt.isNotNull().alias("corrupt"),
    )  # fmt: skip
    made = made.withColumn(FAULT, _fault())
    good = sf.col(FAULT).isNull()
    row = sf.substring(sf.col("row").cast("binary"), 1, _DEAD_BYTES_MAX)
    return made.select(
        sf.when(good, sf.col("value")).otherwise(row).alias("value"),
        sf.when(good, sf.col("key")).alias("key"),
        sf.when(good, sf.col("priority")).otherwise(sf.lit(NORMAL)).alias("priority"),
        sf.when(good, sf.col("headers")).otherwise(_story(settings.topic)).alias("headers"),
        sf.when(good, sf.lit(settings.topic)).otherwise(sf.lit(dlq_name(settings.topic))).alias("topic"),
        BLOCK,
        FAULT,
    )


def _bytes(table: DataFrame, name: str) -> Column:
    """A column as bytes: text and bytes as they are, anything else as Spark writes it."""
    from pyspark.sql import functions as sf

    column = sf.col(f"`{name}`")
    kind = table.select(column).schema.fields[0].dataType.simpleString()
    return column.cast("binary") if kind in _TEXT else column.cast("string").cast("binary")


def _headers(settings: BackfillSettings) -> Column:
    from pyspark.sql import functions as sf

    pairs = [
        sf.when(
            sf.col(f"`{name}`").isNotNull(),
            sf.struct(sf.lit(name).alias("key"), sf.col(f"`{name}`").cast("string").cast("binary").alias("value")),
        )
        for name in settings.header_columns
    ]
    return sf.array_compact(sf.array(*pairs)) if pairs else sf.lit(None).cast(TYPE)  # a column of nulls costs nothing


def _fault() -> Column:
    """The first thing that is wrong with a row. The limits are those of a server that was told of no others."""
    from pyspark.sql import functions as sf

    limits = Limits()
    return (
        sf.when(sf.col("corrupt"), "it cannot be read")
        .when(sf.col("value").isNull(), "it has no value")
        .when(sf.length("value") > limits.payload_bytes_max, f"its value is over {limits.payload_bytes_max} bytes")
        .when(sf.length("key") > limits.key_bytes_max, f"its key is over {limits.key_bytes_max} bytes")
        .when(sf.col("priority").isNull(), "its priority is no whole number")
    )


def _story(topic: str) -> Column:
    """Why it is dead. It was nowhere before: a redrive publishes it as it is."""
    from pyspark.sql import functions as sf

    nowhere = sf.lit(0)
    origin = {"topic": sf.lit(topic), "partition": nowhere, "offset": nowhere, "id": nowhere}
    return headers(story(origin, sf.col(FAULT), sf.current_timestamp(), "backfill"))


def run(spark: SparkSession, settings: BackfillSettings, progress: Progress) -> Report:
    began = time.perf_counter()
    check_name(settings.topic, "topic")
    run = run_name(settings.run)
    sink = sink_of({name.lower(): value for name, value in settings.options().items()})
    prefix = prefix_of("backfill", run, told_of(settings))
    progress.say(f"to go on with this run: --run {run}, and all else as it was")
    with pieces_of(spark, settings.block_bytes):
        table, block = read(spark, settings)
        _check_columns(table, settings)
        progress.step("backfill")
        with tasks(spark, progress):
            messages = transform(table, settings, block)
            done = messages.mapInArrow(Blocks(sink, prefix, settings.bad_rows), DONE).collect()
    return _report(run, settings, done, time.perf_counter() - began)


def _report(run: str, settings: BackfillSettings, done: Sequence[Any], seconds: float) -> Report:
    fresh = [block for block in done if not block.before]
    bad = sum(block.bad for block in done)
    published = sum(block.rows for block in fresh)
    faults: dict[str, int] = {}
    for block in done:
        for fault, count in block.faults.items():
            faults[fault] = faults.get(fault, 0) + count
    numbers: dict[str, Value] = {
        "run": run,
        "blocks": len(done),
        "blocks published before": len(done) - len(fresh),
        "messages": published - (sum(block.bad for block in fresh) if settings.bad_rows == "dlq" else 0),
        "bad rows": bad,
        "seconds": round(seconds, 1),
        "messages a second": rate(published, seconds),
    }
    where = f"to {dlq_name(settings.topic)}" if settings.bad_rows == "dlq" else "nowhere"
    findings: list[dict[str, Value]] = [
        {"fault": fault, "rows": count, "went": where} for fault, count in sorted(faults.items())
    ]
    return Report("backfill", numbers, tuple(findings))


def told_of(settings: BackfillSettings) -> dict[str, Any]:
    """What decides what is published, and in which blocks. Files name themselves; a database does not, and who logs in
    there makes no difference."""
    names = (
        "topic", "format", "table", "option", "partition_column", "block_rows", "block_bytes",
        "value_column", "key_column", "priority_column", "header_columns", "bad_rows",
    )  # fmt: skip
    told = {name: getattr(settings, name) for name in names}
    told["option"] = [text for text in settings.option if text.partition("=")[0].lower() not in _CREDENTIALS]
    database = settings.path.partition("?")[0] if settings.format == "jdbc" else ""
    return {"namespace": settings.options()["namespace"], "database": database, **told}


def _check_columns(table: DataFrame, settings: BackfillSettings) -> None:
    named = (settings.value_column, settings.key_column, settings.priority_column, *settings.header_columns)
    for name in named:
        if name and name not in table.columns:
            raise Refused(
                f"column {name!r:.80} is not there; the table has {', '.join(table.columns)}", code="bad_column"
            )


JOB = Job("backfill", __doc__, BackfillSettings, run)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
