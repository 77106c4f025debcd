"""One connection to another node: a request out, its answer back, whole or piece by piece.

    rest ─► ask ─► answer, whole ────────────────────► rest, unless the other side closes
                └► answer in pieces ─► pieces ─► end ─► rest

Who asked may stop waiting and listen again: `hang_up` says that nothing more is asked, and an answer that was already
on its way still comes. Knows no routes and no owners; decides nothing.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from contextlib import suppress
from typing import Any, cast

import httptools
from msgspec import Struct

from mqueue.model.limits import ANSWER_TEXT_BYTES_MAX, KIB
from mqueue.server.forwarding.heads import come_back
from mqueue.server.http import keepalive
from mqueue.server.http.answer import JSON, Headers

_JOINED_MAX = 64 * KIB
"""A body up to this size is written together with its head."""
_AHEAD_BYTES_MAX = 256 * KIB
"""So much of an answer in pieces is read before somebody takes it."""
_HEAD_BYTES_MAX = 64 * KIB


class Broken(Exception):
    """The connection is over, or what came is no answer."""


class Reply(Struct, frozen=True):
    """An answer. `streamed`: the body comes in pieces."""

    status: int
    kind: str
    headers: Headers
    body: bytes
    streamed: bool = False


class Line(asyncio.Protocol):
    __slots__ = (
        "_ahead",
        "_body",
        "_complete",
        "_fault",
        "_headed",
        "_headers",
        "_left",
        "_loop",
        "_parser",
        "_pieces",
        "_reply",
        "_transport",
        "_waiter",
        "hung_up",
        "rested_at",
        "waits",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser: Any = httptools.HttpResponseParser(self)
        self._fault = ""
        """Why nothing more will come."""
        self._waiter: asyncio.Future[None] | None = None
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._pieces: deque[bytes] = deque()
        self._ahead = 0
        self._left = 0
        """So many bytes may still come of a head, or of a whole body."""
        self._headed = False
        self._reply: Reply | None = None
        self._complete = True
        self.hung_up = False
        self.rested_at = 0.0
        """Since when nobody uses it, in the loop's time."""
        self.waits = False
        """What is asked now may take long: see `owner`."""

    # Asking

    def ask(self, head: bytes, body: bytes) -> None:
        """Send a request; the answer to the one before has been taken."""
        self._reply = None
        self._complete = self._headed = False
        self._left = _HEAD_BYTES_MAX
        if self._fault or self._transport.is_closing():
            return  # `answer` says so
        if len(body) <= _JOINED_MAX:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    async def answer(self) -> Reply:
        """Raises Broken. Whoever is cancelled here may come again."""
        while self._reply is None:
            await self._news()
        return self._reply

    async def piece(self) -> bytes:
        """The next piece of an answer; b"": that was all. Raises Broken."""
        while not self._pieces:
            if self._complete:
                return b""
            await self._news()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._ahead > _AHEAD_BYTES_MAX:
            self._transport.resume_reading()
        self._ahead = 0
        return data

    async def _news(self) -> None:
        if self._fault:
            raise Broken(self._fault)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # Ending

    @property
    def reusable(self) -> bool:
        """Whether another request can go out on it."""
        return self._complete and not self._fault and not self._transport.is_closing()

    @property
    def unread(self) -> bool:
        """Whether something has come that the loop did not read yet: of one that rests, that it was closed."""
        number = _number(self._transport)
        if number is None:
            return True
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))

    def hang_up(self) -> None:
        """Say that nothing more is asked, and go on listening.

        The other node takes that for leaving. If it had answered before, that answer still comes: so one of the two
        knows what became of it. TLS cannot say it, so it is said below it.
        """
        self.hung_up = True
        number = _number(self._transport)
        if number is not None:
            with suppress(OSError), keepalive.twin(number) as twin:
                twin.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        try:
            if self._complete:
                raise Broken("something came that nobody had asked for")
            self._parser.feed_data(data)
            if not self._headed:
                self._spend(len(data), "head", _HEAD_BYTES_MAX)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, Broken) as error:
            why = error.__context__ if isinstance(error.__context__, Broken) else error  # the parser wraps ours
            self._end(f"this is no answer: {why!s:.200}")
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc is not None else "it was closed")

    def _end(self, why: str) -> None:
        self._fault = self._fault or why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._complete:
            raise Broken("two answers to one request")
        self._headers = []
        self._body = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._headed = True
        self._left = ANSWER_TEXT_BYTES_MAX
        if dict(self._headers).get("transfer-encoding") == "chunked":
            self._reply = self._made(b"", streamed=True)
            self._wake()

    def on_body(self, body: bytes) -> None:
        if self._reply is None:
            self._spend(len(body), "body", ANSWER_TEXT_BYTES_MAX)
            self._body.append(body)
            return
        self._pieces.append(body)
        before, self._ahead = self._ahead, self._ahead + len(body)
        if before <= _AHEAD_BYTES_MAX < self._ahead:
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        self._complete = True
        if self._reply is None:
            self._reply = self._made(self._body[0] if len(self._body) == 1 else b"".join(self._body))
            self._body = []
        if not self._parser.should_keep_alive():
            self._fault = "it was the last answer"
        self._wake()

    def _spend(self, size: int, what: str, most: int) -> None:
        self._left -= size
        if self._left < 0:
            self._body = []
            raise Broken(f"its {what} is longer than {most} bytes")

    def _made(self, body: bytes, streamed: bool = False) -> Reply:
        kind = next((value for name, value in self._headers if name == "content-type"), JSON)
        return Reply(self._parser.get_status_code(), kind, come_back(self._headers), body, streamed)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    number = _number(transport)
    if number is not None:
        keepalive.keep_alive(number)


def _number(transport: asyncio.BaseTransport) -> int | None:
    found = None if transport.is_closing() else transport.get_extra_info("socket")
    return None if found is None or found.fileno() < 0 else int(found.fileno())
