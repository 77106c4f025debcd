"""Put small files of a lake together, day by day, and remove what nobody needs any more. Runs without Spark."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from mqueue.lake import Lake, open_lake
from mqueue.model.errors import BadTime, NotFound
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.jobs.archive import topics_of
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.report import Report, Value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_MB = 256


class CompactSettings(Settings, frozen=True, kw_only=True):
    lake: Annotated[str, Meta(description="Where the lake is.")]
    lake_format: Annotated[Literal["delta", "iceberg", "parquet"], Meta(description="Its format: delta.")] = "delta"
    topics: Annotated[tuple[str, ...], Meta(description="Which topics; all, unless they are named.")] = ()
    pattern: Annotated[str, Meta(description="Or those whose names match: a regular expression.")] = ""
    before: Annotated[str, Meta(description="Only days before this one, such as 2026-01-14; else all.")] = ""
    file_mb: Annotated[int, Meta(ge=1, description="How large files become, in MiB: 256.")] = FILE_MB
    vacuum: Annotated[str, Meta(description="Then remove files that were replaced or left so long ago: 7d.")] = ""


def run(spark: SparkSession | None, settings: CompactSettings, progress: Progress) -> Report:
    began = time.perf_counter()
    before = _day(settings.before)
    lake = open_lake(settings.lake, settings.lake_format)
    chosen = _chosen(lake, settings)
    files_before, bytes_before = _size(lake)
    progress.step("compact", len(chosen))
    findings: list[dict[str, Value]] = []
    for namespace, topic in chosen:
        told = lake.compact(namespace, topic, before, settings.file_mb << 20)
        progress.advance(1, files=told.files_before)
        if told.files_before:
            findings.append(
                {
                    "namespace": namespace,
                    "topic": topic,
                    "messages": told.rows,
                    "files before": told.files_before,
                    "files after": told.files_after,
                    "bytes before": told.bytes_before,
                    "bytes after": told.bytes_after,
                }
            )
    removed = lake.vacuum(settings.vacuum) if settings.vacuum else []
    files_after, bytes_after = _size(lake)
    numbers: dict[str, Value] = {
        "topics": len(chosen),
        "files before": files_before,
        "files after": files_after,
        "bytes before": bytes_before,
        "bytes after": bytes_after,
        "files removed": len(removed),
        "seconds": round(time.perf_counter() - began, 1),
    }
    return Report("compact", numbers, tuple(findings))


def _day(text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadTime(f"--before {text!r:.80} is no day: give one such as 2026-01-14") from None


def _chosen(lake: Lake, settings: CompactSettings) -> list[tuple[str, str]]:
    """Of one namespace, if one is named; else of all."""
    namespace = settings.namespace or os.environ.get("MQUEUE_NAMESPACE")
    choice = topics_of(settings.topics, settings.pattern).choice
    there = [place for place in lake.topics() if namespace in (None, place[0])]
    for topic in choice.names:
        if topic not in {name for _, name in there}:
            raise NotFound(f"topic {topic!r:.80} is not in the lake {lake.url}")
    matches = re.compile(choice.pattern or "").fullmatch
    return [place for place in there if (place[1] in choice.names if choice.names else matches(place[1]))]


def _size(lake: Lake) -> tuple[int, int]:
    files = lake.files()
    return len(files), sum(file.size for file in files)


JOB = Job("compact", __doc__, CompactSettings, run, spark=lambda settings: False)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
