"""From what users hand in to what goes over the wire: parsed and checked here as a broker would, then JSON or Arrow.

What depends on the server is left to it: its limits, its clock, the settings of its topics. Delays and times to live
travel as they were given and begin where they arrive.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from mqueue.broker.intake import rows_of
from mqueue.broker.intake_arrow import checked_table
from mqueue.model.errors import BadFrame, Refused
from mqueue.model.limits import MIB, Limits
from mqueue.model.message import Draft
from mqueue.model.names import check_name
from mqueue.model.settings import Settings
from mqueue.wire.arrow import BODY, encode
from mqueue.wire.json import MessageIn, PublishIn
from mqueue.wire.rows import Headers, Numbers, Rows
from mqueue.wire.stream import write_stream

_ANY = 2**62
_OPEN = Limits(_ANY, _ANY, _ANY, _ANY, _ANY)
_NO_SETTINGS = Settings()
_ENCODER = msgspec.json.Encoder()
_TEXT_BYTES_MAX = 40 * MIB
"""Text may grow sixfold in JSON; a body that did is written as base64, which grows by a third."""


def rows(items: Sequence[Any]) -> Rows:
    """What was handed in, as columns that begin at time 0: a delay is a time, a time to live ends at one."""
    return rows_of(list(items), _NO_SETTINGS, _OPEN, 0)


def body(items: Sequence[Any], columns: Rows, topic: str | None, durability: str | None) -> bytes:
    """A publish as JSON. Without a topic of the call each message names its own."""
    written = _body(items, columns, topic, durability, plain=True)
    return written if len(written) <= _TEXT_BYTES_MAX else _body(items, columns, topic, durability, plain=False)


def _body(items: Sequence[Any], columns: Rows, topic: str | None, durability: str | None, *, plain: bool) -> bytes:
    return _ENCODER.encode(PublishIn(messages(items, columns, topic is None, plain), durability))


def messages(items: Sequence[Any], columns: Rows, named: bool, plain: bool = True) -> list[MessageIn]:
    written = [_with_payload(payload, plain) for payload in columns.payload]
    for row, item in enumerate(items):
        if isinstance(item, Draft):
            _fill(written[row], item, columns, row)
            written[row].topic = item.topic if named else None
    if columns.headers is not None:
        for message, headers in zip(written, columns.headers, strict=True):
            message.headers, message.headers_base64 = _split(headers)
    return written


def table(columns: Rows) -> pa.Table:
    """A publish as Arrow: only of messages without a delay or a time to live, which have no column."""
    batch = encode(columns)
    made = pa.table(list(batch.columns), names=batch.schema.names)
    for name, numbers, kind in (("priority", columns.priority, pa.int32()), ("deliver_at", columns.deliver_at, _TIME)):
        if not isinstance(numbers, int) or (name == "deliver_at" and numbers) or (name == "priority" and numbers != 50):
            made = made.append_column(name, _column(numbers, len(columns), kind))
    return made


_TIME = pa.timestamp("ms", "UTC")


def stream(given: Any) -> bytes:
    """A table of a user as it travels: checked as a broker would, in columns of plain types."""
    batch = checked_table(given, _OPEN)
    arrays = [_plain(name, batch.column(name)) for name in batch.schema.names]
    plain = pa.RecordBatch.from_arrays(arrays, batch.schema.names)
    return write_stream([plain], plain.schema)


def _plain(name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or name in BODY:
        return column
    try:
        return column.cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadFrame(f"column {name!r} of type {column.type} does not fit: {error}") from error


def fits_table(items: Sequence[Any]) -> bool:
    return not any(isinstance(item, Draft) and (item.delay is not None or item.ttl is not None) for item in items)


def is_repeatable(items: Sequence[Any]) -> bool:
    """Whether to publish them twice is the same as once."""
    return all(isinstance(item, Draft) and item.idempotency_key is not None for item in items)


def topic_of(topic: str | None, items: Sequence[Any]) -> str | None:
    """The topic that all messages go to; None: each names its own."""
    if topic is not None:
        check_name(topic, "topic")
    for row, item in enumerate(items):
        own = item.topic if isinstance(item, Draft) else None
        if own is not None:
            check_name(own, "topic")
        if own is None and topic is None:
            raise Refused(f"message {row} of the call names no topic; give Draft(…, topic=…)", code="no_topic")
    return None if any(isinstance(i, Draft) and i.topic not in (None, topic) for i in items) else topic


def with_topic(topic: str | None, items: Sequence[Any]) -> list[Draft]:
    """The same messages, each with its topic."""
    drafts = [item if isinstance(item, Draft) else Draft(item) for item in items]
    return [draft if draft.topic else msgspec.structs.replace(draft, topic=topic) for draft in drafts]


def _with_payload(payload: bytes, plain: bool) -> MessageIn:
    if plain:
        try:
            return MessageIn(payload.decode())
        except UnicodeDecodeError:
            pass
    return MessageIn(payload_base64=b64encode(payload).decode())


def _fill(message: MessageIn, draft: Draft, columns: Rows, row: int) -> None:
    key = None if columns.key is None else columns.key[row]
    if key is not None:
        try:
            message.key = key.decode()
        except UnicodeDecodeError:
            message.key_base64 = b64encode(key).decode()
    if draft.priority is not None:
        message.priority = _at(columns.priority, row)
    due = _at(columns.deliver_at, row)
    if draft.delay is not None:
        message.delay = f"{due}ms"
    elif draft.deliver_at is not None:
        message.deliver_at = due
    if draft.ttl is not None:
        message.ttl = f"{_at(columns.expires_at, row) - due}ms"
    message.idempotency_key = draft.idempotency_key
    message.fairness_key = draft.fairness_key


def _at(numbers: Numbers, row: int) -> int:
    return numbers if isinstance(numbers, int) else int(numbers[row])


def _column(numbers: Numbers, count: int, kind: pa.DataType) -> pa.Array:
    values = np.full(count, numbers, np.int64) if isinstance(numbers, int) else np.asarray(numbers, np.int64)
    mask = values == 0 if kind == _TIME else None
    return pa.array(values, pa.int64(), mask=mask).cast(kind)


def _split(headers: Headers | None) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """Those that are text, and those that are not."""
    if not headers:
        return None, None
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    others = {name: b64encode(value).decode() for name, value in headers.items() if isinstance(value, bytes)}
    return texts or None, others or None
