"""What callers try who mean no good: reaching past their rights, hanging on, sending more than anybody needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import aiohttp
import pytest

from mqueue.broker.aio import AsyncBroker
from mqueue.config import Config
from mqueue.model.limits import ANSWER_BYTES_MAX, MIB, Limits
from mqueue.server.http.answer import Answer
from mqueue.server.http.call import Call
from mqueue.server.http.service import Bounds, Service
from mqueue.server.http.tables import TABLE
from mqueue.server.http.watching import Watch
from mqueue.server.metrics.requests import Requests
from mqueue.server.security.audit import Audit
from mqueue.server.security.gatekeeper import ANYBODY, Gatekeeper, Rules
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.test_http_connections import HEALTH, Line
from tests.integration.test_security_http import security, token

DEADLINE_SECONDS = 120
UPGRADE = (
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Open to everybody."""
    with RunningServer() as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with RunningServer(Config(security=security())) as running:
        yield running


def known(guarded: RunningServer, *scopes: str) -> Asking:
    return Asking(guarded.url, authorization=f"Bearer {token(*scopes)}", x_mqueue_namespace="team")


# Rights


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_message_of_another_topic_is_not_settled_by_its_id(guarded: RunningServer, verb: str, fenced: bool) -> None:
    owner, other = known(guarded, "*:team"), known(guarded, "*:team/orders")
    owner.publish("vault", "1")
    [taken] = owner("GET", "/dequeue?topic=vault&namespace=team").json
    named = {"id": taken["id"], "namespace": "team", **({"lease": taken["lease"]} if fenced else {})}
    assert other("POST", f"/{verb}", {**named, "topic": "orders"}).status in (404, 409)
    assert other("POST", f"/{verb}", {**named, "topic": "vault"}).status == 403
    assert owner("POST", f"/{verb}", {**named, "topic": "vault"}).status == 200
    owner("POST", "/v1/topics/vault/purge")


def test_dead_letters_do_not_open_a_topic_that_is_somebody_elses(guarded: RunningServer) -> None:
    owner, other = known(guarded, "*:team"), known(guarded, "*:team/lure")
    owner.publish("safe", "secret")
    refused = other("PATCH", "/v1/topics/lure", {"dlq": "safe"})
    assert (refused.status, refused.error) == (403, "forbidden")
    assert other("PATCH", "/v1/topics/lure", {"dlq": "lure.dlq"}).status == 200
    assert owner("PATCH", "/v1/topics/lure", {"dlq": "safe"}).status == 200


def test_a_part_of_a_transaction_is_not_replaced_by_who_may_not_publish_it(guarded: RunningServer) -> None:
    owner, other = known(guarded, "write:team/a"), known(guarded, "write:team/b")
    body = {"messages": [{"payload": "1"}]}
    assert owner("POST", "/v1/transactions/theirs/stage?topic=a", body).status == 200
    assert other("POST", "/v1/transactions/theirs/stage?topic=b", body).status == 403
    committed = owner("POST", "/v1/transactions/theirs/commit")
    assert (committed.status, committed.json["topics"]) == (200, ["a"])


@pytest.mark.parametrize(
    "path", ["/topic/asked/consume?consumerID=c", "/dequeue?topic=asked", "/v1/topics/asked/stream"]
)
def test_to_ask_for_the_head_of_messages_takes_none(server: RunningServer, path: str) -> None:
    ask = Asking(server.url)
    ask.publish("asked", "1")
    answer = ask("HEAD", path)
    assert answer.status == 405
    assert [each["payload"] for each in ask("POST", "/v1/topics/asked/receive", {}).json["messages"]] == ["1"]
    ask("POST", "/v1/topics/asked/purge")


