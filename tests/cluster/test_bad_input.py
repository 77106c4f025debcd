"""What a cluster is given that it cannot work with: it says so in a line, without a password, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from uuid import uuid4

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres import migrate
from mqueue.log.postgres.link import Link
from mqueue.model.errors import BadSetting, ShardDown
from mqueue.policy.routing import virtual_shard
from mqueue.server.placing import placing
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.integration.hop import Node as Hop

PATIENCE_SECONDS = 120
_NUMBERS = count(1)


def config(*urls: str) -> Config:
    return Config(metrics=Metrics(enabled=False), cluster=Cluster(tuple(Secret(url) for url in urls)))


def refused(*urls: str) -> str:
    """Why a node does not start."""
    with pytest.raises((BadSetting, ShardDown)) as caught:
        RunningServer(config(*urls)).close()
    return _fit_to_print(caught.value.message)


def _fit_to_print(message: str) -> str:
    assert "\n" not in message
    assert "hush" not in message
    return message


@pytest.fixture
def databases(postgres: PostgresServer) -> Callable[[int], list[str]]:
    """URLs of so many empty databases, each a server for all that a node can tell."""
    return lambda number: [postgres.create(f"bad_{next(_NUMBERS)}") for _ in range(number)]


@pytest.fixture
def role(postgres: PostgresServer) -> Callable[[str], str]:
    """The URL of a database for a user who may only connect."""

    def make(url: str) -> str:
        name = f"visitor_{next(_NUMBERS)}"
        postgres.run(f"create role {name} login password 'hush-hush'")
        return postgres.url(url.rpartition("/")[2], name, "hush-hush")

    return make


@pytest.fixture
def link(database: str) -> Iterator[Link]:
    link = Link(database, "test", 60_000)
    yield link
    link.close()


# Who cannot be reached, or does not let us in


def test_a_url_that_leads_nowhere(postgres: PostgresServer) -> None:
    closed = f"postgresql://postgres:hush-hush@127.0.0.1:1/{uuid4().hex}"
    assert "PostgreSQL at 127.0.0.1:1/" in refused(closed)
    assert "no-such-host.invalid:5432/a cannot be reached" in refused("postgresql://u:hush-hush@no-such-host.invalid/a")
    assert 'does not let us in: connection failed: connection to server at "127.0.0.1"' in refused(
        postgres.url(password="hush-hush")
    )
    assert 'database "nowhere" does not exist' in refused(postgres.url("nowhere"))


def test_the_same_for_a_further_server_of_a_new_cluster(postgres: PostgresServer, database: str) -> None:
    for wrong in (postgres.url("nowhere"), "postgresql://u:hush-hush@127.0.0.1:1/a"):
        assert wrong.rpartition("@")[2] in refused(database, wrong)


def test_a_process_says_it_in_one_line(postgres: PostgresServer) -> None:
    for url, code in ((postgres.url(password="hush-hush"), 2), ("postgresql://u:hush-hush@127.0.0.1:1/a", 1)):
        done = subprocess.run(
            [sys.executable, "-m", "mqueue", "serve", "--http", "127.0.0.1:0"],
            env={"DATABASE_URLS": url},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert (done.returncode, done.stdout) == (code, "")
        assert _fit_to_print(done.stderr.removesuffix("\n")).startswith("mqueue: PostgreSQL at 127.0.0.1:")


# Rights and schemas


def test_who_may_not_make_the_schema(database: str, role) -> None:
    message = refused(role(database))
    assert f"{database.rpartition('@')[2]} is not there, and this mqueue needs {migrate.latest()}: run" in message
    assert "permission denied for database" in message


def test_an_older_schema_that_may_not_be_migrated(database: str, link: Link, role, monkeypatch) -> None:
    migrate.migrate(link)
    name = role(database)
    user = name.split("//")[1].split(":")[0]
    link.script(f"grant usage on schema mqueue to {user}; grant select on all tables in schema mqueue to {user};")
    newer = migrate.latest() + 1
    scripts = {**migrate._scripts(), newer: "create table mqueue.more (x int);"}
    monkeypatch.setattr(migrate, "_scripts", lambda: scripts)
    message = refused(name)
    assert f"is of version {newer - 1}, and this mqueue needs {newer}: run `mqueue migrate` with the URL of" in message
    assert "permission denied" in message


def test_who_may_not_even_look(database: str, link: Link, role) -> None:
    migrate.migrate(link)
    assert "does not allow it: permission denied" in refused(role(database))


def test_a_newer_schema(database: str, link: Link) -> None:
    migrate.migrate(link)
    link.call("update mqueue.meta set value = '99' where key = 'schema'")
    assert f"is of version 99; this mqueue knows {migrate.latest()}: run a newer mqueue" in refused(database)


# Servers in the wrong places


def test_servers_in_another_order_fewer_or_more(databases) -> None:
    first, second, third = databases(3)
    RunningServer(config(first, second)).close()
    assert "is shard 1 of 2, not 0 of 2: the database URLs are those of the first start" in refused(second, first)
    assert "is shard 0 of 2, not 0 of 1" in refused(first)
    assert "is shard 0 of 2, not 0 of 3" in refused(first, second, third)
    RunningServer(config(first, second)).close()


def test_a_server_of_another_cluster(databases) -> None:
    first, second, other, fresh = databases(4)
    RunningServer(config(first, second)).close()
    RunningServer(config(other)).close()
    assert f"{other.rpartition('@')[2]} belongs to cluster " in refused(first, other)
    assert "which is named first, to none" in refused(fresh, second)


def test_an_empty_server_in_the_place_of_another(databases) -> None:
    first, second, empty = databases(3)
    RunningServer(config(first, second)).close()
    message = refused(first, empty)
    assert f"{empty.rpartition('@')[2]} has no schema mqueue: it is not the server that was there before" in message


def test_nodes_that_found_a_cluster_at_once_found_one(databases) -> None:
    urls = databases(2)
    with ThreadPoolExecutor(3) as threads:
        nodes = list(threads.map(lambda number: RunningServer(config(*urls)), range(3)))
    try:
        with mqueue.Client(nodes[0].url) as one, mqueue.Client(nodes[2].url) as other:
            one.publish("orders", b"1")
            found: list[bytes] = []
            wait_until(lambda: _answers(lambda: found.extend(m.payload for m in other.receive("orders", wait="60s"))))
            assert found == [b"1"]
    finally:
        for node in nodes:
            node.close()


# A server that is away when a node starts


def test_a_node_starts_without_a_server_and_joins_it_later(postgres: PostgresServer, databases) -> None:
    """Two of three are there: their topics are served. The third comes back, with all it had."""
    with PostgresServer() as third:
        urls = [*databases(2), third.create("mine")]
        topics = {virtual_shard("default", name) % 3: name for name in map(str, range(100))}
        with RunningServer(config(*urls)) as node, mqueue.Client(node.url) as client:
            for topic in topics.values():
                client.publish(topic, b"before")
        third.kill()
        with RunningServer(config(*urls)) as node, mqueue.Client(node.url, retry=False) as client:
            for number in (0, 1):
                client.publish(topics[number], b"during")
                assert [m.payload for m in client.receive(topics[number], limit=9)] == [b"before", b"during"]
            for ask in (lambda: client.publish(topics[2], b"lost"), lambda: client.receive(topics[2])):
                with pytest.raises(mqueue.Unavailable) as caught:
                    ask()
                assert (caught.value.code, caught.value.applied) == ("shard_down", False)
            third.start()
            wait_until(lambda: _answers(lambda: client.publish(topics[2], b"after")))
            assert [m.payload for m in client.receive(topics[2], limit=9, wait="60s")] == [b"before", b"after"]


def _answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except mqueue.Unavailable:
        return False
    return True


def test_the_first_server_and_all_servers_of_a_new_cluster_have_to_be_there(databases) -> None:
    nowhere = "postgresql://u:hush-hush@127.0.0.1:1/a"
    first, second = databases(2)
    assert "127.0.0.1:1/a cannot be reached" in refused(first, nowhere)
    RunningServer(config(first, second)).close()
    assert "127.0.0.1:1/a cannot be reached" in refused(nowhere, second)
    RunningServer(config(first, nowhere)).close()  # the cluster was whole: it may come back


# What is published


def test_payloads_keys_and_headers_of_any_bytes(database: str) -> None:
    every = bytes(range(256))
    payloads = [b"", every, b"\x00" * 1000, every * 4096, "\0 ✓ \U0010ffff".encode()]
    with RunningServer(config(database)) as node, mqueue.Client(node.url) as client:
        for number, payload in enumerate(payloads):
            client.publish(
                "odd", payload, key=every, headers={"h": "\0 ✓ '; drop table"}, idempotency_key=f"\0'{number}"
            )
            again = client.publish(
                "odd", payload, key=every, headers={"h": "\0 ✓ '; drop table"}, idempotency_key=f"\0'{number}"
            )
            assert again.duplicate
        found = client.receive("odd", limit=10)
        assert [message.payload for message in found] == payloads
        assert {message.headers["h"] for message in found} == {"\0 ✓ '; drop table"}
        found[0].reject("\0 no ' good ✓")
        found[1].nack("0s", "\0 no ' good ✓")
        assert [message.payload for message in client.receive("odd", limit=10, wait="60s")] == [every]


@pytest.mark.parametrize("name", ["", "a b", "a'b", 'a"b', "a\0b", "ä", "a/b", "..", "x" * 1000, "\N{PILE OF POO}"])
def test_names_with_odd_characters_are_refused_as_everywhere(shared: mqueue.Client, name: str) -> None:
    with mqueue.Broker() as embedded:
        for broker in (embedded, shared):
            codes = set()
            for ask in (
                lambda broker=broker: broker.publish(name, b"1"),
                lambda broker=broker: broker.receive(name),
                lambda broker=broker: broker.receive("orders", group=name),
            ):
                try:
                    ask()
                except mqueue.Error as error:
                    codes.add((error.code, error.status // 100))
                else:
                    codes.add(("taken", 2))
            if broker is embedded:
                expected = codes
    assert codes == expected
    assert all(status in (2, 4) for _, status in codes)


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> Iterator[mqueue.Client]:
    url = postgres_server.create(f"bad_{next(_NUMBERS)}")
    with RunningServer(config(url)) as node, mqueue.Client(node.url) as client:
        yield client


# Requests that went astray


def test_a_request_that_was_forwarded_to_the_wrong_node_does_not_wait_there(
    database: str, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only who forwarded it can look again: whoever waited here would wait for months."""
    monkeypatch.setattr(placing, "_PATIENCE_SECONDS", 1e7)
    with RunningServer(config(database)) as first, RunningServer(config(database)):
        wait_until(lambda: len(link.call("select owner from mqueue.vshards group by 1")) == 2)
        with Hop(forwards_to=first.url, secret=migrate.secret_of(link, b"")) as hop:
            codes = set()
            with mqueue.Client(hop.url, retry=False) as client:
                for number in range(32):
                    try:
                        codes.add(str(client.receive(f"t{number}")))
                    except mqueue.Unavailable as problem:
                        codes.add(problem.code)
    assert codes == {"[]", "not_owner"}
