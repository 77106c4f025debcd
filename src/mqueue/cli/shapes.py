"""What the calls answer, as records to be printed: the shapes of the HTTP API. Ids are text, bytes text or base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from mqueue.model.message import Receipt
from mqueue.model.times import rfc3339

if TYPE_CHECKING:
    from mqueue.broker.cursors import Cursor
    from mqueue.broker.explain import Explanation, Trace
    from mqueue.broker.members import GroupMembers
    from mqueue.broker.message import AnyMessage, DeadMessage
    from mqueue.broker.numbers import GroupStats, TopicStats
    from mqueue.broker.schedules import Schedule


def message(m: AnyMessage) -> dict[str, Any]:
    record = {
        "id": str(m.id),
        "namespace": m.namespace,
        "topic": m.topic,
        "partition": m.partition,
        "offset": m.offset,
        **_bytes("key", m.key),
        **_bytes("payload", m.payload),
        **_headers(m.headers),
        "priority": m.priority,
        "attempt": m.attempt,
        "published_at": time(m.published_at),
        "deliver_at": time(m.deliver_at),
        "expires_at": time(m.expires_at),
        "idempotency_key": m.idempotency_key,
        "fairness_key": m.fairness_key,
    }
    return {name: value for name, value in record.items() if value is not None}


def dead(m: DeadMessage) -> dict[str, Any]:
    story = {"reason": m.reason, "error": m.error, "group": m.group, "consumer": m.consumer, "attempts": m.attempts}
    return message(m) | story


def receipt(r: Receipt) -> dict[str, Any]:
    record: dict[str, Any] = to_builtins(r)
    return record | {"id": str(r.id)}


def stats(numbers: TopicStats) -> dict[str, Any]:
    record: dict[str, Any] = to_builtins(numbers)
    return record | {"groups": {name: group(name, known) for name, known in numbers.groups.items()}}


def group(name: str, numbers: GroupStats) -> dict[str, Any]:
    return {"group": name, "depth": numbers.depth, **to_builtins(numbers)}


def members(view: GroupMembers) -> dict[str, Any]:
    record: dict[str, Any] = to_builtins(view)
    for told, lag in zip(record["partitions"], view.partitions, strict=True):
        told["lag"] = lag.lag
    for told, one in zip(record["members"], view.members, strict=True):
        told["lag"] = sum(lag.lag for lag in view.partitions if lag.member == one.member)
    return record


def trace(t: Trace) -> dict[str, Any]:
    events = [{"time": time(event.time), "kind": event.kind, "detail": event.detail} for event in t.events]
    latency_ms = None if t.latency is None else round(t.latency.total_seconds() * 1000)
    return {"id": str(t.id), "topic": t.topic, "events": events, "attempts": t.attempts, "latency_ms": latency_ms}


def explanation(e: Explanation) -> dict[str, Any]:
    return {"code": e.code, "sentence": e.sentence, "until": time(e.until), "by": e.by, "ahead": e.ahead}


def schedule(s: Schedule) -> dict[str, Any]:
    record = {
        "topic": s.topic,
        "name": s.name,
        "cron": s.cron,
        "every": s.every,
        "tz": s.tz,
        "misfire": s.misfire,
        "paused": s.paused,
        "next_at": time(s.next_at),
        "last_at": time(s.last_at),
        "last_id": None if s.last_id is None else str(s.last_id),
        "count": s.count,
        "made_at": time(s.made_at),
        **_bytes("key", s.key),
        **_bytes("payload", s.payload),
        **_headers(s.headers),
        "priority": s.priority,
        "ttl": s.ttl,
    }
    return {name: value for name, value in record.items() if value is not None}


def _headers(headers: Mapping[str, str | bytes]) -> dict[str, Any]:
    """Those that are text, and those that are not."""
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    others = {name: b64encode(value).decode() for name, value in headers.items() if isinstance(value, bytes)}
    return {"headers": texts or None, "headers_base64": others or None}


def cursor(c: Cursor) -> dict[str, Any]:
    offsets = {str(partition): offset for partition, offset in c.offsets.items()}
    times = {"expires_at": time(c.expires_at), "made_at": time(c.made_at)}
    return {"name": c.name, "topic": c.topic, "offsets": offsets, **times}


def time(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(round(at.timestamp() * 1000))


def _bytes(name: str, value: bytes | None) -> dict[str, str]:
    if value is None:
        return {}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}
