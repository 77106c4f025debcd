"""Rounds from the log into a lake: plan, file, append, and only then let the server's cursor move on.

    driver   plan ── for each partition, from where the lake ends to where the log ends
    tasks    file ── frames as they lie → Parquet files, which nobody has named yet
    driver   append ── all files and the book at once ──► cursor

A round that breaks off anywhere has changed nothing that anybody can see, or all of it. Whoever comes next reads in the
book how far the lake is, so there is no checkpoint that could be lost, or tell otherwise. Of two archives at once one
is slower: its append changes nothing, and it plans again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from mqueue.lake import DataFile, Lake, Writer
from mqueue.lake.schema import LAKE
from mqueue.model.errors import Unavailable
from mqueue.pipeline.book import Book, Gain, app_of, book_of
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.horizon import Reach, ends, reach, whole
from mqueue.pipeline.ledger import Sum, sum_of
from mqueue.pipeline.offsets import Places, Range, admitted, ranges_between, rows_between, split
from mqueue.pipeline.options import Options
from mqueue.pipeline.reading import Reading, Stretch, read
from mqueue.pipeline.spread import answers, done, errands
from mqueue.pipeline.subscription import Shape, Subscription, shape_of
from mqueue.wire.json_out import time_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqueue.broker.bounds import PartitionOffsets
    from mqueue.client.sync import Client

COLUMNS = tuple(name for name in LAKE.names if name != "date")
"""What is read of a message. The day follows from the time."""
_TASKS = 8
"""A round has at most so many tasks for each that runs at once: of many small topics each has several."""
OVERTAKEN_MAX = 20
"""So often in a row another archive may be faster before this one gives up."""


class Filed(Struct, frozen=True):
    """What a task has to tell: a range is in these files."""

    range: Range
    sum: Sum
    files: list[DataFile]


class Filing:
    """What tasks do, and all that they need for it."""

    def __init__(self, reading: Reading, writer: Writer, floors: Places) -> None:
        self._reading = reading
        self._writer = writer
        self._floors = floors

    def __call__(self, range: Range) -> Filed:
        found = Sum()

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal found
            for batch in read(self._reading, Stretch(range, self._floors[range.topic][range.partition])):
                found += sum_of(batch)
                yield batch

        files = self._writer.write(counted())
        return Filed(range, found, files)


def file_ranges(ranges: DataFrame, filing: Filing) -> DataFrame:
    """Ranges of offsets in, what became of them out."""
    return done(ranges, Range, filing)


class Plan(Struct, frozen=True):
    """What a round is to copy, from `start` to `stop`, on the way to `end`.

    `exempt`: where partitions begin that are new to the lake. `remade`: topics that are others than those in the lake.
    """

    start: Places
    stop: Places
    end: Places
    exempt: Places
    remade: tuple[str, ...]


def plan_round(book: Book, there: Reach, until: Places, rows_max: int) -> Plan:
    """From where the lake ends to `until`, not more than so many messages; what is new begins where it begins."""
    start: Places = {}
    exempt: Places = {}
    remade = []
    for topic, partitions in there.items():
        stops = {n: mark.stop for n, mark in book.marks.get(topic, {}).items() if n in partitions}
        further = any(stop > partitions[n].next for n, stop in stops.items())
        if further or not book.is_of(topic, made_at(partitions)):
            remade.append(topic)
            continue
        exempt[topic] = {n: place.first for n, place in partitions.items() if n not in stops}
        start[topic] = stops | exempt[topic]
    end = {
        topic: {n: max(offset, until.get(topic, {}).get(n, 0)) for n, offset in places.items()}
        for topic, places in start.items()
    }
    return Plan(start, admitted(start, end, rows_max), end, exempt, tuple(remade))


def made_at(partitions: Mapping[int, PartitionOffsets]) -> str | None:
    """When a topic was made; None if the server does not tell."""
    told = next((place.made_at for place in partitions.values()), None)
    return None if told is None else time_out(told)


class Round(Struct, frozen=True):
    """What a round has done. `left`: messages that were there when it began and are still to be copied."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    left: int = 0
    overtaken: int = 0
    remade: tuple[str, ...] = ()


