"""Publish: one topic or several, as JSON or as an Arrow stream, in one commit, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from mqueue.model.errors import Refused, TooLarge
from mqueue.model.message import Draft
from mqueue.server.http.answer import Answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.receipts import many_receipts, one_receipt, receipt_table
from mqueue.server.http.v1.tracing import header_column, trace_of, traced, traced_table
from mqueue.wire.json import MessageIn, PublishIn, PublishOut
from mqueue.wire.json_in import drafts_of
from mqueue.wire.stream import read_stream

_MANY = 128
"""From so many on plain texts go in as a column."""


class _Plain(Struct, forbid_unknown_fields=True, gc=False):
    payload: str


class _PlainCall(Struct, forbid_unknown_fields=True):
    """What most calls are: texts and nothing else."""

    messages: list[_Plain]
    durability: str | None = None


_PLAIN = msgspec.json.Decoder(_PlainCall)
_PUBLISH = msgspec.json.Decoder(PublishIn)


async def publish(call: Call) -> Answer:
    if call.brings_arrow:
        return await _publish_table(call)
    try:
        asked = _PLAIN.decode(call.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return await _publish_drafts(call)  # more than texts, or wrong: both are found out there
    return await _publish_texts(call, asked, trace_of(call.headers) if "traceparent" in call.headers else {})


async def publish_anywhere(call: Call) -> Answer:
    """Each message names its topic."""
    asked = call.parsed(_PUBLISH)
    demand_topics(call, asked.messages)
    drafts = traced(call, drafts_of(asked.messages))
    return many_receipts("", await call.broker.publish_many(None, drafts, durability=asked.durability))


def demand_topics(call: Call, messages: Sequence[MessageIn]) -> None:
    """Raise unless the caller may publish to every topic that is named. Who names none is told so by the broker."""
    for topic in {message.topic for message in messages if message.topic}:
        call.demand("publish", call.namespace, topic)


async def _publish_texts(call: Call, asked: _PlainCall, trace: dict[str, str]) -> Answer:
    messages, topic, most = asked.messages, call.topic, call.limits.call_messages_max
    if len(messages) > most:
        raise TooLarge(f"{len(messages)} messages in one call; {most} are allowed", code="too_many")
    if len(messages) == 1 and asked.durability is None:
        return one_receipt(await call.broker.publish(topic, messages[0].payload.encode(), headers=trace or None))
    if len(messages) < _MANY:
        payloads: list[Any] = [message.payload.encode() for message in messages]
        if trace:
            payloads = [Draft(payload, headers=trace) for payload in payloads]
        return many_receipts(topic, await call.broker.publish_many(topic, payloads, durability=asked.durability))
    column = pa.array([message.payload for message in messages], pa.binary())
    batch = pa.RecordBatch.from_arrays([column], ["payload"])
    if trace:
        batch = pa.RecordBatch.from_arrays([column, header_column(trace, len(messages))], ["payload", "headers"])
    return many_receipts(topic, await call.broker.publish_arrow(topic, batch, durability=asked.durability))


async def _publish_drafts(call: Call) -> Answer:
    asked = call.parsed(_PUBLISH)
    topic = call.topic
    other = next((message.topic for message in asked.messages if message.topic not in (None, topic)), None)
    if other is not None:
        why = f"a message for topic {other!r:.80}, sent to {topic!r:.80}; several topics are for /v1/messages"
        raise Refused(why, code="bad_body")
    drafts = traced(call, drafts_of(asked.messages, topic))
    return many_receipts(topic, await call.broker.publish_many(topic, drafts, durability=asked.durability))


async def _publish_table(call: Call) -> Answer:
    table = traced_table(call, read_stream(call.body, call.limits))
    receipts = await call.broker.publish_arrow(call.topic, table, durability=call.query.get("durability"))
    return receipt_table(receipts) if call.wants_arrow else many_receipts(call.topic, receipts)


_DURABILITY = Parameter(
    "durability",
    "text",
    "how safe before the answer, for Arrow bodies: memory, os or fsync; in a cluster shard, quorum or wal",
)

ROUTES = (
    Route(
        "POST",
        "/v1/topics/{topic}/messages",
        publish,
        "publish",
        "topic",
        "Publish messages to a topic",
        PublishIn,
        PublishOut,
        (_DURABILITY,),
        arrow=("in", "out"),
        large=True,
    ),
    Route(
        "POST",
        "/v1/messages",
        publish_anywhere,
        "publish",
        "inside",
        "Publish messages to several topics at once",
        PublishIn,
        PublishOut,
        large=True,
    ),
)
