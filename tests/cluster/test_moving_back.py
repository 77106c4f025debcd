"""A source comes back from a backup, or is promoted without what it had last, while a mover has begun: nothing of what
was copied before is taken for what it has now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from mqueue.cluster.moving.fleet import Fleet
from mqueue.cluster.moving.heeding import Server
from mqueue.cluster.moving.mover import STEPS, Mover
from mqueue.log.postgres import appends, catalog, migrate, moving, witness
from mqueue.log.postgres.link import Link, apart
from mqueue.log.postgres.seen import Sight
from mqueue.model.errors import Unavailable
from mqueue.testing import PostgresServer, Replicas
from tests.cluster.test_moving import CLUSTER, VSHARD, Died, Shard, contents, dies_at
from tests.postgres.shards import DAY_MS, end_session, new_topic, owner_of, sheet

_NUMBERS = count(1)


class Place:
    """Two servers of a cluster, of which the first can be set back."""

    def __init__(self, postgres: PostgresServer, urls: Sequence[str] = ()) -> None:
        self._postgres = postgres
        self._made: list[Link] = []
        self.urls = list(urls) or [postgres.create(f"back_{next(_NUMBERS)}") for _ in range(2)]
        for place in range(2):
            link = self.link(place)
            migrate.migrate(link)
            migrate.assign(link, place, 2, CLUSTER)

    def link(self, place: int) -> Link:
        self._made.append(Link(self.urls[place], f"back{len(self._made)}", 60_000))
        return self._made[-1]

    def both(self) -> tuple[Server, Server]:
        return Server(0, self.link(0)), Server(1, self.link(1))

    def keep(self) -> str:
        """A backup of the first as it is now."""
        self.close()
        self._postgres.create(name := f"back_{next(_NUMBERS)}", self.urls[0].rpartition("/")[2].partition("?")[0])
        return name

    def set_back(self, kept: str) -> None:
        self.close()
        self.urls[0] = self._postgres.create(f"back_{next(_NUMBERS)}", kept)

    def close(self) -> None:
        for link in self._made:
            link.close()


@pytest.fixture
def place(postgres: PostgresServer) -> Iterator[Place]:
    found = Place(postgres)
    yield found
    found.close()


def _own_again(shard: Shard, link: Link) -> None:
    shard.link = link
    end_session(link, shard.owner)
    shard.owner, epochs = owner_of(link, VSHARD)
    shard.epoch = epochs[VSHARD]


def _publish(shard: Shard) -> None:
    appends.append(shard.link, [sheet(shard.topics[0], 5)], None)


def _make(shard: Shard) -> None:
    new_topic(shard.link, "made meanwhile", VSHARD)


def _configure(shard: Shard) -> None:
    catalog.set_topic(shard.link, shard.owner, shard.epoch, shard.topics[0], b"others")


def _nothing(shard: Shard) -> None:
    pass


@pytest.mark.parametrize("after", [Shard.work, _nothing], ids=["goes on", "stays"])
@pytest.mark.parametrize("before", [Shard.work, Shard.note, Shard.point, _publish, _make, _configure])
def test_what_the_source_has_lost_is_not_kept(
    place: Place, before: Callable[[Shard], None], after: Callable[[Shard], None]
) -> None:
    """`before`: what is copied and lost. `after`: what the source does once it is back."""
    shard = Shard(place.link(0))
    shard.note()  # there is no checkpoint behind it yet
    backup = place.keep()
    before(shard)
    with pytest.raises(Died):
        list(Mover(*place.both(), told=dies_at("copied")).move([VSHARD]))
    place.set_back(backup)
    _own_again(shard, place.link(0))
    after(shard)
    expected = contents(shard.link)
    assert [done.vshards for done in Mover(*place.both()).go_on()] == [(VSHARD,)]
    assert contents(place.link(1)) == expected


def test_keys_of_messages_that_never_came_are_not_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied after frames, so some may be of later ones."""
    shard = Shard(place.link(0))
    backup = place.keep()
    keyed = moving.keyed

    def later(link: Link, topics: Sequence[int], since: int) -> list[int]:
        monkeypatch.setattr(moving, "keyed", keyed)
        keys = ((0, b"lost", b"digest", 3, 0),)
        appends.append(shard.link, [sheet(shard.topics[0], keys=keys)], None, windows={shard.topics[0]: 9 * DAY_MS})
        return keyed(link, topics, since)

    monkeypatch.setattr(moving, "keyed", later)
    with pytest.raises(Died):
        list(Mover(*place.both(), told=dies_at("copied")).move([VSHARD]))
    assert b"lost" in {row[1] for row in contents(place.link(1))["idempotency"]}
    place.set_back(backup)
    expected = contents(place.link(0))
    list(Mover(*place.both()).go_on())
    assert contents(place.link(1)) == expected


