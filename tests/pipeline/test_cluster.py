"""A cluster of two executors, as processes of their own: reads, streams, writes, an archive; and one of them dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqueue
from mqueue.lake import open_lake
from tests.pipeline.breaking import Folder, Plan
from tests.pipeline.cluster import Cluster, wait_until
from tests.pipeline.driving import Driver, Supervised

pytestmark = pytest.mark.timeout(900)
ROWS = 8_000


class Site:
    """A server, a cluster and a driver in it, with messages in topic `in`."""

    def __init__(self, place: Path, cluster: Cluster, server: Supervised, folder: Folder) -> None:
        self.place = place
        self.folder = folder
        self.driver = Driver(place, folder, cluster.conf)
        self.words = {"url": server.url, "namespace": "default", "from": "in", "rows": ROWS // 2, "format": "delta"}
        self.client = mqueue.Client(server.url)
        self.client.configure("in", partitions=2)
        texts = pa.array([str(n).encode() for n in range(ROWS)], pa.binary())
        self.client.publish_arrow("in", pa.table({"payload": texts, "key": texts}))  # keys spread over the partitions

    def close(self) -> None:
        self.client.close()
        self.driver.close()

    def order(self, work: str, **words: Any) -> tuple[Any, set[str]]:
        """What the driver answers, and which executors have ended tasks meanwhile."""
        before: dict[str, int] = self.driver.order("tasks")
        answer = self.driver.order(work, **{**self.words, **words})
        busy: set[str] = set()

        def told() -> bool:  # Spark counts some time after a task has ended
            after: dict[str, int] = self.driver.order("tasks")
            busy.update(name for name, tasks in after.items() if tasks > before.get(name, 0))
            return len(busy) >= 2

        wait_until(f"two executors at work for {work}", told)
        return answer, busy

    def numbers(self, topic: str) -> list[int]:
        tables = self.client.scan_arrow(topic)
        return sorted(int(value) for table in tables for value in table.column("payload").to_pylist())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("site")
    folder = Folder(place / "plans")
    folder.path.mkdir()
    with Supervised(place, folder) as server, Cluster(place / "cluster") as cluster:
        site = Site(place, cluster, server, folder)
        try:
            yield site
        finally:
            site.close()


def test_a_batch_is_read_by_both(site: Site) -> None:
    answer, _ = site.order("batch")
    assert answer["rows"] == ROWS
    assert len(answer["places"]) == 2, answer


def test_a_stream_from_topic_to_topic_runs_on_both(site: Site) -> None:
    site.order("stream", to="streamed", folder=str(site.place / "checkpoint"))
    assert site.numbers("streamed") == list(range(ROWS))


def test_rows_are_written_by_both(site: Site) -> None:
    site.order("write", to="written")
    assert site.numbers("written") == list(range(ROWS // 2))


def test_an_archive_is_filed_by_both_and_is_whole(site: Site) -> None:
    folder = str(site.place / "lake")
    site.order("archive", folder=folder)
    rows = [row for batch in open_lake(folder).scan("default", "in") for row in batch.column("value").to_pylist()]
    assert sorted(map(int, rows)) == list(range(ROWS))
    report, _ = site.order("audit", folder=folder)
    assert report["clean"], report


def test_a_stream_outlives_an_executor(site: Site) -> None:
    plan = Plan(1, "staged", 1, "kill executor")
    site.folder.arm(plan)
    words = {**site.words, "to": "outlived", "folder": str(site.place / "checkpoint-2")}
    site.driver.order("stream", **words)  # the other one may do all the rest
    assert site.folder.acted(plan)
    assert site.numbers("outlived") == list(range(ROWS))
