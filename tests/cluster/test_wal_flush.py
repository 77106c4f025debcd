"""Logs into a real shard, from a disk and from a real Redis: all of it, once, whoever brings it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mqueue.cluster.meters import Meters
from mqueue.cluster.redis.line import Line
from mqueue.cluster.wal import records
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.drain import Drain
from mqueue.cluster.wal.flush import GONE, Flush
from mqueue.cluster.wal.nodelog import NodeLog, Place
from mqueue.cluster.wal.records import Stretch
from mqueue.log.postgres import catalog, flushing, frames, migrate
from mqueue.log.postgres.appends import Sheet, append
from mqueue.log.postgres.link import Link
from mqueue.model.errors import ShardDown
from mqueue.testing import RedisServer
from tests.cluster.redis_nodes import access
from tests.postgres.shards import end_session, new_topic, owner_of, sheet, together


class Shard:
    """A shard with a topic, a Redis, a disk, and as many who flush as a test asks for."""

    def __init__(self, url: str, redis: RedisServer, path: Path, stack: ExitStack) -> None:
        self._url = url
        self._stack = stack
        self.link = self.connect()
        migrate.migrate(self.link)
        migrate.assign(self.link, 0, 1, UUID(int=1))
        self.topic = new_topic(self.link, "orders", 4)
        self.owner, self.epochs = owner_of(self.link, 4)
        line = stack.enter_context(closing(Line.of(access(redis), uuid4())))
        self.copies = Copies(line, "shard0")
        self.place = stack.enter_context(closing(Place(str(path / "mine"))))
        self.meters = Meters()

    def connect(self) -> Link:
        return self._stack.enter_context(closing(Link(self._url, "test", 60_000)))

    def flush(self) -> Flush:
        return Flush(self.connect(), lambda: None, lambda vshard: 1, self.meters)

    def drain(self, place: Place | None = None) -> Drain:
        drain = Drain(self.flush(), self.copies, place or self.place, uuid4(), self.meters)
        return self._stack.enter_context(closing(drain))

    def elsewhere(self) -> Drain:
        """Of a node that has another disk."""
        path = f"{self.place.path}.{uuid4().hex}"
        return self.drain(self._stack.enter_context(closing(Place(path))))

    def stretches(self, counts: list[int], start: int = 0) -> list[Stretch]:
        """Commits of so many frames each."""
        found = []
        for count in counts:
            sheets = [sheet(self.topic, number % 2, 3, map_epoch=0) for number in range(count)]
            copy = records.pack_copy(start, [records.pack(one) for one in sheets])
            found.append(Stretch(start, start + len(copy), sheets))
            start += len(copy)
        return found

    def copied(self, log: UUID, stretches: list[Stretch], owner: UUID) -> None:
        commits = [(one.start, records.pack_copy(one.start, list(map(records.pack, one.sheets)))) for one in stretches]
        self.copies.put(log, owner, commits)

    def steps(self, log: UUID) -> list[int]:
        """How far each step went that the shard remembers of a log."""
        return [to for (to,) in self.link.call("select to_pos from mqueue.flush_progress where wal = %b", (log,))]

    def stored(self) -> list[int]:
        """Ids of all frames, by partition and offset."""
        places = [(self.topic, partition, 0) for partition in (0, 1)]
        return [row[4] for row in frames.tails(self.link, places, 10_000, bodies=False)]


@pytest.fixture
def shard(database: str, redis_server: RedisServer, tmp_path: Path) -> Iterator[Shard]:
    with ExitStack() as stack:
        yield Shard(database, redis_server, tmp_path, stack)


def written(log: NodeLog, stretches: list[Stretch]) -> None:
    log.write([[records.pack(one) for one in stretch.sheets] for stretch in stretches], 1000)
    log.sync()


def ids(stretches: list[Stretch]) -> list[int]:
    sheets: list[Sheet] = [one for stretch in stretches for one in stretch.sheets]
    return [one.base_id for partition in (0, 1) for one in sheets if one.partition == partition]


def drained(drain: Drain) -> int:
    """How many frames it appended."""
    drain.look()
    count = 0
    while (found := drain.run_once()) is not None:
        count += len(found)
    return count


def test_a_stretch_is_flushed_once_and_the_next_goes_on_from_there(shard: Shard) -> None:
    log, flush = uuid4(), shard.flush()
    stretches = shard.stretches([2, 3, 1])
    places = flush.append(log, stretches[:2], once=False)
    assert [place.base for place in places or []] == [0, 0, 3, 3, 6]
    assert flush.append(log, stretches[:2], once=False) is None
    assert flush.append(log, stretches[:1], once=False) is None
    assert flush.append(log, shard.stretches([1], stretches[2].stop), once=False) is None
    assert flushing.flushed(shard.link, log) == stretches[1].stop
    assert flush.append(log, stretches[2:], once=False) is not None
    assert shard.stored() == ids(stretches)
    flushing.forget_older(shard.link, log)
    assert flushing.flushed(shard.link, log) == stretches[2].stop
    assert flush.append(log, stretches[:2], once=False) is None


def test_of_a_topic_that_was_deleted_nothing_arrives_and_the_rest_does(shard: Shard) -> None:
    flush = shard.flush()
    other = new_topic(shard.link, "gone", 4)
    catalog.drop_topic(shard.link, shard.owner, shard.epochs[4], other, 2000)
    (stretch,) = shard.stretches([2])
    mixed = Stretch(0, stretch.stop, [sheet(other, count=7), *stretch.sheets, sheet(other)])
    places = flush.append(uuid4(), [mixed], once=False)
    assert places is not None
    assert [place is GONE for place in places] == [True, False, False, True]
    assert shard.stored() == ids([stretch])
    assert shard.meters.flush_dropped == 10


def test_what_has_moved_goes_by_the_map_of_now(shard: Shard) -> None:
    shard.link.call("update mqueue.vshards set map_epoch = 9 where vshard = 4")
    stretches = shard.stretches([2])
    assert shard.flush().append(uuid4(), stretches, once=False) is not None
    assert shard.stored() == ids(stretches)
    shard.link.call("update mqueue.vshards set state = 'moved' where vshard = 4")
    with pytest.raises(ShardDown):
        shard.flush().append(uuid4(), shard.stretches([1]), once=False)


def test_an_earlier_life_is_flushed_from_the_disk(shard: Shard) -> None:
    log = shard.place.begin(8 << 10)
    stretches = shard.stretches([1] * 150)
    written(log, stretches)
    log.close()
    shard.flush().append(log.uuid, stretches[:30], once=False)  # it came so far
    assert drained(shard.drain()) == 120
    assert shard.stored() == ids(stretches)
    assert shard.place.left() == []
    assert flushing.flushed(shard.link, log.uuid) == 0  # nobody will ask again
    assert drained(shard.drain()) == 0


def test_what_went_straight_to_the_shard_is_not_taken_from_the_log_as_well(shard: Shard) -> None:
    """A disk fails after the write: it goes another way, and may be found on the disk all the same."""
    log = shard.place.begin()
    stretches = shard.stretches([2, 2])
    written(log, stretches)
    log.close()
    direct = [sheet(one.topic, one.partition, one.count, base_id=one.base_id) for one in stretches[1].sheets]
    append(shard.link, direct, None)
    assert drained(shard.drain()) == 2
    assert sorted(shard.stored()) == sorted(ids(stretches))


def test_a_node_that_is_gone_is_flushed_from_redis_by_another(shard: Shard) -> None:
    log = uuid4()
    owner, _ = owner_of(shard.link, 5, node=2)
    stretches = shard.stretches([1] * 100)
    shard.copied(log, stretches, owner)
    drain = shard.drain()
    assert drained(drain) == 0  # it is alive
    end_session(shard.link, owner)
    assert drained(drain) == 100
    assert shard.stored() == ids(stretches)
    assert shard.copies.listed() == []
    assert not shard.copies.holds(log)
    shard.copied(log, stretches, owner)  # Redis was set back
    assert drained(drain) == 0
    assert shard.copies.listed() == []
    assert shard.stored() == ids(stretches)


def test_of_a_log_that_somebody_else_may_have_only_its_end_is_remembered(shard: Shard) -> None:
    log = uuid4()
    owner, _ = owner_of(shard.link, 5, node=2)
    end_session(shard.link, owner)
    stretches = shard.stretches([1] * 200)
    shard.copied(log, stretches, owner)
    assert drained(shard.drain()) == 200
    assert shard.steps(log) == [stretches[-1].stop]
    shard.copied(log, stretches, owner)  # Redis was set back
    assert drained(shard.drain()) == 0
    assert shard.steps(log) == [stretches[-1].stop]


def test_a_gap_in_redis_waits_for_the_disk(shard: Shard) -> None:
    log = shard.place.begin()
    stretches = shard.stretches([1] * 5)
    written(log, stretches)
    log.close()
    owner, _ = owner_of(shard.link, 5, node=2)
    end_session(shard.link, owner)
    shard.copied(log.uuid, stretches[:2] + stretches[3:], owner)
    other = shard.elsewhere()
    assert drained(other) == 2
    assert shard.stored() == ids(stretches[:2])
    assert drained(shard.drain()) == 3
    assert shard.stored() == ids(stretches)
    assert drained(other) == 0
    assert shard.copies.listed() == []


def test_who_comes_back_and_who_flushes_for_him_do_not_double(shard: Shard) -> None:
    """One has the disk, two have Redis, all at once."""
    log = shard.place.begin()
    stretches = shard.stretches([1] * 300)
    written(log, stretches)
    log.close()
    owner, _ = owner_of(shard.link, 5, node=2)
    end_session(shard.link, owner)
    shard.copied(log.uuid, stretches, owner)
    begin = threading.Barrier(3)

    def job(drain: Drain) -> Callable[[], int]:
        def work() -> int:
            begin.wait()
            return drained(drain)

        return work

    counts = together([job(one) for one in (shard.drain(), shard.elsewhere(), shard.elsewhere())])
    assert sum(counts) <= 300  # of some a flusher was not told
    assert shard.stored() == ids(stretches)


def test_a_log_that_cannot_be_read_is_left_and_told(shard: Shard, tmp_path: Path, caplog) -> None:
    log = shard.place.begin(8 << 10)
    written(log, shard.stretches([1] * 150))
    log.close()
    segments = sorted((tmp_path / "mine" / log.uuid.hex).glob("seg-*"))
    segments[1].unlink()
    assert drained(shard.drain()) == 0
    assert "is left as it is" in caplog.text
    assert shard.place.left() == [log.uuid]
