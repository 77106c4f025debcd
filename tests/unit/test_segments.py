"""The log on disk: segments come and go, what is needed stays, and nothing has to be read as a whole."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mqueue
from mqueue.broker.engine import Engine
from mqueue.log.segments.disk import RealDisk
from mqueue.log.segments.log import SegmentLog
from mqueue.testing import ManualClock

KIB = 1024
SMALL = mqueue.Storage(segment_bytes=64 * KIB, checkpoint_bytes=32 * KIB, reserve_bytes=0, cache_bytes=16 * KIB)


class House:
    """A data directory, and the broker that is open on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.q = self.open()

    def open(self, storage: mqueue.Storage = SMALL, **settings: Any) -> mqueue.Broker:
        self.q = mqueue.Broker(self.path, clock=self.clock, storage=storage, **settings)
        return self.q

    def reopen(self, storage: mqueue.Storage = SMALL) -> mqueue.Broker:
        self.q.close()
        return self.open(storage)

    @property
    def engine(self) -> Engine:
        return self.q._engine

    @property
    def log(self) -> SegmentLog:
        log = self.engine.store.log
        assert isinstance(log, SegmentLog)
        return log

    def keep_up(self, times: int = 6) -> None:
        """Let the duties of some minutes be done."""
        for _ in range(times):
            self.clock.advance("1m")
            self.engine.upkeep.run_once()  # type: ignore[union-attr]
            self.engine.upkeep.save_points()  # type: ignore[union-attr]

    def files(self, pattern: str = "seg-*.log") -> list[str]:
        return sorted(path.name for path in self.path.glob(pattern))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "data")
    yield house
    house.q.close()