def test_a_picture_on_another_site_takes_no_messages(server: RunningServer) -> None:
    ask = Asking(server.url)
    ask.publish("pictured", "1")
    path = "/topic/pictured/consume?consumerID=c"
    for site in ("cross-site", "same-site"):
        assert ask("GET", path, sec_fetch_site=site, sec_fetch_mode="no-cors").error == "cross_origin"
    assert ask("GET", "/docs", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert len(ask("GET", path, sec_fetch_site="same-origin").json["messages"]) == 1


def test_messages_do_not_stray_into_another_namespace(server: RunningServer) -> None:
    """Whoever names one for the request need not name it for each message."""
    tenant, others = Asking(server.url, x_mqueue_namespace="tenant"), Asking(server.url)
    tenant("POST", "/enqueue", {"topic": "strays", "payload": ""})
    assert others("GET", "/dequeue?topic=strays").json == []
    [taken] = tenant("GET", "/dequeue?topic=strays").json
    assert tenant("POST", "/ack", {"id": taken["id"], "topic": "strays"}).status == 200


# Streams that cannot go on


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningServer]:
    """One group per topic is all there is room for, and it is taken."""
    with RunningServer(Config(limits=Limits(groups_max=1))) as running:
        ask = Asking(running.url)
        ask.publish("narrow", "1")
        ask("PUT", "/v1/topics/narrow/groups/first", {})
        yield running


def test_a_stream_that_cannot_go_on_says_why_and_ends(narrow: RunningServer) -> None:
    answer = Asking(narrow.url)("GET", "/v1/topics/narrow/stream?group=second")
    assert answer.status == 200
    assert b'event: failed\ndata: {"error":{"code":"groups_full"' in answer.body
    assert b"event: end" not in answer.body


def test_a_conversation_that_cannot_go_on_says_why_and_ends(narrow: RunningServer) -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            aiohttp.ClientSession(narrow.url) as session,
            session.ws_connect("/v1/topics/narrow/stream?group=second") as socket,
        ):
            assert (await socket.receive_json())["error"]["code"] == "groups_full"
            await socket.receive()
            assert socket.close_code == 1008

    asyncio.run(work())


def test_a_revoked_key_ends_a_stream_and_gives_back_what_it_held(guarded: RunningServer) -> None:
    owner = known(guarded, "*:*")
    made = owner("POST", "/v1/keys", {"name": "leaked", "scopes": ["read:team"]}).json

    async def work() -> None:
        headers = {"authorization": f"Bearer {made['key']}", "x-mqueue-namespace": "team"}
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            aiohttp.ClientSession(guarded.url, headers=headers) as session,
            session.get("/v1/topics/leaks/stream") as answer,
        ):
            assert await answer.content.readline() == b"retry: 1000\n"
            await asyncio.to_thread(owner, "DELETE", "/v1/keys/leaked")
            await asyncio.to_thread(owner.publish, "leaks", "secret")
            rest = await answer.content.read()
        assert b'event: failed\ndata: {"error":{"code":"unauthorized"' in rest
        assert b"secret" not in rest

    asyncio.run(work())
    [back] = owner("POST", "/v1/topics/leaks/receive", {"wait": 60}).json["messages"]
    assert (back["payload"], back["attempt"]) == ("secret", 1)


def test_a_websocket_that_is_asked_for_behind_another_request_begins(server: RunningServer) -> None:
    line = Line(server).send(HEALTH + b"GET /v1/topics/behind/stream HTTP/1.1\r\n" + UPGRADE)
    assert line.answer()[0] == 200
    assert line.answer()[0] == 101
    line.close()


def test_a_websocket_is_asked_for_in_ascii(server: RunningServer) -> None:
    line = Line(server).send(
        b"GET /v1/topics/a/stream HTTP/1.1\r\n" + UPGRADE.replace(b"Host: localhost", b"Host: \xff")
    )
    assert line.error() == (400, "bad_http")
    line.close()


# The audit log


def test_what_somebody_managed_is_written_down_also_if_they_left_before_the_answer() -> None:
    """A call that is cut off may have been carried out."""
    told: list[str] = []
    door = Gatekeeper(Rules(anybody=True), Audit(told.append))
    route = next(route for route in TABLE if (route.method, route.path) == ("DELETE", "/v1/topics/{topic}"))
    watch = Watch(Requests([(route.method, route.path)]))
    service = Service(cast(AsyncBroker, None), door, ManualClock(), Bounds())
    call = Call(service, "DELETE", "/v1/topics/orders", {"topic": "orders"}, {}, {}, ANYBODY, "default")
    watch.end(call, route, None, watch.begin())
    assert len(told) == 1
    watch.end(call, route, Answer(404), watch.begin())
    assert len(told) == 1


