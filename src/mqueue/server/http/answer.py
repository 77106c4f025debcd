"""What goes back to a caller: a whole body, or one that is written piece by piece."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct

from mqueue.model.errors import Error, LeaseLost
from mqueue.server.http.routes import MethodNotAllowed

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
TEXT = "text/plain; charset=utf-8"

Headers = tuple[tuple[str, str], ...]

_ENCODER = msgspec.json.Encoder()


class Answer(Struct, frozen=True):
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: Headers = ()
    give_back: Callable[[], Coroutine[Any, Any, None]] | None = None
    """What to do if nobody is there to take it."""


class Streamed(Struct, frozen=True):
    """An answer without a known end. When its pieces are closed, what it holds is let go."""

    pieces: AsyncGenerator[bytes, None]
    kind: str
    status: int = 200
    headers: Headers = ()


NOTHING = Answer(204)


def as_json(value: Any, status: int = 200, headers: Headers = ()) -> Answer:
    return Answer(status, _ENCODER.encode(value), JSON, headers)


def error_answer(error: Error) -> Answer:
    """An error as every face of ours tells it. What was perhaps done is said as `applied: null`."""
    told: dict[str, Any] = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.applied is None:
        told["applied"] = None
    if isinstance(error, LeaseLost):
        told["lost"] = [str(id) for id in error.lost]
    headers: Headers = ()
    if error.retry_after is not None:
        headers = (("retry-after", str(max(1, -int(-error.retry_after // 1)))),)
    if isinstance(error, MethodNotAllowed):
        headers = (*headers, ("allow", error.allowed))
    if error.status == 401:
        headers = (*headers, ("www-authenticate", 'Bearer realm="mqueue"'))
    return as_json({"error": told}, error.status, headers)
