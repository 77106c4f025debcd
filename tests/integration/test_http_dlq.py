"""Dead letters over HTTP: looked at, brought back at once or at a rate, stopped half way and gone on with."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Answered, Asking

DLQ = "/v1/topics/orders/dlq"
REDRIVE = f"{DLQ}/redrive"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[RunningServer]:
    with RunningServer(clock=clock) as server:
        yield server


@pytest.fixture
def ask(server: RunningServer) -> Asking:
    return Asking(server.url)


def bury(ask: Asking, *payloads: str) -> None:
    """Messages that died, each of an error that names it."""
    ask.publish("orders", *payloads)
    for _ in payloads:
        lease = ask("POST", "/v1/topics/orders/receive", {"group": "g"}).json
        error = f"cannot do {lease['messages'][0]['payload']}"
        assert ask("POST", f"/v1/leases/{lease['lease']}/reject", {"error": error}).status == 200


def ready(ask: Asking) -> int:
    return int(ask("GET", "/v1/topics/orders/groups/g").json["ready"])


def background(call: Callable[[], Answered], answers: list[Answered]) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    return thread


def wait_for(condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)  # the test's own time limit ends it


def test_the_dead_are_listed_with_their_story(ask: Asking) -> None:
    assert ask("GET", DLQ).error == "not_found"
    bury(ask, "a", "b", "c")
    found = ask("GET", DLQ).json
    assert found["count"] == 3
    assert [message["payload"] for message in found["messages"]] == ["a", "b", "c"]
    first = found["messages"][0]
    assert (first["reason"], first["error"], first["group"]) == ("rejected", "cannot do a", "g")
    assert (first["attempts"], first["topic"]) == (1, "orders.dlq")
    few = ask("GET", f"{DLQ}?limit=2").json
    assert ([message["payload"] for message in few["messages"]], few["count"]) == (["a", "b"], 3)
    filtered = ask("GET", DLQ + "?filter=" + quote('error ~ "do b"')).json
    assert ([message["payload"] for message in filtered["messages"]], filtered["count"]) == (["b"], 1)


def test_a_redrive_brings_back_what_it_says(ask: Asking) -> None:
    bury(ask, "a", "b", "c")
    assert ask("POST", REDRIVE, {"dry_run": True}).json == {"matched": 3, "redriven": 0, "dry_run": True}
    assert ready(ask) == 0
    one = ask("POST", REDRIVE, {"filter": "payload = b"}).json
    assert one == {"matched": 1, "redriven": 1, "dry_run": False}
    assert ask("POST", REDRIVE, {"limit": 1}).json["redriven"] == 1
    assert (ready(ask), ask("GET", DLQ).json["count"]) == (2, 1)
    assert ask("POST", REDRIVE).json["redriven"] == 1
    assert ask("POST", REDRIVE).json["redriven"] == 0
    assert ready(ask) == 3


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"filter": "nonsense"}, "bad_filter"),
        ({"limit": 0}, "bad_limit"),
        ({"rate": 0}, "bad_rate"),
        ({"rate": -1}, "bad_rate"),
        ({"rate": "fast"}, "bad_body"),
        ({"dry": True}, "bad_body"),
    ],
)
def test_a_bad_redrive_is_refused_and_brings_back_nothing(ask: Asking, body: object, code: str) -> None:
    bury(ask, "a")
    answer = ask("POST", REDRIVE, body)
    assert (answer.status, answer.error) == (400, code)
    assert ask("GET", DLQ).json["count"] == 1
    assert ask("GET", f"{DLQ}?filter=nonsense").error == "bad_filter"


def test_a_rate_is_kept(ask: Asking, clock: ManualClock) -> None:
    bury(ask, "a", "b", "c", "d", "e")
    began = clock.now()
    answers: list[Answered] = []
    thread = background(lambda: ask("POST", REDRIVE, {"rate": 10}), answers)
    while thread.is_alive():
        brought_back = 5 - ask("GET", DLQ).json["count"]
        assert (brought_back - 1) * 100 <= clock.now() - began
        clock.advance("50ms")
        thread.join(0.01)
    assert answers[0].json == {"matched": 5, "redriven": 5, "dry_run": False}
    assert clock.now() - began >= 400


@pytest.mark.parametrize("rate", [1e-320, 1e-300, 1e-9])
def test_a_rate_that_takes_for_ever_ends_with_the_server(ask: Asking, server: RunningServer, rate: float) -> None:
    bury(ask, "a", "b")
    answers: list[Answered] = []
    thread = background(lambda: ask("POST", REDRIVE, {"rate": rate}), answers)
    wait_for(lambda: ready(ask) == 1)
    server.close()
    thread.join()
    assert answers[0].json["redriven"] == 1


def test_a_server_that_stops_says_how_far_it_got(ask: Asking, server: RunningServer) -> None:
    bury(ask, "a", "b", "c")
    answers: list[Answered] = []
    thread = background(lambda: ask("POST", REDRIVE, {"rate": 1}), answers)
    wait_for(lambda: ready(ask) == 1)
    server.close()
    thread.join()
    assert answers[0].json == {"matched": 1, "redriven": 1, "dry_run": False}


def test_who_leaves_and_comes_back_goes_on_with_the_rest(ask: Asking, server: RunningServer) -> None:
    bury(ask, "a", "b", "c")
    line = http.client.HTTPConnection(urlsplit(server.url).netloc)
    line.request("POST", REDRIVE, json.dumps({"rate": 1}))
    wait_for(lambda: ready(ask) == 1)
    line.close()
    assert ask("POST", REDRIVE).json["redriven"] == 2
    assert (ready(ask), ask("GET", DLQ).json["count"]) == (3, 0)
