"""Spark, watched: how far a stream or the tasks of a job are, told to a `Progress`.

It asks now and then instead of being called back: a listener of Python needs a server of callbacks on the driver, and
there is none under Spark Connect.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import json

from mqueue.pipeline.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.5
_WAIT_SECONDS = 1


def follow(query: StreamingQuery, progress: Progress, until: threading.Event | None = None) -> int:
    """Wait for a stream to end, or end it once `until` is set; how many rows came in. Its failure is raised."""
    seen, rows = -1, 0
    try:
        over = False
        while not over and not (until and until.is_set()):
            over = bool(query.awaitTermination(_WAIT_SECONDS))
            for batch in query.recentProgress:
                if batch["batchId"] > seen and batch["numInputRows"]:
                    seen = batch["batchId"]
                    rows += batch["numInputRows"]
                    progress.advance(batch["numInputRows"], lag=lag_of(batch["sources"]))
    finally:
        query.stop()
    return rows


def lag_of(sources: list[Any]) -> int:
    """How many messages the sources have that were not read yet."""
    return sum(_behind(source["endOffset"], source["latestOffset"]) for source in sources)


def _behind(end: Any, latest: Any) -> int:
    """Offsets come as text or as what it says; of a source that tells nothing there is none."""
    reached, there = _offsets(end), _offsets(latest)
    return sum(
        max(0, next - reached.get(topic, {}).get(partition, 0))
        for topic, partitions in there.items()
        for partition, next in partitions.items()
    )


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    found = json.decode(given) if isinstance(given, str) else given
    return found if isinstance(found, dict) else {}


@contextmanager
def tasks(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """While the block runs, progress is how many tasks of what runs are done."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # Spark Connect has no context, and says so with an error of its own
        yield
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(POLL_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            progress.reach(done, sum(stage.numTasks for stage in stages if stage) or None)

    watcher = threading.Thread(target=look, name="mqueue-tasks", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