def test_what_was_copied_of_one_that_is_empty_now_goes(place: Place) -> None:
    backup = place.keep()
    Shard(place.link(0))
    with pytest.raises(Died):
        list(Mover(*place.both(), told=dies_at("copied")).move([VSHARD]))
    place.set_back(backup)
    assert [done.vshards for done in Mover(*place.both()).move([VSHARD])] == [(VSHARD,)]
    assert not any(contents(place.link(1)).values())


def test_what_is_the_same_is_not_copied_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard(place.link(0))
    with pytest.raises(Died):
        list(Mover(*place.both(), told=dies_at("left")).move([VSHARD]))
    taken: list[Any] = []
    take = moving.take_frames

    def noted(link: Link, vshard: int, frames: Sequence[moving.Frame], *, kept: bool = False) -> None:
        taken.extend(frames)
        take(link, vshard, frames, kept=kept)

    monkeypatch.setattr(moving, "take_frames", noted)
    expected = contents(shard.link)
    assert [done.copied.frames for done in Mover(*place.both()).finish()] == [0]
    assert not taken
    assert contents(place.link(1)) == expected


@pytest.mark.parametrize("overtaken", [0, 1])
@pytest.mark.parametrize("step", ["expected", "copied", "left", "rested", "activated"])
def test_who_was_overtaken_is_not_moved_from_nor_to(place: Place, step: str, overtaken: int) -> None:
    """Nodes have noted at the other server that there is a later primary."""
    shard = Shard(place.link(0))
    expected = contents(shard.link)

    def told(vshards: Sequence[int], name: str) -> None:
        if name == step:
            seen = place.link(overtaken).reach().sight
            later = Sight(seen.system, seen.timeline + 1)
            witness.note_sightings(place.link(1 - overtaken), [(overtaken, later)])

    with pytest.raises(Unavailable) as lost:
        list(Mover(*place.both(), told=told).move([VSHARD]))
    assert lost.value.code == "mover_lost"
    states = [{row.vshard: row for row in moving.rows(place.link(number))}[VSHARD] for number in range(2)]
    assert (states[0].state == "active") == (step in STEPS[:2])
    assert (states[1].state == "active") == (step == "activated")
    assert states[0].remains != "free", "what is at the source may be all that there is"
    assert contents(place.link(0)) == expected


@pytest.mark.parametrize("overtaken", [0, 1])
def test_a_mover_asks_the_other_hosts_whether_one_was_promoted(postgres: PostgresServer, overtaken: int) -> None:
    with Replicas(2, synchronous=False) as several:
        urls = [postgres.create(f"back_{next(_NUMBERS)}")]
        urls.insert(overtaken, several.create("back"))
        place = Place(postgres, urls)
        shard = Shard(place.link(0))
        fleet = Fleet([place.link(number) for number in range(2)], [apart(url) for url in urls])

        def told(vshards: Sequence[int], name: str) -> None:
            if name == "copied":
                here = several.primary.run("select pg_current_wal_lsn()")
                caught_up = f"select count(*) from pg_stat_replication where replay_lsn >= '{here}'"
                several.wait_for(lambda: several.primary.run(caught_up) == "1")
                several.promote()

        try:
            with pytest.raises(Unavailable) as lost:
                list(Mover(*fleet.servers, told=told).move([VSHARD]))
            assert lost.value.code == "mover_lost"
            _own_again(shard, place.link(0))
            shard.work()
            expected = contents(shard.link)
            fleet.check()
            assert [done.vshards for done in fleet.resume()] == [(VSHARD,)]
            assert contents(place.link(1)) == expected
        finally:
            place.close()