def fill(q: mqueue.Broker, topic: str, kib: int, group: bool = False) -> list[mqueue.Receipt]:
    """So much of a topic, in calls of 8 KiB; settled by the default group if asked."""
    receipts = []
    for number in range(kib // 8):
        receipts += q.publish_many(topic, [bytes([number % 251]) * KIB] * 8)
        if group:
            q.ack(q.receive(topic, limit=100))
    return receipts


def test_a_new_segment_begins_when_one_is_full(house: House) -> None:
    receipts = fill(house.q, "orders", 400)
    assert len(house.files()) == 7
    q = house.reopen()
    assert [m.id for m in q.scan("orders")] == [receipt.id for receipt in receipts]
    assert len(house.files("seg-*.index")) == 7


def test_what_is_not_at_hand_is_read_back(house: House) -> None:
    receipts = fill(house.q, "orders", 400)
    for receipt in (receipts[0], receipts[200], receipts[-1]):
        [m] = house.q.scan("orders", start=receipt.offset, stop=receipt.offset + 1)
        assert (m.id, len(m.payload)) == (receipt.id, KIB)
        assert house.q.explain(receipt).code == "no_consumer"


def test_settled_segments_go_and_offsets_go_on(house: House) -> None:
    house.q.configure("orders", retention={"on_ack": True})
    fill(house.q, "orders", 400, group=True)
    house.keep_up()
    assert len(house.files()) <= 2
    assert house.q.stats("orders").retained == 0
    q = house.reopen()
    assert q.publish("orders", "next").offset == 400
    assert [m.offset for m in q.receive("orders")] == [400]


def test_offsets_go_on_when_nothing_is_left(house: House) -> None:
    house.q.configure("orders", retention={"on_ack": True})
    house.q.publish_many("orders", ["a", "b", "c"])
    house.q.ack(house.q.receive("orders", limit=3))
    house.keep_up(3)
    fill(house.q, "other", 70)  # so that the segment goes
    house.q.delete_topic("other")
    house.keep_up(3)
    q = house.reopen()
    assert q.publish("orders", "d").offset == 3
    assert [m.text() for m in house.reopen().receive("orders", limit=5)] == ["d"]


def test_one_message_for_2046_does_not_hold_up_a_segment(house: House) -> None:
    house.q.configure("orders", retention={"on_ack": True})
    late = house.q.publish("orders", "at last", deliver_at="2046-01-01", headers={"a": "b"})
    fill(house.q, "orders", 400, group=True)
    house.keep_up()
    assert len(house.files()) <= 2
    q = house.reopen()
    assert [m.id for m in q.scheduled("orders")] == [late.id]
    assert "scheduled" in str(q.explain(late))
    house.clock.advance("7300d")
    assert q.receive("orders") == []  # somebody is still there
    house.clock.advance("6d")
    [m] = q.receive("orders", group="later")
    assert (m.id, m.offset, m.text(), m.headers) == (late.id, late.offset, "at last", {"a": "b"})
    [m] = q.receive("orders")
    m.ack()
    house.keep_up(2)
    q = house.reopen()
    assert q.receive("orders") == []


def test_what_survives_is_copied_on_again_and_again(house: House) -> None:
    house.q.configure("orders", retention={"on_ack": True})
    late = [house.q.publish("orders", f"late {n}", delay="900d") for n in range(5)]
    for _ in range(3):
        fill(house.q, "orders", 200, group=True)
        house.keep_up(3)
        house.reopen()
    assert len(house.files()) <= 3
    assert [m.id for m in house.q.scheduled("orders")] == [receipt.id for receipt in late]
    house.q.cancel(late[0])
    house.clock.advance("899d")
    assert house.q.receive("orders") == []
    house.clock.advance("1d")
    assert [m.id for m in house.q.receive("orders", limit=10)] == [receipt.id for receipt in late[1:]]


def test_a_segment_in_the_middle_may_go(house: House) -> None:
    fill(house.q, "first", 60)
    fill(house.q, "middle", 130)
    fill(house.q, "last", 60)
    before = house.files()
    house.q.delete_topic("middle")
    house.keep_up(3)
    assert house.files()[0] == before[0]
    assert len(house.files()) < len(before)
    q = house.reopen()
    assert q.damage() == []
    assert [len(list(q.scan(topic))) for topic in ("first", "last")] == [56, 56]


def test_compaction_keeps_the_last_of_each_key(house: House) -> None:
    house.q.configure("prices", retention={"compact": True})
    for number in range(200):
        house.q.publish_many("prices", [mqueue.Draft(bytes(KIB) + b"%d" % number, key=f"k{k}") for k in range(3)])
        house.q.ack(house.q.receive("prices", limit=10))
    house.keep_up(40)
    assert len(house.files()) <= 3
    q = house.reopen()
    seen = [(m.key, m.payload[KIB:]) for m in q.scan("prices")]
    assert len(seen) < 300
    assert dict(seen) == {b"k0": b"199", b"k1": b"199", b"k2": b"199"}


def test_a_trace_reaches_over_segments_and_starts(house: House) -> None:
    first = house.q.publish("orders", "tea")
    [m] = house.q.receive("orders")
    fill(house.q, "other", 200)
    m.nack(error="no milk")
    fill(house.q, "other", 200)
    house.clock.advance("1m")
    q = house.reopen()
    [again] = q.receive("orders")
    again.ack()
    kinds = [event.kind for event in q.trace(first).events]
    assert kinds == ["PUBLISHED", "DELIVERED", "NACKED", "REDELIVERED", "ACKNOWLEDGED"]
    for path in house.path.glob("seg-*.index"):
        path.unlink()
    assert [event.kind for event in house.reopen().trace(first).events] == kinds


def test_time_finds_its_place_over_segments(house: House) -> None:
    marks = []
    for number in range(20):
        marks.append((house.clock.now(), house.q.publish("orders", bytes([number]) * 20 * KIB).offset))
        house.clock.advance("1h")
    q = house.reopen()
    for at, offset in marks:
        found = next(q.scan("orders", start=mqueue.model.times.to_datetime(at)))
        assert found.offset == offset


def test_damage_found_by_the_scrubber_is_told(house: House) -> None:
    house.reopen(mqueue.Storage(segment_bytes=64 * KIB, reserve_bytes=0, scrub_hours=1.0))
    fill(house.q, "orders", 200)
    house.engine.upkeep.run_once()  # type: ignore[union-attr]
    segment = house.path / house.files()[0]
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)
    for _ in range(8):
        house.clock.advance("61m")
        house.engine.upkeep.run_once()  # type: ignore[union-attr]
    assert any(segment.name in report for report in house.q.damage())


def test_a_message_that_cannot_be_read_is_set_aside_and_the_rest_is_served(house: House) -> None:
    receipts = fill(house.q, "orders", 200)
    house.q.close()
    segment = house.path / house.files()[0]
    data = bytearray(segment.read_bytes())
    data[5000] ^= 1  # in the first frame, which an index tells of
    segment.write_bytes(data)
    q = house.open()
    got = [m.offset for _ in range(30) for m in q.receive("orders", limit=10)]
    assert got == [receipt.offset for receipt in receipts[8:]]
    assert any("damaged" in report for report in q.damage())
    with pytest.raises(mqueue.Corrupt):
        list(q.scan("orders"))
    assert len(list(q.scan("orders", start=8))) == len(receipts) - 8
    assert q.stats("orders").cancelled == 8


