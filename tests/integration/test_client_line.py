"""What becomes of a call when the line or the server fails: what is tried again, and what is said was done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import mqueue
from tests.conformance.steps import DEADLINE_SECONDS, Background
from tests.integration.scripted import CLOSE, Scripted, answer, refusal

RECEIPT = {"id": "1", "topic": "t", "partition": 0, "offset": 0, "duplicate": False}
PUBLISHED = answer(200, {"receipts": [RECEIPT], "durability": "memory"})
TOPICS = answer(200, {"topics": ["t"], "next": None})
MESSAGE = {
    "id": "7",
    "namespace": "default",
    "topic": "t",
    "partition": 0,
    "offset": 0,
    "published_at": "2026-01-01T00:00:00.000Z",
    "deliver_at": "2026-01-01T00:00:00.000Z",
    "payload": "x",
    "priority": 50,
    "attempt": 1,
}
RECEIVED = answer(200, {"topic": "t", "lease": "ab" * 16, "remaining_ms": 30_000, "messages": [MESSAGE]})
SETTLED = answer(200, {"settled": 1, "lost": []})
BUSY = refusal(503, "unavailable", Retry_After="0")


def failure(call: Callable[[], Any]) -> mqueue.Error:
    with pytest.raises(mqueue.Error) as caught:
        call()
    return caught.value


def test_nobody_listens() -> None:
    with Scripted([], listening=False) as server, mqueue.Client(server.url, retry=False) as q:
        error = failure(lambda: q.publish("t", b"x"))
        assert type(error) is mqueue.Unavailable
        assert (error.code, error.applied, error.retryable, error.status) == ("unreachable", False, True, 503)


def test_a_server_that_is_not_there_yet_is_waited_for() -> None:
    with Scripted([PUBLISHED], listening=False) as server, mqueue.Client(server.url, timeout="5m") as q:
        call = Background(lambda: q.publish("t", b"x"))
        call.assert_waiting()
        server.listen()
        assert call.result().id == 1


def test_it_is_not_waited_for_longer_than_the_timeout() -> None:
    with Scripted([], listening=False) as server, mqueue.Client(server.url, timeout="300ms") as q:
        assert failure(q.topics).code == "unreachable"


def test_a_publish_whose_answer_is_lost_is_not_repeated() -> None:
    with Scripted([CLOSE, PUBLISHED]) as server, mqueue.Client(server.url) as q:
        error = failure(lambda: q.publish("t", b"x"))
        assert (type(error), error.code, error.applied) == (mqueue.Unavailable, "line_broken", None)
        assert len(server.seen) == 1


def test_one_with_idempotency_keys_is() -> None:
    with Scripted([CLOSE, CLOSE, PUBLISHED]) as server, mqueue.Client(server.url, timeout="5m") as q:
        assert q.publish("t", b"x", idempotency_key="k").id == 1
        assert server.seen == ["POST /v1/topics/t/messages"] * 3


def test_but_not_if_one_of_its_messages_has_none() -> None:
    drafts = [mqueue.Draft(b"x", idempotency_key="k"), b"y"]
    with Scripted([CLOSE, PUBLISHED]) as server, mqueue.Client(server.url) as q:
        assert failure(lambda: q.publish_many("t", drafts)).applied is None
        assert len(server.seen) == 1


def test_reading_is_repeated() -> None:
    with Scripted([CLOSE, TOPICS]) as server, mqueue.Client(server.url, timeout="5m") as q:
        assert q.topics() == ["t"]


def test_settling_is_repeated() -> None:
    with Scripted([RECEIVED, CLOSE, SETTLED]) as server, mqueue.Client(server.url, timeout="5m") as q:
        [m] = q.receive("t")
        m.ack()
        assert server.seen[1:] == [f"POST /v1/leases/{'ab' * 16}/ack"] * 2


def test_receiving_is_not() -> None:
    with Scripted([CLOSE, RECEIVED]) as server, mqueue.Client(server.url) as q:
        assert failure(lambda: q.receive("t")).applied is None


def test_consuming_goes_on() -> None:
    acts = [CLOSE, BUSY, refusal(503, "closed", retryable=False), CLOSE, RECEIVED, SETTLED]
    with Scripted(acts) as server, mqueue.Client(server.url) as q:
        for m in q.consume("t"):
            m.ack()
            break
        assert (m.id, m.text(), m.attempt) == (7, "x", 1)


def test_what_cannot_help_ends_consuming() -> None:
    with Scripted([refusal(403, "forbidden", retryable=False)]) as server, mqueue.Client(server.url) as q:
        assert type(failure(lambda: next(q.consume("t")))) is mqueue.Forbidden


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    with Scripted([BUSY, BUSY, PUBLISHED]) as server, mqueue.Client(server.url, timeout="5m") as q:
        assert q.publish("t", b"x").id == 1


@pytest.mark.parametrize(
    "refused",
    [
        refusal(429, "queue_full"),
        refusal(429, "quota_exceeded", Retry_After="600"),
        refusal(429, "quota_too_small", retryable=False, Retry_After="0"),
        refusal(409, "conflict", retryable=False),
    ],
)
def test_what_it_says_nothing_useful_about_is_told_at_once(refused: bytes) -> None:
    with Scripted([refused]) as server, mqueue.Client(server.url) as q:
        error = failure(lambda: q.publish("t", b"x"))
        assert error.applied is False
        assert error.retry_after == (600.0 if b"600" in refused else 0.0 if b"Retry-After" in refused else None)
        assert len(server.seen) == 1


def test_without_retry_nothing_is_tried_twice() -> None:
    with Scripted([BUSY, PUBLISHED]) as server, mqueue.Client(server.url, retry=False) as q:
        assert failure(lambda: q.publish("t", b"x")).code == "unavailable"


def test_an_answer_that_never_comes() -> None:
    never = threading.Event()
    with Scripted([never, CLOSE]) as server, mqueue.Client(server.url, timeout="300ms") as q:
        error = failure(lambda: q.publish("t", b"x"))
        while error.code == "unreachable":  # a busy machine may not have connected in time; then nothing was asked
            error = failure(lambda: q.publish("t", b"x"))
        assert (error.code, error.applied) == ("line_broken", None)
        never.set()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"topics": 7}', b"\xff"])
def test_an_answer_that_makes_no_sense(body: bytes) -> None:
    with Scripted([answer(200, body)]) as server, mqueue.Client(server.url) as q:
        error = failure(q.topics)
        assert (type(error), error.applied) == (mqueue.Corrupt, None)


def test_an_answer_of_something_in_between() -> None:
    with Scripted([answer(502, b"<html>")]) as server, mqueue.Client(server.url, retry=False) as q:
        error = failure(lambda: q.publish("t", b"x"))
        assert (type(error), error.code, error.status, error.applied) == (mqueue.Unavailable, "http_502", 502, None)


def test_nobody_is_sent_elsewhere() -> None:
    elsewhere = answer(307, Location="http://elsewhere.example/")
    with Scripted([elsewhere]) as server, mqueue.Client(server.url, token="hush") as q:
        assert failure(q.topics).status == 307


def test_the_time_of_a_lease_counts_from_the_request() -> None:
    async def now() -> float:
        return asyncio.get_running_loop().time()

    held_back = threading.Event()
    with Scripted([held_back, RECEIVED, SETTLED]) as server, mqueue.Client(server.url) as q:
        call = Background(lambda: q.receive("t"))
        assert server.arrived.wait(DEADLINE_SECONDS)
        before_the_answer = q._portal.run(now())
        held_back.set()
        [m] = call.result()
        assert m._lease.until - 30 <= before_the_answer
