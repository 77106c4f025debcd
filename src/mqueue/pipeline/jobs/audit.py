"""Prove that the lake has what the log had: nothing lost, doubled or changed; or name what is."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from mqueue.lake import DataFile, Lake, open_lake
from mqueue.model.errors import NotFound, Refused, Unavailable
from mqueue.pipeline.archiving import COLUMNS, cores, made_at
from mqueue.pipeline.auditing import (
    DIFFERENT,
    DOUBLED,
    FAULTS,
    HOLE,
    LATE,
    STRAY,
    Compared,
    Run,
    compare,
    judge,
    side_of,
)
from mqueue.pipeline.book import Book, Mark, Marks, book_of
from mqueue.pipeline.horizon import Reach, compacted, reach
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.jobs.archive import topics_of
from mqueue.pipeline.ledger import HASHED, Sum
from mqueue.pipeline.offsets import Range, split
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.reading import Reading, Stretch, read
from mqueue.pipeline.report import Report, Value, rate
from mqueue.pipeline.spread import answers, done, errands
from mqueue.pipeline.watching import tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqueue.broker.bounds import PartitionOffsets
    from mqueue.client.sync import Client

Place: TypeAlias = tuple[str, int]
Fault: TypeAlias = tuple[str, int, Run]
"""Topic, partition, offsets."""

_LOOKS_MAX = 100


class AuditSettings(Settings, frozen=True, kw_only=True):
    lake: Annotated[str, Meta(description="Where the lake is.")]
    lake_format: Annotated[Literal["delta", "iceberg", "parquet"], Meta(description="Its format: delta.")] = "delta"
    topics: Annotated[tuple[str, ...], Meta(description="Which topics; all in the lake, unless they are named.")] = ()
    pattern: Annotated[str, Meta(description="Or those whose names match: a regular expression.")] = ""
    fast: Annotated[bool, Meta(description="Only count, by the lake's own numbers; read no message.")] = False


class Span(Struct, frozen=True):
    """A range of the lake, and the part of it [log_start, log_stop) that the log still has."""

    range: Range
    log_start: int
    log_stop: int


class Checked(Struct, frozen=True):
    range: Range
    compared: Compared


class Checking:
    """What tasks do: read both sides of a range, and compare them."""

    def __init__(self, reading: Reading, url: str, format: str, version: int) -> None:
        self._reading = reading
        self._url = url
        self._format = format
        self._version = version

    def __call__(self, span: Span) -> Checked:
        asked = span.range
        lake = open_lake(self._url, self._format)
        rows = lake.scan(
            self._reading.connection.namespace,
            asked.topic,
            asked.partition,
            asked.start,
            asked.stop,
            at=self._version,
            columns=HASHED,
        )
        in_log = Range(asked.topic, asked.partition, span.log_start, span.log_stop)
        # The floor is the end: what retention takes away while it is read is no loss here.
        messages = read(self._reading, Stretch(in_log, in_log.stop)) if len(in_log) else iter(())
        return Checked(asked, compare(side_of(messages), side_of(rows), asked.start, asked.stop))


def transform(spans: DataFrame, checking: Checking) -> DataFrame:
    """Ranges in, how log and lake differ there out."""
    return done(spans, Span, checking)


def run(spark: SparkSession, settings: AuditSettings, progress: Progress) -> Report:
    began = time.perf_counter()
    connection = settings.connection()
    lake = open_lake(settings.lake, settings.lake_format)
    book, version, files = consistent(lake, connection.namespace)
    marks = _chosen(book, settings)
    options = topics_of((), "|".join(map(re.escape, marks)) or "(?!)", fail_on_data_loss=False)
    with connection.open() as client:
        told = reach(client, options)
        there = {topic: places for topic, places in told.items() if book.is_of(topic, made_at(places))}
        faults = _strays(marks, files) + _too_late(lake, client, connection.namespace, marks, there)
    if settings.fast:
        faults += [fault for place, mark in marks_of(marks) for fault in count(place, mark, files)]
        return _report(settings, marks, there, [], faults, time.perf_counter() - began)
    spans = _spans(marks, there, cores(spark))
    progress.step("audit", len(spans))
    checking = Checking(Reading(connection, options, COLUMNS), settings.lake, settings.lake_format, version)
    with tasks(spark, progress):
        checked = answers(transform(errands(spark, spans), checking), Checked) if spans else []
    found: dict[Place, list[Compared]] = {}
    for one in checked:
        found.setdefault((one.range.topic, one.range.partition), []).append(one.compared)
    faults += [(*place, run) for place, mark in marks_of(marks) for run in judge(mark, found.get(place, []))]
    return _report(settings, marks, there, checked, faults, time.perf_counter() - began)


def consistent(lake: Lake, namespace: str) -> tuple[Book, int, list[DataFile]]:
    """The book, the version of the lake that it belongs to, and the files of that: an archive may be at work."""
    for _ in range(_LOOKS_MAX):
        version = lake.version()
        book = book_of(lake, namespace)
        if lake.version() == version:
            return book, version, lake.files(version, namespace=namespace)
    raise Unavailable(f"the lake {lake.url} changed {_LOOKS_MAX} times while it was looked at", code="lake_busy")


def _chosen(book: Book, settings: AuditSettings) -> Marks:
    """What is audited: what was archived, of the topics that were asked for."""
    if settings.topics and settings.pattern:
        raise Refused("--topics and --pattern: give one of them")
    for topic in settings.topics:
        if topic not in book.marks:
            raise NotFound(f"topic {topic!r:.80} is not in the lake {settings.lake}: nothing of it was archived")
    matches = re.compile(topics_of((), settings.pattern).choice.pattern or "").fullmatch
    return {
        topic: marks
        for topic, marks in sorted(book.marks.items())
        if (topic in settings.topics if settings.topics else matches(topic))
    }


def marks_of(marks: Marks) -> list[tuple[Place, Mark]]:
    return [((topic, n), mark) for topic, known in marks.items() for n, mark in sorted(known.items())]


def _spans(marks: Marks, there: Reach, cores: int) -> list[Span]:
    spans = []
    for (topic, n), mark in marks_of(marks):
        place = there.get(topic, {}).get(n)
        first, next = (place.first, place.next) if place and not _remade(mark, place) else (mark.stop, mark.stop)
        for piece in split([Range(topic, n, mark.start, mark.stop)], cores, None, None):
            spans.append(Span(piece, min(max(piece.start, first), piece.stop), min(piece.stop, next)))
    return spans


def _remade(mark: Mark, place: PartitionOffsets) -> bool:
    """The log ends before the lake does: it is another topic of that name."""
    return place.next < mark.stop


def _strays(marks: Marks, files: list[DataFile]) -> list[Fault]:
    """Files with messages that no archive has put there."""
    found = []
    for file in files:
        mark = marks.get(file.topic, {}).get(file.partition)
        if file.topic in marks and (mark is None or file.first < mark.start or file.next > mark.stop):
            found.append((file.topic, file.partition, Run(STRAY, file.first, file.last)))
    return found


def _too_late(lake: Lake, client: Client, namespace: str, marks: Marks, there: Reach) -> list[Fault]:
    """Offsets that retention has dropped and no lake has: the archive was away for longer than its cursor lasts."""
    found = [(topic, n) for (topic, n), mark in marks_of(marks) if _floor(there, topic, n) > mark.stop]
    if not found:
        return []
    now = book_of(lake, namespace).marks  # an archive that is at work may have come past it, and let it go
    return [
        (topic, n, Run(LATE, now[topic][n].stop, _floor(there, topic, n) - 1))
        for topic, n in found
        if _floor(there, topic, n) > now[topic][n].stop and not compacted(client, topic)
    ]


def _floor(there: Reach, topic: str, n: int) -> int:
    place = there.get(topic, {}).get(n)
    return 0 if place is None else place.floor


def count(place: Place, mark: Mark, files: list[DataFile]) -> list[Fault]:
    """What the numbers of files alone tell: fewer or more messages than were archived, and where that may be."""
    ours = sorted((file for file in files if (file.topic, file.partition) == place), key=lambda file: file.first)
    archived = mark.sum
    if archived is None or sum(file.rows for file in ours) == archived.rows:
        return []
    if sum(file.rows for file in ours) > archived.rows:
        runs = [
            Run(DOUBLED, after.first, before.last) for before, after in pairwise(ours) if after.first <= before.last
        ]
    else:
        edges = [(mark.start - 1, mark.start - 1), *((file.first, file.last) for file in ours), (mark.stop, mark.stop)]
        runs = [Run(HOLE, last + 1, first - 1) for (_, last), (first, _) in pairwise(edges) if last + 1 < first]
    return [(*place, run) for run in runs or [Run(DIFFERENT, mark.start, mark.stop - 1)]]


def _report(
    settings: AuditSettings, marks: Marks, there: Reach, checked: list[Checked], faults: list[Fault], seconds: float
) -> Report:
    lake = sum((one.compared.lake for one in checked), Sum())
    log = sum((one.compared.log for one in checked), Sum())
    by_fault = Counter(dict.fromkeys(FAULTS, 0))
    for _, _, run in faults:
        by_fault[run.fault] += len(run)
    places = marks_of(marks)
    numbers: dict[str, Value] = {
        "topics": len(marks),
        "partitions": len(places),
        "archived": sum(mark.rows or 0 for _, mark in places),
        **({} if settings.fast else {"in the lake": lake.rows, "in the log as well": log.rows}),
        "not archived yet": _waiting(marks, there),
        **by_fault,
        "seconds": round(seconds, 1),
        **({} if settings.fast else {"messages a second": rate(lake.rows + log.rows, seconds)}),
    }
    findings: tuple[dict[str, Value], ...] = tuple(
        {"topic": topic, "partition": n, "fault": run.fault, "first": run.first, "last": run.last, "id": run.id or None}
        for topic, n, run in sorted(faults, key=lambda fault: (fault[0], fault[1], fault[2].first))
    )
    remarks = [f"{topic}/{n}: {why}" for (topic, n), why in _remarks(marks, there)]
    if any(one.compared.cut for one in checked):
        remarks.append("there is more than is told here: of each range the first faults are")
    return Report("audit", numbers, findings, tuple(remarks), clean=not findings)


def _waiting(marks: Marks, there: Reach) -> int:
    return sum(
        max(0, place.next - marks[topic][n].stop if n in marks[topic] else place.next - place.first)
        for topic, partitions in there.items()
        for n, place in partitions.items()
    )


def _remarks(marks: Marks, there: Reach) -> Iterator[tuple[Place, str]]:
    for place, mark in marks_of(marks):
        known = there.get(place[0], {}).get(place[1])
        if mark.sum is None:
            yield place, "the lake's history no longer tells what was archived; what the log has was compared"
        if known is None:
            yield place, "not in the log any more; compared with the ledger of the archive"
        elif _remade(mark, known):
            yield place, "deleted and made anew since it was archived; compared with the ledger of the archive"


JOB = Job("audit", __doc__, AuditSettings, run, spark=lambda settings: not settings.fast)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