@pytest.mark.parametrize("level", ["memory", "os", "fsync"])
def test_a_publish_is_as_safe_as_asked(house: House, level: str) -> None:
    assert house.q.publish("orders", "a", durability=level).durability == level
    assert [r.durability for r in house.q.publish_many("orders", ["b", "c"], durability=level)] == [level] * 2
    log = house.log
    behind = {"memory": (0, 0), "os": (2, 0), "fsync": (2, 2)}[level]
    assert (log.writer.written, log.writer.synced) == behind
    q = house.reopen()
    assert [m.text() for m in q.receive("orders", limit=10)] == ["a", "b", "c"]


def test_a_level_that_is_not_there_is_refused(house: House) -> None:
    with pytest.raises(mqueue.BadSetting, match="durability 'shard' is not what this store reaches"):
        house.q.publish("orders", "a", durability="shard")
    assert house.q.topics() == []


def test_one_process_at_a_time(house: House) -> None:
    with pytest.raises(mqueue.InUse, match="is in use by process"):
        mqueue.Broker(house.path)


def test_somebody_elses_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(mqueue.Refused, match=r"thesis\.doc") as refused:
        mqueue.Broker(tmp_path)
    assert refused.value.code == "not_a_data_directory"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


@pytest.mark.parametrize("path", ["", 7, ["a"], "/dev/null", "/dev/null/x", "x" * 300, "a\0b"])
def test_what_is_no_directory_is_refused(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mqueue.BadSetting, match="directory"):
        mqueue.Broker(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"storage": {}}, {"storage": mqueue.Storage}, {"limits": "x"}, {"quotas": 5}])
def test_settings_of_the_wrong_kind_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(mqueue.BadSetting, match="it takes a"):
        mqueue.Broker(tmp_path / "data", **wrong)
    mqueue.Broker(tmp_path / "data").close()


def test_an_open_that_failed_leaves_nothing_open(house: House) -> None:
    fill(house.q, "orders", 200)
    house.q.close()
    (house.path / house.files()[0]).unlink()
    (house.path / "EPOCH").unlink()
    for path in house.path.glob("checkpoint-*"):
        path.unlink()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(mqueue.Corrupt):
            house.open()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _of_version(path: Path, place: int) -> None:
    """Make a file say that it is of version 9, with the checksum that goes with it."""
    import google_crc32c

    data = bytearray(path.read_bytes())
    data[place : place + 2] = b"\x09\x00"
    slot = data[8:4096]
    data[4:8] = google_crc32c.value(bytes(slot)).to_bytes(4, "little")
    path.write_bytes(data)


@pytest.mark.parametrize(("name", "place"), [("seg-00000000000000000000.log", 48)])
def test_another_version_is_refused(house: House, name: str, place: int) -> None:
    house.q.publish("orders", "a")
    house.q.close()
    _of_version(house.path / name, place)
    with pytest.raises(mqueue.Refused, match="format 9") as refused:
        house.open()
    assert refused.value.code == "other_version"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"segment_bytes": 10}, "at least 65536"),
        ({"cache_bytes": -1}, "0 or more"),
        ({"reserve_bytes": 1.5}, "whole"),
        ({"scrub_hours": "24"}, "hours"),
        ({"accept_loss": "yes"}, "True or False"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(mqueue.BadSetting, match=sentence):
        mqueue.Storage(**settings)


def test_storage_is_for_brokers_on_disk() -> None:
    with pytest.raises(mqueue.BadSetting, match="no path"):
        mqueue.Broker(storage=mqueue.Storage())


@pytest.mark.parametrize("name", [None, 7, b"x", "\ud800", "x" * 250])
def test_a_name_that_could_not_be_written_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(mqueue.BadName, match="at most 249"):
        mqueue.Broker(tmp_path / "data", name=name)


def test_an_error_text_that_has_no_form_in_utf8_is_written_as_far_as_it_has(house: House) -> None:
    receipt = house.q.publish("orders", "a")
    [m] = house.q.receive("orders")
    m.nack(error=OSError("\ud800.txt"))
    assert "OSError: ?.txt" in str(house.reopen().trace(receipt))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "newest checkpoint": lambda path: max(path.glob("checkpoint-*")).write_bytes(b"nonsense"),
    "all checkpoints": lambda path: [f.write_bytes(b"nonsense") for f in path.glob("checkpoint-*")] and None,
    "epoch": lambda path: (path / "EPOCH").unlink(),
    "indexes": lambda path: [f.unlink() for f in path.glob("*.index")] and None,
}


