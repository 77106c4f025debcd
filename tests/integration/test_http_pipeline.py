"""Bulk over HTTP: transactions staged in parts, seen by nobody before the commit, published once; offsets; frames."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mqueue.model.times import rfc3339
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from mqueue.wire.packed import FRAMES, unpack_all
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


def test_a_commit_may_name_its_parts(ask: Asking) -> None:
    for part in ("0.1", "0.2", "1.3"):
        ask("POST", f"/v1/transactions/job-1/stage?topic=orders&part={part}", staged(part))
    refused = ask("POST", "/v1/transactions/job-1/commit", {"parts": ["0.2", "7.7"]})
    assert (refused.status, refused.error) == (409, "part_missing")
    assert ask("GET", "/v1/transactions/job-1").json["state"] == "staged"
    done = ask("POST", "/v1/transactions/job-1/commit", {"parts": ["0.2", "1.3"]})
    assert (done.status, done.json["state"], done.json["parts"], done.json["messages"]) == (200, "committed", 2, 2)
    assert ask("POST", "/v1/transactions/job-1/commit", {}).json == done.json
    assert payloads(ask, "orders") == ["0.2", "1.3"]


def test_ten_thousand_parts_can_be_named(ask: Asking) -> None:
    ask("POST", "/v1/transactions/job-1/stage?topic=orders&part=a", staged("one"))
    names = ["a", *(f"{n:0240}" for n in range(10_000))]
    assert ask("POST", "/v1/transactions/job-1/commit", {"parts": names}).error == "part_missing"


@pytest.mark.parametrize("body", [{"parts": "a"}, {"parts": [1]}, {"part": ["a"]}, []])
def test_a_bad_choice_of_parts_is_refused(ask: Asking, body: object) -> None:
    ask("POST", "/v1/transactions/job-1/stage?topic=orders&part=a", staged("one"))
    assert ask("POST", "/v1/transactions/job-1/commit", body).error == "bad_body"
    assert payloads(ask, "orders") == []


# Reading in bulk


def test_where_partitions_begin_and_end(ask: Asking, clock: ManualClock) -> None:
    made_at = rfc3339(clock.now())
    ask("POST", "/v1/topics/orders/messages", staged("one", "two"))
    clock.advance("1h")
    now = clock.now()
    ask("POST", "/v1/topics/orders/messages", staged("three"))
    told = {"partition": 0, "first": 0, "next": 3, "at": None, "floor": 0}
    assert ask("GET", "/v1/topics/orders/offsets").json == {"partitions": [told], "made_at": made_at}
    for time in (str(now), rfc3339(now)):
        found = ask("GET", f"/v1/topics/orders/offsets?time={time}").json
        assert found == {"partitions": [{**told, "at": 2}], "made_at": made_at}
    assert ask("GET", "/v1/topics/orders/offsets?time=soon").error == "bad_time"
    assert ask("GET", "/v1/topics/nowhere/offsets").status == 404


def test_frames_are_bytes_that_say_where_to_go_on(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.broker.frames.PAGE_BYTES", 1)
    for text in ("one", "two"):
        ask("POST", "/v1/topics/orders/messages", staged(text, text))
    page = ask("GET", "/v1/topics/orders/frames?partition=0&start_offset=1")
    assert (page.status, page.headers["content-type"]) == (200, FRAMES)
    assert page.headers["x-mqueue-next"] == "2"
    [frame] = unpack_all(page.body, 0, 1, 99)
    assert (frame.base, frame.rows.payload) == (1, [b"one"])
    rest = ask("GET", "/v1/topics/orders/frames?partition=0&start_offset=2&stop_offset=3")
    assert "x-mqueue-next" not in rest.headers
    assert [frame.rows.payload for frame in unpack_all(rest.body, 0, 2, 3)] == [[b"two"]]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "bad_query"),
        ("?partition=x", 400, "bad_query"),
        ("?partition=0&start_offset=-1", 400, "bad_position"),
        ("?partition=0&stop_offset=1.5", 400, "bad_query"),
        ("?partition=7", 404, "not_found"),
    ],
)
def test_a_bad_range_of_frames_is_refused(ask: Asking, query: str, status: int, code: str) -> None:
    ask("POST", "/v1/topics/orders/messages", staged("one"))
    answer = ask("GET", f"/v1/topics/orders/frames{query}")
    assert (answer.status, answer.error) == (status, code)