class Archive:
    """Of one namespace, into one lake. Made once; `spark` may be any session."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        connection: Connection,
        options: Options,
        cursor: str,
        rows_max: int,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._connection = connection
        self._options = options
        self._rows_max = rows_max
        self._cursor = Subscription(cursor, time.monotonic)
        self._pinned: dict[str, Shape] = {}
        self._held: Places = {}

    def look(self, client: Client) -> Reach:
        """What there is, held back from retention first: what is told of is still there when it is read."""
        there = reach(client, self._options)
        self._cursor.renew(client, there)
        pinned = {topic: shape_of(partitions) for topic, partitions in there.items()}
        if pinned == self._pinned:
            return there
        self._pinned = pinned
        return reach(client, self._options)  # retention may have come before the cursor of what is new

    def round(self, client: Client, until: Places | None = None) -> Round:
        """Copy what lies before `until`, or all there is, as far as one round goes."""
        for overtaken in range(OVERTAKEN_MAX):
            there = self.look(client)
            book = book_of(self._lake, self._connection.namespace)
            plan = plan_round(book, there, ends(there) if until is None else until, self._rows_max)
            ranges = whole(ranges_between(plan.start, plan.stop), there, client, self._options, plan.exempt)
            known = {topic: places for topic, places in there.items() if topic not in plan.remade}
            if not ranges:
                self._let_go(client, book, known)
                return Round(overtaken=overtaken, remade=plan.remade)
            filed = self._file(ranges, there)
            files = [file for one in filed for file in one.files]
            made = {each.topic: told for each in ranges if (told := made_at(there[each.topic]))}
            after = book.next(_gains(ranges, filed), made)
            app = app_of(self._connection.namespace)
            if self._lake.append(files, app, after.version, after.note()).published:
                self._let_go(client, after, known)
                return Round(
                    rows=sum(one.sum.rows for one in filed),
                    files=len(files),
                    bytes=sum(file.size for file in files),
                    left=rows_between(plan.stop, plan.end),
                    overtaken=overtaken,
                    remade=plan.remade,
                )
        raise Unavailable(
            f"other archives of namespace {self._connection.namespace!r} into the lake {self._lake.url} were faster"
            f" {OVERTAKEN_MAX} times in a row: one is enough",
            code="lake_busy",
        )

    def _let_go(self, client: Client, book: Book, there: Reach) -> None:
        """Retention may go as far as the lake has come. Where nothing has moved nobody is told."""
        held = _held(book, there)
        moved = {topic: places for topic, places in held.items() if places != self._held.get(topic)}
        self._cursor.advance(client, moved)
        self._held = held

    def _file(self, ranges: list[Range], there: Reach) -> list[Filed]:
        floors = {topic: {n: place.floor for n, place in known.items()} for topic, known in there.items()}
        reading = Reading(self._connection, self._options, COLUMNS)
        at_once = cores(self._spark)
        pieces = split(ranges, at_once, None, None)
        if not pieces:
            return []
        filing = Filing(reading, self._lake.writer(), floors)
        filed = answers(file_ranges(errands(self._spark, pieces, _TASKS * at_once), filing), Filed)
        assert {one.range for one in filed} == {*pieces}, "what no task has told of is in no file"
        return filed


def _gains(ranges: list[Range], filed: list[Filed]) -> list[Gain]:
    """The sums of the pieces of each range. One in which nothing is left is gained all the same: it is done with."""
    found: dict[tuple[str, int], Sum] = {}
    for one in filed:
        place = (one.range.topic, one.range.partition)
        found[place] = found.get(place, Sum()) + one.sum
    return [
        Gain(each.topic, each.partition, each.start, each.stop, found.get((each.topic, each.partition), Sum()))
        for each in ranges
    ]


def _held(book: Book, there: Reach) -> Places:
    """Where retention has to stop: where the lake ends, as far as the log is there."""
    return {
        topic: {
            n: min(max(book.marks[topic][n].stop, place.first), place.next)
            for n, place in partitions.items()
            if n in book.marks[topic]
        }
        for topic, partitions in there.items()
        if topic in book.marks
    }


def cores(spark: SparkSession) -> int:
    """As many tasks as run at once. Spark Connect does not tell: then it is as on a machine with two cores."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:
        return 2
