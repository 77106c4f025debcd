"""The log of a node by itself: what was synced is found again, whatever happened, and nothing else is made of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest

from mqueue.cluster.redis.line import Access, Away, Line
from mqueue.cluster.wal import records
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.flush import FRAMES_MAX, affordable
from mqueue.cluster.wal.nodelog import NodeLog, Place
from mqueue.cluster.wal.records import Stretch
from mqueue.cluster.wal.remains import OwnRemains, Remains
from mqueue.log.segments.disk import Disk
from mqueue.model.errors import DiskFull, InUse, Poisoned
from mqueue.testing import RedisServer
from mqueue.testing.disk import SimDisk
from tests.cluster.redis_nodes import access
from tests.postgres.shards import sheet

LOG = UUID(int=11)
SEGMENT_BYTES = 8 << 10


class Spot:
    """Where a log lies that is on some other disk than ours."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.removed: list[UUID] = []

    def disk(self, uuid: UUID) -> Disk:
        return self._disk

    def remove(self, uuid: UUID) -> None:
        self.removed.append(uuid)


@pytest.fixture
def nothing() -> Iterator[Copies]:
    with closing(Line.of(Access(()), UUID(int=1))) as line:
        yield Copies(line, "shard0")


@pytest.fixture
def copies(redis_server: RedisServer) -> Iterator[Copies]:
    with closing(Line.of(access(redis_server), uuid4())) as line:
        yield Copies(line, "shard0")


def begun(disk: SimDisk, segment_bytes: int = SEGMENT_BYTES) -> NodeLog:
    disk.lock()
    return NodeLog(disk, LOG, segment_bytes)


def record(number: int, size: int = 40) -> bytes:
    return records.pack(sheet(number + 1, base_id=number + 1, body=bytes([number % 256]) * size))


def written(log: NodeLog, *groups: list[int], size: int = 40) -> list[tuple[int, int]]:
    places = log.write([[record(number, size) for number in group] for group in groups], 1000)
    log.sync()
    return places


def left(disk: Disk, copies: Copies, position: int = 0) -> list[Stretch]:
    remains = OwnRemains(LOG, copies, Spot(disk))  # type: ignore[arg-type]
    try:
        return list(remains.stretches(position))
    finally:
        remains.close()


def ids(stretches: list[Stretch]) -> list[int]:
    return [one.base_id - 1 for stretch in stretches for one in stretch.sheets]


def test_a_frame_and_its_commit_are_the_same_after_a_journey() -> None:
    one = sheet(7, 3, 5, head=b"h" * 88, body=b"", map_epoch=0)
    assert records.unpack(records.pack(one)) == one
    copy = records.pack_copy(160, [records.pack(one), records.pack(one)])
    found = records.unpack_copy(copy, 160)
    assert found is not None
    assert (found.start, found.stop, list(found.sheets)) == (160, 160 + len(copy), [one, one])
    assert records.unpack_copy(copy, 168) is None
    assert records.unpack_copy(copy[:-1], 160) is None
    assert records.unpack_copy(copy[:90] + b"\xff" + copy[91:], 160) is None
    assert records.unpack_copy(b"", 160) is None


def test_copies_say_where_the_next_one_begins(nothing: Copies) -> None:
    """A commit is as long in Redis as on the disk."""
    disk = SimDisk()
    log = begun(disk)
    for start, stop in written(log, [1], [2, 3]):
        copy = records.pack_copy(start, [record(1)] if start == 0 else [record(2), record(3)])
        assert start + len(copy) == stop


def test_what_was_synced_is_found_by_the_next_life(nothing: Copies) -> None:
    disk = SimDisk()
    log = begun(disk)
    first = written(log, [1, 2], [3])
    assert first[0][0] == 0
    assert first[0][1] == first[1][0]
    for turn in range(4, 60):
        written(log, [turn], size=1000)
    found = left(disk.kill(), nothing)
    assert ids(found) == list(range(1, 60))
    assert [(one.start, one.stop) for one in found[:2]] == first
    assert ids(left(disk.kill(), nothing, first[0][1])) == list(range(3, 60))


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_takes_nothing_that_was_synced(nothing: Copies, seed: int) -> None:
    """At every step that the disk makes; also the start that follows may be cut."""
    rng = Random(seed)
    disk = SimDisk(seed=seed)
    synced = 0
    after: list[tuple[int, SimDisk]] = []

    def cut(op: str, name: str) -> None:
        if rng.random() < 0.2:
            after.append((synced, disk.crash(rng)))

    log = begun(disk)
    disk.hook = cut
    for turn in range(40):
        log.write([[record(turn, rng.choice((10, 3000)))]], 1000 + turn)
        if rng.random() < 0.7:
            log.sync()
            synced = turn + 1
        if turn % 10 == 9:
            log.sync()
            synced = turn + 1
    for count, found in after:
        once = ids(left(found.crash(rng), nothing))
        again = ids(left(found, nothing))
        for seen in (once, again):
            assert seen[:count] == list(range(count)), seed
            assert seen == list(range(len(seen)))


