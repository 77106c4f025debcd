"""Messages of an embedded broker as a server shows them: rows of frames become JSON structs, or a table.

A lease of many messages is mostly a stretch of one frame, so what all rows of it share is looked up once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from msgspec import Struct

from mqueue.broker.deliver import TopicDesk
from mqueue.broker.envelope import Envelope
from mqueue.broker.grip import grip_of
from mqueue.broker.loop import LoopBroker
from mqueue.broker.tables import SCHEMA
from mqueue.model.times import rfc3339
from mqueue.wire.frame import Frame
from mqueue.wire.json import MessageOut
from mqueue.wire.json_out import headers_out, text_or_base64
from mqueue.wire.rows import Headers, Numbers

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
    """Rows of one frame as JSON. Column by column: a message of nothing but text costs one struct."""
    namespace, topic, partition = desk.namespace, desk.name, frame.partition
    offsets = range(frame.base + rows.start, frame.base + rows.stop)
    at = [frame.at_of(row) for row in rows] if len(frame.at) > 1 else [frame.at[0]] * len(rows)
    times = _Times()
    extras = _Extras.of(frame, rows)
    for number, (id, payload, appended, due, urgency) in enumerate(
        zip(
            _ids(frame, rows),
            frame.rows.payload[rows.start : rows.stop],
            at,
            _due(desk, frame, rows, at),
            _numbers(frame.priority, rows),
            strict=True,
        )
    ):
        shown = MessageOut(
            str(id), namespace, topic, partition, offsets[number], times[appended], times[due], urgency, attempt
        )
        try:
            shown.payload = payload.decode()
        except UnicodeDecodeError:
            shown.payload, shown.payload_base64 = text_or_base64(payload)
        if extras is not None:
            extras.add(shown, number, times)
        yield shown


class _Times(dict[int, str]):
    """Times as text; neighbours mostly have the same."""

    def __missing__(self, at: int) -> str:
        text = self[at] = rfc3339(at)
        return text


class _Extras(Struct):
    """What only some messages have: of some rows, column by column."""

    key: Sequence[bytes | None]
    headers: Sequence[Headers | None]
    expires_at: Sequence[int]
    idempotency_key: Sequence[str | None]
    fairness_key: Sequence[str | None]

    @classmethod
    def of(cls, frame: Frame, rows: range) -> _Extras | None:
        """None: none of these rows has anything but a payload."""
        body = frame.rows
        texts = (body.key, body.headers, body.idempotency_key, body.fairness_key)
        lasting = isinstance(frame.expires_at, int) and not frame.expires_at
        if lasting and all(column is None for column in texts):
            return None
        key, headers, once, fair = (_part(column, rows) for column in texts)
        return cls(key, headers, _numbers(frame.expires_at, rows), once, fair)

    def add(self, shown: MessageOut, number: int, times: Mapping[int, str]) -> None:
        key, headers = self.key[number], self.headers[number]
        if key is not None:
            shown.key, shown.key_base64 = text_or_base64(key)
        if headers:
            shown.headers, shown.headers_base64 = headers_out(headers)
        if self.expires_at[number]:
            shown.expires_at = times[self.expires_at[number]]
        shown.idempotency_key, shown.fairness_key = self.idempotency_key[number], self.fairness_key[number]


def _ids(frame: Frame, rows: range) -> Sequence[int]:
    if len(frame.ids) > 1:
        return [frame.id_of(row) for row in rows]
    return range(frame.ids[0] + rows.start, frame.ids[0] + rows.stop)


def _due(desk: TopicDesk, frame: Frame, rows: range, at: list[int]) -> Sequence[int]:
    """When messages are or were due, with the times that they were given last."""
    if desk.topic.partitions[frame.partition].due:
        return [desk.due(frame, row) for row in rows]
    if isinstance(frame.deliver_at, int) and not frame.deliver_at:
        return at
    return [max(pair) for pair in zip(at, map(abs, _numbers(frame.deliver_at, rows)), strict=True)]


def _numbers(column: Numbers, rows: range) -> Sequence[int]:
    """A column of numbers, row by row."""
    if isinstance(column, int):
        return [column] * len(rows)
    part = column[rows.start : rows.stop]
    return part if isinstance(part, list) else part.tolist()


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
