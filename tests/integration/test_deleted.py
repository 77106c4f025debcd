"""What retention has dropped is read back: the lake and the log as one sequence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqueue
from mqueue import Draft
from mqueue.broker import backstage
from mqueue.client import read
from mqueue.config import Config, Data, LakeTables
from mqueue.lake import FORMATS, open_lake
from mqueue.lake.archive import LakeArchive
from mqueue.lake.schema import LAKE
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.terminal import Terminal

ON_ACK = {"on_ack": True}
FACES = ["disk", "json", "arrow"]


class Place:
    """A queue on disk, reached in one of several ways, and the lake it is told of."""

    def __init__(self, folder: Path, face: str, format: str = "delta") -> None:
        self.clock = ManualClock("2026-03-01")
        self.url = str(folder / "lake")
        self.format = format
        self.lake = open_lake(self.url, format, create=True)
        self._version = 0
        self._server: RunningServer | None = None
        self.q: Any
        if face == "disk":
            self.q = mqueue.Broker(folder / "data", clock=self.clock, storage=mqueue.Storage(reserve_bytes=0))
            backstage.look_back(self.q, LakeArchive(self.url, format))
        else:
            config = Config(data=Data(dir=str(folder / "data")), lake=LakeTables(self.url, format))
            self._server = RunningServer(config, self.clock, memory=False)
            self.q = mqueue.Client(self._server.url, encoding=face, retry=False)

    @property
    def address(self) -> str:
        assert self._server is not None
        return self._server.url

    def archive(self, messages: Iterable[Any]) -> None:
        """As the job does it, without Spark."""
        rows = [row_of(m) for m in messages]
        files = self.lake.writer(file_bytes=1000).write([pa.RecordBatch.from_pylist(rows, LAKE)] if rows else [])
        self._version += 1
        self.lake.append(files, "archive", self._version)

    def drop(self, topic: str = "t") -> None:
        """Everything is acked, and retention sees it."""
        self.q.ack(self.q.receive(topic, limit=10_000))
        self.pass_by()

    def pass_by(self) -> None:
        for _ in range(3):
            self.clock.advance("1s")
            self.q.topics()

    def close(self) -> None:
        self.q.close()
        if self._server is not None:
            self._server.close()


def row_of(m: Any) -> dict[str, Any]:
    headers = [(name, value if isinstance(value, bytes) else value.encode()) for name, value in m.headers.items()]
    return {
        "key": m.key,
        "value": m.payload,
        "topic": m.topic,
        "partition": m.partition,
        "offset": m.offset,
        "timestamp": m.published_at,
        "headers": headers or None,
        "namespace": m.namespace,
        "id": m.id,
        "priority": m.priority,
        "deliver_at": m.deliver_at if m.deliver_at > m.published_at else None,
        "expires_at": m.expires_at,
        "idempotency_key": m.idempotency_key,
        "fairness_key": m.fairness_key,
        "date": m.published_at.date(),
    }


def facts(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """All there is to know of messages, byte by byte."""
    return [{**row_of(m), "deliver_at": m.deliver_at, "attempt": m.attempt} for m in messages]


@pytest.fixture(params=FACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, request.param)
    yield made
    made.close()


def fill(place: Place, rounds: int = 4) -> None:
    """Messages of every kind, a minute between the rounds."""
    q = place.q
    q.configure("t", partitions=2, retention=ON_ACK)
    if "default" not in q.groups("t"):
        q.create_group("t", "default")
    for step in range(rounds):
        drafts = [Draft(b"%d.%d" % (step, n), key=b"%d" % n) for n in range(30)]
        drafts += [
            Draft(b"", key=b"\xff\x00", headers={"colour": "red", "bytes": b"\xfe"}, priority=step),
            Draft(bytes(range(256)), ttl="30d", fairness_key="a"),
            Draft("ünïcode", delay="1s", idempotency_key=f"once-{step}"),
        ]
        q.publish_many("t", drafts)
        q.publish("t", b"alone")
        place.clock.advance("1m")


def test_all_of_it_and_byte_by_byte(place: Place) -> None:
    fill(place)
    before = facts(place.q.scan("t"))
    place.archive(place.q.scan("t"))
    place.drop()
    assert facts(place.q.scan("t")) == []
    assert facts(place.q.scan("t", include_deleted=True)) == before
    place.q.publish("t", b"new", key=b"new")
    [new] = facts(place.q.scan("t"))
    after = facts(place.q.scan("t", include_deleted=True))
    assert [one for one in after if one["value"] != b"new"] == before
    assert new in after
    assert [(one["partition"], one["offset"]) for one in after] == sorted((m["partition"], m["offset"]) for m in after)
    payloads = [row for batch in place.q.scan_arrow("t", include_deleted=True) for row in batch["payload"].to_pylist()]
    assert payloads == [one["value"] for one in after]


def test_what_the_log_has_comes_from_the_log_and_once(place: Place) -> None:
    """Some of what is below the floor is kept: it is scheduled. The lake has it too."""
    q = place.q
    fill(place, 2)
    late = [q.publish("t", b"late %d" % n, delay="2d", key=b"%d" % n).id for n in range(5)]
    fill(place, 2)
    before = facts(q.scan("t"))
    place.archive(q.scan("t"))
    place.drop()
    q.reschedule(late[0], delay="3d")
    kept = facts(q.scan("t"))
    assert sorted(one["id"] for one in kept) == sorted(late)
    found = facts(q.scan("t", include_deleted=True))
    assert [one["id"] for one in found] == [one["id"] for one in before]
    assert [one for one in found if one["id"] in late] == kept
    assert [one for one in found if one["id"] not in late] == [one for one in before if one["id"] not in late]


def test_by_time_and_by_offset_and_page_by_page(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place)
    before = facts(place.q.scan("t"))
    place.archive(place.q.scan("t"))
    place.drop()
    fill(place, 1)
    both = facts(place.q.scan("t", include_deleted=True))
    assert len(both) == len(before) + 33  # one of them was there before, by its idempotency key
    monkeypatch.setattr(read, "PAGE", 7)
    monkeypatch.setattr(read, "PAGE_ARROW", 11)

    def found(*bounds: Any, **options: Any) -> list[dict[str, Any]]:
        return facts(place.q.scan("t", *bounds, include_deleted=True, **options))

    assert found() == found("earliest") == found(0) == both
    times = sorted({one["timestamp"] for one in both})
    for start in times:
        assert found(start) == [one for one in both if one["timestamp"] >= start]
        assert found(None, start) == [one for one in both if one["timestamp"] < start]
    assert found(times[1], times[-1]) == [one for one in both if times[1] <= one["timestamp"] < times[-1]]
    assert found(5, 20) == [one for one in both if 5 <= one["offset"] < 20]
    assert found(partition=1) == [one for one in both if one["partition"] == 1]
    assert found("latest") == found("2999-01-01") == []


def test_what_was_never_archived_is_missing(place: Place) -> None:
    fill(place)
    before = facts(place.q.scan("t"))
    place.archive(m for m in place.q.scan("t") if m.offset % 10 < 5)
    place.drop()
    assert facts(place.q.scan("t", include_deleted=True)) == [one for one in before if one["offset"] % 10 < 5]


def test_what_is_dropped_while_it_is_read_is_not_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive grows, and retention follows it, while somebody reads a message at a time."""
    q = place.q
    q.configure("t", retention=ON_ACK)
    q.create_group("t", "default")
    ids = []
    for n in range(200):
        ids.append(q.publish("t", b"%d" % n).id)
        if n % 10 == 9:
            q.ack(q.receive("t", limit=10_000))
            place.archive(q.scan("t"))
            place.pass_by()
    q.publish_many("t", [b"x"] * 50)
    monkeypatch.setattr(read, "PAGE", 7)
    monkeypatch.setattr(read, "PAGE_ARROW", 7)
    reading = q.scan("t", include_deleted=True)
    seen = [next(reading).id for _ in range(30)]
    place.archive(q.scan("t"))
    ids += [m.id for m in q.scan("t")]
    place.drop()
    assert list(q.scan("t")) == []
    seen += [m.id for m in reading]
    assert seen == ids


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "delta"])
def test_lakes_of_other_formats(tmp_path: Path, format: str) -> None:
    place = Place(tmp_path, "json", format)
    try:
        fill(place, 2)
        before = facts(place.q.scan("t"))
        place.archive(place.q.scan("t"))
        place.drop()
        assert facts(place.q.scan("t", before[0]["timestamp"], include_deleted=True)) == before
    finally:
        place.close()


