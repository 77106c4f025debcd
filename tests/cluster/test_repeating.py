"""What a node asks for once more when nobody knows what became of it, and what it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.model.errors import Unavailable
from mqueue.server.http.tables import TABLE
from mqueue.server.placing.placing import Placing
from mqueue.server.placing.repeating import is_repeatable
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

REPEATED = {
    "POST /v1/leases/{token}/ack",
    "POST /v1/leases/{token}/nack",
    "POST /v1/leases/{token}/reject",
    "POST /v1/leases/{token}/release",
    "POST /v1/leases/{token}/extend",
    "POST /v1/receive",
    "POST /v1/topics/{topic}/receive",
    "GET /v1/topics/{topic}/stream",
    "GET /dequeue",
}
"""Of what does more than read."""
BARE: Any = SimpleNamespace(body=b"", query={})
"""A call that says nothing."""


@pytest.fixture(scope="module")
def node(postgres_server: Any) -> Iterator[RunningServer]:
    database = postgres_server.create("repeating")
    with RunningServer(Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))) as node:
        yield node


@pytest.fixture
def ask(node: RunningServer) -> Asking:
    return Asking(node.url)


@pytest.fixture
def doubt(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first request since it was emptied is done, and who asked is told that nobody knows: the routes asked for."""
    here, asked = Placing._here, ["nothing yet"]

    async def in_doubt(self: Placing, call: Any, route: Any, home: Any, lease: str) -> Any:
        asked.append(f"{route.method} {route.path}")
        answer = await here(self, call, route, home, lease)
        if len(asked) > 1:
            return answer
        raise Unavailable("it went to another node", code="not_owner", applied=None)

    monkeypatch.setattr(Placing, "_here", in_doubt)
    return asked


def dequeued(node: RunningServer, topic: str) -> dict[str, Any]:
    with mqueue.Client(node.url) as client:
        client.configure(topic, backoff="0s", max_retries=9)
        client.publish(topic, "x")
    [got] = Asking(node.url)("GET", f"/dequeue?topic={topic}").json
    return got


Make = Callable[[RunningServer], tuple[str, str, Any]]


def done(verb: str, named: bool) -> Make:
    def make(node: RunningServer) -> tuple[str, str, Any]:
        topic = f"{verb}-{named}"
        got = dequeued(node, topic)
        return "POST", f"/{verb}", {"id": got["id"], "topic": topic} | ({"lease": got["lease"]} if named else {})

    return make


def plain(method: str, path: str, body: Any = None) -> Make:
    def make(node: RunningServer) -> tuple[str, str, Any]:
        with mqueue.Client(node.url) as client:
            client.publish("t", "x")
            client.receive("t", mode="at_most_once")
            id = client.publish("t", "x", delay="1h").id
        return method, path.replace("{id}", str(id)), body

    return make


ONCE = [
    done("ack", False),
    done("nack", False),
    plain("POST", "/v1/topics/t/purge"),
    plain("POST", "/v1/topics/t/dlq/redrive", {}),
    plain("PATCH", "/v1/messages/{id}", {"delay": "2h"}),
    plain("DELETE", "/v1/messages/{id}"),
    plain("POST", "/v1/topics/t/groups/default/seek", {"to": "earliest"}),
    plain("PUT", "/v1/topics/t/cursors/c", {}),
    plain("POST", "/v1/topics/t/receive", {"mode": "at_most_once"}),
    plain("GET", "/topic/t/consume?consumerID=c"),
    plain("POST", "/v1/transactions/x/stage?topic=t", {"messages": [{"payload": "x"}]}),
    plain("POST", "/v1/transactions/x/abort"),
    plain("PATCH", "/v1/topics/t", {"max_retries": 2}),
]
AGAIN = [
    done("ack", True),
    done("nack", True),
    plain("GET", "/v1/topics/t/stats"),
    plain("POST", "/v1/topics/t/receive", {}),
    plain("GET", "/dequeue?topic=t"),
]


@pytest.mark.parametrize("make", ONCE)
def test_what_could_do_harm_is_asked_for_once(node: RunningServer, ask: Asking, doubt: list[str], make: Make) -> None:
    request = make(node)
    doubt.clear()
    got = ask(*request)
    assert (got.status, got.json["error"]["applied"], len(doubt)) == (503, None, 1)


@pytest.mark.parametrize("make", AGAIN)
def test_the_rest_is_asked_for_again(node: RunningServer, ask: Asking, doubt: list[str], make: Make) -> None:
    request = make(node)
    doubt.clear()
    assert (ask(*request).status, len(doubt)) == (200, 2)


def test_no_route_is_forgotten() -> None:
    """A new one is repeated only if somebody says so here."""
    changing = [route for route in TABLE if route.method != "GET" or route.verb == "receive"]
    assert {f"{route.method} {route.path}" for route in changing if is_repeatable(BARE, route)} == REPEATED
