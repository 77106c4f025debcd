"""ReceiveMessage: messages of the group `default` under a lease, shown as SQS shows them.

Who published a message is not kept, so `SenderId` is the account. What is not text goes out as Base64, and an attribute
says so.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from mqueue.broker import remote
from mqueue.broker.message import AsyncMessage
from mqueue.server.http.answer import Answer
from mqueue.server.http.call import Call
from mqueue.server.http.sqs.carrying import begin
from mqueue.server.http.sqs.composing import ASIDE, ATTRIBUTE_NAME, GROUP, TRACE, TYPES
from mqueue.server.http.sqs.errors import KIND, Fault, request_id
from mqueue.server.http.sqs.md5s import Attribute, md5, md5_of_attributes
from mqueue.server.http.sqs.naming import Place, account_of, handle_of, sequence_number
from mqueue.server.http.sqs.opening import Queue, open_queue
from mqueue.server.http.v1.receive import for_taker, take
from mqueue.wire import json_sqs as wire
from mqueue.wire.story import STORY

MESSAGES_MAX = 10
_WAIT_SECONDS_MAX = 20
_VISIBILITY_SECONDS_MAX = 43_200
_ALL = frozenset(("All", ".*"))
_SYSTEM = frozenset(
    (
        "All",
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    )
)
_ENCODED = "sqs-base64"
"""The attribute of a message whose body is the Base64 of what was published."""
_STORY = frozenset(STORY)
_NAMES = {header: name for name, header in ASIDE.items()}
_TYPES = msgspec.json.Decoder(dict[str, str])
_ENCODER = msgspec.json.Encoder()


async def receive(call: Call, asked: wire.ReceiveIn) -> Answer:
    queue = open_queue(call, asked.queue_url, "receive")
    wanted, system = _wanted(queue, asked), {*asked.attribute_names, *asked.message_system_attribute_names}
    unknown = sorted(system - _SYSTEM)
    if unknown:
        raise Fault("InvalidAttributeName", f"unknown attribute {unknown[0]!r:.80}")
    begin(call.service, queue.place, list(queue.traits.far_sources))
    handed = await take(call, remote.receive, wanted) or []
    try:
        return await _answer(call, asked, queue, system, handed)
    except BaseException:
        await remote.give_back(call.behind, [lease.token for lease in handed])
        raise


async def _answer(
    call: Call, asked: wire.ReceiveIn, queue: Queue, system: set[str], handed: Sequence[remote.Handed]
) -> Answer:
    shown = _Shown(call, queue.place, system, asked.message_attribute_names)
    out = [shown.message(lease.token, message) for lease in handed for message in lease.messages]
    body = _ENCODER.encode(wire.ReceivedManyOut(out))
    if _hides_nothing(queue, asked):
        for lease in handed:
            await remote.settle(call.behind, "nack", lease.token, wait=0)
        handed = ()
    leases = tuple(("x-mqueue-lease", lease.token) for lease in handed)
    return for_taker(call, Answer(200, body, KIND, (*request_id(), *leases)), handed)


def _wanted(queue: Queue, asked: wire.ReceiveIn) -> remote.Wanted:
    limit = _within("MaxNumberOfMessages", asked.max_number_of_messages, 1, MESSAGES_MAX)
    wait = _within("WaitTimeSeconds", asked.wait_time_seconds, 0, _WAIT_SECONDS_MAX)
    visibility = _within("VisibilityTimeout", asked.visibility_timeout, 0, _VISIBILITY_SECONDS_MAX)
    return remote.Wanted(
        (queue.place.name,),
        1 if limit is None else limit,
        wait=(queue.traits.wait_seconds if wait is None else wait) or None,
        visibility=visibility or None,
    )


def _within(name: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and not low <= value <= high:
        raise Fault("InvalidParameterValue", f"{name} {value}; it takes {low} to {high}")
    return value


def _hides_nothing(queue: Queue, asked: wire.ReceiveIn) -> bool:
    """Whether others may have at once what was received: with a visibility timeout of 0."""
    given = asked.visibility_timeout
    return given == 0 if given is not None else queue.traits.is_shown_at_once


class _Shown:
    """How the messages of one answer are shown."""

    def __init__(self, call: Call, place: Place, system: set[str], named: Sequence[str]) -> None:
        self._place = place
        self._now = call.service.clock.now()
        self._system = _SYSTEM if "All" in system else system
        self._wants = _matcher(named)

    def message(self, token: str, message: AsyncMessage) -> wire.ReceivedOut:
        payload, headers = message.payload, message.headers
        out = wire.ReceivedOut(str(message.id), handle_of(token, message.id), "", "")
        attributes: dict[str, Attribute] = {}
        try:
            out.body = payload.decode()
        except UnicodeDecodeError:
            out.body = base64.b64encode(payload).decode()
            payload = out.body.encode()
            attributes[_ENCODED] = "String", "true"
        out.md5_of_body = md5(payload)
        if headers and self._wants is not None:
            attributes |= {name: one for name, one in attributes_of(headers).items() if self._wants(name)}
        if attributes:
            out.message_attributes = {name: _shown(*attribute) for name, attribute in attributes.items()}
            out.md5_of_attributes = md5_of_attributes(attributes)
        if self._system:
            out.attributes = self._told(message, headers)
        return out

    def _told(self, message: AsyncMessage, headers: Mapping[str, str | bytes]) -> dict[str, str]:
        place, origin = self._place, headers.get("x-origin-topic")
        trace = headers.get(TRACE)
        told: dict[str, str | None] = {
            "SenderId": account_of(place.namespace),
            "SentTimestamp": _ms(message.published_at),
            "ApproximateReceiveCount": str(message.attempt),
            "ApproximateFirstReceiveTimestamp": str(self._now) if message.attempt == 1 else _ms(message.deliver_at),
            "MessageGroupId": _group_of(message, headers),
            "AWSTraceHeader": _text(trace) if trace is not None else None,
            "DeadLetterQueueSourceArn": Place(place.namespace, _text(origin)).arn if origin is not None else None,
        }
        if place.is_fifo:
            told["SequenceNumber"] = sequence_number(message.id)
            told["MessageDeduplicationId"] = _deduplication_of(message)
        return {name: value for name, value in told.items() if value is not None and name in self._system}


def attributes_of(headers: Mapping[str, str | bytes]) -> dict[str, Attribute]:
    """The headers that can be attributes. How a message died is no part of them: consumers send on what they get."""
    types = _types(headers.get(TYPES))
    found: dict[str, Attribute] = {}
    for header, value in headers.items():
        name = _NAMES.get(header, header)
        if header in _STORY or ATTRIBUTE_NAME.fullmatch(name) is None or not value:
            continue
        kind = types.get(name, "String" if isinstance(value, str) else "Binary")
        found[name] = kind, value.encode() if isinstance(value, str) and kind.startswith("Binary") else value
    return found


def _types(noted: str | bytes | None) -> dict[str, str]:
    if noted is None:
        return {}
    try:
        return _TYPES.decode(noted)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # somebody else wrote it
        return {}


def _shown(kind: str, value: str | bytes) -> wire.AttributeOut:
    if isinstance(value, str):
        return wire.AttributeOut(kind, value)
    return wire.AttributeOut(kind, binary_value=base64.b64encode(value).decode())


def _matcher(named: Sequence[str]) -> Callable[[str], bool] | None:
    """Which attributes are asked for; None: none."""
    if not named:
        return None
    if not _ALL.isdisjoint(named):
        return lambda name: True
    prefixes = tuple(name[:-2] for name in named if name.endswith(".*"))
    exact = frozenset(named)
    return lambda name: name in exact or name.startswith(prefixes)


def _group_of(message: AsyncMessage, headers: Mapping[str, str | bytes]) -> str | None:
    kept = headers.get(GROUP)
    if kept is not None:
        return _text(kept)
    if message.fairness_key is not None:
        return message.fairness_key
    return None if message.key is None else _text(message.key)


def _deduplication_of(message: AsyncMessage) -> str | None:
    """Without the group that it counts in."""
    key = message.idempotency_key
    return None if key is None else key.rpartition(" ")[2]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _ms(at: datetime) -> str:
    return str(round(at.timestamp() * 1000))
