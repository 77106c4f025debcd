"""Keep the topics of a namespace as they are now, under a name: all that the log and the lake have of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from mqueue.lake import Lake, open_lake
from mqueue.lake.place import Place
from mqueue.model.clock import SystemClock
from mqueue.model.errors import Conflict, NotFound
from mqueue.model.names import check_name
from mqueue.model.times import rfc3339
from mqueue.pipeline.archiving import Archive
from mqueue.pipeline.horizon import reach
from mqueue.pipeline.job import Job, Settings
from mqueue.pipeline.jobs.archive import Tally, catch_up, topics_of
from mqueue.pipeline.jobs.audit import consistent
from mqueue.pipeline.ledger import NAME
from mqueue.pipeline.progress import Progress
from mqueue.pipeline.report import Report, Value
from mqueue.pipeline.snapshots import Snapshot, TopicKept, names, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqueue.client.sync import Client


class SnapshotSettings(Settings, frozen=True, kw_only=True):
    lake: Annotated[str, Meta(description="The lake that keeps the messages. It is made if need be.")]
    lake_format: Annotated[Literal["delta", "iceberg", "parquet"], Meta(description="Its format: delta.")] = "delta"
    name: Annotated[str, Meta(description="What the snapshot is called. It never changes afterwards.")]
    topics: Annotated[tuple[str, ...], Meta(description="Which topics; all, unless they are named.")] = ()
    pattern: Annotated[str, Meta(description="Or those whose names match: a regular expression.")] = ""
    batch_rows: Annotated[int, Meta(ge=1, description="Messages of a commit to the lake: 4000000.")] = 4_000_000
    cursor: Annotated[str, Meta(description="The server's cursor of the archive: archive.")] = "archive"
    allow_loss: Annotated[bool, Meta(description="Go on where retention was faster than the archive.")] = False


def run(spark: SparkSession, settings: SnapshotSettings, progress: Progress) -> Report:
    """First the lake catches up with the log; then what it has is written down."""
    name = check_name(settings.name, "snapshot")
    options = topics_of(settings.topics, settings.pattern, fail_on_data_loss=not settings.allow_loss)
    connection = settings.connection()
    place = Place(settings.lake)
    if name in names(place):
        raise Conflict(f"snapshot {name!r} is there already in the lake {place}: a snapshot never changes")
    tally = Tally()
    with connection.open() as client:
        reach(client, options)
        lake = open_lake(settings.lake, settings.lake_format, create=True)
        archive = Archive(spark, lake, connection, options, settings.cursor, settings.batch_rows)
        progress.step("snapshot")
        catch_up(archive, client, progress, tally)
        there = archive.look(client)
        wanted = [topic for topic in there if topic not in tally.remade]
        snapshot = _taken(lake, client, name, connection.namespace, wanted)
    save(place, snapshot)
    more: dict[str, Value] = {
        "snapshot": name,
        "topics": len(snapshot.topics),
        "messages in the snapshot": snapshot.messages,
    }
    return tally.report("snapshot", snapshot.lake_version, more)


def _taken(lake: Lake, client: Client, name: str, namespace: str, wanted: list[str]) -> Snapshot:
    book, version, _ = consistent(lake, namespace)
    kept = {topic: TopicKept(client.settings(topic), book.marks.get(topic, {})) for topic in wanted}
    if not kept:
        raise NotFound(f"namespace {namespace!r} has no topic to keep")
    return Snapshot(name, namespace, rfc3339(SystemClock().now()), version, NAME, kept)


JOB = Job("snapshot", __doc__, SnapshotSettings, run)


def main(argv: Sequence[str] | None = None) -> int:
    return JOB.main(argv)


if __name__ == "__main__":
    sys.exit(main())
