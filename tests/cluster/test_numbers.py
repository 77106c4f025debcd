"""The numbers of a cluster: each node counts what it delivers, and whoever is asked tells of all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres.link import Link
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

PATIENCE_SECONDS = 60
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


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(PATIENCE_SECONDS * 10):
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it did not come to pass")


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
