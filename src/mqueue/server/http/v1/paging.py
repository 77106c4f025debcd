"""Lists that can be long: a page of names at a time, in their order; of messages, as many as fit one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from mqueue.broker.message import AnyMessage
from mqueue.model.errors import Refused
from mqueue.model.limits import ANSWER_BYTES_MAX, RECEIVE_LIMIT_MAX
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter

M = TypeVar("M", bound=AnyMessage)

LIMIT = Parameter("limit", "integer", f"how many at most, 1 to {RECEIVE_LIMIT_MAX}")
AFTER = Parameter("after", "text", "go on behind this name: `next` of the answer before")
PAGED = (LIMIT, AFTER)
PREVIEW_BYTES_MAX = 64 * 1024
PREVIEW = Parameter("preview", "integer", f"so many bytes of each payload only, up to {PREVIEW_BYTES_MAX}")


def limit_of(call: Call, default: int = RECEIVE_LIMIT_MAX) -> int:
    limit: int = call.number("limit", default)
    if not 1 <= limit <= RECEIVE_LIMIT_MAX:
        raise Refused(f"limit {limit}; it takes 1 to {RECEIVE_LIMIT_MAX}", code="bad_limit")
    return limit


def preview_of(call: Call, default: int | None = None) -> int | None:
    """How much of each payload is wanted; None: all of it."""
    preview: int | None = call.number("preview", default)
    if preview is not None and not 0 <= preview <= PREVIEW_BYTES_MAX:
        raise Refused(f"preview {preview}; it takes 0 to {PREVIEW_BYTES_MAX} bytes", code="bad_limit")
    return preview


def after_of(call: Call) -> str:
    return call.query.get("after", "")


def page(call: Call, names: Iterable[str]) -> tuple[list[str], str | None]:
    """The names of the page that was asked for; and where the next one begins, if there is one."""
    limit, after = limit_of(call), after_of(call)
    rest = sorted(name for name in names if name > after)
    return rest[:limit], rest[limit - 1] if len(rest) > limit else None


def fitting(messages: Sequence[M], preview: int | None = None) -> Sequence[M]:
    """As many, from the first on, as fit one answer; at least that one."""
    size = 0
    for number, message in enumerate(messages):
        size += size_of(message) - (0 if preview is None else max(0, len(message.payload) - preview))
        if size > ANSWER_BYTES_MAX and number:
            return messages[:number]
    return messages


def size_of(message: AnyMessage) -> int:
    """About how many bytes a message takes in an answer."""
    return len(message.payload) + sum(len(name) + len(value) for name, value in message.headers.items())