def test_a_topic_that_was_made_again(tmp_path: Path) -> None:
    """The lake has both; below the new log's floor the younger message of two at one offset counts."""
    place = Place(tmp_path, "disk")
    try:
        for life in (b"old", b"new"):
            place.q.configure("t", retention=ON_ACK)
            place.q.create_group("t", "default")
            place.q.publish_many("t", [life] * (8 if life == b"old" else 5))
            place.archive(place.q.scan("t"))
            place.drop()
            if life == b"old":
                place.q.delete_topic("t")
                place.clock.advance("1s")
        assert [m.payload for m in place.q.scan("t", include_deleted=True)] == [b"new"] * 5
    finally:
        place.close()


def test_without_a_lake_it_is_refused(tmp_path: Path) -> None:
    with RunningServer() as server, mqueue.Client(server.url) as client, mqueue.Broker() as broker:
        for q in (client, broker):
            q.publish("t", b"x")
            with pytest.raises(mqueue.Refused) as refused:
                list(q.scan("t", include_deleted=True))
            assert (refused.value.code, "lake.url" in str(refused.value)) == ("no_archive", True)
    config = Config(lake=LakeTables(str(tmp_path / "nowhere")))
    with RunningServer(config) as server, mqueue.Client(server.url, retry=False) as client:
        client.publish("t", b"x")
        with pytest.raises(mqueue.Unavailable) as failed:
            list(client.scan("t", "2020-01-01", include_deleted=True))
        assert failed.value.code == "lake_unreachable"
        assert "nowhere" not in str(failed.value)
        assert [m.payload for m in client.scan("t")] == [b"x"]