def test_a_torn_tail_is_cut_unless_a_copy_tells_it(copies: Copies) -> None:
    disk = SimDisk()
    log = begun(disk)
    ((_, end),) = written(log, [1])
    log.write([[record(2)], [record(3)]], 1000)
    cut = disk.crash(Random(1), "none")
    assert ids(left(cut.kill(), copies)) == [1]
    copies.put(LOG, UUID(int=5), [(end, records.pack_copy(end, [record(2)]))])
    assert ids(left(cut.kill(), copies)) == [1, 2]


def test_what_the_disk_has_lost_comes_from_redis_or_is_skipped(copies: Copies, nothing: Copies, caplog) -> None:
    disk = SimDisk()
    log = begun(disk)
    places = written(log, [1], [2], [3]) + written(log, [4])  # which says that those before it were synced
    damaged = places[1][0]
    disk.flip("seg-00000000000000000000.log", 4096 + damaged + 100, 1)
    with pytest.raises(Away):  # perhaps Redis has it: that has to be known first
        left(disk.kill(), nothing)
    found = left(disk.kill(), copies)
    assert [(one.start, one.stop) for one in found] == places
    assert ids(found) == [1, 3, 4]
    assert "are lost" in caplog.text
    copies.put(LOG, UUID(int=5), [(damaged, records.pack_copy(damaged, [record(2)]))])
    assert ids(left(disk.kill(), copies)) == [1, 2, 3, 4]


def test_a_log_is_removed_when_all_of_it_is_in_the_shard_and_kept_if_it_is_damaged(copies: Copies) -> None:
    disk = SimDisk()
    log = begun(disk)
    places = written(log, [1]) + written(log, [2])
    spot = Spot(disk.kill())
    remains = OwnRemains(LOG, copies, spot)  # type: ignore[arg-type]
    assert remains.finish(places[-1][1])
    assert (spot.removed, remains.gone) == ([LOG], True)
    disk.flip("seg-00000000000000000000.log", 4096 + 100, 1)
    spot = Spot(disk.kill())
    remains = OwnRemains(LOG, copies, spot)  # type: ignore[arg-type]
    assert remains.finish(places[-1][1])
    assert (spot.removed, remains.gone) == ([], False)


def test_segments_go_when_two_checkpoints_say_so(nothing: Copies) -> None:
    disk = SimDisk()
    log = begun(disk)
    ends = [written(log, [turn], size=3000)[0][1] for turn in range(30)]
    segments = [name for name in disk.list() if name.startswith("seg-")]
    assert len(segments) > 5
    assert not log.may_trim(0)
    assert log.may_trim(ends[-1])
    log.trim(ends[20])
    assert [name for name in disk.list() if name.startswith("seg-")] == segments
    log.trim(ends[25])
    rest = [name for name in disk.list() if name.startswith("seg-")]
    assert len(rest) < len(segments)
    written(log, [30])
    assert ids(left(disk.kill(), nothing, ends[25])) == [26, 27, 28, 29, 30]
    log.trim(ends[29])
    log.trim(ends[29] + 8)
    assert len([name for name in disk.list() if name.startswith("seg-")]) <= 2
    assert ids(left(disk.crash(Random(3)), nothing, ends[29])) == [30]


@pytest.mark.parametrize("op", ["sync", "pwrite"])
def test_a_disk_that_fails_ends_the_log_and_what_it_did_not_sync(nothing: Copies, op: str) -> None:
    disk = SimDisk()
    log = begun(disk)
    written(log, [1])
    disk.fail(op)
    with pytest.raises(Poisoned):
        written(log, [2])
    assert log.dead
    with pytest.raises(Poisoned):
        written(log, [3])
    assert ids(left(disk.kill(), nothing)) == [1]


