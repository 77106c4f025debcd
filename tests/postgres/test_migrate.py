"""The schema is made once, whoever comes first; a server with another schema or another place is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from mqueue.log.postgres import migrate as module
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.migrate import assign, check, latest, migrate
from mqueue.log.postgres.owning import unowned
from mqueue.model.errors import BadSetting
from mqueue.testing import PostgresServer
from tests.postgres.shards import together

CLUSTER = UUID(int=7)


@pytest.fixture
def empty(database: str) -> Iterator[Callable[[], Link]]:
    """Connections to a database with nothing in it."""
    made: list[Link] = []

    def link() -> Link:
        made.append(Link(database, "empty", 60_000))
        return made[-1]

    yield link
    for one in made:
        one.close()


def test_a_fresh_database_gets_the_schema_once(empty: Callable[[], Link]) -> None:
    link = empty()
    with pytest.raises(BadSetting, match=f"{link.server} is not there; this mqueue needs {latest()}: migrate it first"):
        check(link)
    with pytest.raises(BadSetting, match="no schema mqueue"):
        migrate(link, create=False)
    assert migrate(link) == list(range(1, latest() + 1))
    assert migrate(link) == migrate(link, create=False) == []
    assert check(link) == latest()


def test_two_that_migrate_at_once_do_it_once(empty: Callable[[], Link]) -> None:
    done = together([lambda own=own: migrate(own) for own in (empty(), empty(), empty())])
    assert sorted(number for numbers in done for number in numbers) == list(range(1, latest() + 1))


def test_a_newer_schema_is_left_alone(link: Link) -> None:
    link.call("update mqueue.meta set value = '99' where key = 'schema'")
    for verb in (check, migrate):
        with pytest.raises(BadSetting, match=f"of version 99; this mqueue knows {latest()}"):
            verb(link)


def test_an_older_schema_is_migrated(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {**module._scripts(), latest() + 1: "create table mqueue.more (x int);"}
    monkeypatch.setattr(module, "_scripts", lambda: scripts)
    with pytest.raises(BadSetting, match=f"of version {max(scripts) - 1}; this mqueue needs {max(scripts)}"):
        check(link)
    assert migrate(link) == [max(scripts)]
    assert link.call("select count(*) from mqueue.more") == [(0,)]


def test_a_migration_that_fails_leaves_nothing(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {**module._scripts(), latest() + 1: "create table mqueue.half (x int); select 1 / 0;"}
    monkeypatch.setattr(module, "_scripts", lambda: scripts)
    with pytest.raises(Exception, match="division by zero"):
        migrate(link)
    assert link.call("select to_regclass('mqueue.half')") == [(None,)]
    assert module.version_of(link) == max(scripts) - 1


def test_who_may_not_make_a_schema_is_told(postgres: PostgresServer, database: str) -> None:
    name = database.rsplit("/", 1)[1]
    postgres.run(f"create role visitor_{name} login password 'hush-hush'")
    link = Link(postgres.url(name, f"visitor_{name}", "hush-hush"), "visitor")
    try:
        with pytest.raises(BadSetting, match=f"{link.server} does not allow it: permission denied for database"):
            migrate(link)
        assert module.version_of(link) == 0
    finally:
        link.close()


def test_virtual_shards_are_spread_over_the_servers(empty: Callable[[], Link]) -> None:
    link = empty()
    migrate(link)
    assign(link, 1, 3, CLUSTER)
    assert unowned(link)[:3] == [1, 4, 7]
    link.call("delete from mqueue.vshards where vshard = 4")
    assign(link, 1, 3, CLUSTER)
    assert unowned(link)[:3] == [1, 7, 10], "only at the first start"


@pytest.mark.parametrize(
    ("place", "places", "cluster", "why"),
    [
        (1, 2, UUID(int=1), "is shard 0 of 1, not 1 of 2"),
        (0, 1, CLUSTER, f"belongs to cluster {UUID(int=1)}, not to {CLUSTER}"),
        (2, 2, UUID(int=1), "shard 2 of 2"),
        (0, 1025, UUID(int=1), "shard 0 of 1025"),
    ],
)
def test_a_server_has_one_place(link: Link, place: int, places: int, cluster: UUID, why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        assign(link, place, places, cluster)
    assert len(unowned(link)) == 1024
