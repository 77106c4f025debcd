"""Requests that belong to another node: through one server to another, as if there were no first one."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pyarrow as pa
import pytest
from cryptography import x509

import mqueue
from mqueue.config import Config, Jwt, Secret, Security, Tls
from mqueue.server.forwarding import forwarder, line, pieces, talking
from mqueue.server.forwarding import owner as owners
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.security.certificates import write_pair
from mqueue.server.security.principal import Grant, Principal
from mqueue.server.security.tokens import issue
from mqueue.testing import ManualClock
from tests.conformance.steps import Background, TellingClock
from tests.integration.asking import Asking
from tests.integration.hop import SECRET, Node
from tests.integration.process import Process
from tests.integration.scripted import CLOSE, Scripted, answer
from tests.integration.test_push import events, publish, run, settle, stats, until
from tests.unit.test_security_tls import CA, SERVER, client_context

DEADLINE_SECONDS = 120
TOKEN_SECRET = "a secret of a test, long enough for HS256"
LEASE = "ab" * 16
RECEIVED = {"topic": "t", "lease": LEASE, "remaining_ms": 30_000, "messages": []}


@pytest.fixture
def clock() -> TellingClock:
    """Stands still: no lease runs out by itself."""
    return TellingClock()


@pytest.fixture
def pair(clock: TellingClock) -> Iterator[tuple[Node, Node]]:
    """One that forwards, and the one it forwards to."""
    with Node(clock=clock) as b, Node(clock=clock, forwards_to=b.url) as a:
        yield a, b


def caller(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE_SECONDS)


# As it is


def test_what_comes_through_one_is_at_the_other(pair) -> None:
    a, b = pair
    with mqueue.Client(a.url) as q, mqueue.Client(b.url) as direct:
        q.publish_many("t", [f"{number}" for number in range(10_000)])
        assert direct.stats("t").ready == 10_000
        held = q.receive("t", limit=1000)
        q.ack(held)
        assert direct.stats("t").acked == 1000
        q.publish_arrow("arrow", pa.table({"payload": pa.array([b"x"] * 5000, pa.large_binary())}))
        got = q.receive_arrow("arrow", limit=5000)
        assert got.table.num_rows == 5000
        got.ack()
        assert direct.stats("arrow").acked == 5000


def test_a_request_goes_on_as_it_came() -> None:
    with Scripted([answer(200, {"x": 1})]) as b, Node(forwards_to=b.url, secret=None) as a:
        target = "/v1/topics/a%2Fb%C3%A9/stats?namespace=n&x=%20+%2b&y="
        told = {"X_Mqueue_Principal": "me", "X_Mqueue_Vouched": "me", "X_Mqueue_Peer": "me", "Connection": "X-Gone"}
        Asking(a.url, Authorization="Bearer t", X_Other="Ã©", X_Gone="1", **told)("GET", target)
        [head] = b.heads
        assert b.seen == [f"GET {target}"]
        lines = head.split("\r\n")[1:]
        assert sorted(lines) == [
            "accept-encoding: identity",
            "authorization: Bearer t",
            f"host: {urlsplit(b.url).netloc}",
            "x-mqueue-forwarded: a",
            "x-other: Ã©",
        ]


def test_an_answer_comes_back_as_it_is() -> None:
    told = {"X_Mqueue_Next": "7", "Retry_After": "3", "WWW_Authenticate": "Bearer", "Cache_Control": "no-store"}
    teapot = answer(418, b"{no json", Content_Type="text/odd", **told)
    with Scripted([teapot]) as b, Node(forwards_to=b.url) as a:
        got = Asking(a.url)("GET", "/v1/topics")
        assert (got.status, got.body, got.headers["content-type"]) == (418, b"{no json", "text/odd")
        assert {got.headers[name.lower().replace("_", "-")] for name in told} == set(told.values())


def test_refusals_are_the_owners(pair) -> None:
    a, b = pair
    through, direct = Asking(a.url), Asking(b.url)
    for method, path, body in [
        ("GET", "/v1/topics/none/stats", None),
        ("POST", "/v1/topics/t/receive", b"{"),
        ("POST", "/v1/topics/t/receive", {"wait": "2h"}),
        ("DELETE", "/v1/topics/none", None),
        ("HEAD", "/v1/topics", None),
        ("GET", "/v1/topics", None),
    ]:
        one, other = through(method, path, body), direct(method, path, body)
        assert (one.status, one.body, one.headers) == (other.status, other.body, other.headers)


def test_a_request_is_forwarded_once(pair) -> None:
    a, b = pair
    got = Asking(a.url)("GET", "/v1/topics", x_mqueue_forwarded="c")
    assert (got.status, got.error, got.headers["retry-after"]) == (503, "not_owner", "1")
    assert Asking(b.url)("GET", "/v1/topics", x_mqueue_forwarded="c").status == 200
    with Node(forwards_to=a.url) as first:
        got = Asking(first.url)("GET", "/v1/topics")
        assert (got.status, got.error) == (503, "not_owner")
        assert "'a' forwarded this" in got.json["error"]["message"]


# Waiting and leaving


def test_who_waits_gets_it_when_it_comes(pair, clock) -> None:
    a, b = pair
    with mqueue.Client(a.url) as q, mqueue.Client(b.url) as direct:
        waiting = Background(lambda: q.receive("t", wait="60s"))
        assert clock.asleep.wait(DEADLINE_SECONDS)
        direct.publish("t", b"x")
        [message] = waiting.result()
        message.ack()


def test_who_leaves_while_he_waits_takes_nothing_with_him(pair, clock) -> None:
    a, _ = pair
    left = caller(a.url)
    left.request("POST", "/v1/topics/t/receive", b'{"wait": "60s"}')
    assert clock.asleep.wait(DEADLINE_SECONDS)
    left.close()
    with mqueue.Client(a.url) as q:
        for number in range(20):  # whoever is still thought to wait would get one of these
            q.publish("t", str(number))
            [message] = q.receive("t", wait="60s")
            assert message.text() == str(number)
            message.ack()


def test_whenever_somebody_leaves_either_he_has_it_or_the_next_one_gets_it(pair) -> None:
    """Time stands still, so a lease that nobody knows of would keep its message for ever."""
    a, b = pair
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    place = urlsplit(a.url)
    body = b'{"wait": "60s"}'
    head = b"POST /v1/topics/t/receive HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    ask, taken = Asking(b.url), 0
    for number in range(100):
        with socket.create_connection((place.hostname, place.port), DEADLINE_SECONDS) as left:
            left.sendall(head + body)
            threading.Event().wait(chance.random() / 200)
            published = Background(lambda number=number: ask.publish("t", str(number)))
            threading.Event().wait(chance.random() / 250)
            left.shutdown(socket.SHUT_WR)  # that is leaving; but what was on its way still comes
            answered = b"".join(iter(partial(left.recv, 65536), b""))
        published.result()
        if answered:
            taken += 1
            got = json.loads(answered.partition(b"\r\n\r\n")[2])
        else:
            got = ask("POST", "/v1/topics/t/receive", {"wait": "60s"}).json
        assert [message["payload"] for message in got["messages"]] == [str(number)]
        assert ask("POST", f"/v1/leases/{got['lease']}/ack").json["settled"] == 1
    print(f"{taken} of 100 had it")


def test_who_leaves_under_tls_takes_nothing_with_him(clock, tmp_path: Path) -> None:
    clock.advance(f"{int(time.time() * 1000) - clock.now()}ms")  # a certificate has its time
    write_pair(SERVER, tmp_path)
    tls = Tls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    trust = client_context(SERVER.certificate)
    with Node(Config(security=Security(tls=tls)), clock) as b:
        with Node(clock=clock, forwards_to=b.url.replace("127.0.0.1", "localhost"), tls=trust) as a:
            left = caller(a.url)
            left.request("POST", "/v1/topics/t/receive", b'{"wait": "60s"}')
            assert clock.asleep.wait(DEADLINE_SECONDS)
            left.close()
            with mqueue.Client(a.url) as q:
                q.publish("t", b"x")
                [message] = q.receive("t", wait="60s")
                message.ack()
        with Node(forwards_to=b.url, tls=client_context(CA.pem)) as a:
            got = Asking(a.url)("GET", "/v1/topics")
            assert (got.status, got.error) == (503, "owner_unreachable")


@pytest.mark.parametrize(
    ("path", "given", "headers"),
    [
        ("/v1/topics/t/receive", RECEIVED, {}),
        ("/v1/receive", {"leases": [RECEIVED]}, {}),
        ("/v1/topics/t/receive", b"arrow", {"X_Mqueue_Lease": LEASE}),
        ("/dequeue?topic=t", [{"id": 1, "lease": LEASE}, {"id": 2, "lease": LEASE}], {}),
    ],
)
def test_a_lease_that_comes_when_its_taker_has_left_is_given_back(path: str, given: Any, headers: dict) -> None:
    go = threading.Event()
    with Scripted([go, answer(200, given, **headers), answer(200, {"settled": 1})]) as b:
        with Node(forwards_to=b.url) as a:
            left = caller(a.url)
            left.request("GET" if "dequeue" in path else "POST", path, b'{"wait": "60s"}')
            assert b.arrived.wait(DEADLINE_SECONDS)
            b.arrived.clear()
            left.close()
            go.set()
            assert b.arrived.wait(DEADLINE_SECONDS)
        assert b.seen[1:] == [f"POST /v1/leases/{LEASE}/release"]


def test_a_node_that_stops_keeps_nobody_waiting(clock) -> None:
    with Node(clock=clock) as b:
        a = Node(clock=clock, forwards_to=b.url)
        waiting = Background(lambda: Asking(a.url)("POST", "/v1/topics/t/receive", {"wait": "60s"}))
        assert clock.asleep.wait(DEADLINE_SECONDS)
        a.close()
        got = waiting.result()
        assert (got.status, got.error) == (503, "stopping")
        with mqueue.Client(b.url) as q:
            q.publish("t", b"x")
            assert len(q.receive("t")) == 1


# What fails


def test_nobody_listens() -> None:
    with Scripted([], listening=False) as b, Node(forwards_to=b.url) as a:
        got = Asking(a.url)("POST", "/v1/topics/t/messages", {"messages": [{"payload": "x"}]})
        assert (got.status, got.error) == (503, "owner_unreachable")
        assert "applied" not in got.json["error"]
        assert got.headers["retry-after"] == "1"


def test_what_only_reads_is_tried_again_once_on_a_new_connection() -> None:
    with Scripted([answer(), CLOSE, answer(), CLOSE, CLOSE]) as b, Node(forwards_to=b.url) as a:
        ask = Asking(a.url)
        assert [ask("GET", "/v1/topics").status for _ in range(3)] == [200, 200, 503]
        assert len(b.seen) == 5


def test_what_may_have_been_done_is_not() -> None:
    with Scripted([CLOSE, CLOSE, CLOSE]) as b, Node(forwards_to=b.url) as a:
        for method, path in [
            ("POST", "/v1/topics/t/messages"),
            ("DELETE", "/v1/topics/t"),
            ("GET", "/dequeue?topic=t"),
        ]:
            got = Asking(a.url)(method, path)
            assert (got.status, got.error, got.json["error"]["applied"]) == (503, "owner_unreachable", None)
        assert len(b.seen) == 3


def test_an_answer_that_is_none() -> None:
    with Scripted([b"SSH-2.0-hello\r\n\r\n"]) as b, Node(forwards_to=b.url) as a:
        got = Asking(a.url)("POST", "/v1/topics/t/messages")
        assert (got.status, got.error, got.json["error"]["applied"]) == (503, "owner_unreachable", None)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (answer(body=b"x" * 2000), "its body is longer than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000, "its head is longer than 65536 bytes"),
    ],
)
def test_an_answer_without_an_end(monkeypatch, said: bytes, what: str) -> None:
    """What is kept until all of it is there has a limit; what is handed through has none."""
    monkeypatch.setattr(line, "ANSWER_TEXT_BYTES_MAX", 1000)
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n"
    with Scripted([answer(body=b"x" * 1000), said, chunked]) as b, Node(forwards_to=b.url) as a:
        ask = Asking(a.url)
        assert len(ask("POST", "/v1/topics/t/messages").body) == 1000
        got = ask("POST", "/v1/topics/t/messages")
        assert (got.status, got.error, got.json["error"]["applied"]) == (503, "owner_unreachable", None)
        assert what in got.json["error"]["message"]
        assert len(ask("POST", "/v1/topics/t/messages").body) == 2000


def test_an_answer_that_does_not_come(monkeypatch) -> None:
    monkeypatch.setattr(forwarder, "ANSWER_SECONDS", 0.2)
    never = threading.Event()
    with Scripted([never, never, CLOSE, CLOSE]) as b, Node(forwards_to=b.url) as a:
        for method, path, applied in [("POST", "/v1/topics/t/messages", None), ("GET", "/v1/topics", False)]:
            error = Asking(a.url)(method, path).json["error"]
            assert (error["code"], error.get("applied", False)) == ("owner_unreachable", applied)
            assert error["message"].endswith("did not answer in time")
        assert len(b.seen) == 2
        never.set()


def test_an_owner_that_falls_silent(monkeypatch, pair) -> None:
    """As one does whose machine is gone; this one only has nothing to say for a while."""
    a, _ = pair
    monkeypatch.setattr(pieces, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(talking, "SILENCE_SECONDS", 0.2)

    async def work(session: aiohttp.ClientSession) -> None:
        async with events(session, "t") as stream, session.ws_connect("/v1/topics/u/stream") as socket:
            assert await stream.ends() == "failed"
            ended = await socket.receive()
            assert (ended.type, ended.data, ended.extra) == (aiohttp.WSMsgType.CLOSE, 1001, "owner_unreachable")

    run(work, a.url)


def test_an_owner_that_is_killed(tmp_path: Path) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with events(session, "t") as stream:
            await publish(session, "t", "x")
            await stream.next()
            async with session.ws_connect("/v1/topics/u/stream") as socket:
                await publish(session, "u", "x")
                await socket.receive_json()
                async with session.put("/v1/topics/v", json={}) as made:
                    assert made.status < 300
                asking = asyncio.ensure_future(session.post("/v1/topics/v/receive", json={"wait": "60s"}))
                await until(session, "v", lambda numbers: "default" in numbers["groups"])
                b.kill()
                async with await asking as got:
                    error = (await got.json())["error"]
                    assert (got.status, error["code"], error["applied"]) == (503, "owner_unreachable", None)
                assert await stream.ends() == "failed"
                ended = await socket.receive()
                assert (ended.type, ended.data, ended.extra) == (aiohttp.WSMsgType.CLOSE, 1001, "owner_unreachable")
        async with session.get("/v1/topics") as got:
            error = (await got.json())["error"]
            assert (got.status, error["code"], error.get("applied", False)) == (503, "owner_unreachable", False)
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect("/v1/topics/u/stream")
        assert caught.value.status == 503

    with Process(tmp_path, "--memory") as b, Node(forwards_to=b.url) as a:
        run(work, a.url)


def test_an_owner_that_is_frozen_holds_up_nobody_else(tmp_path: Path) -> None:
    with (
        Process(tmp_path, "--memory") as b,
        Node() as other,
        Node(forwards_to=b.url, topics={"other": other.url}) as a,
    ):
        ask = Asking(a.url)
        ask.publish("t", "x")
        b.send(signal.SIGSTOP)
        try:
            slow = [Background(lambda: ask("GET", "/v1/topics/t/stats")) for _ in range(20)]
            slow[0].assert_waiting()
            ask.publish("other", "y")
            assert ask("GET", "/health").status == 200
            assert ask("GET", "/v1/topics/other/stats").json["ready"] == 1
        finally:
            b.send(signal.SIGCONT)
        assert [call.result().json["ready"] for call in slow] == [1] * 20


def test_there_are_so_many_lines_and_no_more(monkeypatch, clock) -> None:
    monkeypatch.setattr(owners, "WAITING_MAX", 1)
    monkeypatch.setattr(owners, "LINES_MAX", 2)
    monkeypatch.setattr(owners, "ROOM_SECONDS", 0.2)
    with Node(clock=clock) as b, Node(clock=clock, forwards_to=b.url) as a:
        ask = Asking(a.url)
        waiting = Background(lambda: ask("POST", "/v1/topics/t/receive", {"wait": "60s"}))
        assert clock.asleep.wait(DEADLINE_SECONDS)
        got = ask("POST", "/v1/topics/t/receive", {"wait": "60s"})
        assert (got.status, got.error) == (503, "crowded")
        ask.publish("t", "x")  # who waits leaves room for others
        lease = waiting.result().json["lease"]
        assert ask("POST", f"/v1/leases/{lease}/ack").json["settled"] == 1


# Push


def test_events_come_through_as_they_come(pair) -> None:
    a, _ = pair

    async def work(session: aiohttp.ClientSession) -> None:
        async with events(session, "sse", prefetch=2) as stream:
            for payload in "abc":
                await publish(session, "sse", payload)
                message = await stream.next()
                assert message["payload"] == payload
                await settle(session, "ack", message["lease"])
            await publish(session, "sse", "d")
            await stream.next()
        await until(session, "sse", lambda numbers: numbers["ready"] == 1)

    run(work, a.url)


def test_streams_end_when_a_node_stops(clock) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with events(session, "t") as stream, session.ws_connect("/v1/topics/u/stream") as socket:
            await publish(session, "t", "x")
            await stream.next()
            ending = asyncio.get_running_loop().run_in_executor(None, a.close)
            assert await stream.ends() == "end"
            assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
            await ending

    with Node(clock=clock) as b:
        a = Node(clock=clock, forwards_to=b.url)
        run(work, a.url)
        with mqueue.Client(b.url) as q:
            assert len(q.receive("t", wait="60s")) == 1


def test_a_socket_goes_both_ways(pair) -> None:
    a, _ = pair

    async def work(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect("/v1/topics/t/stream", params={"prefetch": 2}, max_msg_size=0) as socket:
            ids = await publish(session, "t", "a", "b" * 300_000, "c")
            held = await socket.receive_json()
            assert [len(message["payload"]) for message in held["messages"]] == [1, 300_000]
            await socket.send_json({"ack": ids[:1], "seq": 1})
            assert (await socket.receive_json())["settled"] == 1
            await socket.send_bytes(b"{")
            answers = [await socket.receive_json(), await socket.receive_json()]
            assert {"bad_json"} == {one["error"]["code"] for one in answers if "error" in one}
        await until(session, "t", lambda numbers: numbers["leased"] == 0)
        assert (await stats(session, "t"))["ready"] == 2

    run(work, a.url)


def test_a_socket_is_refused_in_the_owners_words(pair) -> None:
    a, _ = pair

    async def work(session: aiohttp.ClientSession) -> None:
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        async with session.get("/v1/topics/t/stream", headers=upgrade) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (503, "not_owner")

    with Node(forwards_to=a.url) as first:
        run(work, first.url)


# Who calls


def security(**more: Any) -> Config:
    jwt = Jwt(secret=Secret(TOKEN_SECRET), algorithms=("HS256",))
    return Config(security=Security(auth=("jwt",), jwt=jwt, **more))


def token(*scopes: str, now: int | None = None) -> str:
    at = int(time.time() * 1000) if now is None else now
    return issue(TOKEN_SECRET, "HS256", subject="svc", scopes=scopes, issuer="mqueue", audience="mqueue", now=at)


def forged(secret: bytes, method: str, target: str) -> dict[str, str]:
    root = Principal("root", (Grant("admin", "*"),))
    now = int(time.time() * 1000)
    told = Voucher(secret, lambda: now).headers(root, "10.0.0.1", "", method, target)
    return {name.replace("-", "_"): value for name, value in told}


def test_the_owner_is_told_who_calls() -> None:
    with Node(security()) as b, Node(security(), forwards_to=b.url) as a:
        may, may_not = Asking(a.url, Authorization=f"Bearer {token('*:default')}"), Asking(a.url)
        assert may("POST", "/v1/topics/t/messages", {"messages": [{"payload": "x"}]}).status == 200
        assert may_not("GET", "/v1/topics").status == 401
        reader = Asking(a.url, Authorization=f"Bearer {token('read:default/t')}")
        lease = reader("POST", "/v1/topics/t/receive").json["lease"]
        assert reader("POST", f"/v1/leases/{lease}/ack").json["settled"] == 1
        assert reader("POST", "/v1/receive", {"topics": ["u"]}).status == 403  # the owner judges what is in the body


def test_credentials_go_no_further_than_they_have_to() -> None:
    with Scripted([answer()]) as b, Node(security(), forwards_to=b.url) as a:
        Asking(a.url, Authorization=f"Bearer {token('admin:*')}")("GET", "/v1/topics")
        [head] = b.heads
        assert "authorization" not in head
        assert "x-mqueue-vouched: " in head
        assert "x-mqueue-peer: 127.0.0.1" in head


def test_whoever_says_so_without_the_secret_gains_nothing() -> None:
    reads = Asking.__call__
    with Node(security()) as b, Node(security(), forwards_to=b.url) as a, Node(security(), secret=None) as alone:
        wrong = forged(b"a guess that is as long as a secret is", "GET", "/v1/topics")
        right = forged(SECRET, "GET", "/v1/topics")
        assert reads(Asking(b.url), "GET", "/v1/topics", **wrong).status == 401
        assert reads(Asking(b.url), "GET", "/v1/topics", **right).status == 200  # so the test can fail
        assert reads(Asking(b.url), "GET", "/v1/topics/t/stats", **right).status == 401
        for url in (a.url, alone.url):  # they do not even look
            assert reads(Asking(url), "GET", "/v1/topics", **right).status == 401
        poor = Asking(a.url, Authorization=f"Bearer {token('read:default/u')}")
        assert poor("GET", "/v1/topics/t/stats", **right).status == 403
        mixed = Asking(b.url, Authorization=f"Bearer {token('admin:*')}")
        assert mixed("GET", "/v1/topics", **wrong).status == 401


def test_a_caller_with_a_certificate_is_known_at_the_owner_too(tmp_path: Path) -> None:
    write_pair(SERVER, tmp_path)
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    tls = Tls(
        str(tmp_path / "tls.crt"),
        str(tmp_path / "tls.key"),
        client_ca_file=str(tmp_path / "ca.pem"),
        clients={"dns:billing.example": ("*:default",)},
    )
    context = client_context(SERVER.certificate, CA.issue(names=[x509.DNSName("billing.example")]))
    with Node(security()) as b, Node(security(tls=tls), forwards_to=b.url) as a:
        url = a.url.replace("127.0.0.1", "localhost")
        ask = Asking(url, context)
        ask.publish("t", "x")
        got = ask("GET", "/v1/topics/t/stream", first_bytes=True)
        assert (got.status, got.body[:6]) == (200, b"retry:")
        ask.publish("t", "y")
        assert ask("POST", "/v1/topics/t/receive", {"wait": "60s"}).json["messages"]


def test_a_stream_ends_when_its_caller_may_not_listen_any_more() -> None:
    clock = ManualClock()
    mine = {"Authorization": f"Bearer {token('*:default', now=clock.now())}"}

    async def work(session: aiohttp.ClientSession) -> None:
        stream_of = session.get("/v1/topics/t/stream", headers=mine)
        async with stream_of as answer, session.ws_connect("/v1/topics/u/stream", headers=mine) as socket:
            assert answer.status == 200
            clock.advance("2h")
            later = {"Authorization": f"Bearer {token('*:default', now=clock.now())}"}
            for topic in "tu":
                body = {"messages": [{"payload": "x"}]}
                async with session.post(f"/v1/topics/{topic}/messages", json=body, headers=later) as got:
                    assert got.status == 200
            text = await answer.text()
            assert "event: failed" in text
            assert "event: message" not in text
            assert (await socket.receive_json())["error"]["code"] == "unauthorized"
            assert (await socket.receive()).data == 1008
            for topic in "tu":
                asked = {"wait": "60s"}
                async with session.post(f"/v1/topics/{topic}/receive", json=asked, headers=later) as got:
                    assert len((await got.json())["messages"]) == 1

    with Node(security(), clock) as b, Node(security(), clock, forwards_to=b.url) as a:
        run(work, a.url)
