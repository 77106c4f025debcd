"""From what came over the wire to messages and receipts, be it JSON or Arrow."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from mqueue.client.envelope import Held, Home
from mqueue.model.errors import Corrupt
from mqueue.model.message import Receipt
from mqueue.model.times import to_datetime
from mqueue.wire.arrow import text
from mqueue.wire.json import MessageOut, ReceiptOut

M = TypeVar("M")


def messages(home: Home, lease: Held | None, told: Iterable[MessageOut], kind: Callable[..., M]) -> list[M]:
    try:
        return [_message(home, lease, one, kind) for one in told]
    except (ValueError, binascii.Error) as error:
        raise Corrupt(f"a message of the answer cannot be read: {error}", applied=None) from error


def _message(home: Home, lease: Held | None, told: MessageOut, kind: Callable[..., M]) -> M:
    published = datetime.fromisoformat(told.published_at)
    return kind(
        home,
        lease,
        int(told.id),
        told.namespace,
        told.topic,
        told.partition,
        told.offset,
        _bytes(told.payload, told.payload_base64) or b"",
        _bytes(told.key, told.key_base64),
        _headers(told),
        told.priority,
        told.attempt,
        published,
        published if told.deliver_at == told.published_at else datetime.fromisoformat(told.deliver_at),
        None if told.expires_at is None else datetime.fromisoformat(told.expires_at),
        told.idempotency_key,
        told.fairness_key,
    )


def _bytes(plain: str | None, base64: str | None) -> bytes | None:
    if plain is not None:
        return plain.encode()
    return None if base64 is None else b64decode(base64)


def _headers(told: MessageOut) -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = dict(told.headers or {})
    for name, value in (told.headers_base64 or {}).items():
        found[name] = b64decode(value)
    return found


def messages_of_table(
    home: Home, lease: Held | None, namespace: str, topic: str, table: pa.Table, kind: Callable[..., M]
) -> list[M]:
    """The rows of a table as messages, in its order."""
    columns = [_values(table, name) for name in _COLUMNS]
    made: list[M] = []
    for row in zip(*columns, strict=True):
        id, partition, offset, attempt, priority, published, due, expires, key, headers, payload, once, fair = row
        at = to_datetime(published)
        made.append(
            kind(
                home,
                lease,
                id,
                namespace,
                topic,
                partition,
                offset,
                payload,
                key,
                {pair["key"]: text(pair["value"]) for pair in headers} if headers else {},
                priority,
                attempt,
                at,
                at if due == published else to_datetime(due),
                None if expires is None else to_datetime(expires),
                once,
                fair,
            )
        )
    return made


_COLUMNS = (
    *("id", "partition", "offset", "attempt", "priority", "published_at", "deliver_at", "expires_at"),
    *("key", "headers", "payload", "idempotency_key", "fairness_key"),
)


def _values(table: pa.Table, name: str) -> list[Any]:
    if name not in table.schema.names:
        return [None] * table.num_rows
    column = table.column(name)
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def receipts(told: Iterable[ReceiptOut], durability: str) -> list[Receipt]:
    return [Receipt(int(one.id), one.topic, one.partition, one.offset, one.duplicate, durability) for one in told]


def receipts_of_table(table: pa.Table, topic: str, durability: str) -> Iterator[Receipt]:
    columns = [table.column(name).to_pylist() for name in ("id", "partition", "offset", "duplicate")]
    for id, partition, offset, duplicate in zip(*columns, strict=True):
        yield Receipt(id, topic, partition, offset, duplicate, durability)
