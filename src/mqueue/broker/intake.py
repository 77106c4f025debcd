"""From what users hand in to rows: every value parsed, every limit checked, before anything is stored.

A call of plain bytes, the usual case, is checked with a few passes in C; anything else goes message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqueue.model.errors import BadTime, Refused, TooLarge
from mqueue.model.limits import Limits
from mqueue.model.message import Draft
from mqueue.model.names import check_name
from mqueue.model.priority import NORMAL, priority
from mqueue.model.settings import Settings
from mqueue.model.times import duration_ms, instant
from mqueue.wire.arrow import text
from mqueue.wire.payload import encode
from mqueue.wire.rows import Headers, Rows


def rows_of(items: Iterable[Any], settings: Settings, limits: Limits, now: int) -> Rows:
    """The rows of one call: bytes, text, JSON values or drafts."""
    items = items if isinstance(items, list) else list(items)
    if len(items) > limits.call_messages_max:
        raise TooLarge(f"{len(items)} messages in one call; {limits.call_messages_max} are allowed", code="too_many")
    if set(map(type, items)) <= {bytes}:
        rows = Rows(items)
        if settings.default_ttl_ms is not None:
            rows.expires_at = now + settings.default_ttl_ms
    else:
        rows = _columns([item if isinstance(item, Draft) else Draft(item) for item in items], settings, now)
    check_rows(rows, limits)
    return rows


def one_row(draft: Draft, settings: Settings, limits: Limits, now: int) -> Rows:
    rows = _columns([draft], settings, now)
    check_rows(rows, limits)
    return rows


def check_rows(rows: Rows, limits: Limits) -> None:
    sizes = list(map(len, rows.payload))
    if sizes and max(sizes) > limits.payload_bytes_max:
        raise TooLarge(
            f"payload of {max(sizes)} bytes; {limits.payload_bytes_max} are allowed", code="payload_too_large"
        )
    for key in rows.key or ():
        if key is not None and len(key) > limits.key_bytes_max:
            raise TooLarge(f"key of {len(key)} bytes; {limits.key_bytes_max} are allowed", code="key_too_large")
    for headers in rows.headers or ():
        if headers:
            size = sum(len(name) + len(value) for name, value in headers.items())
            if size > limits.headers_bytes_max:
                raise TooLarge(
                    f"headers of {size} bytes; {limits.headers_bytes_max} are allowed", code="headers_too_large"
                )
    total = sum(sizes) if rows.key is None and rows.headers is None else rows.size
    if total > limits.call_bytes_max:
        raise TooLarge(f"{total} bytes in one call; {limits.call_bytes_max} are allowed", code="call_too_large")


def _columns(drafts: list[Draft], settings: Settings, now: int) -> Rows:
    payloads, headers = [], []
    for draft in drafts:
        payload, content_type = encode(draft.payload)
        payloads.append(payload)
        headers.append(_headers(draft.headers, content_type))
    due = [_due(draft, settings, now) for draft in drafts]
    return Rows(
        payloads,
        _column(drafts, "key", _key),
        headers if any(headers) else None,
        _level([NORMAL if draft.priority is None else priority(draft.priority) for draft in drafts]),
        _level(due),
        _level([_expires(draft, settings, at, now) for draft, at in zip(drafts, due, strict=True)]),
        _column(drafts, "idempotency_key", _idempotency_key),
        _column(drafts, "fairness_key", _fairness_key),
    )


def _column(drafts: list[Draft], name: str, parse: Callable[[Any], Any]) -> list[Any] | None:
    values = [getattr(draft, name) for draft in drafts]
    return [None if value is None else parse(value) for value in values] if any(v is not None for v in values) else None


def _level(values: list[int]) -> int | list[int]:
    """One number if they are all the same."""
    return values[0] if values and values.count(values[0]) == len(values) else values


def _due(draft: Draft, settings: Settings, now: int) -> int:
    if draft.delay is None and draft.deliver_at is None:
        return 0
    if draft.delay is not None and draft.deliver_at is not None:
        raise BadTime(f"delay {draft.delay!r} and deliver_at {draft.deliver_at!r} are both given; one of them will do")
    if draft.deliver_at is not None:
        due = instant(draft.deliver_at, "deliver_at")
    else:
        due = now + duration_ms(draft.delay or 0, "delay")
    if settings.max_delay_ms is not None and due - now > settings.max_delay_ms:
        raise BadTime(f"a delay of {due - now} ms is over max_delay, {settings.max_delay_ms} ms", code="delay_too_long")
    return due if due > now else 0


def _expires(draft: Draft, settings: Settings, due: int, now: int) -> int:
    ttl_ms = settings.default_ttl_ms if draft.ttl is None else duration_ms(draft.ttl, "ttl")
    if ttl_ms is None:
        return 0
    if ttl_ms == 0:
        raise BadTime(f"ttl {draft.ttl!r} would expire the message before it could be delivered; it takes more than 0")
    return max(due, now) + ttl_ms


def _key(key: str | bytes) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise Refused(f"key {key!r:.80} is {type(key).__name__}; it takes text or bytes", code="bad_key")


def _idempotency_key(key: str) -> str:
    if type(key) is not str or not 0 < len(key) <= 1024:
        raise Refused(f"idempotency_key {key!r:.80}; it takes text of 1 to 1024 characters", code="bad_key")
    return key


def _fairness_key(key: str) -> str:
    return check_name(key, "fairness key")


def _headers(given: Mapping[str, str | bytes] | None, content_type: str | None) -> Headers | None:
    headers: dict[str, str | bytes] = {}
    for name, value in (given or {}).items():
        if type(name) is not str or type(value) not in (str, bytes):
            raise Refused(
                f"header {name!r:.80}: {value!r:.80}; names are text, values text or bytes", code="bad_header"
            )
        headers[name] = text(value) if isinstance(value, bytes) else value
    if content_type is not None and "content-type" not in headers:
        headers["content-type"] = content_type
    return headers or None
