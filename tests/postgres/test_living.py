"""Nodes of two versions at one schema: who may stay when it changes, who is refused, and that files say it rightly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from mqueue.log.postgres import living, migrate, owning
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.living import Running
from mqueue.model.errors import BadSetting
from tests.integration.terminal import Terminal

KNOWN = migrate.latest()
ADDITIVE = f"""-- nodes: {KNOWN}
alter table mqueue.sessions add color text not null default 'green';
alter table mqueue.topics add weight int;
create table mqueue.more (x int);
create function mqueue.weigh(p_topic bigint, p_how text default 'kg') returns int language sql as 'select 1';
"""
BREAKING = "drop function mqueue.disown(uuid, bigint[]);"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Link, str], None]]:
    """Has a newer mqueue migrate a server."""
    before = migrate._scripts()

    def bring(link: Link, script: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "_scripts", lambda: {**before, KNOWN + 1: script})
            migrate.migrate(link)

    return bring  # type: ignore[return-value]


@pytest.fixture
def nodes(link: Link, shard: str) -> Iterator[Callable[[str, int], None]]:
    """Has a node be at work that knows a version; 0: one that does not say."""
    links: list[Link] = []

    def begin(address: str, knows: int) -> None:
        name = living.beat_name("shard0", knows, address) if knows else "shard0:beat"
        links.append(Link(shard, name))
        owning.beat(links[-1], uuid4(), len(links), address, 60_000)

    yield begin
    for one in links:
        one.close()


# What is there is newer than we are


def test_a_newer_schema_that_leaves_us_at_work_is_worked_with(link: Link, newer) -> None:
    newer(link, ADDITIVE)
    assert migrate.version_of(link) == migrate.check(link) == KNOWN + 1
    assert migrate.nodes_of(link) == KNOWN
    assert migrate.migrate(link) == []
    owner = uuid4()
    assert owning.beat(link, owner, 1, "http://a:1", 60_000)
    assert owning.own(link, owner, [1, 2]).keys() == {1, 2}
    owning.disown(link, owner, [1, 2])


def test_one_that_does_not_is_refused(link: Link, newer) -> None:
    newer(link, BREAKING)
    for verb in (migrate.check, migrate.migrate):
        with pytest.raises(BadSetting, match=f"of version {KNOWN + 1}; this mqueue knows {KNOWN}: run a newer") as told:
            verb(link)
        assert told.value.code == "schema_too_new"


def test_what_was_said_of_another_version_does_not_count(link: Link, newer) -> None:
    newer(link, ADDITIVE)
    link.call("update mqueue.meta set value = %b::text::jsonb where key = 'schema'", (str(KNOWN + 2),))
    with pytest.raises(BadSetting, match="run a newer mqueue"):
        migrate.check(link)


# Nodes are at work


def test_nodes_tell_what_they_know(link: Link, nodes) -> None:
    nodes("http://a:1", KNOWN)
    nodes("http://b:2", 0)
    assert living.running(link) == [Running("http://a:1", KNOWN), Running("http://b:2", 0)]


def test_a_long_address_is_known_by_its_beginning(link: Link, nodes) -> None:
    nodes(f"http://{'node' * 20}.example:8080", KNOWN)
    [node] = living.running(link)
    assert (node.knows, node.address[:11]) == (KNOWN, "http://node")


def test_nothing_is_done_under_nodes_that_could_not_live_with_it(link: Link, nodes, newer) -> None:
    nodes("http://a:1", KNOWN)
    with pytest.raises(
        BadSetting, match=f"while there is node http://a:1, which knows version {KNOWN}: it takes"
    ) as told:
        newer(link, BREAKING)
    assert told.value.code == "nodes_too_old"
    assert migrate.version_of(link) == KNOWN
    newer(link, ADDITIVE)
    assert migrate.version_of(link) == KNOWN + 1


def test_one_that_does_not_tell_may_be_too_old(link: Link, nodes, newer) -> None:
    nodes("http://a:1", 0)
    with pytest.raises(BadSetting, match="does not tell what it knows"):
        newer(link, ADDITIVE)


@pytest.mark.parametrize(
    ("script", "code", "fate"), [(ADDITIVE, 1, "goes on"), (BREAKING, 2, "has to be stopped first")]
)
def test_the_command_line_tells_beforehand(
    link: Link, shard: str, nodes, monkeypatch, tmp_path, script: str, code: int, fate: str
) -> None:
    nodes("http://a:1", KNOWN)
    scripts = {**migrate._scripts(), KNOWN + 1: script}
    monkeypatch.setattr(migrate, "_scripts", lambda: scripts)
    monkeypatch.setenv("DATABASE_URLS", shard)
    done = Terminal(monkeypatch, tmp_path).run("migrate", "--check")
    least = KNOWN if code == 1 else KNOWN + 1
    assert done.code == code
    assert done.out.splitlines()[1:] == [
        f"  would apply {KNOWN + 1}, for nodes that know {least} or later",
        f"  node http://a:1, which knows version {KNOWN}: {fate}",
    ]
    assert migrate.version_of(link) == KNOWN


# What files say


def test_a_file_that_says_nothing_is_for_its_own_nodes_and_what_was_asked_for_stays() -> None:
    scripts = {1: "", 2: "-- nodes: 1\n", 3: "-- why\n-- nodes: 2\n", 4: "", 5: "-- nodes: 2\n", 6: "-- nodes: 99\n"}
    assert [living.needed(scripts, version) for version in range(1, 7)] == [1, 1, 2, 4, 4, 6]


REMOVES = re.compile(
    r"\b(drop\s+(table|column|function|schema|type)|rename\b|alter\s+(column\s+)?\w+\s+(type|set\s+not\s+null)"
    r"|add\s+(column\s+)?\w+\s+[^,;]*\bnot\s+null(?![^,;]*\bdefault\b))",
    re.IGNORECASE,
)


def additive(script: str) -> bool:
    code = re.sub(r"\$\$.*?\$\$", "", re.sub(r"--.*", "", script), flags=re.DOTALL)
    return REMOVES.search(code) is None


@pytest.mark.parametrize("version", sorted(migrate._scripts()))
def test_what_leaves_older_nodes_at_work_only_adds(version: int) -> None:
    scripts = migrate._scripts()
    told = living._NODES.search(scripts[version])
    assert told is None or int(told[1]) >= version or additive(scripts[version])


@pytest.mark.parametrize(
    ("script", "adds"),
    [
        (ADDITIVE, True),
        (BREAKING, False),
        ("alter table mqueue.topics rename column name to title;", False),
        ("alter table mqueue.topics alter name type bytea;", False),
        ("alter table mqueue.topics add color text not null;", False),
        ("alter table mqueue.topics add color text not null default 'green';", True),
        ("-- we drop table nothing\ncreate table mqueue.x (y int);", True),
    ],
)
def test_the_check_of_files_can_fail(script: str, adds: bool) -> None:
    assert additive(script) is adds
