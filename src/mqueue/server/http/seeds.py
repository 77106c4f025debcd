"""The routes of other queues of this kind, so that their users' lines work here as they stand.

    /enqueue /dequeue /ack /nack /dlq             one queue per (namespace, topic), settled by id
    /v1/topics/{topic}/publish                    a log with keys and delays
    /topic/{topic}/publish|consume|peek, /topics  topics with priorities and offsets per consumer

Their words live here and in `wire.json_seeds`, and nowhere else.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from mqueue.broker import overview, remote
from mqueue.broker.holding import token_of
from mqueue.broker.message import AnyMessage
from mqueue.broker.shown import topic_of_lease
from mqueue.model.errors import LeaseLost, Refused
from mqueue.model.limits import ANSWER_BYTES_MAX
from mqueue.model.message import Draft
from mqueue.model.names import check_name
from mqueue.model.times import instant_ms, to_datetime
from mqueue.server.http import delivered
from mqueue.server.http.answer import Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.server.http.v1.paging import fitting
from mqueue.server.http.v1.receive import for_taker
from mqueue.wire.json_in import from_base64
from mqueue.wire.json_seeds import (
    DequeuedOut,
    DoneIn,
    DoneOut,
    EnqueueIn,
    EnqueueOut,
    NamesOut,
    NumberedOut,
    PlacedOut,
    SpanOut,
    SpansOut,
    TextIn,
    TextOut,
    TextsOut,
    ValueIn,
)

CONSUMER = "/dequeue"
"""The consumer that leases of `/dequeue` belong to: `/ack` and `/nack` without a token settle these and no others."""

_LIMIT_MAX = 1_000
_ENQUEUED = msgspec.json.Decoder(list[EnqueueIn] | EnqueueIn)
_DONE = msgspec.json.Decoder(DoneIn)
_VALUE = msgspec.json.Decoder(ValueIn)
_TEXT = msgspec.json.Decoder(TextIn)


async def enqueue(call: Call) -> Answer:
    given = call.parsed(_ENQUEUED)
    items = given if isinstance(given, list) else [given]
    namespaces = {item.namespace or call.namespace for item in items} or {call.namespace}
    if len(namespaces) > 1:
        raise Refused(f"one call, {len(namespaces)} namespaces; it takes one", code="several_namespaces")
    call.namespace = check_name(namespaces.pop(), "namespace")
    for topic in {item.topic for item in items}:
        call.demand("publish", call.namespace, check_name(topic, "topic"))
    drafts = [_draft(item, number) for number, item in enumerate(items)]
    receipts = await call.broker.publish_many(None, drafts)
    return as_json(EnqueueOut([receipt.id for receipt in receipts]))


def _draft(item: EnqueueIn, number: int) -> Draft:
    return Draft(
        from_base64(item.payload, f"payload of message {number}"),
        priority=item.priority,
        deliver_at=_time(item.deliver_after, "deliver_after"),
        idempotency_key=item.idempotency_key,
        topic=item.topic,
    )


async def dequeue(call: Call) -> Answer:
    topic, limit = _asked(call, "receive")
    wanted = remote.Wanted((topic,), limit, consumer=CONSUMER)
    answers: list[DequeuedOut] = []
    since = delivered.begun(call)
    leases = await remote.receive(call.behind, wanted)
    delivered.tell(call, wanted.group, leases, since)
    for handed in leases:
        call.service.dequeued.add(call.namespace, (message.id for message in handed.messages), handed.token)
        answers += [_dequeued(message, lease=handed.token) for message in handed.messages]
    return for_taker(call, as_json(answers), leases)


async def dead(call: Call) -> Answer:
    topic, limit = _asked(call, "read")
    messages = await call.broker.dlq(topic).messages(limit)
    return as_json([_dequeued(message, error=message.error) for message in fitting(messages)])


def _asked(call: Call, verb: Any) -> tuple[str, int]:
    """The topic and the limit in the query; the right to them is asked for."""
    topic = call.query.get("topic")
    if topic is None:
        raise Refused("no topic is named; give ?topic=", code="bad_query")
    call.demand(verb, call.namespace, check_name(topic, "topic"))
    return topic, _limit(call, "limit", 1)


def _limit(call: Call, name: str, default: int) -> int:
    limit: int = call.number(name, default)
    if not 1 <= limit <= _LIMIT_MAX:
        raise Refused(f"{name} {limit}; it takes 1 to {_LIMIT_MAX}", code="bad_limit")
    return limit


def _dequeued(message: AnyMessage, lease: str | None = None, error: str | None = None) -> DequeuedOut:
    return DequeuedOut(
        message.id,
        message.namespace,
        message.topic,
        message.priority,
        base64.b64encode(message.payload).decode(),
        message.deliver_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        message.attempt,
        lease,
        error,
    )


async def ack(call: Call) -> Answer:
    return await _settle(call, "ack")


async def nack(call: Call) -> Answer:
    return await _settle(call, "nack")


async def _settle(call: Call, verb: str) -> Answer:
    done = call.parsed(_DONE)
    call.namespace = check_name(done.namespace or call.namespace, "namespace")
    call.demand("settle", call.namespace, check_name(done.topic, "topic"))
    if done.lease is not None:
        await _settle_under(call, verb, done, done.lease)
    else:
        await _settle_known(call, verb, done)
    return as_json(DoneOut())


async def _settle_known(call: Call, verb: str, done: DoneIn) -> None:
    """The lease that `/dequeue` handed the message out under last, by memory; after a restart, by looking for it."""
    remembered = call.service.dequeued.get(call.namespace, done.id)
    if remembered is not None:
        try:
            await _settle_under(call, verb, done, remembered)
            return
        except LeaseLost:
            pass  # it may have been handed out again
    token = await token_of(call.behind, done.topic, done.id, "default", CONSUMER)
    if token is None:
        raise LeaseLost(f"message {done.id} is not held under a lease of /dequeue", lost=(done.id,))
    await _settle_under(call, verb, done, token)


async def _settle_under(call: Call, verb: str, done: DoneIn, token: str) -> None:
    """Under a lease of the topic that was named, and of no other: the right was asked for there."""
    if topic_of_lease(call.behind, token) != done.topic:
        raise LeaseLost(f"message {done.id} is not held under this lease of {done.topic!r}", lost=(done.id,))
    try:
        await remote.settle(call.behind, verb, token, [done.id])
    finally:
        call.service.streams.settled(token)


async def publish_value(call: Call) -> Answer:
    given = call.parsed(_VALUE)
    receipt = await call.broker.publish(
        call.topic,
        from_base64(given.value, "value"),
        key=given.key,
        headers=given.headers,
        priority=given.priority,
        delay=given.delay,
        deliver_at=_time(given.deliver_at, "deliverAt"),
    )
    return as_json(PlacedOut(str(receipt.id), receipt.partition, receipt.offset))


async def publish_text(call: Call) -> Answer:
    given = call.parsed(_TEXT)
    receipt = await call.broker.publish(call.topic, given.message, priority=given.priority)
    return as_json(NumberedOut(receipt.id, receipt.partition, receipt.offset))


async def consume(call: Call) -> Answer:
    """At most once: what is handed out is done."""
    consumer = call.query.get("consumerID")
    if consumer is None:
        raise Refused("no consumer is named; give ?consumerID=", code="bad_query")
    limit = _limit(call, "batch", 1)
    wanted = remote.Wanted((call.topic,), limit, group=check_name(consumer, "group"), mode="at_most_once")
    since = delivered.begun(call)
    handed = await remote.receive(call.behind, wanted)
    delivered.tell(call, wanted.group, handed, since)
    return as_json(TextsOut([_text(message) for lease in handed for message in lease.messages]))


async def peek(call: Call) -> Answer:
    """The log from an offset on, partition by partition."""
    start: int = call.number("offset", 0)
    limit = _limit(call, "batch", 1)
    if start < 0:
        raise Refused(f"offset {start}; an offset is not negative", code="bad_position")
    found: list[TextOut] = []
    size = 0
    async for message in call.broker.scan(call.topic, start):
        size += len(message.payload)
        if size > ANSWER_BYTES_MAX and found:
            break
        found.append(_text(message))
        if len(found) == limit:
            break
    return as_json(TextsOut(found))


async def topics(call: Call) -> Answer:
    return as_json(NamesOut(await call.broker.topics()))


async def partitions(call: Call) -> Answer:
    spans = await overview.partitions(call.behind, call.topic)
    return as_json(SpansOut([SpanOut(each.partition, each.messages, each.start, each.end) for each in spans]))


def _text(message: AnyMessage) -> TextOut:
    told = TextOut(message.id, message.partition, message.offset, message.priority)
    try:
        told.message = message.payload.decode()
    except UnicodeDecodeError:
        told.message_base64 = base64.b64encode(message.payload).decode()
    return told


def _time(given: str | int | None, name: str) -> Any:
    return None if given is None else to_datetime(instant_ms(given, name))


_NAMESPACE = Parameter("namespace", "text", "the tenant")
_TOPIC = Parameter("topic", "text", "the queue")
_LIMIT = Parameter("limit", "integer", "at most so many messages")
_BATCH = Parameter("batch", "integer", "at most so many messages")

ROUTES = (
    Route("POST", "/enqueue", enqueue, "publish", "inside", "Publish messages to queues", list[EnqueueIn] | EnqueueIn,
          EnqueueOut, large=True),
    Route("GET", "/dequeue", dequeue, "receive", "inside", "Receive messages of a queue", None, list[DequeuedOut],
          (_NAMESPACE, _TOPIC, _LIMIT)),
    Route("POST", "/ack", ack, "settle", "inside", "A message of /dequeue is done", DoneIn, DoneOut),
    Route("POST", "/nack", nack, "settle", "inside", "A message of /dequeue has failed", DoneIn, DoneOut),
    Route("GET", "/dlq", dead, "read", "inside", "The dead of a queue", None, list[DequeuedOut],
          (_NAMESPACE, _TOPIC, _LIMIT)),
    Route("POST", "/v1/topics/{topic}/publish", publish_value, "publish", "topic", "Publish one message", ValueIn,
          PlacedOut, large=True),
    Route("POST", "/topic/{topic}/publish", publish_text, "publish", "topic", "Publish one text", TextIn, NumberedOut,
          large=True),
    Route("GET", "/topic/{topic}/consume", consume, "receive", "topic", "Receive texts, at most once", None, TextsOut,
          (Parameter("consumerID", "text", "the group"), _BATCH)),
    Route("GET", "/topic/{topic}/peek", peek, "read", "topic", "Read texts from an offset on", None, TextsOut,
          (Parameter("offset", "integer", "where to begin"), _BATCH)),
    Route("GET", "/topics", topics, "read", "namespace", "List topics", None, NamesOut),
    Route("GET", "/topics/{topic}/partitions", partitions, "read", "topic", "List partitions", None, SpansOut),
)  # fmt: skip
