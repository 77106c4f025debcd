"""From what users hand in to rows: every value parsed, every limit checked, before anything is stored.

A call of plain bytes, the usual case, is checked with a few passes in C; anything else goes message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqueue.model.errors import BadTime, Refused, TooLarge
from mqueue.model.limits import IDEMPOTENCY_KEY_LENGTH_MAX, TIME_MS_MAX, Limits
from mqueue.model.message import Draft
from mqueue.model.names import check_name
from mqueue.model.priority import NORMAL, priority
from mqueue.model.settings import Settings
from mqueue.model.times import Duration, Instant, duration_ms, instant
from mqueue.wire.arrow import text
from mqueue.wire.payload import encode
from mqueue.wire.rows import Extras, Headers, Rows


def rows_of(items: Iterable[Any], settings: Settings, limits: Limits, now: int) -> Rows:
    """The rows of one call: bytes, text, JSON values or drafts."""
    items = items if isinstance(items, list) else list(items)
    check_count(len(items), limits)
    if set(map(type, items)) <= {bytes}:
        rows = Rows(items.copy())  # the list stays the caller's
        if settings.default_ttl_ms is not None:
            rows.expires_at = _in_time(now + settings.default_ttl_ms, "default_ttl", settings.default_ttl_ms)
    else:
        rows = _columns([item if isinstance(item, Draft) else Draft(item) for item in items], settings, now)
    check_rows(rows, limits)
    return rows


def one(draft: Draft, settings: Settings, limits: Limits, now: int) -> tuple[bytes, Extras]:
    """The payload and the rest of one message."""
    payload, content_type = encode(draft.payload)
    _check_bytes("payload", len(payload), limits.payload_bytes_max)
    extras: dict[str, Any] = {}
    if draft.priority is not None:
        extras["priority"] = priority(draft.priority)
    if draft.key is not None:
        key = extras["key"] = key_bytes(draft.key)
        _check_bytes("key", len(key), limits.key_bytes_max)
    if draft.headers or content_type:
        headers = extras["headers"] = headers_of(draft.headers, content_type)
        check_headers(headers, limits)
    due = due_at(draft.delay, draft.deliver_at, settings, now)
    if due:
        extras["deliver_at"] = due
    expires = _expires(draft, settings, due, now)
    if expires:
        extras["expires_at"] = expires
    if draft.fairness_key is not None:
        extras["fairness_key"] = check_fairness_key(draft.fairness_key)
    return payload, extras


def check_rows(rows: Rows, limits: Limits) -> None:
    sizes = list(map(len, rows.payload))
    _check_bytes("payload", max(sizes), limits.payload_bytes_max)
    if rows.key is not None:
        _check_bytes("key", max((len(key) for key in rows.key if key is not None), default=0), limits.key_bytes_max)
    if rows.headers is not None:
        _check_bytes("headers", max(map(_headers_size, rows.headers)), limits.headers_bytes_max)
    check_size(sum(sizes) if rows.key is None and rows.headers is None else rows.size, limits)


def _check_bytes(name: str, size: int, most: int) -> None:
    if size > most:
        raise TooLarge(f"{name} of {size} bytes; {most} are allowed", code=f"{name}_too_large")


def check_headers(headers: Headers | None, limits: Limits) -> None:
    _check_bytes("headers", _headers_size(headers), limits.headers_bytes_max)


def _headers_size(headers: Headers | None) -> int:
    return sum(_bytes_of(name) + _bytes_of(value) for name, value in headers.items()) if headers else 0


def check_count(count: int, limits: Limits) -> None:
    if not count:
        raise Refused("a call without messages; it carries at least one", code="empty")
    if count > limits.call_messages_max:
        raise TooLarge(f"{count} messages in one call; {limits.call_messages_max} are allowed", code="too_many")


def check_size(size: int, limits: Limits) -> None:
    if size > limits.call_bytes_max:
        raise TooLarge(f"{size} bytes in one call; {limits.call_bytes_max} are allowed", code="call_too_large")


def _bytes_of(value: str | bytes) -> int:
    """How many bytes a name or value of a header takes; most text is ASCII, and that is known without encoding it."""
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode())


def _columns(drafts: list[Draft], settings: Settings, now: int) -> Rows:
    """Column by column: one that nobody uses costs one pass in C."""
    payloads = [draft.payload for draft in drafts]
    types: list[str | None] = []
    if set(map(type, payloads)) != {bytes}:
        encoded = [encode(payload) for payload in payloads]
        payloads, types = [payload for payload, _ in encoded], [kind for _, kind in encoded]
    rows = Rows(payloads)
    rows.key = _column([draft.key for draft in drafts], key_bytes)
    given = [draft.headers for draft in drafts]
    if any(given) or any(types):
        kinds = types or [None] * len(drafts)
        rows.headers = [headers_of(headers, kind) for headers, kind in zip(given, kinds, strict=True)]
    levels = [draft.priority for draft in drafts]
    if levels.count(None) < len(levels):
        rows.priority = _level([NORMAL if level is None else priority(level) for level in levels])
    if any(draft.delay is not None or draft.deliver_at is not None for draft in drafts):
        rows.deliver_at = _level([due_at(draft.delay, draft.deliver_at, settings, now) for draft in drafts])
    if settings.default_ttl_ms is not None or any(draft.ttl is not None for draft in drafts):
        due = rows.deliver_at if isinstance(rows.deliver_at, list) else [rows.deliver_at] * len(drafts)
        rows.expires_at = _level([_expires(d, settings, int(at), now) for d, at in zip(drafts, due, strict=True)])
    rows.idempotency_key = _column([draft.idempotency_key for draft in drafts], check_idempotency_key)
    rows.fairness_key = _column([draft.fairness_key for draft in drafts], check_fairness_key)
    return rows


def _column(values: list[Any], parse: Callable[[Any], Any]) -> list[Any] | None:
    if values.count(None) == len(values):
        return None
    return [None if value is None else parse(value) for value in values]


def _level(values: list[int]) -> int | list[int]:
    """One number if they are all the same."""
    return values[0] if values and values.count(values[0]) == len(values) else values


def due_at(delay: Duration | None, deliver_at: Instant | None, settings: Settings, now: int) -> int:
    """When a message is due that was given a delay or a time; 0: at once."""
    if delay is None and deliver_at is None:
        return 0
    if delay is not None and deliver_at is not None:
        raise BadTime(f"delay {delay!r:.80} and deliver_at {deliver_at!r:.80} are both given; one of them will do")
    due = now + duration_ms(delay, "delay") if delay is not None else instant(deliver_at, "deliver_at")  # type: ignore[arg-type]
    if settings.max_delay_ms is not None and due - now > settings.max_delay_ms:
        raise BadTime(f"a delay of {due - now} ms is over max_delay, {settings.max_delay_ms} ms", code="delay_too_long")
    return _in_time(due, "delay", delay) if due > now else 0


def _in_time(at: int, name: str, given: object) -> int:
    if at > TIME_MS_MAX:
        raise BadTime(f"{name} {given!r:.80} ends after the year 9999, the last there is")
    return at


def _expires(draft: Draft, settings: Settings, due: int, now: int) -> int:
    ttl_ms = settings.default_ttl_ms if draft.ttl is None else duration_ms(draft.ttl, "ttl")
    if ttl_ms is None:
        return 0
    if ttl_ms == 0:
        raise BadTime(
            f"ttl {draft.ttl!r:.80} would expire the message before it could be delivered; it takes more than 0"
        )
    return _in_time(max(due, now) + ttl_ms, "ttl", draft.ttl)


def key_bytes(key: str | bytes) -> bytes:
    if isinstance(key, bytes):
        return key
    if _is_text(key):
        return key.encode()
    raise Refused(f"key {key!r:.80} is {type(key).__name__}; it takes Unicode text or bytes", code="bad_key")


def check_idempotency_key(key: str) -> str:
    if type(key) is not str or not 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX or not _is_text(key):
        most = IDEMPOTENCY_KEY_LENGTH_MAX
        raise Refused(f"idempotency_key {key!r:.80}; it takes Unicode text of 1 to {most} characters", code="bad_key")
    return key


def check_fairness_key(key: str) -> str:
    return check_name(key, "fairness key")


def headers_of(given: Mapping[str, str | bytes] | None, content_type: str | None) -> Headers | None:
    headers: dict[str, str | bytes] = {}
    if given is not None and not isinstance(given, Mapping):
        raise Refused(f"headers {given!r:.80}; it takes a mapping of names to values", code="bad_header")
    for name, value in (given or {}).items():
        if not _is_text(name) or (type(value) is not bytes and not _is_text(value)):
            raise Refused(
                f"header {name!r:.80}: {value!r:.80}; names are Unicode text, values that or bytes", code="bad_header"
            )
        headers[name] = text(value) if isinstance(value, bytes) else value
    if content_type is not None and "content-type" not in headers:
        headers["content-type"] = content_type
    return headers or None


def _is_text(value: object) -> bool:
    """Whether it is text that has a form in UTF-8: half a surrogate pair has none."""
    if type(value) is not str:
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False
