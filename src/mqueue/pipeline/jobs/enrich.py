"""Lead enrichment: leads from one topic are cleaned, joined with companies, scored, and published to another.

    mqueue pipeline enrich --companies companies.csv --checkpoint ./enrich --generate 5000
    mqueue pipeline enrich --companies companies.csv --checkpoint ./enrich --continuous

A lead that cannot be used goes to the dead-letter queue, with its faults as the error. Both topics are written in one
transaction for each batch, so that every lead ends up in exactly one of them, once.
"""

from __future__ import annotations

import csv
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta
from msgspec.structs import astuple

from mqueue.model.errors import Refused
from mqueue.model.message import Draft
from mqueue.model.names import check_name, dlq_name
from mqueue.model.times import duration_ms
from mqueue.pipeline.enriching import COMPANY, transform
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.leads import Company, companies, leads
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.register import register
from mqueue.pipeline.report import Report, Value, rate
from mqueue.pipeline.watching import follow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COMPANIES = 2_000
"""So many are made up."""
_NAME = "enrich"
_BATCH = 5_000
_REMEMBERED = 100
"""Spark knows so many batches of a stream that is over."""


class EnrichSettings(Settings, frozen=True, kw_only=True):
    companies: Annotated[str, Meta(description="The reference data: a file of CSV, JSON or Parquet.")]
    checkpoint: Annotated[str, Meta(description="Where Spark notes how far it is: a directory.")]
    topic: Annotated[str, Meta(description="Where leads come from: leads.")] = "leads"
    to: Annotated[str, Meta(description="Where they go: leads.enriched.")] = "leads.enriched"
    dead: Annotated[str, Meta(description="Where bad ones go; the topic's dead-letter queue if it is not said.")] = ""
    continuous: Annotated[bool, Meta(description="Go on until told to stop; else what is there now.")] = False
    every: Annotated[str, Meta(description="How often, with --continuous: 1s.")] = "1s"
    batch_rows: Annotated[int, Meta(ge=1, description="Leads of one transaction: 100000.")] = 100_000
    generate: Annotated[int, Meta(ge=0, description="First publish so many made-up leads, and make companies.")] = 0
    seed: Annotated[int, Meta(description="What they are made from.")] = 1


def run(
    spark: SparkSession, settings: EnrichSettings, progress: Progress, stop: threading.Event | None = None
) -> Report:
    """Until all is done that was there when it began, or for ever, until `stop`."""
    began = time.perf_counter()
    every_ms = duration_ms(settings.every, "every")
    target, dead = check_name(settings.to, "topic"), settings.dead or dlq_name(check_name(settings.topic, "topic"))
    if settings.generate:
        generate(settings, progress)
    companies = read_companies(spark, settings.companies)
    register(spark)
    leads = _stream(spark, settings)
    done = transform(leads, companies, target, check_name(dead, "topic"))
    done = done.observe(_NAME, *_observed(target))
    trigger: Any = {"processingTime": f"{every_ms} milliseconds"} if settings.continuous else {"availableNow": True}
    progress.step("enrich")
    query = (
        done.writeStream.format("mqueue")
        .options(**settings.options(), checkpointLocation=settings.checkpoint)
        .trigger(**trigger)
        .start()
    )
    with suppress(KeyboardInterrupt) if settings.continuous else nullcontext():
        follow(query, progress, stop)
    return _report(query, time.perf_counter() - began)


def _stream(spark: SparkSession, settings: EnrichSettings) -> DataFrame:
    """From the first lead on. A cursor of the topic holds retention back where the stream is."""
    with settings.connection().open() as client:
        client.offsets(settings.topic)  # one that is not there, or does not let us in, is told of here, in a sentence
    options = {
        **settings.options(),
        "subscribe": settings.topic,
        "startingOffsets": "earliest",
        "subscription": _NAME,
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(settings.batch_rows),
    }
    return spark.readStream.format("mqueue").options(**options).load()


def generate(settings: EnrichSettings, progress: Progress) -> None:
    """Companies into their file, if there is none, and leads into their topic."""
    made = companies(settings.seed, COMPANIES)
    file = Path(settings.companies)
    if not file.exists():
        with file.open("w", encoding="utf-8", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(Company.__struct_fields__)
            rows.writerows(astuple(company) for company in made)
    progress.step("generate", settings.generate)
    with settings.connection().open() as client:
        some = leads(settings.seed, settings.generate, made)
        while batch := [Draft(lead.payload, key=lead.key) for lead in islice(some, _BATCH)]:
            client.publish_many(settings.topic, batch)
            progress.advance(len(batch))


def read_companies(spark: SparkSession, name: str) -> DataFrame:
    """The reference data as it is now: a stream that runs does not see what changes later."""
    kind = Path(name).suffix.removeprefix(".") or "parquet"
    if kind not in ("csv", "json", "parquet"):
        raise Refused(f"--companies {name!r:.200}; it takes a file of CSV, JSON or Parquet", code="bad_option")
    return spark.read.format(kind).options(header="true").schema(COMPANY).load(name)


def _observed(target: str) -> list[Column]:
    from pyspark.sql import functions as sf

    good = sf.col("topic") == target
    return [sf.count_if(good).alias("enriched"), sf.count_if(~good).alias("bad")]


def _report(query: StreamingQuery, seconds: float) -> Report:
    batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    told = [batch["observedMetrics"][_NAME] for batch in batches]
    enriched, bad = (sum(one[name] for one in told) for name in ("enriched", "bad"))
    numbers: dict[str, Value] = {
        "leads": enriched + bad,
        "enriched": enriched,
        "bad": bad,
        "batches": len(batches),
        "seconds": round(seconds, 1),
        "leads a second": rate(enriched + bad, seconds),
    }
    first = min((batch["batchId"] for batch in batches), default=0)
    remarks = ("Only the last batches are counted: Spark remembers no more.",) if len(told) >= _REMEMBERED else ()
    return Report("enrich", {"first batch": first, **numbers}, remarks=remarks)


JOB = Job("enrich", __doc__, EnrichSettings, run, endless=lambda settings: settings.continuous)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
