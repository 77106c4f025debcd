"""Nodes of a cluster on a real PostgreSQL: whoever is asked, the answer is that of the cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import mqueue
from mqueue.cluster import estate, tenure
from mqueue.cluster.arriving import Arriving
from mqueue.cluster.telling import Telling
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres import catalog
from mqueue.log.postgres.link import Link
from mqueue.policy.routing import virtual_shard
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until

PATIENCE_SECONDS = 60
TOPICS = [f"t{number}" for number in range(12)]


@pytest.fixture
def node(postgres: PostgresServer, database: str) -> Iterator[Callable[..., RunningServer]]:
    """`node()`: one more node, stopped when the test is over if it still runs."""
    running: list[RunningServer] = []

    def start(*more: str) -> RunningServer:
        databases = tuple(Secret(url) for url in (database, *more))
        running.append(RunningServer(Config(metrics=Metrics(enabled=False), cluster=Cluster(databases))))
        return running[-1]

    yield start
    for server in running:
        server.close()


def drained(client: mqueue.Client, topic: str) -> list[bytes]:
    found = []
    while messages := client.receive(topic, limit=100):
        found += [message.payload for message in messages]
        client.ack(messages)
    return found


def test_what_one_publishes_another_delivers(node) -> None:
    """Each of two nodes owns half: so of twelve topics some are here and some are there, for both of them."""
    with mqueue.Client(node().url) as first, mqueue.Client(node().url) as second:
        for number, topic in enumerate(TOPICS):
            receipts = (first, second)[number % 2].publish_many(topic, ["a", "b", "c"])
            assert [receipt.offset for receipt in receipts] == [0, 1, 2]
            assert receipts[0].durability == "shard"
        for number, topic in enumerate(TOPICS):
            assert drained((second, first)[number % 2], topic) == [b"a", b"b", b"c"]
        assert first.topics() == second.topics() == sorted(TOPICS)


def test_what_a_new_node_answers_is_there_at_once(node, monkeypatch) -> None:
    """Though the other one has thought until now that it was alone: nobody tells it, and it has no time to look."""
    monkeypatch.setattr(Telling, "tell", lambda telling, arrivals: asyncio.sleep(0))
    monkeypatch.setattr(tenure, "BEAT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(tenure, "_FRESH_SECONDS", PATIENCE_SECONDS)
    with mqueue.Client(node().url) as first:
        for topic in TOPICS:
            first.create_group(topic, "default")
        with mqueue.Client(node().url) as second:
            for topic in TOPICS:
                second.publish(topic, "x")
                assert drained(first, topic) == [b"x"]


def test_who_waits_for_a_topic_that_is_deleted_gets_what_is_published_to_the_next(node) -> None:
    with mqueue.Client(node().url) as client, ThreadPoolExecutor(8) as threads:
        client.create_group("t", "other")
        for number in range(5):
            asked = [threads.submit(client.receive, "t", group=f"g{one}", wait="60s") for one in range(8)]
            wait_until(lambda: len(client.groups("t")) >= 8)
            client.delete_topic("t")
            assert client.publish("t", f"new {number}").offset == 0
            for answer in asked:
                assert [message.payload for message in answer.result()] == [b"new %d" % number]
            client.delete_topic("t")
            client.create_group("t", "other")


def test_who_waits_at_one_node_is_woken_by_another(node, monkeypatch) -> None:
    """Nobody looks for news by himself: so it is the publisher's node that tells."""

    async def nothing(arriving: Arriving, news: object) -> None:
        pass

    monkeypatch.setattr(Arriving, "follow", nothing)
    with mqueue.Client(node().url) as first, mqueue.Client(node().url) as second:
        with ThreadPoolExecutor(len(TOPICS)) as threads:
            waiting = [threads.submit(first.receive, topic, wait="60s") for topic in TOPICS]
            threading.Event().wait(3)  # not needed, but by then shares are settled and most of them wait
            for topic in TOPICS:
                second.publish(topic, topic)
            found = [future.result(2 * PATIENCE_SECONDS) for future in waiting]
        assert [[message.payload.decode() for message in messages] for messages in found] == [[t] for t in TOPICS]


