"""A virtual shard goes from one server to another, whatever happens to who moves it: all of it arrives, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest

from mqueue.cluster.map import judge
from mqueue.cluster.moving.heeding import Server
from mqueue.cluster.moving.mover import STEPS, Mover
from mqueue.log.postgres import appends, catalog, journal, migrate, moving, owning, retention, transactions
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Fenced, Moved
from mqueue.model.errors import Conflict, Refused, Unavailable
from mqueue.model.events import Duplicated
from mqueue.policy.routing import virtual_shard
from mqueue.testing import PostgresServer
from mqueue.wire import journal as events_as_bytes
from tests.cluster.patience import wait_until
from tests.postgres.shards import DAY_MS, DEADLINE_SECONDS, NOON_MS, in_thread, new_topic, owner_of, sheet

CLUSTER = UUID(int=7)
VSHARD = 4
_NUMBERS = count(1)


class Died(Exception):
    """What happens to who moves something."""


@pytest.fixture(scope="session")
def migrated(postgres: PostgresServer) -> str:
    link = Link(postgres.create("moving_template"), "template")
    migrate.migrate(link)
    link.close()
    return "moving_template"


@pytest.fixture
def servers(postgres: PostgresServer, migrated: str) -> Iterator[Callable[..., list[Server]]]:
    """`servers()`: links of one's own to the same two servers; `servers(3)`: and to a third one, which joined later."""
    urls: list[str] = []
    made: list[Link] = []

    def links(wanted: int = 2) -> list[Server]:
        while len(urls) < wanted:
            urls.append(postgres.create(f"moving_{next(_NUMBERS)}", migrated))
            link = Link(urls[-1], "place")
            if len(urls) > 2:
                migrate.join(link, len(urls) - 1, CLUSTER)
            else:
                migrate.assign(link, len(urls) - 1, 2, CLUSTER)
            link.close()
        found = [Server(place, Link(url, f"test{len(made)}", 60_000)) for place, url in enumerate(urls[:wanted])]
        made.extend(server.link for server in found)
        return found

    yield links
    for link in made:
        link.close()


