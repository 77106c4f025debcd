"""From the bytes of a connection to requests. Knows no transport and no time: bytes in, requests out.

httptools takes the bytes apart, and refuses what is framed in two ways. The caller of a request is known, and may be
refused, before its body is read.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import httptools
from msgspec import Struct

from mqueue.model.errors import Backpressure, Refused, TooLarge
from mqueue.server.http.answer import Answer
from mqueue.server.http.app import App
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.service import PLAIN_BODY_BYTES_MAX

Stage = Literal["idle", "headers", "body"]

HEADERS_MAX = 100
SMALL_BODY = 64 * 1024
"""A refused request with no more than this is read to its end, so that the connection can go on."""
ALONE = frozenset(("authorization", "content-type", "host", "x-api-key", "x-mqueue-namespace"))
"""Headers that say two things if they stand twice."""
_HOP = frozenset(("connection", "upgrade", "http2-settings"))


class HeadersTooLarge(TooLarge):
    code = "headers_too_large"
    status = 431


class Room(Struct):
    """For the bodies of all connections that are not whole yet."""

    most: int
    taken: int = 0


class Arrived(Struct):
    """A whole request: what it asks for, or why it does not get it."""

    admitted: tuple[Call, Route] | None
    refusal: Answer | None
    last: bool
    """No other may follow on its connection."""
    without_body: bool
    """It asks for the head of an answer alone."""


class Reader:
    __slots__ = (
        "_admitted",
        "_app",
        "_fault",
        "_head_bytes",
        "_headers",
        "_parser",
        "_peer",
        "_pieces",
        "_refusal",
        "_room",
        "_size",
        "_target",
        "arrived",
        "certificate",
        "expects",
        "stage",
        "upgrade",
    )

    def __init__(self, app: App, room: Room, peer: str, certificate: bytes | None) -> None:
        self._app = app
        self._room = room
        self._size = 0
        self._peer = peer
        self.certificate = certificate
        self._parser: Any = httptools.HttpRequestParser(self)
        self._fault: Answer | None = None
        self.arrived: list[Arrived] = []
        """Requests that are whole, and not yet taken."""
        self.expects = False
        """The other side waits to be told to send a body."""
        self.upgrade: bytes | None = None
        """The request that asked for a WebSocket, and what came behind it."""
        self._forget()

    def _forget(self) -> None:
        """Make ready for the next request. Between two of them a connection keeps as little as possible."""
        self.stage: Stage = "idle"
        self._target = b""
        self._headers: dict[str, str] | None = None
        self._head_bytes = 0
        self._admitted: tuple[Call, Route] | None = None
        self._refusal: Answer | None = None
        self._pieces: list[bytes] | None = None
        self.leave()

    def leave(self) -> None:
        """Nothing of a body is kept here any more."""
        self._room.taken -= self._size
        self._size = 0

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes in; what comes back is the last answer: these bytes are wrong, and nothing after them counts."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as changed:
            return self._changed(data[changed.args[0] :])
        except httptools.HttpParserError as error:
            if self.arrived and self.arrived[-1].last:  # it said itself that nothing would follow
                return None
            return self._fault or self._refused(Refused(f"this is not HTTP: {error!s:.200}", code="bad_http"))
        if self.stage == "headers":
            self._head_bytes += len(data)
            if self._head_bytes > self._app.service.bounds.headers_bytes_max:
                return self._refused(self._headers_too_large(self._head_bytes))
        return None

    # What the parser calls

    def on_message_begin(self) -> None:
        self.stage = "headers"
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        assert headers is not None
        known = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if self.stage == "body":
            self._end(Refused(f"header {known!r:.80} comes after the body", code="bad_http"))
        elif known not in headers:
            headers[known] = text
        elif known in ALONE:
            self._end(Refused(f"header {known!r} stands twice", code="bad_http"))
        else:
            headers[known] = f"{headers[known]}, {text}"

    def on_headers_complete(self) -> None:
        headers = self._headers
        assert headers is not None
        self.stage = "body"
        self._check_size(headers)
        method = self._parser.get_method().decode("latin-1")
        if self._parser.should_upgrade():
            if method == "CONNECT":
                self._end(Refused("CONNECT is for proxies; this is none", code="bad_http"))
            return  # it is looked at again once it is known what comes behind it
        try:
            self._admitted = self._app.admit(method, self._path(), headers, self._peer, self.certificate)
        except Exception as error:
            self._refusal = self._app.refusal(error, f"{method} {self._target!r:.200}", headers)
        self._expect_body(headers)

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._room.taken += len(body)
        if self._refusal is not None:  # it is not kept
            if self._size > SMALL_BODY:
                self._stop(self._refusal)
            return
        if self._size > self._body_bytes_max:
            self._end(self._body_too_large(self._size))
        if self._room.taken > self._room.most:
            why = f"bodies of {self._room.taken} bytes are being read; {self._room.most} are allowed"
            self._end(Backpressure(why, code="crowded", retry_after=1))
        if self._pieces is None:
            self._pieces = [body]
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():
            return
        pieces = self._pieces
        if pieces is not None and self._admitted is not None:
            self._admitted[0].body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        last = not parser.should_keep_alive()
        self.arrived.append(Arrived(self._admitted, self._refusal, last, parser.get_method() == b"HEAD"))
        self.expects = False
        self._forget()

    # Checks

    def _check_size(self, headers: dict[str, str]) -> None:
        size = len(self._target) + sum(map(len, headers)) + sum(map(len, headers.values()))
        if size > self._app.service.bounds.headers_bytes_max:
            self._end(self._headers_too_large(size))
        if len(headers) > HEADERS_MAX:
            self._end(HeadersTooLarge(f"{len(headers)} headers; {HEADERS_MAX} are allowed"))
        if "host" not in headers and self._parser.get_http_version() == "1.1":
            self._end(Refused("header 'host' is missing", code="bad_http"))

    def _expect_body(self, headers: dict[str, str]) -> None:
        """Refuse now what will be too long, and say whether somebody waits for a word before he sends it."""
        length = int(headers.get("content-length", 0))
        waits = headers.get("expect", "").lower() == "100-continue"
        if self._refusal is not None and (waits or length > SMALL_BODY):
            self._stop(self._refusal)
        if length > self._body_bytes_max:
            self._end(self._body_too_large(length))
        self.expects = waits

    @property
    def _body_bytes_max(self) -> int:
        most = self._app.service.bounds.body_bytes_max
        return most if self._admitted is None or self._admitted[1].large else min(most, PLAIN_BODY_BYTES_MAX)

    def _path(self) -> str:
        """Path and query. Proxies may send the whole address, of which the rest does not count."""
        target = self._target.decode("latin-1")
        if target.startswith("/"):
            return target
        scheme, _, rest = target.partition("://")
        if scheme.lower() not in ("http", "https"):
            raise Refused(f"target {target!r:.200}; it begins with a slash", code="bad_http")
        return f"/{rest.partition('/')[2]}"

    def _headers_too_large(self, size: int) -> HeadersTooLarge:
        most = self._app.service.bounds.headers_bytes_max
        return HeadersTooLarge(f"headers of at least {size} bytes; {most} are allowed")

    def _body_too_large(self, size: int) -> TooLarge:
        most = self._body_bytes_max
        return TooLarge(f"a body of at least {size} bytes; {most} are allowed", code="body_too_large")

    # Ends

    def _end(self, error: Exception) -> NoReturn:
        self._stop(self._refused(error))

    def _stop(self, answer: Answer) -> NoReturn:
        """Stop the parser where it is; `feed` gives the answer."""
        self._fault = answer
        raise Stopped

    def _refused(self, error: Exception) -> Answer:
        return self._app.refusal(error, "a request", self._headers)

    def _changed(self, behind: bytes) -> Answer | None:
        """A request asked for another protocol. All but WebSockets are passed over: it is read again without that."""
        headers = self._headers or {}
        method = self._parser.get_method()
        socket = headers.get("upgrade", "").lower() == "websocket"
        lines = [f"{name}: {value}" for name, value in headers.items() if socket or name not in _HOP]
        head = b"%b %b HTTP/1.1\r\n" % (method, self._target) + "\r\n".join([*lines, "", ""]).encode("latin-1")
        if socket and not head.isascii():
            return self._refused(Refused("headers that are not ASCII do not open a WebSocket", code="bad_http"))
        if socket:
            self.upgrade = head + behind
            return None
        self._parser = httptools.HttpRequestParser(self)
        self._forget()
        return self.feed(head + behind)


class Stopped(Exception):
    """Raised inside the parser, which gives it back as an error of its own."""
