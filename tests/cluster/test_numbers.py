"""The numbers of a cluster: each node counts what it delivers, and whoever is asked tells of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mqueue.config import Cluster, Config, Metrics, Redis, Secret
from mqueue.log.postgres.link import Link
from mqueue.testing import PostgresServer, RedisServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.integration.asking import Asking
from tests.integration.test_metrics import PAGE, Numbers, numbers, of, settle

TOPICS = [f"t{number}" for number in range(12)]


def config(*databases: str) -> Config:
    return Config(metrics=Metrics(public=True, interval_ms=0), cluster=Cluster(tuple(map(Secret, databases))))


@pytest.fixture
def node(database: str) -> Iterator[Callable[[], Asking]]:
    running: list[RunningServer] = []

    def start(*more: str) -> Asking:
        running.append(RunningServer(config(database, *more)))
        return Asking(running[-1].url)

    yield start
    for server in running:
        server.close()


def test_whoever_is_asked_counts_all(node) -> None:
    first, second = node(), node()
    for number, topic in enumerate(TOPICS):
        (first, second)[number % 2].publish(topic, "a", "b", namespace="small" if number < 3 else "default")
    answers = [ask("GET", "/v1/stats").json for ask in (first, second)]
    assert answers[0] == answers[1]
    assert (answers[0]["topics"], answers[0]["published"], answers[0]["missing"]) == (12, 24, 0)
    for ask in (first, second):
        assert ask("GET", "/v1/stats?namespace=small").json["published"] == 6
        assert ask("GET", "/v1/stats?namespace=nobody").json["topics"] == 0
        counted = ask("GET", "/v1/namespaces").json["namespaces"]
        assert counted == [{"namespace": "default", "topics": 9}, {"namespace": "small", "topics": 3}]


def test_what_nobody_counts_is_said(node, database: str) -> None:
    """A node that is believed to live, and does not answer."""
    ask = node()
    ask.publish("t", "a")
    link = Link(database, "test")
    ghost = uuid4()
    link.call(
        "insert into mqueue.sessions values (%b, 9, 'http://127.0.0.1:1', clock_timestamp() + interval '1 hour')",
        (ghost,),
    )
    link.call("update mqueue.vshards set owner = %b, owner_epoch = owner_epoch + 1 where vshard < 8", (ghost,))
    wait_until(lambda: ask("GET", "/v1/stats?partial=true").json["missing"] >= 8)
    refused = ask("GET", "/v1/stats")
    assert (refused.status, refused.error) == (503, "stats_incomplete")
    assert "http://127.0.0.1:1 did not answer" in refused.json["error"]["message"]
    link.call("update mqueue.sessions set until = clock_timestamp() where owner = %b", (ghost,))
    link.close()
    wait_until(lambda: ask("GET", "/v1/stats").status == 200)
    assert ask("GET", "/v1/stats").json["published"] == 1


def test_every_node_tells_of_what_it_delivers(node) -> None:
    asks = [node(), node()]
    wait_until(lambda: all(_is_settled(numbers(ask)) for ask in asks))
    for topic in TOPICS:
        asks[0].publish(topic, "a", "b")
        settle(asks[1], topic, "ack")
    pages = [numbers(ask) for ask in asks]
    assert sum(of(page, "mqueue_topics") for page in pages) == len(TOPICS)
    for topic in TOPICS:
        labels = {"namespace": "default", "topic": topic}
        [page] = [page for page in pages if ("mqueue_topic_acked_total", tuple(sorted(labels.items()))) in page]
        assert of(page, "mqueue_topic_published_total", **labels) == 2
        assert of(page, "mqueue_topic_acked_total", **labels) == 1
        assert of(page, "mqueue_group_lag", group="default", **labels) == 1
    assert sum(of(page, "mqueue_shard_takeovers_total", shard="shard0") for page in pages) > 0
    assert sum(of(page, "mqueue_shard_commits_total", shard="shard0") for page in pages) > 0
    assert sum(of(page, "mqueue_forwards_total", result="answered") for page in pages) > 0
    assert all(of(page, "mqueue_ready") == of(page, "mqueue_shard_up", shard="shard0") == 1 for page in pages)


def _is_settled(page: Numbers) -> bool:
    """Whether each of two nodes owns its half, and knows that of the other."""
    shares = [of(page, f"mqueue_shard_{name}", shard="shard0") for name in ("owned", "unowned")]
    return [of(page, "mqueue_nodes"), *shares] == [2, 512, 0]


def test_the_page_knows_every_metric_of_a_node(database: str, redis_server: RedisServer) -> None:
    redis = Redis((f"127.0.0.1:{redis_server.port}",), password=Secret(redis_server.password))
    with RunningServer(replace(config(database), cluster=Cluster((Secret(database),), redis))) as running:
        ask = Asking(running.url)
        ask.publish("t", "a")
        text = ask("GET", "/metrics").body.decode()
        found = numbers(ask)
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE mqueue_")}
    alone, _, more = PAGE.read_text(encoding="utf-8").partition("### Metrics of a node")
    told = [set(re.findall(r"^\| `(mqueue_\w+)` \|", part, re.MULTILINE)) for part in (alone, more)]
    assert shown - told[0] == told[1]
    assert of(found, "mqueue_redis_away") == 0
    assert of(found, "mqueue_shard_append_rows_total", shard="shard0") == 1
    assert of(found, "mqueue_shard_buffered_messages", shard="shard0") == 0


def test_a_node_without_any_server_is_not_ready_and_lives() -> None:
    with PostgresServer() as server, RunningServer(config(server.create("mine"))) as running:
        ask = Asking(running.url)
        assert [ask("GET", path).status for path in ("/health", "/livez", "/readyz")] == [200, 200, 200]
        server.stop()
        wait_until(lambda: ask("GET", "/readyz").status == 503)
        assert [ask("GET", path).status for path in ("/health", "/livez")] == [200, 200]
        found = numbers(ask)
        assert of(found, "mqueue_ready") == of(found, "mqueue_shard_up", shard="shard0") == 0
        server.start()
        wait_until(lambda: ask("GET", "/readyz").status == 200)
