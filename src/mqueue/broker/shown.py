"""Messages of an embedded broker as a server shows them: rows of frames become JSON structs, or a table.

A lease of many messages is mostly a stretch of one frame, so what all rows of it share is looked up once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from mqueue.broker.deliver import TopicDesk
from mqueue.broker.envelope import Envelope
from mqueue.broker.grip import grip_of
from mqueue.broker.loop import LoopBroker
from mqueue.broker.tables import SCHEMA
from mqueue.model.times import rfc3339
from mqueue.wire.frame import Frame
from mqueue.wire.json import MessageOut
from mqueue.wire.json_out import headers_out, text_or_base64

Stretch: TypeAlias = tuple[Any, Frame, range, int]
"""A desk, a frame, some rows of it, and which attempt they are at."""

ALL_COLUMNS = pa.schema([*SCHEMA, ("idempotency_key", pa.string()), ("fairness_key", pa.string())])
"""Everything there is to know of a message, for consumers that make single messages of a table."""


def topic_of_lease(broker: LoopBroker, token: str) -> str | None:
    """The topic whose messages a token holds, or held a moment ago; None: nothing is known of it."""
    engine = broker._engine
    with engine.lock:
        grip = grip_of(engine, broker._namespace, token)
        return None if grip is None else grip.desk.name


def messages_out(messages: Iterable[Any]) -> list[MessageOut]:
    """Messages that were handed out, as JSON."""
    found: list[MessageOut] = []
    for stretch in stretches(messages):
        found += rows_out(*stretch)
    return found


def stretches(messages: Iterable[Any]) -> Iterator[Stretch]:
    """Neighbours of one frame and one run, put together."""
    start = stop = 0
    frame: Frame | None = None
    first: Envelope | None = None
    for message in messages:
        if first is not None and message._row == stop and message._frame is frame and message._run is first._run:
            stop += 1
            continue
        if first is not None:
            yield first._desk, first._frame, range(start, stop), first._run.attempt
        first, frame, start = message, message._frame, message._row
        stop = start + 1
    if first is not None:
        yield first._desk, first._frame, range(start, stop), first._run.attempt


def rows_out(desk: TopicDesk, frame: Frame, rows: range, attempt: int) -> Iterator[MessageOut]:
    """Rows of one frame as JSON."""
    columns = frame.rows
    payloads, keys, headers = columns.payload, columns.key, columns.headers
    once, fair = columns.idempotency_key, columns.fairness_key
    namespace, topic, partition, base = desk.namespace, desk.name, frame.partition, frame.base
    moved = desk.topic.partitions[partition].due
    times: dict[int, str] = {}
    for row in rows:
        at = frame.at_of(row)
        due = desk.due(frame, row) if moved else max(at, abs(frame.number("deliver_at", row)))
        expires = frame.number("expires_at", row)
        shown = MessageOut(
            str(frame.id_of(row)),
            namespace,
            topic,
            partition,
            base + row,
            times.get(at) or times.setdefault(at, rfc3339(at)),
            times.get(due) or times.setdefault(due, rfc3339(due)),
            frame.number("priority", row),
            attempt,
        )
        try:
            shown.payload = payloads[row].decode()
        except UnicodeDecodeError:
            shown.payload, shown.payload_base64 = text_or_base64(payloads[row])
        if keys is not None and (key := keys[row]) is not None:
            shown.key, shown.key_base64 = text_or_base64(key)
        if headers is not None and (pairs := headers[row]):
            shown.headers, shown.headers_base64 = headers_out(pairs)
        if expires:
            shown.expires_at = rfc3339(expires)
        if once is not None:
            shown.idempotency_key = once[row]
        if fair is not None:
            shown.fairness_key = fair[row]
        yield shown


def table_out(found: Iterable[Stretch]) -> pa.Table:
    """Rows of frames as a table with all columns."""
    columns: dict[str, list[Any]] = {name: [] for name in ALL_COLUMNS.names}
    for desk, frame, rows, attempt in found:
        body = frame.rows
        columns["id"] += map(frame.id_of, rows)
        columns["partition"] += [frame.partition] * len(rows)
        columns["offset"] += range(frame.base + rows.start, frame.base + rows.stop)
        columns["attempt"] += [attempt] * len(rows)
        columns["priority"] += [frame.number("priority", row) for row in rows]
        columns["published_at"] += map(frame.at_of, rows)
        columns["deliver_at"] += [desk.due(frame, row) for row in rows]
        columns["expires_at"] += [frame.number("expires_at", row) or None for row in rows]
        columns["headers"] += map(_pairs, _part(body.headers, rows))
        columns["payload"] += body.payload[rows.start : rows.stop]
        for name in ("key", "idempotency_key", "fairness_key"):
            columns[name] += _part(getattr(body, name), rows)
    return pa.Table.from_pydict(columns, ALL_COLUMNS)


def _part(column: Sequence[Any] | None, rows: range) -> Sequence[Any]:
    return [None] * len(rows) if column is None else column[rows.start : rows.stop]


def _pairs(headers: Any) -> list[tuple[str, bytes]] | None:
    if not headers:
        return None
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers.items()]
