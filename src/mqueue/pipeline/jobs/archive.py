"""Copy messages from the log into a lake, each once, and let retention go as far as the lake has come."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from mqueue.lake import open_lake
from mqueue.model.errors import Error, Refused
from mqueue.model.names import check_name
from mqueue.model.times import duration_ms
from mqueue.pipeline.archiving import Archive, Filing, Round, file_ranges
from mqueue.pipeline.horizon import ends, reach
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.options import Options, options_of
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.report import Report, Value, rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqueue.client.sync import Client


class ArchiveSettings(Settings, frozen=True, kw_only=True):
    lake: Annotated[str, Meta(description="Where the lake is: a directory or a URL. It is made if need be.")]
    lake_format: Annotated[Literal["delta", "iceberg", "parquet"], Meta(description="Its format: delta.")] = "delta"
    topics: Annotated[tuple[str, ...], Meta(description="Which topics; all, unless they are named.")] = ()
    pattern: Annotated[str, Meta(description="Or those whose names match: a regular expression.")] = ""
    continuous: Annotated[bool, Meta(description="Go on until told to stop; else what is there now.")] = False
    every: Annotated[str, Meta(description="How often, with --continuous: 5s.")] = "5s"
    batch_rows: Annotated[int, Meta(ge=1, description="Messages of a round, which is a commit: 4000000.")] = 4_000_000
    cursor: Annotated[str, Meta(description="The server's cursor that holds retention back: archive.")] = "archive"
    allow_loss: Annotated[bool, Meta(description="Go on where retention was faster; else that is an error.")] = False


def transform(ranges: DataFrame, filing: Filing) -> DataFrame:
    """Ranges of offsets in, the files they became out. Nobody sees these before the driver has named them."""
    return file_ranges(ranges, filing)


def run(
    spark: SparkSession, settings: ArchiveSettings, progress: Progress, stop: threading.Event | None = None
) -> Report:
    """Until all is copied that was there when it began, or for ever, until `stop`."""
    every_seconds = duration_ms(settings.every, "every") / 1000
    options = topics_of(settings.topics, settings.pattern, fail_on_data_loss=not settings.allow_loss)
    connection = settings.connection()
    tally = Tally()
    with connection.open() as client:
        reach(client, options)  # a server or a topic that is not there is told of before anything is made
        lake = open_lake(settings.lake, settings.lake_format, create=True)
        cursor = check_name(settings.cursor, "cursor")
        archive = Archive(spark, lake, connection, options, cursor, settings.batch_rows)
        progress.step("archive")
        if settings.continuous:
            go_on(archive, client, progress, tally, stop or threading.Event(), every_seconds)
        else:
            catch_up(archive, client, progress, tally)
        return tally.report("archive", lake.version())


def catch_up(archive: Archive, client: Client, progress: Progress, tally: Tally) -> None:
    """Round after round, until all is copied that is there now."""
    until = ends(archive.look(client))
    while tally.add(archive.round(client, until), progress):
        pass


def go_on(
    archive: Archive, client: Client, progress: Progress, tally: Tally, stop: threading.Event, every_seconds: float
) -> None:
    """The same for ever, whoever is away for a while. One who is interrupted has copied what it has copied: that is the
    way this ends."""
    with suppress(KeyboardInterrupt):
        while not stop.is_set():
            try:
                more = tally.add(archive.round(client), progress)
            except Error as error:
                if not error.retryable:
                    raise
                progress.say(f"{error.message}; trying again")
                more = False
            if not more:
                stop.wait(every_seconds)


class Tally:
    """What the rounds of a run came to."""

    def __init__(self) -> None:
        self.rounds = self.rows = self.files = self.bytes = self.left = self.overtaken = 0
        self.remade: set[str] = set()
        self._began = time.perf_counter()

    def add(self, done: Round, progress: Progress) -> bool:
        """Whether there is more to copy."""
        self.rounds += bool(done.rows)
        self.rows += done.rows
        self.files += done.files
        self.bytes += done.bytes
        self.left = done.left
        self.overtaken += done.overtaken
        self.remade |= {*done.remade}
        progress.advance(done.rows, left=done.left)
        return bool(done.left)

    def report(self, job: str, version: int, more: Mapping[str, Value] | None = None) -> Report:
        seconds = time.perf_counter() - self._began
        numbers: dict[str, Value] = {
            "messages": self.rows,
            "files": self.files,
            "bytes": self.bytes,
            "rounds": self.rounds,
            "left": self.left,
            "seconds": round(seconds, 1),
            "messages a second": rate(self.rows, seconds),
            "lake version": version,
            **(more or {}),
        }
        if self.overtaken:
            numbers["rounds lost to another archive"] = self.overtaken
        remarks = tuple(
            f"topic {topic} was skipped: it was deleted and made anew since it was archived; archive it into another"
            " lake (until then its messages are held back from retention)"
            for topic in sorted(self.remade)
        )
        return Report(job, numbers, remarks=remarks, clean=not remarks)


def topics_of(topics: Sequence[str], pattern: str, *, fail_on_data_loss: bool = True) -> Options:
    """Those that are named, those that match, or all."""
    if topics and pattern:
        raise Refused("--topics and --pattern: give one of them")
    which = {"subscribe": ",".join(topics)} if topics else {"subscribepattern": pattern or ".*"}
    return options_of({**which, "failondataloss": str(fail_on_data_loss).lower()}, streaming=False)


JOB = Job("archive", __doc__, ArchiveSettings, run, endless=lambda settings: settings.continuous)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
