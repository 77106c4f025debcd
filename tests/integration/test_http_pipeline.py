"""Transactions over HTTP: staged in parts, as JSON or Arrow, seen by nobody before the commit, published once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from mqueue.wire.stream import write_stream
from tests.integration.asking import Asking

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ask(clock: ManualClock) -> Iterator[Asking]:
    with RunningServer(clock=clock) as server:
        yield Asking(server.url)


def stream(table: pa.Table) -> bytes:
    return write_stream(table.to_batches(), table.schema)


def staged(*payloads: str) -> dict[str, object]:
    return {"messages": [{"payload": payload} for payload in payloads]}


def payloads(ask: Asking, topic: str) -> list[str]:
    answer = ask("GET", f"/topic/{topic}/peek?batch=100")
    return [] if answer.status == 404 else [message["message"] for message in answer.json["messages"]]


def test_what_is_staged_is_seen_once_it_is_committed_and_then_once(ask: Asking) -> None:
    first = ask("POST", "/v1/transactions/job-1/stage?topic=orders&part=a", staged("one", "two"))
    assert (first.status, first.json) == (200, {"id": "job-1", "part": "a", "messages": 2})
    table = pa.table({"payload": pa.array([b"three"])})
    second = ask("POST", "/v1/transactions/job-1/stage?topic=returns&part=b", stream(table), Content_Type=ARROW)
    assert second.json == {"id": "job-1", "part": "b", "messages": 1}
    told = ask("GET", "/v1/transactions/job-1").json
    assert (told["state"], told["parts"], told["messages"]) == ("staged", 2, 3)
    assert told["topics"] == ["orders", "returns"]
    assert ask("GET", "/v1/topics").json["topics"] == []
    assert ask("GET", "/v1/namespaces").json["namespaces"] == []
    done = ask("POST", "/v1/transactions/job-1/commit")
    assert (done.status, done.json["state"]) == (200, "committed")
    assert ask("POST", "/v1/transactions/job-1/commit").json == done.json
    assert payloads(ask, "orders") == ["one", "two"]
    assert payloads(ask, "returns") == ["three"]
    assert ask("POST", "/v1/transactions/job-1/abort").status == 409
    assert ask("POST", "/v1/transactions/job-1/stage?topic=orders", staged("four")).status == 409
    assert payloads(ask, "orders") == ["one", "two"]


def test_a_part_that_is_staged_again_takes_the_place_of_the_first(ask: Asking) -> None:
    for text in ("old", "new"):
        ask("POST", "/v1/transactions/a%2Fb%3A1/stage?topic=orders&part=p", staged(text))
    assert ask("POST", "/v1/transactions/a%2Fb%3A1/commit").json["id"] == "a/b:1"
    assert payloads(ask, "orders") == ["new"]


def test_what_is_aborted_or_forgotten_is_never_seen(ask: Asking, clock: ManualClock) -> None:
    ask("POST", "/v1/transactions/job-1/stage?topic=orders", staged("one"))
    assert ask("POST", "/v1/transactions/job-1/abort").json["state"] == "aborted"
    assert ask("POST", "/v1/transactions/job-1/abort").status == 200
    assert ask("POST", "/v1/transactions/job-1/commit").status == 409
    ask("POST", "/v1/transactions/job-2/stage?topic=orders&ttl=1m", staged("two"))
    clock.advance("2m")
    assert ask("POST", "/v1/transactions/job-2/commit").status in (404, 409)
    assert payloads(ask, "orders") == []


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        ("", staged("x"), "no_topic"),
        ("?topic=a%2Fb", staged("x"), "bad_name"),
        ("?topic=orders&ttl=never", staged("x"), "bad_time"),
        ("?topic=orders", {}, "bad_body"),
        ("?topic=orders", {"messages": []}, "empty"),
        ("?topic=orders", {"messages": [{"payload": "x", "idempotency_key": "k"}]}, "staged_key"),
        ("?topic=orders", {"messages": [{"payload": "x", "topic": "other"}]}, "refused"),
        ("?topic=orders", {"messages": [{}]}, "bad_payload"),
        ("?topic=orders", {"messages": [{"payload": "x"}], "durability": "memory"}, "bad_body"),
    ],
)
def test_a_bad_part_is_refused_and_stages_nothing(ask: Asking, query: str, body: object, code: str) -> None:
    answer = ask("POST", f"/v1/transactions/job-1/stage{query}", body)
    assert (answer.status, answer.error) == (400, code)
    assert ask("GET", "/v1/transactions/job-1").error == "not_found"


def test_a_broken_stream_is_refused(ask: Asking) -> None:
    whole = stream(pa.table({"payload": pa.array([b"three"])}))
    for broken in (b"", b"nonsense", whole[:100]):
        answer = ask("POST", "/v1/transactions/job-1/stage?topic=orders", broken, Content_Type=ARROW)
        assert answer.status == 400
    assert ask("POST", "/v1/transactions/job-1/commit").error == "not_found"
