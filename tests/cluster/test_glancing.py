"""The overview, the nodes and the workbench of a cluster are the same, whichever node is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mqueue
from mqueue.config import Cluster, Config, Secret
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.integration.asking import Asking
from tests.integration.test_dashboard import events_of
from tests.integration.test_metrics import numbers

TOPICS = [f"t{number}" for number in range(12)]


@pytest.fixture
def nodes(database: str) -> Iterator[list[RunningServer]]:
    config = Config(cluster=Cluster((Secret(database),)))
    with RunningServer(config) as first, RunningServer(config) as second:
        yield [first, second]


def shares(node: RunningServer) -> list[int]:
    told = Asking(node.url)("GET", "/v1/cluster").json
    return sorted(sum(shard.get("owned", 0) for shard in one.get("shards", [])) for one in told["nodes"])


def window(ask: Asking) -> tuple[Any, list[str]]:
    """Five of the deepest topics."""
    view = ask("GET", "/v1/overview?namespace=default&sort=ready&skip=2&limit=5").json
    return view, [row["topic"] for row in view["rows"]]


def test_all_nodes_show_the_same(nodes: list[RunningServer]) -> None:
    wait_until(lambda: all(shares(node) == [512, 512] for node in nodes))
    for node in nodes:
        told = Asking(node.url)("GET", "/v1/cluster").json["nodes"]
        assert told[0]["address"] == node.url
        assert {shard["breaker"] for one in told for shard in one["shards"]} == {"closed"}
        assert all(shard["up"] for one in told for shard in one["shards"])
    with mqueue.Client(nodes[0].url) as q:
        for number, topic in enumerate(TOPICS):
            q.publish_many(topic, [b"x"] * (number + 1))
            q.create_group(topic, "g")
    wanted = [f"t{number}" for number in reversed(range(12))]
    for node in nodes:
        ask = Asking(node.url)
        wait_until(lambda ask=ask: window(ask)[1] == wanted[2:7])
        view, _ = window(ask)
        assert (view["topics"], view["totals"]["topics"], view["totals"]["ready"]) == (12, 12, 78)
        assert [one["topics"] for one in view["namespaces"]] == [12]
        name, first = next(events_of(node, "/v1/overview/stream?sort=ready&limit=3"))
        assert (name, [row["topic"] for row in first["rows"]]) == ("view", wanted[:3])
        for topic in TOPICS[:4]:
            page = ask("GET", f"/v1/topics/{topic}/browse?group=g&limit=50").json["messages"]
            assert [one["state"] for one in page] == ["ready"] * int(topic[1:]) + ["ready"]
            assert ask("GET", f"/v1/topics/{topic}/priorities").json["priorities"][0]["ready"] == int(topic[1:]) + 1


def test_topics_that_nobody_reads_are_counted(nodes: list[RunningServer]) -> None:
    wait_until(lambda: all(shares(node) == [512, 512] for node in nodes))
    with mqueue.Client(nodes[0].url) as q:
        for topic in TOPICS:
            q.publish(topic, "x")
    for node in nodes:
        ask = Asking(node.url)
        wait_until(lambda ask=ask: ask("GET", "/v1/overview").json["totals"].get("ready") == len(TOPICS))
    shown = [[row["topic"] for row in Asking(node.url)("GET", "/v1/overview").json["rows"]] for node in nodes]
    assert [sorted(rows) for rows in shown] == [sorted(TOPICS)] * 2


def test_metrics_know_topics_that_nobody_reads(nodes: list[RunningServer]) -> None:
    wait_until(lambda: all(shares(node) == [512, 512] for node in nodes))
    with mqueue.Client(nodes[0].url) as q:
        for topic in TOPICS:
            q.publish(topic, "x")

    def depths() -> list[float]:
        found = [numbers(Asking(node.url)) for node in nodes]
        return [value for one in found for (name, _), value in one.items() if name == "mqueue_topic_depth"]

    wait_until(lambda: depths() == [1.0] * len(TOPICS))


def test_the_workbench_works_at_every_node(nodes: list[RunningServer]) -> None:
    for topic in TOPICS[:4]:
        with mqueue.Client(nodes[0].url) as first, mqueue.Client(nodes[1].url) as second:
            first.publish_many(topic, [b"1", b"2"])
            for message in second.receive(topic, limit=2, wait="30s"):
                message.reject(f"failed after {message.offset + 1} ms")
            for q in (first, second):
                [error] = q.dlq(topic).errors()
                assert (error.count, error.error) == (2, "failed after <n> ms")
            body = {"limit": 1, "rate": 100}
            path = f"/v1/topics/{topic}/dlq/redrive"
            assert b"event: done" in Asking(nodes[1].url)("POST", path, body, Accept="text/event-stream").body
            assert first.dlq(topic).delete(filter=f"fingerprint = {error.fingerprint}").deleted == 1
            assert second.dlq(topic).errors() == []


def test_a_node_that_is_gone_is_named(database: str) -> None:
    config = Config(cluster=Cluster((Secret(database),)))
    with RunningServer(config) as first:
        ask = Asking(first.url)
        with RunningServer(config) as second:
            wait_until(lambda: len(ask("GET", "/v1/cluster").json["nodes"]) == 2)
            gone = second.url
        told = ask("GET", "/v1/cluster").json["nodes"]
        assert told[0]["address"] == first.url
        assert [one.get("missing") for one in told if one["address"] == gone] in ([], [True])
        assert ask("GET", "/v1/overview").status == 200
