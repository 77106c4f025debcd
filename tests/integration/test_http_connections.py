"""Connections to a server: what is framed wrong, too long, too slow or too much, and how they end."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from mqueue.config import Config, Metrics, Server
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

PATIENCE_SECONDS = 120
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"messages":[{"payload":"a"}]}'
PUBLISH = b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\n"

WAIT = b"POST /v1/topics/orders/receive HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n" + b'{"wait":"60s"}'


def running(clock: Any = None, **bounds: int) -> RunningServer:
    """A server with these bounds, whose metrics are of the moment."""
    config = Config(server=replace(Server(), **bounds), metrics=Metrics(interval_ms=0))
    return RunningServer(config, clock)


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningServer]:
    with running() as server:
        yield server


class Line:
    """A bare connection."""

    def __init__(self, server: RunningServer) -> None:
        host, _, port = server.url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> Line:
        self._socket.sendall(data)
        return self

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer; its status is 0 if the connection ends instead."""
        first = self._file.readline()
        if not first:
            return 0, {}, b""
        status = int(first.split()[1])
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def error(self) -> tuple[int, str]:
        """The status and code of the next answer, which is the last one."""
        status, headers, body = self.answer()
        assert headers["connection"] == "close"
        return status, json.loads(body)["error"]["code"]

    def try_to_send(self, data: bytes, last: bool = False) -> None:
        """The other side may have ended it meanwhile. A connection that was reset is none to be shut down either."""
        with suppress(OSError):
            self.send(data)
            if last:
                self._socket.shutdown(socket.SHUT_WR)

    def last_status(self) -> int:
        """The status of the answer that the connection ends with; 0 if it ends without one."""
        try:
            status = self.answer()[0]
        except ConnectionError:
            return 0
        return status if self.ended else -1

    @property
    def ended(self) -> bool:
        """Whether nothing more comes. Waits for the end."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def waiting_calls(ask: Asking) -> int:
    """How many requests are under way besides the one that asks."""
    page = ask("GET", "/metrics").body.decode()
    found = re.search(r"^mqueue_http_requests_in_flight ([0-9.]+)$", page, re.MULTILINE)
    assert found is not None
    return int(float(found[1])) - 1


def until(true: Callable[[], bool]) -> None:
    """Ask until it is true; each question takes its time, so nobody sleeps."""
    for _ in range(100_000):
        if true():
            return
    raise AssertionError("it never became true")


BAD_FRAMING = [
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3, 3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: ::1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: ::1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Late: 1\r\n\r\n",
    b"GET / HTTP/1.1\nHost: a\n\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /\xc3\xbc HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"FOO / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


class TestFraming:
    @pytest.mark.parametrize("data", BAD_FRAMING, ids=range(len(BAD_FRAMING)))
    def test_what_is_framed_wrong_is_refused_and_the_connection_ends(self, shared: RunningServer, data: bytes) -> None:
        with Line(shared) as line:
            assert line.send(data + HEALTH).error() == (400, "bad_http")
            assert line.ended

    def test_nothing_of_a_smuggled_request_is_done(self, shared: RunningServer) -> None:
        inner = b"POST /v1/topics/smuggled/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n" + BODY
        outer = PUBLISH + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n"
        with Line(shared) as line:
            line.send(outer + b"\r\n0\r\n\r\n" + inner)
            assert line.error() == (400, "bad_http")
            assert line.ended
        assert "smuggled" not in Asking(shared.url)("GET", "/v1/topics").json["topics"]

    def test_requests_sent_in_one_go_are_answered_in_their_order(self, shared: RunningServer) -> None:
        topics = [f"piped-{number}" for number in range(50)]
        data = b"".join(
            b"POST /v1/topics/%b/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (topic.encode(), len(BODY), BODY)
            for topic in topics
        )
        with Line(shared) as line:
            line.send(data)
            assert [json.loads(line.answer()[2])["receipts"][0]["topic"] for _ in topics] == topics
            assert line.send(HEALTH).answer()[0] == 200

    def test_what_comes_before_the_wrong_bytes_is_answered(self, shared: RunningServer) -> None:
        with Line(shared) as line:
            line.send(HEALTH + HEALTH + b"rubbish\r\n\r\n")
            assert [line.answer()[0], line.answer()[0]] == [200, 200]
            assert line.error() == (400, "bad_http")
            assert line.ended

    def test_byte_by_byte(self, shared: RunningServer) -> None:
        request = PUBLISH + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
        with Line(shared) as line:
            for at in range(len(request)):
                line.send(request[at : at + 1])
            assert line.answer()[0] == 200

    def test_a_body_in_chunks(self, shared: RunningServer) -> None:
        with Line(shared) as line:
            line.send(PUBLISH + b"Transfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(BODY), 7):
                piece = BODY[at : at + 7]
                line.send(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
            assert line.send(b"0\r\n\r\n").answer()[0] == 200
            assert line.send(HEALTH).answer()[0] == 200

    def test_old_clients_and_those_who_say_close(self, shared: RunningServer) -> None:
        for request in (b"GET /health HTTP/1.0\r\n\r\n", HEALTH[:-2] + b"Connection: close\r\n\r\n"):
            with Line(shared) as line:
                status, headers, body = line.send(request).answer()
                assert (status, headers["connection"], body) == (200, "close", b"OK")
                assert line.ended

    def test_head_is_get_without_a_body(self, shared: RunningServer) -> None:
        with Line(shared) as line:
            line.send(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line._file.readline().startswith(b"HTTP/1.1 200")
            headers = b"".join(iter(line._file.readline, b"\r\n"))
            assert b"content-length: 2\r\n" in headers
            assert line.send(HEALTH).answer()[2] == b"OK"

    def test_other_protocols_are_passed_over(self, shared: RunningServer) -> None:
        upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
        with Line(shared) as line:
            line.send(PUBLISH + upgrade + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY))
            assert line.answer()[0] == 200
            assert line.send(HEALTH).answer()[0] == 200

    def test_a_whole_address_as_target(self, shared: RunningServer) -> None:
        with Line(shared) as line:
            line.send(b"GET http://elsewhere:1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.answer()[0] == 200
            assert line.send(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").answer()[0] == 400

    def test_noise(self, shared: RunningServer) -> None:
        """Whatever comes, the server goes on, and nobody is told that it is to blame."""
        chance = random.Random(7)
        requests = [PUBLISH + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY), *BAD_FRAMING]
        for _ in range(150):
            data = bytearray(chance.choice(requests))
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with Line(shared) as line:
                line.try_to_send(bytes(data), last=True)
                assert line.last_status() < 500, bytes(data)
        assert Asking(shared.url)("GET", "/health").body == b"OK"


class TestSize:
    def test_headers(self) -> None:
        with running(headers_bytes_max=2048) as server:
            for headers in (
                b"X-Long: " + b"a" * 3000 + b"\r\n\r\n",
                b"".join(b"X-%d: a\r\n" % n for n in range(101)) + b"\r\n",
            ):
                with Line(server) as line:
                    assert line.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + headers).error() == (
                        431,
                        "headers_too_large",
                    )
                    assert line.ended
            with Line(server) as line:  # without an end
                assert line.send(b"GET /health HTTP/1.1\r\nX: " + b"a" * 4000).error() == (431, "headers_too_large")
                assert line.ended

    def test_bodies(self) -> None:
        with running(body_bytes_max=1000) as server:
            with Line(server) as line:
                line.send(PUBLISH + b"Content-Length: 1001\r\n\r\n")
                assert line.error() == (413, "body_too_large")
                assert line.ended
            with Line(server) as line:
                line.send(PUBLISH + b"Transfer-Encoding: chunked\r\n\r\n" + b"1f4\r\n" + b"a" * 500 + b"\r\n")
                line.send(b"1f5\r\n" + b"a" * 501 + b"\r\n")
                assert line.error() == (413, "body_too_large")
                assert line.ended
            assert Asking(server.url)("GET", "/v1/topics").json["topics"] == []

    def test_a_refused_request_with_a_small_body_keeps_the_connection(self, shared: RunningServer) -> None:
        with Line(shared) as line:
            line.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n" + BODY)
            assert line.answer()[0] == 404
            assert line.send(HEALTH).answer()[0] == 200

    def test_one_with_a_large_body_is_not_read(self, shared: RunningServer) -> None:
        with Line(shared) as line:
            line.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n")
            assert line.error() == (404, "no_route")
            assert line.ended

    def test_who_waits_for_a_word_gets_it(self, shared: RunningServer) -> None:
        expects = b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        with Line(shared) as line:
            assert line.send(PUBLISH + expects).answer()[0] == 100
            assert line.send(BODY).answer()[0] == 200
        with Line(shared) as line:
            assert line.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\n" + expects).error() == (404, "no_route")


class TestTime:
    """The deadlines are short here; how long it takes beyond them is not looked at."""

    def test_slow_headers(self) -> None:
        with running(headers_timeout_ms=1000) as server, ExitStack() as stack:
            lines = [stack.enter_context(Line(server)) for _ in range(50)]
            for line in lines:
                line.try_to_send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            silent = stack.enter_context(Line(server))
            until(lambda: _is_served(server))
            for line in lines:
                assert line.last_status() in (408, 0)  # 0: we were too slow even for the first byte
            assert silent.last_status() == 0

    def test_a_slow_body(self) -> None:
        with running(body_timeout_ms=500) as server, Line(server) as line:
            line.send(PUBLISH + b"Content-Length: 1000\r\n\r\n{")
            assert line.error() == (408, "too_slow")
            assert line.ended

    def test_idle_connections(self) -> None:
        with running(idle_timeout_ms=500) as server, Line(server) as line:
            assert line.send(HEALTH).answer()[0] == 200
            assert line.ended

    def test_a_long_poll_is_not_idle(self) -> None:
        clock = ManualClock()
        with ExitStack() as stack:
            server = stack.enter_context(running(clock, idle_timeout_ms=250, body_timeout_ms=250))
            line, idle = (stack.enter_context(Line(server)) for _ in range(2))
            line.send(WAIT)
            idle.send(HEALTH).answer()
            assert idle.ended  # after so long the other would have been cut off as well
            until(lambda: waiting_calls(Asking(server.url)) == 1)
            clock.advance("60s")
            assert json.loads(line.answer()[2])["messages"] == []


class TestCrowd:
    def test_more_connections_than_may_be_are_turned_away(self) -> None:
        with running(connections_max=5) as server, ExitStack() as stack:
            lines = [stack.enter_context(Line(server)) for _ in range(5)]
            for line in lines:
                assert line.send(HEALTH).answer()[0] == 200
            with Line(server) as line:
                status, headers, body = line.answer()
                assert (status, json.loads(body)["error"]["code"]) == (503, "crowded")
                assert headers["retry-after"] == "1"
                assert line.ended
            assert lines[0].send(HEALTH).answer()[0] == 200
            lines[0].close()
            until(lambda: _is_served(server))

    def test_many_at_once(self, shared: RunningServer) -> None:
        with ExitStack() as stack:
            lines = [stack.enter_context(Line(shared)) for _ in range(200)]
            for line in lines:
                line.send(HEALTH)
            assert {line.answer()[0] for line in lines} == {200}


def _is_served(server: RunningServer) -> bool:
    with Line(server) as line:
        line.try_to_send(HEALTH)
        with suppress(ConnectionError):
            return line.answer()[0] == 200
    return False


class TestLeaving:
    def test_who_leaves_takes_no_messages_along(self) -> None:
        with running(ManualClock()) as server:
            ask = Asking(server.url)
            with Line(server) as line:
                line.send(WAIT)
                until(lambda: waiting_calls(ask) == 1)
            until(lambda: waiting_calls(ask) == 0)
            ask.publish("orders", "a")
            [message] = ask("POST", "/v1/topics/orders/receive").json["messages"]
            assert (message["payload"], message["attempt"]) == ("a", 1)

    def test_whoever_waits_is_answered_when_the_server_stops(self) -> None:
        server = running(ManualClock())
        with Line(server) as line:
            line.send(WAIT)
            until(lambda: waiting_calls(Asking(server.url)) == 1)
            stopping = threading.Thread(target=server.close)
            stopping.start()
            status, headers, body = line.answer()
            assert (status, headers["connection"], json.loads(body)["messages"]) == (200, "close", [])
            assert line.ended
            stopping.join(PATIENCE_SECONDS)
            assert not stopping.is_alive()

    def test_idle_connections_do_not_hold_up_the_end(self) -> None:
        server = running()
        with Line(server) as idle, Line(server) as used:
            assert used.send(HEALTH).answer()[0] == 200
            server.close()
            assert idle.error() == used.error() == (408, "stopping")
            assert idle.ended
            assert used.ended

    def test_a_request_that_crosses_the_end_is_told_that_nothing_was_done(self) -> None:
        """It had left when its sender could not know: the server does not take it in, and does not cut it off."""
        server = running(ManualClock())
        with Line(server) as busy, Line(server) as line, Line(server) as silent:
            assert line.send(HEALTH).answer()[0] == 200
            assert silent.send(HEALTH).answer()[0] == 200
            busy.send(WAIT)
            until(lambda: waiting_calls(Asking(server.url)) == 1)
            stopping = threading.Thread(target=server.close)
            stopping.start()
            assert busy.answer()[0] == 200  # so it has begun
            line.try_to_send(PUBLISH + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            assert line.error() == (408, "stopping")
            assert line.ended
            stopping.join(PATIENCE_SECONDS)
            assert not stopping.is_alive()

    def test_who_comes_late_is_told_to_go_elsewhere(self) -> None:
        server = running(drain_timeout_ms=PATIENCE_SECONDS * 1000)
        with Line(server) as slow, Line(server) as idle:
            slow.send(PUBLISH + b"Content-Length: %d\r\n\r\n" % len(BODY))
            assert Asking(server.url)("GET", "/health").status == 200
            stopping = threading.Thread(target=server.close)
            stopping.start()
            assert idle.error() == (408, "stopping")  # so it has begun
            with Line(server) as late:
                late.try_to_send(HEALTH)
                assert late.error() == (503, "stopping")
            status, headers, _ = slow.send(BODY).answer()
            assert (status, headers["connection"]) == (200, "close")
            stopping.join(PATIENCE_SECONDS)
            assert not stopping.is_alive()

    def test_half_a_request_holds_it_up_no_longer_than_allowed(self) -> None:
        server = running(drain_timeout_ms=100)
        with Line(server) as line:
            line.send(PUBLISH + b"Content-Length: 1000\r\n\r\n{")
            assert Asking(server.url)("GET", "/health").status == 200
            server.close()
            assert line.ended
