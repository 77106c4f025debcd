"""One connection, with a transport that only takes notes: order, limits in one go, patience with slow readers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mqueue.server.http.answer import TEXT, Answer, Streamed, error_answer
from mqueue.server.http.app import App
from mqueue.server.http.call import Call
from mqueue.server.http.connections import Connections
from mqueue.server.http.protocol import ARRIVED_MAX, NEVER, Connection
from mqueue.server.http.push import unless_over
from mqueue.server.http.service import Bounds
from mqueue.server.http.websockets import WebSockets

REQUEST = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
Handler = Callable[[str], Awaitable[Answer | Streamed]]


class Notes:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = self.aborted = self.ended = False
        self.reading = True
        self.waiting_bytes = 0
        self.socket: socket.socket | None = None

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("192.0.2.1", 1), "socket": self.socket}.get(name)

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the answers so far, none of which holds an empty line."""
        return [part.partition(b"HTTP/1.1")[0] for part in self.written.split(b"\r\n\r\n")[1:]]


class Stub:
    """An app that admits everybody."""

    def __init__(self, handler: Handler, bounds: Bounds) -> None:
        self.service = self
        self.bounds = bounds
        self._handler = handler

    def admit(self, method: str, target: str, headers: Any, socket: str, certificate: Any) -> Any:
        return SimpleNamespace(target=target, body=b""), SimpleNamespace(large=True)

    async def answer(self, call: SimpleNamespace, route: SimpleNamespace) -> Answer | Streamed:
        return await self._handler(call.target)

    def refusal(self, error: Any, what: str, headers: Any = None) -> Answer:
        return error_answer(error)


async def echo(target: str) -> Answer:
    return Answer(200, target.encode(), TEXT)


def opened(handler: Handler = echo, bounds: Bounds | None = None) -> tuple[Connection, Notes, Connections]:
    connections = Connections(cast(App, Stub(handler, bounds or Bounds())))
    return *joined(connections), connections


def joined(connections: Connections) -> tuple[Connection, Notes]:
    notes = Notes()
    connection = Connection(connections)
    connection.connection_made(cast(asyncio.BaseTransport, notes))
    return connection, notes


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await test()

    asyncio.run(run())


def test_requests_in_one_go_are_answered_in_order_and_so_many_at_most() -> None:
    async def test() -> None:
        connection, notes, _ = opened()
        connection.data_received(b"".join(REQUEST % number for number in range(ARRIVED_MAX + 10)))
        await cast(asyncio.Task[None], connection.work)
        assert notes.bodies[:ARRIVED_MAX] == [b"/%d" % number for number in range(ARRIVED_MAX)]
        assert json.loads(notes.bodies[ARRIVED_MAX])["error"]["code"] == "crowded"
        assert len(notes.bodies) == ARRIVED_MAX + 1
        connection.data_received(REQUEST % 0)
        assert connection.work is None

    in_loop(test)


def test_what_comes_while_at_work_is_held_and_not_read_on() -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def slow(target: str) -> Answer:
            await go.wait()
            return await echo(target)

        connection, notes, _ = opened(slow)
        connection.data_received(REQUEST % 1)
        await turns()
        connection.data_received(REQUEST % 2)
        connection.data_received(REQUEST % 3)
        assert not notes.reading
        go.set()
        await turns()
        await turns()
        assert notes.bodies == [b"/1", b"/2", b"/3"]
        assert notes.reading

    in_loop(test)


def test_whoever_leaves_cancels_what_is_done_for_him() -> None:
    async def test() -> None:
        ended = []

        async def endless(target: str) -> Answer:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(target)
            return await echo(target)

        connection, notes, connections = opened(endless)
        connection.data_received(REQUEST % 1)
        await turns()
        connection.connection_lost(None)
        await turns()
        assert (ended, notes.written, len(connections)) == (["/1"], b"", 0)

    in_loop(test)


