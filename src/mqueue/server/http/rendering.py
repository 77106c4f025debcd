"""Answers as bytes: the head of each kind of answer is made once."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus

from mqueue.server.http.answer import Answer, Headers, Streamed

CLOSE = b"connection: close\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_PIECE = b"0\r\n\r\n"


def whole(answer: Answer, last: bool, without_body: bool) -> tuple[bytes, bytes]:
    """Head and body. `last`: the connection ends with it."""
    body = answer.body
    head = head_of(answer.status, answer.kind)
    if answer.headers:
        head += _lines(answer.headers)
    if last:
        head += CLOSE
    if answer.status in (204, 304):
        return head + b"\r\n", b""
    return head + b"content-length: %d\r\n\r\n" % len(body), b"" if without_body else body


def opening(answer: Streamed, last: bool) -> bytes:
    """The head of an answer in pieces."""
    head = head_of(answer.status, answer.kind) + _lines(answer.headers)
    return head + (CLOSE if last else b"") + b"transfer-encoding: chunked\r\n\r\n"


def piece(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=256)
def head_of(status: int, kind: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "x-content-type-options: nosniff"]
    if status != 204:
        lines.append(f"content-type: {kind}")
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def _lines(headers: Headers) -> bytes:
    """A line end in a value would begin a header that nobody meant."""
    for name, value in headers:
        assert value.isprintable(), f"{name} holds a line end, or worse"
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")