class Shard:
    """Virtual shard 4 with something of everything, and an owner who goes on working while it moves."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.topics = [new_topic(link, name, VSHARD) for name in ("orders", "orders.dlq")]
        self.owner, epochs = owner_of(link, VSHARD)
        self.epoch = epochs[VSHARD]
        self._now = int(link.call("select mqueue.now_ms()")[0][0])
        self._keys = count()
        self.map_epoch = 1
        for _ in range(3):
            self.work()
        retention.trim(
            link, self.owner, self.epoch, self.topics[0], [3], [retention.Kept(0, 0, 2, 1, NOON_MS, 20, b"h", b"kept")]
        )
        self.point()
        transactions.settle_home(link, "default", _name_at(VSHARD), 9, NOON_MS)
        self.work()

    def follow(self, link: Link) -> None:
        """The virtual shard lives elsewhere now."""
        before, self.link = self.epoch, link
        self.owner, epochs = owner_of(link, VSHARD)
        self.epoch = epochs[VSHARD]
        assert self.epoch > before, "tokens of later owners are greater"
        self.map_epoch += 1

    def work(self) -> None:
        """A day later: frames in two partitions with keys, a row in the journal, something late."""
        self._now += DAY_MS // 2
        for topic in self.topics:
            keys = tuple((row, b"key%d" % next(self._keys), b"digest", 3, 0) for row in range(3))
            sheets = [
                sheet(topic, number, keys=these, map_epoch=self.map_epoch) for number, these in ((0, keys), (5, ()))
            ]
            appends.append(self.link, sheets, self._now, windows={topic: DAY_MS})
        self.note()

    def note(self) -> None:
        seq = journal.last_seq(self.link, VSHARD) + 1
        body = events_as_bytes.encode([Duplicated(self._now, self.topics[0], 0, seq)])
        entry = journal.Entry(VSHARD, self.epoch, seq, self._now, body, ((self.topics[0], 0, 0),))
        late = (VSHARD, self.epoch, self.topics[0], 0, 3 * seq, 3, self._now + 1)
        journal.commit(self.link, self.owner, [entry], [], None, late=[late])

    def point(self) -> None:
        seq = journal.last_seq(self.link, VSHARD)
        journal.point(self.link, self.owner, VSHARD, self.epoch, seq, self._now, b"state at %d" % seq)

    def claim_again(self) -> None:
        """A key whose window is over is used for another message."""
        self._now += 2 * DAY_MS
        again = sheet(self.topics[0], 0, keys=((0, b"key0", b"other", 3, 0),), map_epoch=self.map_epoch)
        appends.append(self.link, [again], self._now, windows={self.topics[0]: DAY_MS})


def _name_at(vshard: int) -> str:
    return next(name for name in map("tx{}".format, range(100_000)) if virtual_shard("default", name) == vshard)


def contents(link: Link) -> dict[str, list[tuple[Any, ...]]]:
    """All that a server has of virtual shard 4."""
    mine = "topic_id in (select topic_id from mqueue.topics where vshard = 4 and deleted_at is null)"
    rows = {
        "topics": "select topic_id, namespace, name, settings, first_settings, made_at, hidden, version "
        "from mqueue.topics where vshard = 4 and deleted_at is null",
        "journal": "select * from mqueue.journal where vshard = 4",
        "checkpoints": "select * from mqueue.checkpoints where vshard = 4",
        "transactions": "select * from mqueue.transactions where mqueue.vshard_of(namespace, name) = 4",
    }
    for table in ("frames_kept", "floors", "late", "idempotency", "journal_index"):
        rows[table] = f"select * from mqueue.{table} where {mine}"
    rows["frames"] = (
        f"select f.* from mqueue.frames f left join mqueue.floors o using (topic_id, part) where {mine} "
        "and base + count > coalesce(floor, 0)"
    )
    return {name: sorted(link.call(sql)) for name, sql in rows.items()}


def dies_at(step: str) -> Callable[[Sequence[int], str], None]:
    def told(vshards: Sequence[int], name: str) -> None:
        if name == step:
            raise Died

    return told


def test_everything_arrives_while_more_is_added(servers) -> None:
    source, there = servers()[0], servers(3)[2]
    shard = Shard(servers()[0].link)

    def told(vshards: Sequence[int], step: str) -> None:
        if step == "expected":
            shard.work()
        if step == "copied":
            shard.work()
            shard.claim_again()
            shard.point()
            catalog.drop_topic(shard.link, shard.owner, shard.epoch, shard.topics[1], NOON_MS)
            new_topic(shard.link, "orders.dlq", VSHARD)
        if step == "left":
            expected.update(contents(shard.link))

    expected: dict[str, list[tuple[Any, ...]]] = {}
    (done,) = Mover(source, there, told=told).move([VSHARD])
    assert done.vshards == (VSHARD,)
    assert all(expected.values()), "there is something of everything"
    assert contents(there.link) == expected
    assert not any(contents(servers()[0].link).values())
    with pytest.raises(Moved):
        appends.append(shard.link, [sheet(shard.topics[0])], None)
    with pytest.raises(Moved):
        new_topic(shard.link, "more", VSHARD)
    with pytest.raises(Moved):
        transactions.settle_home(shard.link, "default", _name_at(VSHARD), 9, NOON_MS)
    with pytest.raises(Fenced):
        shard.note()


def test_a_key_that_waited_for_another_virtual_shard_arrives(servers) -> None:
    """It has the time at which its statement began, which is before what was copied first; and is claimed after it."""
    source, target = servers()
    link, other, gate = (servers()[0].link for _ in range(3))
    first, second = new_topic(link, "waits", VSHARD - 2), new_topic(link, "orders", VSHARD)
    claimed = sheet(second, keys=((0, b"key", b"digest", 3, 0),))
    appends.append(link, [sheet(first, vshard=VSHARD - 2)], None)  # and makes the tables of the day
    gate.call("select pg_advisory_lock(%b::bigint)", (VSHARD - 2,))
    asked = in_thread(lambda: appends.append(link, [sheet(first, vshard=VSHARD - 2), claimed], None))
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = %b"
    wait_until(lambda: other.call(waiting, (VSHARD - 2,))[0][0] == 1)
    begun = other.call("select mqueue.now_ms()")[0][0]
    wait_until(lambda: other.call("select mqueue.now_ms()")[0][0] > begun + 2_000)

    def told(vshards: Sequence[int], step: str) -> None:
        if step == "copied":
            gate.call("select pg_advisory_unlock(%b::bigint)", (VSHARD - 2,))
            assert asked.result(DEADLINE_SECONDS) is not None

    list(Mover(source, target, told=told).move([VSHARD]))
    assert target.link.call("select topic_id, key from mqueue.idempotency") == [(second, b"key")]


def test_what_a_mover_has_seen_before_another_took_over_does_not_count(servers, monkeypatch) -> None:
    """It stands still when it has read which topics there are, for so long that its connections are closed."""
    source, target = servers()
    shard = Shard(servers()[0].link)
    read = moving.topics

    def stands_still(link: Link, vshard: int) -> list[moving.Topic]:
        found = read(link, vshard)
        monkeypatch.setattr(moving, "topics", read)
        source.link.close()
        new_topic(shard.link, "made meanwhile", VSHARD)
        with pytest.raises(Died):
            list(Mover(*servers(), told=dies_at("copied")).move([VSHARD]))
        return found

    monkeypatch.setattr(moving, "topics", stands_still)
    with pytest.raises(Unavailable) as lost:
        list(Mover(source, target).move([VSHARD]))
    assert lost.value.code == "mover_lost"
    expected = contents(shard.link)
    list(Mover(*servers()).go_on())
    assert contents(target.link) == expected


def test_a_mover_that_stood_still_writes_nothing_more(servers, monkeypatch) -> None:
    """It stands still when it is about to say which topics there are. Its line to the source is gone by then, that to
    the target is not; others have undone what it began, and begun anew."""
    source, target = servers()
    shard = Shard(servers()[0].link)
    take = moving.take_topics

    def stands_still(link: Link, vshard: int, topics: Sequence[moving.Topic]) -> None:
        monkeypatch.setattr(moving, "take_topics", take)
        source.link.close()
        new_topic(shard.link, "made meanwhile", VSHARD)
        assert Mover(*servers()).undo() == [VSHARD]
        with pytest.raises(Died):
            list(Mover(*servers(), told=dies_at("copied")).move([VSHARD]))
        take(link, vshard, topics)

    monkeypatch.setattr(moving, "take_topics", stands_still)
    with pytest.raises(Unavailable) as lost:
        list(Mover(source, target).move([VSHARD]))
    assert lost.value.code == "mover_lost"
    assert "made meanwhile" in {topic.name for topic in moving.topics(target.link, VSHARD)}
    expected = contents(shard.link)
    list(Mover(*servers()).go_on())
    assert contents(target.link) == expected


def test_who_was_followed_while_he_took_the_locks_does_nothing(servers, monkeypatch) -> None:
    """It stands still between the two: another has both by then, and loses that of the target to it."""
    source, target = servers()
    shard = Shard(servers()[0].link)
    succeed = moving.succeed
    others = Mover(*servers()).move([0, VSHARD])

    def stands_still(link: Link, place: int) -> bool:
        monkeypatch.setattr(moving, "succeed", succeed)
        source.link.close()
        assert next(others).vshards == (0,)
        return succeed(link, place)

    monkeypatch.setattr(moving, "succeed", stands_still)
    with pytest.raises(Unavailable) as lost:
        list(Mover(source, target).move([2]))
    assert lost.value.code == "mover_lost"
    with pytest.raises(Unavailable) as ended:
        list(others)
    assert ended.value.code == "mover_lost"
    expected = contents(shard.link)
    assert [done.vshards for done in Mover(*servers()).move([2, VSHARD])] == [(2,), (VSHARD,)]
    assert contents(target.link) == expected


def test_what_left_again_is_not_released_by_who_moved_it_before(servers) -> None:
    """It stands still when it is done but for that. What lies at the source is needed by then."""
    shard = Shard(servers(3)[0].link)
    first, second, third = servers(3)
    expected: dict[str, list[tuple[Any, ...]]] = {}

    def told(vshards: Sequence[int], step: str) -> None:
        if step == "activated":
            first.link.close()
            list(Mover(*servers(2)).go_on())
            list(Mover(servers()[1], servers()[0]).move([VSHARD]))
            expected.update(contents(servers()[0].link))
            with pytest.raises(Died):
                list(Mover(servers()[0], servers(3)[2], told=dies_at("left")).move([VSHARD]))

    with pytest.raises(Unavailable) as lost:
        list(Mover(first, second, told=told).move([VSHARD]))
    assert lost.value.code == "mover_lost"
    assert {row.vshard: row.remains for row in moving.rows(first.link)}[VSHARD] == "needed"
    list(Mover(servers()[0], servers(3)[2]).go_on())
    assert contents(third.link) == expected
    assert shard.topics


def test_movers_that_die_are_followed_by_others(servers) -> None:
    """At every step, there and back: what had been left behind by the last one does no harm."""
    places = [0, 1]
    shard = Shard(servers()[0].link)
    for step in STEPS:
        with pytest.raises(Died):
            list(Mover(*(servers()[place] for place in places), told=dies_at(step)).move([VSHARD]))
        if step in STEPS[:2]:
            shard.work()
            shard.claim_again()
        expected = contents(shard.link)
        list(Mover(*(servers()[place] for place in places)).go_on())
        assert not any(contents(shard.link).values()), step
        places.reverse()
        shard.follow(servers()[places[0]].link)
        assert contents(shard.link) == expected, step
        found = judge({server.place: moving.rows(server.link) for server in servers()}, 2)
        assert (found.homes[VSHARD], found.moves, found.troubles) == (places[0], (), ()), step
        shard.work()


def test_a_move_is_undone_before_it_has_left(servers) -> None:
    source, target = servers()
    shard = Shard(servers()[0].link)
    with pytest.raises(Died):
        list(Mover(source, target, told=dies_at("copied")).move([VSHARD]))
    assert Mover(*servers()).undo() == [VSHARD]
    shard.work()
    expected = contents(shard.link)
    assert not any(contents(target.link).values())
    assert [done.vshards for done in Mover(*servers()).move([VSHARD])] == [(VSHARD,)]
    assert contents(target.link) == expected
    assert Mover(*servers()).undo() == [], "it has left"


def test_those_that_have_nothing_go_at_once(servers) -> None:
    steps: list[tuple[str, int]] = []
    source, target = servers()[0], servers(3)[2]
    shard = Shard(servers()[0].link)

    def told(vshards: Sequence[int], step: str) -> None:
        steps.append((step, len(vshards)))
        if step == "expected" and len(vshards) > 1:
            new_topic(shard.link, "just made", 6)

    done = list(Mover(source, target, told=told).move([0, 2, 4, 6, 8]))
    assert [one.vshards for one in done] == [(0, 2, 8), (4,), (6,)]
    assert steps[:3] == [("expected", 4), ("left", 4), ("activated", 3)]
    assert [row.name for row in catalog.topics_of(target.link, [6])] == ["just made"]
    assert owning.unowned(target.link) == [0, 2, 4, 6, 8]
    assert 0 not in owning.unowned(source.link)


def test_many_that_have_left_are_brought_to_their_end(servers) -> None:
    with pytest.raises(Died):
        list(Mover(*servers(), told=dies_at("left")).move([0, 2, 8]))
    assert [one.vshards for one in Mover(*servers()).finish()] == [(0,), (2,), (8,)]
    assert owning.unowned(servers()[1].link)[:4] == [0, 1, 2, 3]


def test_what_has_left_is_finished_before_more_is_moved(servers) -> None:
    with pytest.raises(Died):
        list(Mover(*servers(), told=dies_at("left")).move([2]))
    assert [one.vshards for one in Mover(*servers()).move([0])] == [(2,), (0,)]


def test_one_mover_at_a_time(servers) -> None:
    source, target = servers()
    moves = Mover(source, target).move([0])
    assert next(moves).vshards == (0,)
    with pytest.raises(Unavailable, match="somebody is moving") as busy:
        list(Mover(*servers()).move([2]))
    assert busy.value.code == "mover_busy"
    assert list(moves) == []
    assert [done.vshards for done in Mover(*servers()).move([2])] == [(2,)]


def test_a_mover_whose_line_broke_does_not_go_on(servers) -> None:
    source, target = servers()
    shard = Shard(servers()[0].link)

    def told(vshards: Sequence[int], step: str) -> None:
        if step == "copied":
            source.link.close()

    with pytest.raises(Unavailable) as lost:
        list(Mover(source, target, told=told).move([VSHARD]))
    assert lost.value.code == "mover_lost"
    shard.work()


def test_numbers_of_topics_are_unique_over_servers(servers) -> None:
    made = [new_topic(server.link, "t", vshard) for server, vshard in zip(servers(), (4, 5), strict=True)]
    list(Mover(servers()[0], servers(3)[2]).move([6]))
    made.append(new_topic(servers(3)[2].link, "u", 6))
    assert [number >> 24 for number in made] == [0, 1, 2]


def test_a_topic_whose_number_is_taken_stays(servers) -> None:
    """Of two clusters that were one before numbers were unique."""
    source, target = servers()
    shard = Shard(servers()[0].link)
    target.link.call(
        "insert into mqueue.topics (topic_id, namespace, name, vshard, settings, first_settings, made_at, hidden) "
        "overriding system value values (%b, 'default', 'other', 5, '', '', 1, false)",
        (shard.topics[1],),
    )
    with pytest.raises(Conflict) as taken:
        list(Mover(source, target).move([VSHARD]))
    assert taken.value.code == "topic_taken"
    assert str(shard.topics[1]) in taken.value.message
    shard.work()
    assert Mover(*servers()).undo() == [VSHARD]
    assert [row.name for row in catalog.topics_of(target.link, None)] == ["other"]


def test_what_cannot_be_moved_is_refused(servers) -> None:
    with pytest.raises(Refused, match="server 0 is where they are already"):
        Mover(servers()[0], servers()[0])
    with pytest.raises(Died):
        list(Mover(servers()[0], servers()[1], told=dies_at("left")).move([0]))
    with pytest.raises(Died):
        list(Mover(servers()[0], servers()[1], told=dies_at("expected")).move([2]))
    assert list(Mover(servers()[0], servers(3)[2]).move([0])) == [], "it is not there any more"
    list(Mover(servers()[0], servers(3)[2]).move([2]))
    found = judge({server.place: moving.rows(server.link) for server in servers(3)}, 3)
    assert found.homes[2] == 2


def test_nodes_that_do_not_know_the_target_are_named(servers) -> None:
    source, target = servers()
    owning.beat(source.link, uuid4(), 7, "http://seven", 60_000)
    with pytest.raises(Refused, match="1 nodes have no session at server 1, ") as missing:
        Mover(source, target).check_nodes()
    assert missing.value.code == "node_missing"
    owning.beat(target.link, uuid4(), 7, "http://seven", 60_000)
    with pytest.raises(Refused, match="1 nodes do not know that virtual shards move, such as node http://seven") as old:
        Mover(source, target).check_nodes()
    assert old.value.code == "node_old"


def test_no_day_is_dropped_where_something_comes_in(servers) -> None:
    """Its frames have no topic there that would keep them."""
    source, target = servers()
    shard = Shard(servers()[0].link)
    with pytest.raises(Died):
        list(Mover(source, target, told=dies_at("copied")).move([VSHARD]))
    days = [day for (day,) in target.link.call("select distinct day from mqueue.frames order by 1")]
    assert days
    assert not any(retention.retire(target.link, day) or retention.retire_journal(target.link, day) for day in days)
    expected = contents(shard.link)
    list(Mover(*servers()).go_on())
    assert contents(target.link) == expected


def test_virtual_shards_of_names_are_the_same_in_sql(servers) -> None:
    link = servers()[0].link
    for namespace, name in [("default", "a"), ("x", "b.dlq"), ("x", ".dlq"), ("ü", "größe.dlq"), ("", "")]:
        found = link.call("select mqueue.vshard_of(%b::text, %b::text)", (namespace, name))
        assert found == [(virtual_shard(namespace, name),)]