def test_a_stream_is_written_no_faster_than_it_is_taken_and_closed_at_the_end() -> None:
    async def test() -> None:
        made: list[int] = []
        closed: list[bool] = []

        async def pieces() -> AsyncGenerator[bytes, None]:
            try:
                for number in range(100):
                    made.append(number)
                    yield b"%d" % number
                    await asyncio.sleep(0)
            finally:
                closed.append(True)

        async def stream(target: str) -> Streamed:
            return Streamed(pieces(), TEXT)

        connection, notes, _ = opened(stream)
        connection.data_received(REQUEST % 1)
        connection.pause_writing()
        await turns()
        assert made == [0]
        connection.resume_writing()
        for _ in range(50):
            await turns()
        assert len(made) == 100
        assert closed == [True]
        assert notes.written.endswith(b"2\r\n99\r\n0\r\n\r\n")
        assert not notes.closed

        connection.data_received(REQUEST % 2)
        await turns()
        connection.connection_lost(None)
        await turns()
        assert closed == [True, True]

    in_loop(test)


def test_a_slow_reader_is_cut_off_and_given_time_by_the_size_of_its_answer() -> None:
    async def test() -> None:
        connection, notes, connections = opened(bounds=Bounds(body_timeout_ms=30_000))
        connection.data_received(REQUEST % 1)
        await turns()
        notes.waiting_bytes = 64 * 1024 * 100
        connection.pause_writing()
        assert connection.deadline == pytest.approx(connections.now + connections.body_seconds + 100)
        connection.resume_writing()
        assert connection.deadline == NEVER
        connection.pause_writing()
        connection.expire()
        assert notes.aborted

    in_loop(test)