# Bodies that cost more than their bytes


@pytest.mark.parametrize(
    ("path", "opening", "item", "code"),
    [
        ("/v1/receive", b'{"topics":[', b'"a"', "body_too_large"),
        ("/v1/topics/big/groups/g/seek", b'{"to":"earliest","a":[', b"1", "body_too_large"),
        ("/v1/leases/00/extend", b'{"ids":[', b'"1"', "body_too_large"),
        ("/v1/leases/00/ack", b'{"ids":[', b'"1"', "too_many"),
        ("/v1/leases/00/ack", b'{"publish":[', b"{}", "too_many"),
        ("/v1/topics/big/messages", b'{"messages":[', b"{}", "too_many"),
        ("/v1/topics/big/messages", b'{"messages":[', b'{"payload":""}', "too_many"),
        ("/v1/messages", b'{"messages":[', b'{"topic":"big"}', "too_many"),
        ("/v1/transactions/big/stage?topic=big", b'{"messages":[', b"{}", "too_many"),
        ("/enqueue", b"[", b'{"topic":"big","payload":""}', "too_many"),
    ],
)
def test_great_numbers_of_small_values_are_refused_unread(
    server: RunningServer, path: str, opening: bytes, item: bytes, code: str
) -> None:
    """If each were looked at, what is wrong with the first would be told instead."""
    count = 2 * MIB // (len(item) + 1)
    closing = b"]}" if opening.startswith(b"{") else b"]"
    answer = Asking(server.url)("POST", path, opening + b",".join([item] * count) + closing)
    assert (answer.status, answer.error) == (413, code)


# Answers


@pytest.fixture(scope="module")
def heavy(server: RunningServer) -> str:
    """Topics with more than one answer carries: 60 MB of payloads, and as much of headers."""
    ask = Asking(server.url)
    for _ in range(3):
        ask.publish("heavy", *[{"payload": "p" * 1_000_000}] * 20)
    for _ in range(4):
        ask.publish("heads", *[{"payload": "", "headers": {"h": "h" * 60_000}}] * 250)
    while lease := ask("POST", "/v1/topics/heavy/receive", {"limit": 100, "group": "dying"}).json["lease"]:
        ask("POST", f"/v1/leases/{lease}/reject", {})
    return "heavy"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/topics/heavy/peek?limit=1000", None),
        ("GET", "/v1/topics/heads/peek?limit=1000", None),
        ("POST", "/v1/topics/heavy/receive", {"limit": 1000, "group": "a"}),
        ("POST", "/v1/topics/heavy/receive", {"limit": 1000, "group": "b", "mode": "at_most_once"}),
        ("POST", "/v1/receive", {"topics": ["heads", "heavy"], "limit": 1000, "group": "c"}),
        ("GET", "/topic/heavy/consume?consumerID=d&batch=1000", None),
        ("GET", "/topic/heavy/peek?batch=1000", None),
        ("GET", "/dlq?topic=heavy&limit=1000", None),
        ("GET", "/v1/topics/heavy/dlq?limit=1000", None),
    ],
)
def test_no_answer_is_longer_than_one_may_be(
    server: RunningServer, heavy: str, method: str, path: str, body: dict[str, object] | None
) -> None:
    answer = Asking(server.url)(method, path, body)
    assert answer.status == 200
    assert 20_000_000 < len(answer.body) < 1.4 * ANSWER_BYTES_MAX


def test_at_most_once_what_did_not_fit_comes_with_the_next_call(server: RunningServer, heavy: str) -> None:
    ask, counts = Asking(server.url), []
    while messages := ask("GET", "/topic/heavy/consume?consumerID=all&batch=1000").json["messages"]:
        counts.append(len(messages))
    assert (len(counts), sum(counts)) == (2, 60)
