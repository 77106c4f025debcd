"""Who is let in over Flight, and what they may do: tokens, keys, basic credentials, TLS, client certificates."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import flight

import mqueue
from mqueue.assembly.reload import Reloader
from mqueue.assembly.server import Serving
from mqueue.config import Address, Config, Data, RateLimit, Server, Tls
from mqueue.server.flight import door
from mqueue.server.security.certificates import CERTIFICATE_NAME, KEY_NAME, self_signed, write_pair
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.flying import PAYLOAD, Flying, batch, described, with_flight
from tests.integration.test_security_http import security, token
from tests.unit.test_security_tls import CA, SERVER


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer(with_flight(security=security())) as running:
        Flying(running, token("*:*")).put(["team", "orders"], batch(b"1"))
        yield running


def calls(f: Flying) -> dict[str, Any]:
    """One call of each kind, in team/orders, and the right that it takes."""
    place = ["team", "orders"]

    def exchange() -> None:
        with f.exchange(place) as stream:
            stream.receive()

    return {
        "read list": lambda: list(f.client.list_flights(b'{"namespace": "team"}', f.options)),
        "read info": lambda: f.info(place),
        "read schema": lambda: f.client.get_schema(described(place), f.options),
        "read get": lambda: f.get({"namespace": "team", "topic": "orders", "partition": 0, "start": 0, "stop": 1}),
        "write put": lambda: f.put(place, batch(b"x")),
        "read exchange": exchange,
        "any actions": lambda: list(f.client.list_actions(f.options)),
        "read action": lambda: f.act("stats", namespace="team", topic="orders"),
        "admin action": lambda: f.act("configure", namespace="team", topic="orders", settings={"max_retries": 3}),
    }


CALLS = tuple(calls(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("any")])
def test_every_call_takes_its_right(server, name: str) -> None:
    scope = name.partition(" ")[0]
    calls(Flying(server, token(f"{scope}:team")))[name]()
    refused, where = (pa.ArrowException, "") if name == "read schema" else (flight.FlightUnauthorizedError, "^")
    for wrong in ((), ("*:other",), ("read:team",) if scope == "write" else ("write:team",)):
        with pytest.raises(refused, match=f"{where}forbidden: "):
            calls(Flying(server, token(*wrong)))[name]()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", [None, "no token", token("*:*", now=0)], ids=["none", "bad", "old"])
def test_nobody_comes_in_without_credentials(server, name: str, given: str | None) -> None:
    # Arrow's client makes an OSError of whatever status GetSchema ends with.
    refused = OSError if name == "read schema" else flight.FlightUnauthenticatedError
    with pytest.raises(refused, match=r"^unauthorized: .* Detail: Unauthenticated") as caught:
        calls(Flying(server, given))[name]()
    if name != "read schema":
        assert json.loads(caught.value.extra_info)["code"] == "unauthorized"


def test_keys_and_basic_credentials(server) -> None:
    ask = Asking(server.url, authorization=f"Bearer {token('admin:*')}")
    key = ask("POST", "/v1/keys", {"name": "robot", "scopes": ["read:team"]}).json["key"]
    assert Flying(server, key).scan(["team", "orders"]).num_rows >= 1
    f = Flying(server)
    header = f.client.authenticate_basic_token("whoever", key)
    assert header == (b"authorization", f"Bearer {key}".encode())
    f.options = flight.FlightCallOptions(headers=[header])
    assert f.info(["team", "orders"]).endpoints
    with pytest.raises(flight.FlightUnauthenticatedError):
        f.client.authenticate_basic_token("whoever", "wrong")
    ask("DELETE", "/v1/keys/robot")
    with pytest.raises(flight.FlightUnauthenticatedError):
        f.info(["team", "orders"])


def test_a_stream_ends_with_the_right_to_it(server) -> None:
    ask = Asking(server.url, authorization=f"Bearer {token('admin:*')}")
    key = ask("POST", "/v1/keys", {"name": "guest", "scopes": ["*:team"]}).json["key"]
    f = Flying(server, key)
    writer, receipts = f.client.do_put(described(["team", "orders"]), PAYLOAD, f.options)
    with f.exchange(["team", "orders"]) as stream:
        writer.write_batch(batch(b"x"))
        receipts.read()
        lease, _ = stream.receive()
        ask("DELETE", "/v1/keys/guest")
        assert stream.ask(ack={"lease": lease})["error"]["code"] == "unauthorized"
        assert stream.ask(receive={})["error"]["code"] == "unauthorized"
        writer.write_batch(batch(b"x"))
        with pytest.raises(flight.FlightUnauthenticatedError, match=r"^unauthorized: batch 1: "):
            writer.close()


def test_messages_by_id_take_the_right_to_their_topic(server) -> None:
    admin = Flying(server, token("*:*"))
    [[id, *_]] = admin.put(["team", "orders"], batch(b"1"))[0]["stretches"]
    assert Flying(server, token("read:team/orders")).act("trace", namespace="team", id=id)["topic"] == "orders"
    for asked in (id, "7"):  # who may not is not told whether it is there
        with pytest.raises(flight.FlightUnauthorizedError, match="may not read in 'team'"):
            Flying(server, token("read:team/other")).act("trace", namespace="team", id=asked)


def test_the_rate_limit_counts_flight_calls() -> None:
    limited = security(rate_limit=RateLimit(per_second=1, burst=3))
    with RunningServer(with_flight(security=limited)) as server:
        f = Flying(server, token("*:*"))
        with pytest.raises(flight.FlightUnavailableError, match=r"^rate_limited: "):  # noqa: PT012 - one of them
            for _ in range(10):
                f.act("topics")


def test_only_so_many_calls_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(door, "CALLS_MAX", 2)
    with RunningServer(with_flight()) as server:
        f = Flying(server)
        with f.exchange("a") as one, f.exchange("b") as other:
            assert (one.receive(), other.receive()) == ((None, []), (None, []))
            with pytest.raises(flight.FlightUnavailableError, match=r"^backpressure: "):
                f.act("topics")
        deadline = time.monotonic() + 120
        while True:  # the end of a stream is told before its call is over
            try:
                assert f.act("topics") == {"topics": ["a", "b"], "next": None}
                break
            except flight.FlightUnavailableError:
                assert time.monotonic() < deadline


def tls(place: Path, **more: Any) -> Tls:
    write_pair(SERVER, place)
    return Tls(str(place / CERTIFICATE_NAME), str(place / KEY_NAME), **more)


def test_tls(tmp_path: Path) -> None:
    with RunningServer(with_flight(security=security(tls=tls(tmp_path)))) as server:
        f = Flying(server, token("*:*"), tls_root_certs=SERVER.certificate)
        f.put("t", batch(b"1"))
        assert f.scan("t")["payload"].to_pylist() == [b"1"]
        with pytest.raises(flight.FlightUnavailableError):
            Flying(server, token("*:*"), tls_root_certs=CA.pem).act("topics")


def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    """Streams that are open stay as they are; a server that stops ends those, too."""
    config = with_flight(security=security(tls=tls(tmp_path)), data=Data(memory=True))
    start = replace(config, server=replace(config.server, http=Address("127.0.0.1", 0), amqp=None))
    other = self_signed(int(time.time() * 1000))

    def flying(server: Serving, certificate: bytes) -> Flying:
        shown = SimpleNamespace(url="https://", addresses=server.addresses)
        return Flying(cast(RunningServer, shown), token("*:*"), tls_root_certs=certificate)

    def story(server: Serving, renew: Callable[[], None]) -> None:
        old = flying(server, SERVER.certificate)
        old.put("t", batch(b"1", b"2"))
        stream = old.exchange("t")
        lease, _ = stream.receive()
        for _ in range(2):  # the second time there is nothing new
            write_pair(other, tmp_path)
            renew()
        deadline = time.monotonic() + 120
        while True:  # for a moment nobody listens
            try:
                assert flying(server, other.certificate).act("topics")["topics"] == ["t"]
                break
            except (flight.FlightUnavailableError, flight.FlightCancelledError):
                assert time.monotonic() < deadline
        with pytest.raises(flight.FlightUnavailableError):
            flying(server, SERVER.certificate).act("topics")
        assert stream.ask(ack={"lease": lease})["ack"]["settled"] == 1
        assert stream.receive()[1] == [b"2"]

    async def run() -> None:
        server = Serving(start)
        await server.start()
        reloader, loop = Reloader(server, lambda: start), asyncio.get_running_loop()
        renew = lambda: asyncio.run_coroutine_threadsafe(reloader.run_once(), loop).result(120)  # noqa: E731
        try:
            await asyncio.to_thread(story, server, renew)
        finally:
            async with asyncio.timeout(120):
                await server.stop()

    asyncio.run(run())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mqueue-flight")]


def test_client_certificates_open_the_line_and_name_nobody(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    place = tls(tmp_path, client_ca_file=str(tmp_path / "ca.pem"), clients={"dns:worker": ("*:*",)})
    with RunningServer(with_flight(security=security(tls=place))) as server:
        pair = CA.issue("worker")
        shown = {"cert_chain": pair.certificate, "private_key": pair.key, "tls_root_certs": SERVER.certificate}
        Flying(server, token("*:*"), **shown).put("t", batch(b"1"))
        with pytest.raises(flight.FlightUnauthenticatedError):
            Flying(server, **shown).act("topics")
        with pytest.raises(flight.FlightUnavailableError):
            Flying(server, token("*:*"), tls_root_certs=SERVER.certificate).act("topics")


def test_calls_are_counted() -> None:
    told = {
        'mqueue_flight_calls_total{method="do_put",outcome="ok"} 1.0',
        'mqueue_flight_calls_total{method="do_action",outcome="failed"} 1.0',
        "mqueue_flight_calls_in_flight 1.0",
    }
    with RunningServer(with_flight()) as server:
        f = Flying(server)
        f.put("t", batch(b"1"))
        with pytest.raises(pa.ArrowInvalid):
            f.act("fly")
        with f.exchange("t") as stream:
            stream.receive()
            deadline = time.monotonic() + 120
            page: list[str] = []
            while not told <= set(page):  # a caller knows of the end of a call before it is counted
                assert time.monotonic() < deadline, page
                page = Asking(server.url)("GET", "/metrics").body.decode().splitlines()


def test_no_port_no_listener() -> None:
    with RunningServer(with_flight()) as server:
        config = Config(server=Server(grpc=server.addresses["grpc"]))
        with pytest.raises(mqueue.Unavailable, match="cannot be listened on: Address already in use"):
            RunningServer(config)
