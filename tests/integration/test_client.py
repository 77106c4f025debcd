"""Clients of a real server: consuming, keeping leases, producing, being closed, forgotten, forked."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import mqueue
from mqueue.config import Config, Security, Tls
from mqueue.model.clock import SystemClock
from mqueue.server.security.certificates import write_pair
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.conformance.steps import Background, payloads
from tests.integration.scripted import Scripted, answer
from tests.unit.test_security_tls import CA, SERVER

T = TypeVar("T")

DEADLINE_SECONDS = 120


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[RunningServer]:
    with RunningServer(clock=clock) as server:
        yield server


@pytest.fixture
def q(server: RunningServer) -> Iterator[mqueue.Client]:
    with mqueue.Client(server.url) as q:
        yield q


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, DEADLINE_SECONDS))


def test_messages_are_messages(server: RunningServer, q: mqueue.Client) -> None:
    q.publish("t", {"n": 1})
    [m] = q.receive("t")
    assert isinstance(m, mqueue.Message)
    m.reject("no")
    [dead] = q.dlq("t").messages()
    assert isinstance(dead, mqueue.DeadMessage)
    assert (dead.reason, dead.error, dead.attempts, len(q.dlq("t"))) == ("rejected", "no", 1, 1)
    assert q.damage() == []

    async def main() -> None:
        async with mqueue.AsyncClient(server.url) as a:
            await a.publish("t", b"x")
            [m] = await a.receive("t")
            assert isinstance(m, mqueue.AsyncMessage)
            async with m:
                assert m.payload == b"x"
            [dead] = await a.dlq("t").messages(filter=lambda dead: dead.error == "no")
            assert isinstance(dead, mqueue.AsyncDeadMessage)
            assert (await a.stats("t")).acked == 1
            with pytest.raises(mqueue.Refused, match="cannot travel"):
                await a.dlq("t").redrive(filter=lambda dead: True)

    run(main())


def test_a_name_of_any_letters_reaches_the_trace(server: RunningServer) -> None:
    with mqueue.Client(server.url, name="Žofie 100%") as q:
        r = q.publish("t", b"x")
        q.receive("t")
        assert q.explain(r).by == "Žofie 100%"


def test_consuming_keeps_leases(server: RunningServer, clock: ManualClock) -> None:
    async def main() -> None:
        async with mqueue.AsyncClient(server.url) as q:
            await q.publish_many("t", [b"1", b"2"])
            messages = q.consume("t", visibility="10s")
            first = await anext(messages)
            holdings, now = q._home.holdings, asyncio.get_running_loop().time()
            for step in range(1, 5):
                clock.advance("9s")
                assert await holdings.run_once(now + step * 1000) is not None
                assert await q.receive("t") == []
            await first.ack()
            await (await anext(messages)).ack()
            assert await holdings.run_once(now + 10_000) is None

    run(main())


def test_a_kept_lease_that_is_lost_is_let_go(server: RunningServer, clock: ManualClock) -> None:
    async def main() -> None:
        async with mqueue.AsyncClient(server.url) as q:
            await q.publish("t", b"1")
            messages = q.consume("t", visibility="10s")
            first = await anext(messages)
            clock.advance("10s")
            holdings = q._home.holdings
            assert await holdings.run_once(asyncio.get_running_loop().time() + 1000) is None
            with pytest.raises(mqueue.LeaseLost):
                await first.ack()

    run(main())


def test_async_consume_gives_back_what_is_left(server: RunningServer) -> None:
    async def main() -> None:
        async with mqueue.AsyncClient(server.url) as q:
            await q.publish_many("t", [b"1", b"2", b"3"])
            messages = q.consume("t")
            await (await anext(messages)).ack()
            await messages.aclose()
            assert [(m.payload, m.attempt) for m in await q.receive("t", limit=9)] == [(b"2", 1), (b"3", 1)]

    run(main())


def test_async_subscribe(server: RunningServer) -> None:
    async def main() -> None:
        seen: list[bytes] = []
        done = asyncio.Event()

        async def handler(m: mqueue.AsyncMessage) -> None:
            seen.append(m.payload)
            if len(seen) == 10:
                done.set()

        async with mqueue.AsyncClient(server.url) as q:
            async with q.subscribe("t", handler, concurrency=3):
                await q.publish_many("t", [b"%d" % n for n in range(10)])
                await done.wait()
            assert sorted(seen) == [b"%d" % n for n in range(10)]
            assert (await q.stats("t")).acked == 10

    run(main())


def test_closing_gives_back_what_was_received(server: RunningServer, q: mqueue.Client) -> None:
    with mqueue.Client(server.url) as other:
        other.publish_many("t", [b"1", b"2"])
        held = other.receive("t", limit=2)
        held[0].ack()
    assert [(m.payload, m.attempt) for m in q.receive("t", limit=9)] == [(b"2", 1)]


def test_a_client_stays_in_its_loop(server: RunningServer) -> None:
    async def use(q: mqueue.AsyncClient) -> list[str]:
        return await q.topics()

    async def main() -> None:
        async with mqueue.AsyncClient(server.url) as q:
            await q.topics()
            with pytest.raises(mqueue.Refused) as refused:
                await asyncio.to_thread(asyncio.run, use(q))
            assert refused.value.code == "other_loop"

    run(main())


def test_follow_ups_go_with_one_lease(q: mqueue.Client) -> None:
    q.publish_many("t", [b"1", b"2"])
    held = [*q.receive("t"), *q.receive("t")]
    with pytest.raises(mqueue.Refused) as refused:
        q.ack(held, publish=[mqueue.Draft(b"x", topic="u")])
    assert (refused.value.code, refused.value.applied) == ("several_leases", False)
    assert q.ack(held).settled == 2


def test_messages_of_another_client_are_settled_there(server: RunningServer, q: mqueue.Client) -> None:
    q.publish("t", b"1")
    with mqueue.Client(server.url) as other:
        held = q.receive("t")
        with pytest.raises(mqueue.Refused):
            other.ack(held)
        q.namespace("elsewhere").ack(held)
    assert q.stats("t").acked == 1


def test_a_slow_redrive_goes_in_requests_that_do_not_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.client.dlq.REDRIVE_SECONDS", 0.002)
    with RunningServer() as server, mqueue.Client(server.url) as q:
        q.publish_many("t", [b"%d" % n for n in range(7)])
        q.reject(q.receive("t", limit=7), "no")
        dlq = q.dlq("t")
        assert dlq.redrive(rate=1000, dry_run=True) == mqueue.Redrive(7, 0, True)
        assert dlq.redrive(rate=1000, limit=3) == mqueue.Redrive(3, 3, False)
        assert dlq.redrive(rate=1000) == mqueue.Redrive(4, 4, False)
        assert sorted(payloads(q.receive("t", limit=9))) == [b"%d" % n for n in range(7)]
        for rate in (0, -1, float("nan"), "fast", True):
            with pytest.raises(mqueue.Refused) as refused:
                dlq.redrive(rate=rate)
            assert refused.value.code == "bad_rate"


# Producers


def test_a_producer_keeps_the_order_of_a_topic(q: mqueue.Client) -> None:
    with q.producer("t", batch=7, in_flight=3) as p:
        told = [p.publish(b"%d" % n, topic="u" if n % 3 == 0 else None) for n in range(500)]
        p.flush()
        assert all(future.done() for future in told)
        told += [p.publish(b"%d" % n) for n in range(500, 510)]
    receipts = [future.result() for future in told]
    assert [int(m.payload) for m in q.scan("u")] == list(range(0, 500, 3))
    assert [int(m.payload) for m in q.scan("t")] == [n for n in range(510) if n >= 500 or n % 3]
    assert [receipt.offset for receipt in receipts if receipt.topic == "u"] == list(range(167))


def test_only_what_is_wrong_fails(q: mqueue.Client) -> None:
    with q.producer("t", linger="10s") as p:
        told = [p.publish(b"x" * (1_048_577 if n == 13 else 1)) for n in range(40)]
    for n, future in enumerate(told):
        error = future.exception()
        assert isinstance(error, mqueue.TooLarge) == (n == 13)
        assert error is None or error.applied is False
    assert len(list(q.scan("t"))) == 39


def test_a_producer_checks_what_it_is_given(q: mqueue.Client) -> None:
    with q.producer() as p:
        with pytest.raises(mqueue.Refused) as refused:
            p.publish(b"x")
        assert refused.value.code == "no_topic"
        with pytest.raises(mqueue.BadPriority):
            p.publish(b"x", topic="t", priority="urgent")
    with pytest.raises(mqueue.Closed):
        p.publish(b"x", topic="t")
    for bad in ({"batch": 0}, {"in_flight": True}, {"buffer": 0}, {"batch_bytes": -1}, {"linger": "soon"}):
        with pytest.raises(mqueue.Refused):
            q.producer("t", **bad)


def test_a_full_buffer_makes_the_producer_wait() -> None:
    receipt = {"id": "1", "topic": "t", "partition": 0, "offset": 0, "duplicate": False}
    published = answer(200, {"receipts": [receipt], "durability": "memory"})
    go_on = threading.Event()
    with Scripted([go_on, published, published]) as server, mqueue.Client(server.url) as q:
        p = q.producer("t", buffer=1, linger=0)
        first = p.publish(b"1")
        second = Background(lambda: p.publish(b"2"))
        second.assert_waiting()
        go_on.set()
        assert second.result().result(DEADLINE_SECONDS).id == 1
        assert first.done()
        p.close()


def test_async_producer(server: RunningServer) -> None:
    async def main() -> None:
        async with mqueue.AsyncClient(server.url) as q:
            async with q.producer("t", buffer=10) as p:
                told = [await p.publish(b"%d" % n) for n in range(100)]
            receipts = await asyncio.gather(*told)
            assert [receipt.offset for receipt in receipts] == list(range(100))
            assert [m.payload async for m in q.scan("t")] == [b"%d" % n for n in range(100)]

    run(main())


def test_a_client_that_closes_tells_its_producers(server: RunningServer) -> None:
    with mqueue.Client(server.url) as q:
        p = q.producer("t", linger="1h")
        told = p.publish(b"1")
    p.close()
    with pytest.raises(mqueue.Closed):
        told.result(DEADLINE_SECONDS)


# The ends of clients and processes


def test_a_forgotten_client_gives_back_what_it_holds(q: mqueue.Client, server: RunningServer) -> None:
    q.publish("t", b"1")
    held = mqueue.Client(server.url).namespace("default").receive("t")  # the message alone keeps its client
    gc.collect()
    held[0].extend("12h")
    waiting = Background(lambda: q.receive("t", wait="60s"))
    waiting.assert_waiting()
    del held
    gc.collect()
    assert payloads(waiting.result()) == [b"1"]


def script(code: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )


def test_a_program_that_ends_gives_back_what_it_holds(q: mqueue.Client, server: RunningServer) -> None:
    q.publish_many("t", [b"1", b"2", b"3"])
    code = """