def test_who_waits_gets_what_was_long_on_its_way(node, monkeypatch) -> None:
    """In the log of a node, say. It is no news when it is there, and nobody is told of it."""
    monkeypatch.setattr(estate, "_NEWS_MS", -600_000)
    monkeypatch.setattr(Telling, "tell", lambda telling, arrivals: asyncio.sleep(0))
    with mqueue.Client(node().url) as first, mqueue.Client(node().url) as second:
        with ThreadPoolExecutor(len(TOPICS)) as threads:
            waiting = [threads.submit(first.receive, topic, wait="60s") for topic in TOPICS]
            threading.Event().wait(3)  # not needed, but by then shares are settled and most of them wait
            for topic in TOPICS:
                second.publish(topic, topic)
            found = [future.result(2 * PATIENCE_SECONDS) for future in waiting]
        assert [[message.payload.decode() for message in messages] for messages in found] == [[t] for t in TOPICS]


def test_who_takes_over_knows_everything(node) -> None:
    """Leases, acks, delays, dead letters and idempotency keys outlive the node that gave them."""
    first = node()
    client = mqueue.Client(first.url, retry=False)
    client.configure("jobs", max_retries=0)
    client.publish_many("jobs", ["acked", "leased", "dead", "ready"])
    client.publish("jobs", "later", delay="1h")
    before = client.publish("jobs", "once", idempotency_key="k")
    acked, leased, dead = client.receive("jobs", limit=3)
    acked.ack()
    dead.reject("no good")
    numbers = _numbers(client)
    second = node()
    first.close()
    with mqueue.Client(second.url) as heir:
        assert _numbers(heir) == numbers
        assert drained(heir, "jobs") == [b"ready", b"once"]
        again = heir.publish("jobs", "once", idempotency_key="k")
        assert (again.id, again.offset, again.duplicate) == (before.id, before.offset, True)
        assert [message.payload for message in heir.dlq("jobs").messages()] == [b"dead"]
        assert [event.kind for event in heir.trace(leased.id).events] == ["PUBLISHED", "DELIVERED"]
    with suppress(mqueue.Unavailable):  # what it holds it cannot give back any more
        client.close()


def _numbers(client: mqueue.Client) -> tuple[int, ...]:
    stats = client.stats("jobs")
    return stats.depth, stats.leased, stats.acked, stats.dead, stats.scheduled


def test_a_server_that_was_killed_comes_back() -> None:
    """While PostgreSQL is away calls fail; when it is back nothing that was answered is missing."""
    with PostgresServer() as server:
        url = server.create("mine")
        config = Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(url),)))
        with RunningServer(config) as node, mqueue.Client(node.url, retry=False) as client:
            client.publish_many("t", ["1", "2", "3"])
            client.receive("t")[0].ack()
            server.kill()
            with pytest.raises(mqueue.Unavailable):
                client.publish("t", "lost or not")
            server.start()
            wait_until(lambda: _works(client))
            assert drained(client, "t")[:2] == [b"2", b"3"]


def _works(client: mqueue.Client) -> bool:
    try:
        client.publish("other", "x")
        client.stats("t")
    except mqueue.Unavailable:
        return False
    return True


def test_topics_on_three_servers(node, postgres) -> None:
    urls = [postgres.create(f"more_{postgres.port}_{number}_{id(node)}") for number in range(2)]
    with mqueue.Client(node(*urls).url) as client:
        servers = {virtual_shard("default", topic) % 3 for topic in TOPICS}
        assert servers == {0, 1, 2}
        for topic in TOPICS:
            client.publish_many(topic, ["a", "b"])
        for topic in TOPICS:
            assert drained(client, topic) == [b"a", b"b"]
        assert client.topics() == sorted(TOPICS)
        apart = [next(t for t in TOPICS if virtual_shard("default", t) % 3 == number) for number in (0, 1)]
        with pytest.raises(mqueue.Refused) as told:
            client.publish_many(None, [mqueue.Draft("x", topic=topic) for topic in apart])
        assert told.value.code == "elsewhere"


def test_a_topic_that_is_made_while_a_node_looks_at_the_others_stays(node, monkeypatch) -> None:
    """A look takes long, and topics are made and published to meanwhile."""
    rows_of = catalog.rows_of

    def slowly(link: Link, topics: list[int]) -> list[catalog.TopicRow]:
        found = rows_of(link, topics)
        threading.Event().wait(0.2)
        return found

    monkeypatch.setattr(catalog, "rows_of", slowly)
    monkeypatch.setattr(tenure, "BEAT_SECONDS", 0.01)
    with mqueue.Client(node().url, retry=False) as client:
        for number in range(60):
            for key in range(5):
                client.publish(f"made{number}", "x", idempotency_key=f"k{key}")
