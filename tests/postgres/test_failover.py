"""Several servers hold one shard: links find the primary, refuse who was overtaken, and never take another's server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Outdated, Stranger
from mqueue.log.postgres.seen import Seen, Sight
from mqueue.model.errors import BadSetting, ShardDown
from mqueue.testing import PostgresServer, Replicas
from tests.postgres.shards import wait_until


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicas]:
    """A primary and a standby, which change places from one test to the next."""
    with Replicas(2, synchronous=False) as pair:
        yield pair


@pytest.fixture
def linked() -> Iterator[Callable[..., Link]]:
    made: list[Link] = []

    def link(url: str, **settings: object) -> Link:
        made.append(Link(url, "failover", **settings))  # type: ignore[arg-type]
        return made[-1]

    yield link
    for one in made:
        one.close()


def test_who_names_several_hosts_finds_the_primary(pair: Replicas, linked: Callable[..., Link]) -> None:
    places = ",".join(f"127.0.0.1:{server.port}" for server in reversed(pair.servers))
    password = pair.primary.password
    hosts, ports = zip(*(place.split(":") for place in places.split(",")), strict=True)
    for dsn in (
        pair.url(),
        f"postgresql://postgres:{password}@{places}/postgres",
        f"host={','.join(hosts)} port={','.join(ports)} user=postgres password={password} dbname=postgres",
    ):
        link = linked(dsn)
        ((port,),) = link.call("select inet_server_port()")
        assert port == pair.primary.port
    assert link.server == f"{places}/postgres"


def test_who_names_a_standby_only_is_told_so(pair: Replicas, linked: Callable[..., Link]) -> None:
    [standby] = pair.standbys()
    link = linked(standby.url())
    for _ in range(2):  # also while the pause lasts
        with pytest.raises(ShardDown, match="is a standby") as caught:
            link.call("select 1")
        assert (caught.value.code, caught.value.applied, caught.value.retryable) == ("shard_down", False, True)


def test_hosts_of_different_systems_are_not_one_shard(
    pair: Replicas, postgres: PostgresServer, linked: Callable[..., Link]
) -> None:
    """With the same password, so that both let us in."""
    postgres.run(f"create role twin superuser login password '{pair.primary.password}'")
    pair.primary.run(f"create role twin superuser login password '{pair.primary.password}'")
    places = f"127.0.0.1:{postgres.port},127.0.0.1:{pair.primary.port}"
    link = linked(f"postgresql://twin:{pair.primary.password}@{places}/postgres")
    with pytest.raises(Stranger, match="different PostgreSQL systems") as caught:
        link.call("select 1")
    assert caught.value.code == "other_system"
    known = linked(pair.url())
    known.call("select 1")
    with pytest.raises(Stranger, match="another server"):
        linked(postgres.url(), seen=known.seen).call("select 1")


def test_hosts_and_ports_that_do_not_match_are_refused() -> None:
    with pytest.raises(BadSetting, match="names 3 hosts, but 2 values of port"):
        Link("host=a,b,c port=1,2 dbname=x", "x")


def test_the_promoted_is_found_and_the_old_primary_is_refused(pair: Replicas, linked: Callable[..., Link]) -> None:
    """The old one comes back as if nothing had happened: first in the list, and it would let everybody in."""
    pair.rejoin()
    seen = Seen()
    link, other = linked(pair.url(), seen=seen), linked(pair.url(), seen=seen)
    old = pair.primary
    alone = linked(old.url(), seen=seen)
    for one in (link, other, alone):
        one.call("select 1")
    before = link.reach()
    pair.fail_over()
    wait_until(lambda: _works(link))
    after = link.reach()
    assert after.sight.timeline == before.sight.timeline + 1, "also before there was a checkpoint"
    assert before.outlived_by(after)
    assert other.call("select inet_server_port()") == [(pair.primary.port,)], "at once: the other has found it"
    old.start()
    try:
        assert old.run("select pg_is_in_recovery()") == "f", "it takes itself for the primary"
        for one in (alone, linked(old.url(), seen=seen)):
            with pytest.raises(Outdated, match=r"on timeline \d, but \d was seen") as caught:
                wait_until(lambda one=one: _works(one, Outdated))
            assert (caught.value.code, caught.value.applied) == ("old_timeline", False)
        for one in (link, other, linked(pair.url(), seen=seen), linked(pair.url())):
            one.close()
            assert one.call("select inet_server_port()") == [(pair.primary.port,)], "who starts afresh asks all of them"
    finally:
        old.kill()


def test_who_is_connected_lets_go_when_others_have_seen_more(pair: Replicas, linked: Callable[..., Link]) -> None:
    link = linked(pair.url())
    link.call("select 1")
    sight = link.reach().sight
    link.seen.learn(Sight(sight.system + 1, sight.timeline + 9))
    assert link.call("select 1") == [(1,)], "of another system: that means nothing"
    link.seen.learn(Sight(sight.system, sight.timeline + 1))
    with pytest.raises(Outdated):
        link.call("select 1")


def test_a_server_that_was_set_back_is_refused(pair: Replicas, linked: Callable[..., Link]) -> None:
    link = linked(pair.url())
    sight = link.reach().sight
    link.seen.learn(Sight(sight.system, sight.timeline, sight.position + (1 << 19)))
    link.close()
    link.call("select 1")
    link.seen.learn(Sight(sight.system, sight.timeline, sight.position + (1 << 28)))
    link.close()
    with pytest.raises(Outdated, match="set back") as caught:
        link.call("select 1")
    assert caught.value.code == "set_back"


def test_what_was_seen_never_falls() -> None:
    seen = Seen()
    seen.learn(Sight(7, 3, 100))
    for lower in (Sight(7, 2, 900), Sight(7, 3, 50), Sight(8, 9, 900)):
        seen.learn(lower)
        assert seen.sight == Sight(7, 3, 100)
    seen.learn(Sight(7, 4, 10))
    assert seen.sight == Sight(7, 4, 10), "a promotion may lose what no standby had"


def _works(link: Link, *raised: type[Exception]) -> bool:
    try:
        link.call("select 1")
    except raised:
        raise
    except ShardDown:
        return False
    return True