def test_without_the_package_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delitem(sys.modules, "mqueue.lake.delta", raising=False)
    with RunningServer(Config(lake=LakeTables(str(tmp_path)))) as server, mqueue.Client(server.url) as client:
        client.publish("t", b"x")
        with pytest.raises(mqueue.Unavailable, match="pip install") as failed:
            list(client.scan("t", "2020-01-01", include_deleted=True))
        assert (failed.value.code, failed.value.retryable) == ("no_package", False)


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, "json")
    try:
        place.q.configure("t", retention=ON_ACK)
        place.q.create_group("t", "default")
        for n in range(3):
            place.q.publish("t", f"day {n}")
            place.clock.advance("1d")
        place.archive(place.q.scan("t"))
        place.drop()
        terminal = Terminal(monkeypatch, tmp_path)
        monkeypatch.setenv("MQUEUE_URL", place.address)
        assert terminal.run("consume", "t", "--from-time", "2026-01-01").code == 3
        whole = ["day 0", "day 1", "day 2"]
        snapshot = ["consume", "t", "--from-snapshot", "2026-01-01"]
        assert terminal.run(*snapshot, "--include-deleted").lines == whole
        assert terminal.run("consume", "t", "--include-deleted").lines == whole
        assert terminal.run("consume", "t", "--from-snapshot", "2026-03-02").lines == whole[1:]
        middle = ["--from-offset", 1, "--to-offset", 2]
        assert terminal.run("consume", "t", "--include-deleted", *middle).lines == ["day 1"]
        for words in (["--group", "g"], ["--from-time", "2026-01-01"], ["--no-ack"]):
            assert terminal.run(*snapshot, *words).code == 2
        assert place.q.groups("t") == ["default"]
    finally:
        place.close()
