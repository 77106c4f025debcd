"""The walk of a publish of a client: checked here, one request, receipts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa

from mqueue.client import incoming, outgoing
from mqueue.client.window import ARROW, Window, parsed, path_of
from mqueue.model.message import Draft, Receipt
from mqueue.model.names import check_name
from mqueue.wire.json import PublishOut
from mqueue.wire.stream import read_table


async def publish_many(
    window: Window, topic: str | None, messages: Iterable[Any], durability: str | None
) -> list[Receipt]:
    """One call, one commit, all or none."""
    items = messages if isinstance(messages, list) else list(messages)
    with _told(window, topic, items, len(items)):
        return await _publish_many(window, topic, items, durability)


async def _publish_many(window: Window, topic: str | None, items: list[Any], durability: str | None) -> list[Receipt]:
    columns = outgoing.rows(items)
    name = outgoing.topic_of(topic, items)
    repeatable = outgoing.is_repeatable(items)
    if name is not None and window.address.encoding == "arrow" and outgoing.fits_table(items):
        return await _send_table(window, name, outgoing.stream(outgoing.table(columns)), durability, repeatable)
    if name is None:
        items = outgoing.with_topic(topic, items)
    path = path_of("messages") if name is None else _path(name)
    reply = await window.send("POST", path, outgoing.body(items, columns, name, durability), repeatable=repeatable)
    told = parsed(PublishOut, reply)
    return incoming.receipts(told.receipts, told.durability)


async def publish_table(
    window: Window, topic: str, table: pa.Table | pa.RecordBatch, durability: str | None
) -> Sequence[Receipt]:
    body = outgoing.stream(table)
    repeatable = "idempotency_key" in table.schema.names and not table.column("idempotency_key").null_count
    with _told(window, check_name(topic, "topic"), (), table.num_rows):
        return await _send_table(window, topic, body, durability, repeatable)


def _told(window: Window, topic: str | None, items: Sequence[Any], count: int) -> AbstractContextManager[None]:
    """Tell who wants to know of it."""
    if window.spans is None:
        return nullcontext()
    named = [item.topic for item in items if isinstance(item, Draft) and item.topic]
    topics = list(dict.fromkeys([topic, *named] if topic else named))
    return window.spans.publishing(window.namespace, topics, items, count)


async def _send_table(
    window: Window, topic: str, body: bytes, durability: str | None, repeatable: bool
) -> list[Receipt]:
    reply = await window.send(
        "POST",
        _path(topic),
        query={"durability": durability},
        arrow=body,
        accept=ARROW,
        repeatable=repeatable,
    )
    reached = reply.headers.get("X-Mqueue-Durability", "")
    return list(incoming.receipts_of_table(read_table(reply.body), topic, reached))


def _path(topic: str) -> str:
    return path_of("topics", topic, "messages")
