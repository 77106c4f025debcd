"""One HTTP/1.1 connection: requests are answered one after the other, and there is a deadline for everything.

    idle ─► headers ─► body ─► at work ─► idle        what comes while at work is held, and no more is read
              │          │
              └─ wrong, too long, too slow ─► one answer, and the end

Whoever leaves cancels what is being done for him. When the server stops, whoever rests is told so by an answer that he
did not ask for: he may be asking at that very moment, and would not know whether he was heard. Who connects after that
is told the same. Knows no routes, and nothing of what is in a body.
"""

from __future__ import annotations

import asyncio
import logging
import math
import select
from typing import cast

from mqueue.model.errors import Backpressure, Error, Stopping
from mqueue.server.http import rendering
from mqueue.server.http.answer import Answer, Streamed, error_answer
from mqueue.server.http.connections import Connections
from mqueue.server.http.reading import Arrived, Reader

LOGGER = logging.getLogger("mqueue.server")

NEVER = math.inf
LINGER_SECONDS = 2.0
"""For so long what still comes in after the last answer is thrown away: a reset could overtake the answer."""
WRITE_BYTES_PER_SECOND = 64 * 1024
"""Whoever takes an answer more slowly than this is cut off."""
ARRIVED_MAX = 256
"""Requests of one connection that came in one go."""
_JOINED_MAX = 64 * 1024
"""A body up to this size is written together with its head."""


_TURNS_TO_READ = 2
"""Turns of a loop in which it reads what has come, and acts on it."""


class TooSlow(Error):
    code = "too_slow"
    status = 408
    retryable = True


