"""Routes that no single owner can answer, or that name their topic in the body: right at every node."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.policy.routing import virtual_shard
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

PATIENCE_SECONDS = 120
TOPICS = [f"t{number}" for number in range(6)]


def config(*databases: str, **more: bool) -> Config:
    return Config(metrics=Metrics(enabled=False), cluster=Cluster(tuple(map(Secret, databases)), **more))


@pytest.fixture
def nodes(database: str) -> Iterator[list[RunningServer]]:
    with RunningServer(config(database)) as first, RunningServer(config(database)) as second:
        yield [first, second]


def test_the_lines_of_other_queues_work_at_every_node(nodes: list[RunningServer]) -> None:
    first, second = (Asking(node.url) for node in nodes)
    for topic in TOPICS:
        body = {"namespace": "small", "topic": topic, "payload": base64.b64encode(b"hello").decode()}
        [id] = first("POST", "/enqueue", body).json["ids"]
        [got] = second("GET", f"/dequeue?namespace=small&topic={topic}").json
        assert (got["id"], got["namespace"], base64.b64decode(got["payload"])) == (id, "small", b"hello")
        assert first("POST", "/ack", {"namespace": "small", "topic": topic, "id": id}).status == 200
        assert second("GET", f"/v1/topics/{topic}/stats?namespace=small").json["acked"] == 1


def test_dead_letters_with_a_place_of_their_own_are_found(nodes: list[RunningServer]) -> None:
    """To bring them back takes two owners at once: that is said, and nothing is changed."""
    for topic in TOPICS:
        grave = f"{topic}-grave"
        assert virtual_shard("default", topic) != virtual_shard("default", grave)
        with mqueue.Client(nodes[0].url) as first, mqueue.Client(nodes[1].url) as second:
            first.configure(topic, dlq=grave)
            first.publish(topic, "x")
            first.receive(topic)[0].reject("no good")
            for client in (first, second):
                assert [message.payload for message in client.dlq(topic).messages()] == [b"x"]
                assert client.dlq(topic).redrive(dry_run=True).matched == 1
                with pytest.raises(mqueue.Refused) as told:
                    client.dlq(topic).redrive()
                assert told.value.code == "elsewhere"
            assert [message.payload for message in second.receive(grave)] == [b"x"]
        assert len(Asking(nodes[0].url)("GET", f"/dlq?topic={topic}&limit=10").json) == 1


def test_the_dead_have_to_be_on_the_same_server(database: str, postgres: PostgresServer) -> None:
    other = postgres.create(f"other_{database.rsplit('/', 1)[1]}")
    topic = next(name for name in TOPICS if virtual_shard("default", name) % 2 == 0)
    far = next(name for name in TOPICS if virtual_shard("default", name) % 2 == 1)
    with RunningServer(config(database, other)) as node, mqueue.Client(node.url) as client:
        with pytest.raises(mqueue.Refused) as told:
            client.configure(topic, dlq=far)
        assert told.value.code == "elsewhere"
        assert topic not in client.topics()
        client.configure(topic, max_retries=0)
        with pytest.raises(mqueue.Refused):
            client.configure(topic, dlq=far)
        assert client.settings(topic)["dlq"] is True


def test_who_waits_is_answered_when_the_node_stops(database: str) -> None:
    with RunningServer(config(database)) as node:
        ask = Asking(node.url)
        ask.publish("t", "x")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(ask, "POST", "/v1/topics/other/receive", {"wait": "60s"})
            while ask("GET", "/v1/topics/other").status != 200:
                pass
            node.close()
            answer = waiting.result(PATIENCE_SECONDS)
    assert (answer.status, answer.json["messages"]) == (200, [])


def test_where_nobody_delivers_that_is_said(database: str) -> None:
    """A node that only publishes and forwards, alone."""
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": base64.b64encode(b"x" * 16).decode(),
    }
    with RunningServer(config(database, owns=False)) as node:
        ask = Asking(node.url)
        ask.publish("t", "x")
        refused = ask("GET", "/v1/topics/t/stream", **upgrade)
        assert (refused.status, refused.error) == (503, "not_owner")
        assert ask("GET", "/v1/stats").error == "stats_incomplete"
        assert ask("GET", "/v1/stats?partial=true").json["missing"] == 1024