@pytest.mark.parametrize("what", DAMAGE)
def test_the_segments_alone_tell_everything(house: House, what: str) -> None:
    receipts = fill(house.q, "orders", 200)
    house.q.ack(house.q.receive("orders", limit=50))
    house.keep_up(3)
    house.q.close()
    DAMAGE[what](house.path)
    q = house.open()
    got = [m.id for _ in range(20) for m in q.receive("orders", limit=100)]
    assert got == [receipt.id for receipt in receipts[50:]]
    assert q.publish("orders", "next").id > receipts[-1].id


def test_a_missing_segment_is_refused_until_the_loss_is_accepted(house: House) -> None:
    receipts = fill(house.q, "orders", 400)
    house.q.close()
    aside = house.path.parent / "aside"
    shutil.move(house.path / house.files()[-1], aside)
    with pytest.raises(mqueue.Corrupt, match="accept_loss") as lost:
        house.open()
    assert lost.value.code == "data_lost"
    q = house.open(mqueue.Storage(segment_bytes=64 * KIB, reserve_bytes=0, accept_loss=True))
    assert q.damage()
    got = [m.id for _ in range(20) for m in q.receive("orders", limit=100)]
    assert got == [receipt.id for receipt in receipts][: len(got)]
    assert len(got) > 300
    after = q.publish("orders", "goes on")
    assert after.id > receipts[-1].id


def test_nobody_counts_as_silent_while_the_store_is_closed(house: House) -> None:
    house.q.publish_many("orders", ["a", "b", "c"])
    house.q.receive("orders")[0].ack()
    house.q.close()
    house.clock.advance("30d")
    q = house.open()
    assert [m.text() for m in q.receive("orders", limit=5)] == ["b", "c"]


def test_a_disk_that_cannot_read_for_a_moment_costs_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.q.configure("orders", max_retries=0, visibility="20s")
    receipts = house.q.publish_many("orders", [bytes([n]) * KIB for n in range(30)])
    q = house.reopen()
    [doomed] = q.receive("orders")
    house.log.shelf.cache._frames.clear()
    for tape in house.log._tapes.values():
        tape.hot = None

    def fails(self: RealDisk, *_: object) -> bytes:
        raise OSError(errno.EIO, "a cable came loose")

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "pread", fails)
        with pytest.raises(mqueue.Unavailable) as unreadable:
            q.receive("orders", limit=10)
        assert (unreadable.value.code, unreadable.value.retryable) == ("unreadable", True)
        house.clock.advance("21s")  # the lease of the first runs out, and it is dead
        assert q.publish("other", "goes on").offset == 0
    house.clock.advance("21s")
    assert [m.id for m in q.receive("orders", limit=100)] == [receipt.id for receipt in receipts[1:]]
    assert [dead.payload for dead in q.dlq("orders").messages()] == [doomed.payload]
    assert q.damage() == []


def test_time_goes_on_from_the_end_of_the_log_and_meets_the_clock_again(house: House) -> None:
    house.clock.advance("10m")
    house.q.publish("orders", "from the future", delay="1m")
    house.q.close()
    behind = ManualClock()
    q = mqueue.Broker(house.path, clock=behind, storage=SMALL)
    assert any("the clock stands at" in report for report in q.damage())
    behind.advance("1m")
    assert q.receive("orders") == []  # at half speed
    behind.advance("1m")
    assert [m.text() for m in q.receive("orders")] == ["from the future"]
    behind.advance("20m")
    assert q._engine.clock.now() == behind.now()
    q.close()
    house.open()


def test_a_hundred_segments_need_few_files(house: House) -> None:
    receipts = fill(house.q, "orders", 3200)
    q = house.reopen(mqueue.Storage(segment_bytes=64 * KIB, reserve_bytes=0, cache_bytes=0))
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert len(list(q.scan("orders"))) == len(receipts)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 64