def test_whoever_does_not_take_the_last_answer_is_cut_off() -> None:
    """It may be too little to make anybody wait for it."""

    async def test() -> None:
        connection, notes, _ = opened()
        connection.data_received(b"GET /1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await turns()
        assert notes.closed
        assert connection.deadline < NEVER
        connection.expire()
        assert notes.aborted

    in_loop(test)


def test_a_stream_that_breaks_is_cut_off() -> None:
    async def test() -> None:
        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"1"
            raise ValueError("broken")

        async def stream(target: str) -> Streamed:
            return Streamed(pieces(), TEXT)

        connection, notes, _ = opened(stream)
        connection.data_received(REQUEST % 1)
        await turns()
        assert notes.written.endswith(b"1\r\n1\r\n")
        assert notes.aborted

    in_loop(test)


def test_a_stream_ends_when_its_listener_has_left(caplog: pytest.LogCaptureFixture) -> None:
    """The transport is closed a moment before we are told: nothing may be written in between."""
    more, ended = asyncio.Event(), asyncio.Event()

    async def test() -> None:
        async def pieces() -> AsyncGenerator[bytes, None]:
            try:
                yield b"1"
                await more.wait()
                yield b"2"
            finally:
                ended.set()

        async def stream(target: str) -> Streamed:
            return Streamed(pieces(), TEXT)

        connection, notes, _ = opened(stream)
        connection.data_received(REQUEST % 1)
        await turns()
        notes.close()
        more.set()
        await turns()
        assert ended.is_set()
        assert notes.written.endswith(b"1\r\n1\r\n")

    in_loop(test)
    assert not caplog.records


def test_a_websocket_that_does_not_take_its_goodbye_is_cut_off() -> None:
    class Deaf(Notes):
        def set_protocol(self, protocol: Any) -> None:
            self.protocol = protocol

    async def test() -> None:
        async def talk(scope: Any, receive: Any, send: Any) -> None:
            await receive()

        sockets, deaf = WebSockets(cast(App, talk)), Deaf()
        sockets.take_over(cast(asyncio.Transport, deaf), UPGRADE, None)
        sockets.sweep(0.0)
        deaf.close()
        sockets.sweep(1.0)
        sockets.sweep(2.0)
        assert not deaf.aborted
        sockets.sweep(60.0)
        assert deaf.aborted
        deaf.protocol.connection_lost(None)
        assert len(sockets) == 0
        await sockets.end()

    in_loop(test)


def test_a_flood_gets_no_answers() -> None:
    async def test() -> None:
        connections = Connections(cast(App, Stub(echo, Bounds(connections_max=1))))
        first, *rest = [joined(connections)[1] for _ in range(1010)]
        assert not first.closed
        assert b"crowded" in rest[0].written
        assert rest[-1].aborted
        assert rest[-1].written == b""

    in_loop(test)


def test_all_bodies_together_have_a_limit() -> None:
    async def test() -> None:
        connections = Connections(cast(App, Stub(echo, Bounds(bodies_bytes_max=1000))))
        post = b"POST /1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 800\r\n\r\n"
        (first, _), (second, told), (third, answered) = (joined(connections) for _ in range(3))
        first.data_received(post + b"x" * 700)
        second.data_received(post + b"x" * 700)
        assert b"crowded" in told.written
        assert told.ended
        second.connection_lost(None)
        first.connection_lost(None)
        assert connections.room.taken == 0
        third.data_received(b"POST /2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 800\r\n\r\n" + b"x" * 700)
        third.data_received(b"x" * 100)
        await turns()
        assert answered.bodies == [b"/2"]
        assert connections.room.taken == 0

    in_loop(test)


# Whoever has left


def lent(given_back: list[str]) -> Handler:
    async def answer(target: str) -> Answer:
        async def give_back() -> None:
            await asyncio.sleep(0)
            given_back.append(target)

        return Answer(200, target.encode(), TEXT, give_back=give_back)

    return answer


def test_what_was_lent_to_one_who_stays_is_not_given_back() -> None:
    async def main() -> None:
        given_back: list[str] = []
        connection, notes, _ = opened(lent(given_back))
        connection.data_received(REQUEST % 1)
        await turns()
        assert (notes.bodies, given_back) == ([b"/1"], [])

    asyncio.run(main())


def test_what_was_lent_to_one_who_is_leaving_is_given_back() -> None:
    async def main() -> None:
        given_back: list[str] = []
        connection, notes, _ = opened(lent(given_back))
        connection.data_received(REQUEST % 1)
        notes.close()
        await turns()
        assert (notes.written, given_back) == (b"", ["/1"])

    asyncio.run(main())


def test_what_was_lent_to_one_whose_farewell_lies_unread_is_given_back() -> None:
    """It is told only while the answer waits: by then the loop has read it."""

    async def main() -> None:
        given_back: list[str] = []
        connection, notes, _ = opened(lent(given_back))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            notes.socket = ours
            theirs.close()
            connection.data_received(REQUEST % 1)
            await asyncio.sleep(0)
            connection.connection_lost(None)
            await turns()
        assert (notes.written, given_back) == (b"", ["/1"])

    asyncio.run(main())


@pytest.mark.parametrize("leaves", [True, False])
def test_what_comes_in_the_moment_that_somebody_leaves_is_undone(leaves: bool) -> None:
    async def main() -> None:
        undone: list[int] = []
        call = cast(Call, SimpleNamespace(service=SimpleNamespace(stopping=asyncio.Event()), gone=None))
        ready = asyncio.Event()

        async def work() -> int:
            await ready.wait()
            return 7

        async def undo(found: int) -> None:
            await asyncio.sleep(0)
            undone.append(found)

        waiting = asyncio.create_task(unless_over(call, work(), undo))
        await turns()
        ready.set()
        await asyncio.sleep(0)  # the work is done, and nobody has looked at it yet
        if leaves:
            waiting.cancel()
        found = await asyncio.gather(waiting, return_exceptions=True)
        await turns()
        assert undone == ([7] if leaves else [])
        assert leaves or found == [7]

    asyncio.run(main())