import sys, mqueue
q = mqueue.Client(sys.argv[1])
held = q.receive("t", visibility="12h")
messages = q.consume("t", visibility="12h")
print(next(messages).payload, flush=True)
"""
    done = script(code, server.url)
    assert (done.returncode, done.stdout) == (0, "b'2'\n"), done.stderr
    stats = q.stats("t").groups["default"]
    assert (stats.leased, stats.ready) == (0, 3)


def test_a_forked_child_says_so(server: RunningServer) -> None:
    code = """
import os, sys, mqueue
q = mqueue.Client(sys.argv[1])
q.publish("t", b"1")
[m] = q.receive("t")
child = os.fork()
if child == 0:
    for call in (q.topics, m.ack, lambda: q.publish("t", b"2")):
        try:
            call()
        except mqueue.Closed as error:
            assert "fork" in str(error)
        else:
            os._exit(1)
    q.close()
    with mqueue.Client(sys.argv[1]) as own:
        own.publish("t", b"2")
    os._exit(7)
_, status = os.waitpid(child, 0)
m.ack()
q.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = script(code, server.url)
    assert done.returncode == 7, done.stderr


# TLS


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[RunningServer]:
    write_pair(SERVER, tmp_path)
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    tls = Tls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), client_ca_file=str(tmp_path / "ca.pem"))
    with RunningServer(Config(security=Security(tls=tls)), SystemClock()) as server:
        yield server


def test_tls_with_a_certificate_of_its_own(secure: RunningServer, tmp_path: Path) -> None:
    assert secure.url.startswith("https:")
    pair = CA.issue()
    (tmp_path / "me.crt").write_bytes(pair.certificate)
    (tmp_path / "me.key").write_bytes(pair.key)
    cert = tmp_path / "me.crt", tmp_path / "me.key"
    with mqueue.Client(secure.url, ca=tmp_path / "tls.crt", cert=cert) as q:
        assert q.topics() == []
    for settings in ({}, {"ca": tmp_path / "ca.pem", "cert": cert}, {"ca": tmp_path / "tls.crt"}):
        with mqueue.Client(secure.url, retry=False, **settings) as q, pytest.raises(mqueue.Unavailable):
            q.topics()
