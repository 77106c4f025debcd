"""Pages of packed frames: from a log on disk as they lie there, read without the lock; broken ones are not taken in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqueue
from mqueue.broker import frames
from mqueue.config import Config, Data, Metrics
from mqueue.log.segments import packing
from mqueue.log.segments.log import SegmentLog
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from mqueue.wire.frame import Frame
from mqueue.wire.pack import pack, unpack
from mqueue.wire.packed import unpack_all

KIB = 1024
SMALL = mqueue.Storage(segment_bytes=64 * KIB, checkpoint_bytes=32 * KIB, reserve_bytes=0, cache_bytes=16 * KIB)
END = 1 << 40


class House:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.q = mqueue.Broker(path, clock=self.clock, storage=SMALL)

    @property
    def log(self) -> SegmentLog:
        log = self.q._engine.store.log
        assert isinstance(log, SegmentLog)
        return log

    def packed(self, topic: str, start: int = 0, stop: int = END, bytes_max: int = 1 << 30) -> packing.Packing:
        with self.q._engine.lock:
            return self.log.packed(self.q._engine.store.state.names["default", topic].id, 0, start, stop, bytes_max)

    def bytes(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.path.glob("seg-*.log")))

    def keep_up(self) -> None:
        for _ in range(6):
            self.clock.advance("1m")
            self.q._engine.upkeep.run_once()  # type: ignore[union-attr]
            self.q._engine.upkeep.save_points()  # type: ignore[union-attr]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "data")
    yield house
    house.q.close()


def rows(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    found = [unpack(piece) for piece in pieces]
    return [(frame.base + row, payload) for frame in found for row, payload in enumerate(frame.rows.payload)]


def scanned(q: mqueue.Broker, topic: str, start: int = 0, stop: int = END) -> list[tuple[int, bytes]]:
    return [(m.offset, m.payload) for m in q.scan(topic, start, stop)]


def test_whole_frames_are_sent_as_they_lie_in_the_segments(house: House) -> None:
    for n in range(40):
        house.q.publish_many("t", [b"%d" % n * KIB] * 4)
        house.q.publish("t", b"single")
        house.q.publish("other", b"between")
    pieces, next = house.packed("t").read()
    lie = house.bytes()
    assert next is None
    assert all(piece in lie for piece in pieces)
    assert rows(pieces) == scanned(house.q, "t")
    cut, _ = house.packed("t", 2, 12).read()
    assert [piece in lie for piece in cut] == [False, True, True, True, False]
    assert rows(cut) == scanned(house.q, "t", 2, 12)


def test_a_page_has_a_frame_at_least_and_says_where_the_next_begins(house: House) -> None:
    for n in range(20):
        house.q.publish_many("t", [b"%d" % n] * 5)
    place: int | None = 0
    sizes, found = [], []
    while place is not None:
        pieces, place = house.packed("t", place, bytes_max=1000).read()
        sizes.append(len(pieces))
        found += rows(pieces)
    assert found == scanned(house.q, "t")
    assert len(sizes) > 3
    pieces, place = house.packed("t", 7, bytes_max=1).read()
    assert (len(pieces), place) == (1, 10)


def test_a_page_of_small_frames_has_an_end(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "FRAMES_MAX", 7)
    monkeypatch.setattr(packing, "RUN_BYTES_MAX", 900)
    for n in range(20):
        house.q.publish("t", b"%d" % n)
    pieces, place = house.packed("t").read()
    assert (len(pieces), place) == (7, 7)
    rest, place = house.packed("t", 14).read()
    assert (rows([*pieces, *rest]), place) == ([row for row in scanned(house.q, "t") if not 7 <= row[0] < 14], None)


def test_a_frame_full_of_holes_is_read_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.q.configure("t", retention={"compact": True})
    keys = [f"k{n}" if n % 2 else "same" for n in range(1000)]
    house.q.publish_many("t", [mqueue.Draft(b"%d" % n, key=key) for n, key in enumerate(keys)])
    house.keep_up()
    kept = [(n, b"%d" % n) for n in range(1000) if n % 2 or n == 998]
    assert house.q.offsets("t")[0].floor == 1000
    reads: list[int] = []
    shelf = type(house.log.shelf)
    read = shelf.read
    monkeypatch.setattr(shelf, "read", lambda *words: (reads.append(1), read(*words))[1])
    pieces, next = house.packed("t").read()
    assert (rows(pieces), next, len(reads)) == (kept, None, 1)
    for start in (0, 1, 2, 499, 500, 997, 998, 999):
        for stop in (500, 501, 1000):
            wanted = [row for row in kept if start <= row[0] < stop]
            assert rows(house.packed("t", start, stop).read()[0]) == scanned(house.q, "t", start, stop) == wanted


def test_what_is_not_written_yet_is_packed(house: House) -> None:
    house.q.publish("t", b"written")
    for n in range(5):
        house.q.publish("t", b"%d" % n, durability="memory")
    packed = house.packed("t")
    house.q.publish("t", b"later", durability="memory")
    assert rows(packed.read()[0]) == [(0, b"written"), *[(n + 1, b"%d" % n) for n in range(5)]]
    assert rows(house.packed("t").read()[0]) == scanned(house.q, "t")


def test_a_segment_that_is_copied_on_meanwhile_is_looked_for_again(house: House) -> None:
    house.q.configure("t", retention={"on_ack": True})
    house.q.publish_many("t", [mqueue.Draft(b"late %d" % n, delay="9h") for n in range(3)])
    for n in range(40):
        house.q.publish_many("t", [bytes([n]) * KIB] * 8)
        house.q.ack(house.q.receive("t", limit=100))
    before = house.packed("t", 0, 3)
    files = sorted(path.name for path in house.path.glob("seg-*.log"))
    house.keep_up()
    assert files[0] not in {path.name for path in house.path.glob("seg-*.log")}, "it was copied on"
    assert before.read() == ([], 0)
    assert rows(house.packed("t", 0, 3).read()[0]) == [(n, b"late %d" % n) for n in range(3)]


def test_what_was_found_before_a_segment_went_is_given(house: House) -> None:
    house.q.publish_many("t", [b"x" * KIB] * 8)
    for _ in range(10):
        house.q.publish_many("t", [b"y" * KIB] * 8)
    packed = house.packed("t")
    row = next(piece for piece, first, _ in packed._pieces if first == 64)
    assert not isinstance(row, Frame)
    segment = house.log.shelf.of(row.position)
    assert segment is not None
    segment.gone = True
    pieces, place = packed.read()
    assert place is not None
    assert 0 < place <= 64
    assert rows(pieces) == [pair for pair in scanned(house.q, "t", 0, place) if pair[0] < place]
    segment.gone = False


def test_a_segment_that_ends_too_early_is_corrupt(house: House) -> None:
    for _ in range(20):
        house.q.publish_many("t", [b"x" * KIB] * 8)
    first = sorted(house.path.glob("seg-*.log"))[0]
    packed = house.packed("t")
    with first.open("r+b") as file:
        file.truncate(8 * KIB)
    with pytest.raises(mqueue.Corrupt):
        packed.read()


def test_broken_pages_are_not_taken_in() -> None:
    with mqueue.Broker(clock=ManualClock()) as q:
        for n in range(3):
            q.publish_many("t", [b"%d" % n] * 300)
        pieces = [pack(frame) for frame in q.scan_frames("t", 0, 0, END)]
    page = b"".join(pieces)
    assert [frame.base for frame in unpack_all(page, 0, 0, 900)] == [0, 300, 600]
    assert [(frame.base, frame.count) for frame in unpack_all(page, 0, 10, 890)] == [(10, 290), (300, 300), (600, 290)]
    assert unpack_all(b"", 0, 0, 900) == []
    for broken in (page[:-8], page[8:], page[:50], page + b"x", page[:400] + b"?" + page[401:]):
        with pytest.raises(mqueue.Corrupt):
            unpack_all(broken, 0, 0, 900)
    for partition, start, stop in ((1, 0, 900), (0, 300, 900), (0, 0, 600)):
        with pytest.raises(mqueue.Corrupt):
            unpack_all(page, partition, start, stop)
    with pytest.raises(mqueue.Corrupt):
        unpack_all(pieces[1] + pieces[0], 0, 0, 900)


@pytest.mark.parametrize("encoding", ["json", "arrow"])
def test_a_server_on_disk_gives_the_same_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(frames, "PAGE_BYTES", 20_000)
    config = Config(data=Data(dir=str(tmp_path / "data")), metrics=Metrics(enabled=False))
    found = []
    for life in range(2):
        with RunningServer(config, memory=False) as server, mqueue.Client(server.url, encoding=encoding) as q:
            if not life:
                for n in range(30):
                    q.publish_many("t", [b"%d" % n] * 300)
                    q.publish("t", b"single", key="k", headers={"a": "b"})
            [place] = q.offsets("t")
            assert (place.first, place.next) == (0, 9030)
            got = list(q.scan_frames("t", 0, 5, place.next))
            found.append([(frame.base + row, p) for frame in got for row, p in enumerate(frame.rows.payload)])
            assert found[-1] == [(m.offset, m.payload) for m in q.scan("t", 5)]
    assert found[0] == found[1]


def test_in_a_loop_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with mqueue.AsyncBroker(tmp_path, clock=ManualClock()) as q:
            for n in range(3):
                await q.publish_many("t", [b"%d" % n] * 100)
            await q.publish("t", b"open", durability="memory")
            found = [frame async for frame in q.scan_frames("t", 0, 50, END)]
            assert [(frame.base, frame.count) for frame in found] == [(50, 50), (100, 100), (200, 100), (300, 1)]
            assert (await q.offsets("t"))[0].next == 301
            log = q._sync._engine.store.log
            assert log.writer.synced >= log.batch, "what was told of is durable"
            await q.delete_topic("t")
            with pytest.raises(mqueue.NotFound):
                q.scan_frames("t", 0, 0, END)

    asyncio.run(main())


def test_a_topic_that_is_deleted_under_a_reader_is_told() -> None:
    with mqueue.Broker() as q:
        q.publish_many("t", [b"1"] * 10)
        q.publish_many("t", [b"2"] * 10)
        reader = q.scan_frames("t", 0, 0, END)
        assert next(reader).count == 10
        q.delete_topic("t")
        with pytest.raises(mqueue.NotFound, match="deleted while it was read"):
            list(reader)


def test_an_async_client_reads_ahead_and_may_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PAGE_BYTES", 2_000)

    async def main(url: str) -> None:
        async with mqueue.AsyncClient(url) as q:
            for n in range(20):
                await q.publish_many("t", [b"%d" % n] * 50)
            assert sum([frame.count async for frame in q.scan_frames("t", 0, 0, END)]) == 1000
            async for frame in q.scan_frames("t", 0, 0, END):
                assert frame.base == 0
                break
            assert (await q.offsets("t"))[0].next == 1000

    with RunningServer(Config(metrics=Metrics(enabled=False))) as server:
        asyncio.run(main(server.url))
