"""Transactions of a cluster: one place for each, whoever begins it, and no rule of a topic that nobody checks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.policy.routing import virtual_shard
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer

TOPICS = [f"t{number}" for number in range(16)]


def clients(databases: list[str], count: int) -> Iterator[list[mqueue.Client]]:
    cluster = Cluster(tuple(Secret(url) for url in databases))
    config = Config(metrics=Metrics(enabled=False), cluster=cluster)
    servers = [RunningServer(config) for _ in range(count)]
    callers = [mqueue.Client(server.url) for server in servers]
    yield callers
    for one in (*callers, *servers):
        one.close()


@pytest.fixture
def two_nodes(database: str) -> Iterator[list[mqueue.Client]]:
    yield from clients([database], 2)


@pytest.fixture
def two_servers(postgres: PostgresServer, database: str) -> Iterator[list[mqueue.Client]]:
    yield from clients([database, postgres.create(f"{database.rpartition('/')[2]}_b")], 1)


def test_who_begins_at_once_at_several_nodes_begins_the_same(two_nodes: list[mqueue.Client]) -> None:
    for attempt in range(3):
        name = f"batch {attempt}"

        def stage(number: int, name: str = name) -> None:
            two_nodes[number % 2].stage(name, TOPICS[number], [str(number)], part=str(number))

        with ThreadPoolExecutor(len(TOPICS)) as threads:
            list(threads.map(stage, range(len(TOPICS))))
        assert two_nodes[attempt % 2].transaction(name).parts == len(TOPICS)
        done = two_nodes[0].commit(name)
        assert (done.parts, done.messages, done.topics) == (16, 16, tuple(sorted(TOPICS)))
        assert two_nodes[1].commit(name) == done
    for number, topic in enumerate(TOPICS):
        found = two_nodes[number % 2].receive(topic, limit=10)
        assert [message.payload for message in found] == [str(number).encode()] * 3


def test_a_depth_that_cannot_be_checked_is_refused_before_anything_is_staged(two_nodes: list[mqueue.Client]) -> None:
    first = two_nodes[0]
    first.configure("deep", max_depth=2)
    first.stage("1", "t0", ["a"])
    with pytest.raises(mqueue.Refused, match="'deep' has max_depth 2") as caught:
        first.stage("1", "deep", ["b"], part="b")
    assert caught.value.code == "elsewhere"
    assert first.commit("1").messages == 1
    first.stage("2", "deep", ["b"])
    first.stage("2", "t0", ["c"], part="c")
    assert first.commit("2").topics == ("deep", "t0")


def test_a_depth_that_was_set_since_stops_the_commit(two_nodes: list[mqueue.Client]) -> None:
    first = two_nodes[0]
    first.stage("1", "t0", ["a"])
    first.stage("1", "t1", ["b"], part="b")
    first.configure("t1", max_depth=2)
    with pytest.raises(mqueue.Refused, match="'t1' has max_depth 2"):
        first.commit("1")
    assert first.topics() == ["t1"]
    assert first.commit("1", [""]).messages == 1


def test_topics_of_two_servers_are_not_committed_together(two_servers: list[mqueue.Client]) -> None:
    [client] = two_servers
    here, there = (next(t for t in TOPICS if virtual_shard("default", t) % 2 == server) for server in (0, 1))
    for name, topics in (("1", (here, there)), ("2", (there, here))):
        client.stage(name, topics[0], ["a"])
        with pytest.raises(mqueue.Refused) as caught:
            client.stage(name, topics[1], ["b"], part="b")
        assert caught.value.code == "elsewhere"
        assert client.commit(name).topics == (topics[0],)