class Connection(asyncio.Protocol):
    __slots__ = ("_connections", "_drained", "_held", "_over", "_reader", "_stage", "_transport", "_work", "deadline")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._reader: Reader | None = None
        self._stage = "idle"
        """How far the reader was when the deadline was set."""
        self._work: asyncio.Task[None] | None = None
        self._held = b""
        self._drained: asyncio.Future[None] | None = None
        """There while the other side does not take what is written."""
        self._over = False
        """Nothing is read any more."""
        self.deadline = NEVER

    @property
    def work(self) -> asyncio.Task[None] | None:
        return self._work

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connections = self._connections
        self._transport = cast(asyncio.Transport, transport)
        connections.add(self)
        if connections.crowded or connections.stopping:
            self._turn_away()
            return
        address = transport.get_extra_info("peername")
        encrypted = transport.get_extra_info("ssl_object")
        certificate = None if encrypted is None else encrypted.getpeercert(True)
        peer = str(address[0]) if isinstance(address, tuple) else ""
        self._reader = Reader(connections.app, connections.room, peer, certificate)
        self.deadline = connections.now + connections.headers_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._over = True
        self.deadline = NEVER
        if self._reader is not None:
            self._reader.leave()
        if self._work is not None:
            self._work.cancel()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if self._work is not None:
            if not self._held:
                self._transport.pause_reading()
            self._held += data
        else:
            self._feed(data)

    def eof_received(self) -> bool:
        """Whoever says that he sends no more has left: nobody can tell whether he still listens."""
        return False

    def pause_writing(self) -> None:
        connections = self._connections
        self._drained = connections.loop.create_future()
        size = self._transport.get_write_buffer_size()
        self.deadline = connections.now + connections.body_seconds + size / WRITE_BYTES_PER_SECOND

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        self.deadline = self._connections.now + LINGER_SECONDS if self._over else NEVER
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _turn_away(self) -> None:
        connections = self._connections
        if connections.flooded:
            self.abort()
            return
        if connections.stopping:
            connections.part(self)
            self._end(error_answer(_stopping()))
            return
        most = connections.bounds.connections_max
        why = f"{len(connections)} connections; {most} are allowed"
        self._end(error_answer(Backpressure(why, code="crowded", retry_after=1)))

    # What `Connections` calls

    def expire(self) -> None:
        """The deadline has passed."""
        if self._over or self._drained is not None:
            self._transport.abort()
        elif self._stage == "idle":
            self._over = True
            self._transport.close()
        else:
            bounds = self._connections.bounds
            patience_ms = bounds.body_timeout_ms if self._stage == "body" else bounds.headers_timeout_ms
            self._end(error_answer(TooSlow(f"the {self._stage} of a request took longer than {patience_ms} ms")))

    def finish(self) -> None:
        """Close as soon as nothing is under way."""
        if self._over or self._work is not None or self._stage != "idle":
            return
        self._over = True
        self._connections.part(self)
        self._send(error_answer(_goodbye()), last=True)
        self._listen_on()

    def abort(self) -> None:
        self._over = True
        self._transport.abort()

    # Reading

    def _feed(self, data: bytes) -> None:
        reader = self._reader
        assert reader is not None
        fault = reader.feed(data)
        arrived = reader.arrived
        if arrived:
            reader.arrived = []
            self._take(arrived, fault)
        elif fault is not None:
            self._end(fault)
        elif reader.upgrade is not None:
            self._upgrade(reader, reader.upgrade)
        else:
            self._await_more(reader)

    def _take(self, arrived: list[Arrived], fault: Answer | None) -> None:
        """Answer requests in their order, and then what is wrong with the bytes behind them."""
        if fault is not None:
            arrived.append(Arrived(None, fault, True, False))
        if len(arrived) > ARRIVED_MAX:
            most = f"more than {ARRIVED_MAX} requests in one go; {ARRIVED_MAX} are allowed"
            del arrived[ARRIVED_MAX:]
            arrived.append(Arrived(None, error_answer(Backpressure(most, code="crowded")), True, False))
        self.deadline = NEVER
        self._work = self._connections.loop.create_task(self._answer_all(arrived))

    def _await_more(self, reader: Reader) -> None:
        """Set the deadline of what is being read."""
        if reader.expects:
            reader.expects = False
            self._transport.write(rendering.CONTINUE)
        if reader.stage != self._stage:
            connections = self._connections
            self._stage = reader.stage
            seconds = connections.body_seconds if reader.stage == "body" else connections.headers_seconds
            self.deadline = connections.now + seconds

    # Answering

    async def _answer_all(self, arrived: list[Arrived]) -> None:
        last = False
        try:
            for request in arrived:
                last = await self._answer(request)
                if last:
                    break
        except Exception as error:  # what was sent of a stream cannot be taken back: it is cut off
            LOGGER.error("an answer broke off", exc_info=error)
            self.abort()
            return
        self._work = None
        if last:
            self._close()
        else:
            self._go_on()

    async def _answer(self, request: Arrived) -> bool:
        """Whether that was the last answer of this connection."""
        connections = self._connections
        answer: Answer | Streamed | None = request.refusal
        if request.admitted is not None:
            answer = await connections.app.answer(*request.admitted)
        assert answer is not None, "who is not admitted is refused"
        last = request.last or connections.stopping
        if isinstance(answer, Answer):
            if answer.give_back is not None:
                await self._look_for_taker(answer)
            self._send(answer, last, request.without_body)
        else:
            await self._stream(answer, last, request.without_body)
        if self._drained is not None:
            await self._drained
        return last or connections.stopping  # a stream may have begun before

    async def _look_for_taker(self, answer: Answer) -> None:
        """Before something is handed over: whoever has left may have said so, and it lies there unread."""
        assert answer.give_back is not None
        left = True
        try:
            if _unread(self._transport):
                for _ in range(_TURNS_TO_READ):
                    await asyncio.sleep(0)
            left = self._transport.is_closing()
        finally:
            if left:
                await asyncio.shield(answer.give_back())

    def _send(self, answer: Answer, last: bool, without_body: bool = False) -> None:
        head, body = rendering.whole(answer, last, without_body)
        if len(body) <= _JOINED_MAX:
            self._write(head + body)
        elif not self._transport.is_closing():
            self._transport.writelines((head, body))

    async def _stream(self, answer: Streamed, last: bool, without_body: bool) -> None:
        """Piece by piece, no faster than they are taken."""
        try:
            if not self._write(rendering.opening(answer, last)) or without_body:
                return
            async for data in answer.pieces:
                if data and not self._write(rendering.piece(data)):
                    return
                if self._drained is not None:
                    await self._drained
            self._write(rendering.LAST_PIECE)
        finally:
            await answer.pieces.aclose()

    def _write(self, data: bytes) -> bool:
        """Whether anybody is there. Of one who leaves we are told a moment after the transport is closed."""
        if self._transport.is_closing():
            return False
        self._transport.write(data)
        return True

    # Going on, or not

    def _go_on(self) -> None:
        connections, reader = self._connections, self._reader
        assert reader is not None
        self._stage = "idle"
        self.deadline = connections.now + connections.idle_seconds
        if reader.upgrade is not None:  # it came behind what has been answered now
            self._upgrade(reader, reader.upgrade + self._held)
        elif self._held:
            data, self._held = self._held, b""
            self._transport.resume_reading()
            self._feed(data)
        elif reader.stage != "idle":
            self._await_more(reader)

    def _end(self, answer: Answer) -> None:
        """One more answer, whatever was being read."""
        self._send(answer, last=True)
        self._close()

    def _close(self) -> None:
        """Nothing is read any more. What is on its way to us is let come, or the answer might not arrive."""
        self._over = True
        if self._reader is not None and self._reader.stage == "idle" and not self._held:
            self.deadline = self._connections.now + self._connections.body_seconds  # to take what is left
            self._transport.close()
            return
        self._listen_on()

    def _listen_on(self) -> None:
        """Say that nothing more comes, and wait for the other side to go."""
        self.deadline = self._connections.now + LINGER_SECONDS
        if self._held:
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _upgrade(self, reader: Reader, request: bytes) -> None:
        """From here on it is a WebSocket."""
        self._over = True
        if self._held:
            self._transport.resume_reading()
        self._connections.discard(self)
        self._connections.websockets.take_over(self._transport, request, reader.certificate)


def _stopping() -> Stopping:
    return Stopping("this server is stopping, and did nothing; ask another one, or this one later", retry_after=1)


def _goodbye() -> Stopping:
    """408 is what may come unasked: those who know HTTP take it for the end of a connection that rested."""
    error = _stopping()
    error.status = TooSlow.status
    return error


def _unread(transport: asyncio.Transport) -> bool:
    """Whether something has come that the loop did not read yet."""
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))