def test_a_full_disk_ends_the_log(nothing: Copies) -> None:
    """What had no room is not written later: nobody waits for it any more."""
    disk = SimDisk(capacity=64 << 10)
    log = begun(disk)
    count = 0
    while not log.dead:
        with suppress(DiskFull, Poisoned):
            written(log, [count], size=3000)
            count += 1
    disk.capacity = None
    with pytest.raises(Poisoned):
        written(log, [999])
    assert ids(left(disk.kill(), nothing)) == list(range(count))


def test_a_disk_that_is_nearly_full_says_so_before(tmp_path: Path) -> None:
    disk = SimDisk(capacity=8 << 20)
    log = begun(disk, 1 << 20)
    assert not log.full
    disk.capacity = 1 << 20
    log.look()
    assert "kept" in log.full
    disk.capacity = 8 << 20
    log.look()
    assert not log.full


def test_a_directory_is_for_one_process(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "a" / "shard0"))
    with pytest.raises(InUse):
        Place(str(tmp_path / "a" / "shard0"))
    place.close()
    Place(str(tmp_path / "a" / "shard0")).close()


def test_every_life_has_a_log_of_its_own(tmp_path: Path, nothing: Copies) -> None:
    """So nobody goes on where somebody else stopped: what was cut, copied or restored cannot be taken for it."""
    with closing(Place(str(tmp_path))) as place:
        first = place.begin()
        written(first, [1])
        first.close()
        second = place.begin()
        written(second, [2])
        second.close()
        assert set(place.left()) == {first.uuid, second.uuid}
        remains = OwnRemains(first.uuid, nothing, place)
        assert ids(list(remains.stretches(0))) == [1]
        remains.finish(1 << 20)
        assert place.left() == [second.uuid]
        os.rename(tmp_path / second.uuid.hex, tmp_path / (second.uuid.hex + ".gone"))
    with closing(Place(str(tmp_path))) as place:
        assert place.left() == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["LOCK"]


def test_redis_lists_logs_by_shard_and_forgets_those_that_are_empty(copies: Copies, redis_server: RedisServer) -> None:
    owner = uuid4()
    copies.put(LOG, owner, [(0, records.pack_copy(0, [record(1)])), (200, records.pack_copy(200, [record(2)]))])
    assert [(one.uuid, one.owner) for one in copies.listed()] == [(LOG, owner)]
    assert ids(list(Remains(LOG, copies).stretches(0))) == [1]
    copies.drop_before(LOG, 100)
    assert copies.get(LOG, 0) is None
    assert copies.holds(LOG)
    assert copies.listed()
    copies.drop(LOG, [200])
    copies.drop_before(LOG, 100)
    assert copies.listed() == []


def test_redis_takes_nothing_that_does_not_follow_what_it_has(copies: Copies, redis_server: RedisServer) -> None:
    owner = uuid4()
    first, second, third = ((start, records.pack_copy(start, [record(1)])) for start in (0, 200, 400))
    assert not copies.put(LOG, owner, [second], after=0)
    assert copies.listed() == []
    assert copies.put(LOG, owner, [first])
    assert not copies.put(LOG, owner, [third], after=200)
    assert copies.put(LOG, owner, [second], after=0)
    assert copies.put(LOG, owner, [third], after=200)
    assert copies.positions(LOG) == {0, 200, 400}
    redis_server.flush()
    assert not copies.put(LOG, owner, [third], after=200)
    assert copies.positions(LOG) == set()


def test_of_a_log_in_redis_nothing_behind_a_gap_is_taken(copies: Copies, caplog) -> None:
    copies.put(LOG, uuid4(), [(start, records.pack_copy(start, [record(1)])) for start in (0, 600)])
    remains = Remains(LOG, copies)
    (found,) = remains.stretches(0)
    assert not remains.finish(found.stop)
    assert not remains.finish(found.stop)
    assert caplog.text.count("it waits for the node") == 1
    assert copies.get(LOG, 600) is not None


def test_a_statement_takes_whole_commits_of_a_bearable_size() -> None:
    one = sheet(1, body=b"x" * (1 << 20))
    stretches = [Stretch(start, start + 8, [one] * 3) for start in range(0, 80, 8)]
    assert len(affordable(stretches)) == 1
    assert len(affordable([Stretch(0, 8, [sheet(1)])] * 1000)) == FRAMES_MAX
    assert len(affordable([Stretch(0, 8, [one] * 100)])) == 1
    assert affordable([]) == []


def test_errno_is_told(nothing: Copies) -> None:
    disk = SimDisk()
    log = begun(disk)
    written(log, [1])
    disk.fail("sync", error=errno.EIO)
    with pytest.raises(Poisoned, match="Input/output"):
        written(log, [2])
