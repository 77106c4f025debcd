"""One message: what a client sends becomes a draft, or is refused.

    body                       payload, as UTF-8
    message attributes         headers; their types, where not String, in the header `sqs:types`. Those named like a
                               header of a dead letter are under `sqs:<name>`: nobody takes them for one
    MessageGroupId             key of a FIFO queue; fairness key of another
    MessageDeduplicationId     idempotency key

Every limit of a message is checked here. Asks no broker.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from mqueue.model.message import Draft
from mqueue.server.http.sqs.attributes import Traits
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.http.sqs.md5s import Attribute, md5, md5_of_attributes
from mqueue.server.http.sqs.opening import Queue
from mqueue.wire import json_sqs as wire
from mqueue.wire.story import STORY

TYPES, GROUP, TRACE = "sqs:types", "sqs:group", "sqs:trace"
"""Headers of ours: no attribute has a colon in its name."""
ASIDE = {name: f"sqs:{name}" for name in STORY}
"""Attributes under another name, for these headers say how a message died."""
ATTRIBUTE_NAME = re.compile(r"(?!(?i:aws\.|amazon\.))(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_TYPE = re.compile(r"(String|Number|Binary)(\.[^\s]{1,249})?")
_ATTRIBUTES_MAX = 10
_BAD_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GROUP_ID = re.compile(r"[!-~]{1,128}")
_FAIRNESS_KEY = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
_DELAY_MAX = 900


class Ready(Struct):
    """A message that can be published, and what its sender is told of it."""

    item: bytes | Draft
    size: int
    md5_of_body: str
    md5_of_attributes: str | None = None
    md5_of_system_attributes: str | None = None


def ready(queue: Queue, message: wire.MessageIn) -> Ready:
    """Raises Fault for what is wrong with it."""
    body = _checked_text(message.message_body)
    if (
        queue.is_plain
        and message.message_attributes is None
        and message.message_system_attributes is None
        and message.message_group_id is None
        and message.message_deduplication_id is None
        and message.delay_seconds is None
    ):
        _check_size(len(body), queue.traits)
        return Ready(body, len(body), md5(body))
    return _with_extras(queue, message, body)


def _with_extras(queue: Queue, message: wire.MessageIn, body: bytes) -> Ready:
    attributes = _attributes(message.message_attributes or {})
    system = _system_attributes(message.message_system_attributes or {})
    size = len(body) + sum(_size(name, attribute) for name, attribute in attributes.items())
    _check_size(size, queue.traits)
    headers: dict[str, str | bytes] = {ASIDE.get(name, name): value for name, (_, value) in attributes.items()}
    types = {name: kind for name, (kind, _) in attributes.items() if kind != "String"}
    if types:
        headers[TYPES] = msgspec.json.encode(types).decode()
    if system:
        headers[TRACE] = system["AWSTraceHeader"][1]
    fair = _fairness(queue, message.message_group_id, headers)
    draft = Draft(
        body,
        key=_group(message.message_group_id) if queue.place.is_fifo else None,
        headers=headers or None,
        delay=_delay(queue, message.delay_seconds),
        idempotency_key=_deduplication(queue, message, body),
        fairness_key=fair,
    )
    return Ready(
        draft,
        size,
        md5(body),
        md5_of_attributes(attributes) if attributes else None,
        md5_of_attributes(system) if system else None,
    )


def _checked_text(text: str) -> bytes:
    if not text:
        raise Fault("MissingParameter", "MessageBody is empty; it takes at least one character")
    if not text.isprintable() and (found := _BAD_TEXT.search(text)) is not None:
        raise Fault("InvalidMessageContents", f"the body has the character {found[0]!r}, which is not allowed")
    return text.encode()


def _check_size(size: int, traits: Traits) -> None:
    if size > traits.size_max:
        why = f"a message of {size} bytes; {traits.size_max} are allowed (MaximumMessageSize)"
        raise Fault("InvalidParameterValue", why)


def _delay(queue: Queue, given: int | None) -> int | None:
    if given is None or (queue.place.is_fifo and not given):
        return queue.traits.delay_seconds or None
    if queue.place.is_fifo:
        why = f"DelaySeconds {given}; the messages of a FIFO queue are delayed by the attribute of the queue alone"
        raise Fault("InvalidParameterValue", why)
    if not 0 <= given <= _DELAY_MAX:
        raise Fault("InvalidParameterValue", f"DelaySeconds {given}; it takes 0 to {_DELAY_MAX}")
    return given or None


def _group(group: str | None) -> str:
    if group is None:
        raise Fault("MissingParameter", "MessageGroupId is missing; a message of a FIFO queue has one")
    return _id("MessageGroupId", group)


def _id(name: str, value: str) -> str:
    if _GROUP_ID.fullmatch(value) is None:
        why = f"{name} {value!r:.200}; it takes 1 to 128 letters, digits and punctuation marks"
        raise Fault("InvalidParameterValue", why)
    return value


def _fairness(queue: Queue, group: str | None, headers: dict[str, str | bytes]) -> str | None:
    """A group that cannot be a fairness key as it stands has one made from it, and goes along in a header."""
    if group is None or queue.place.is_fifo:
        return None
    if _FAIRNESS_KEY.fullmatch(_id("MessageGroupId", group)):
        return group
    headers[GROUP] = group
    return f"sqs-{hashlib.blake2b(group.encode(), digest_size=16).hexdigest()}"


def _deduplication(queue: Queue, message: wire.MessageIn, body: bytes) -> str | None:
    given = message.message_deduplication_id
    if not queue.place.is_fifo:
        if given is not None:
            why = "MessageDeduplicationId is not valid for this queue: it is for FIFO queues"
            raise Fault("InvalidParameterValue", why)
        return None
    if given is None and not queue.traits.by_content:
        why = "MessageDeduplicationId is missing, and ContentBasedDeduplication of the queue is off"
        raise Fault("InvalidParameterValue", why)
    id = hashlib.sha256(body).hexdigest() if given is None else _id("MessageDeduplicationId", given)
    return f"{message.message_group_id} {id}" if queue.traits.by_group else id


def _attributes(given: dict[str, wire.AttributeIn]) -> dict[str, Attribute]:
    if len(given) > _ATTRIBUTES_MAX:
        raise Fault("InvalidParameterValue", f"{len(given)} message attributes; {_ATTRIBUTES_MAX} are allowed")
    return {_attribute_name(name): _attribute(name, attribute) for name, attribute in given.items()}


def _attribute_name(name: str) -> str:
    if ATTRIBUTE_NAME.fullmatch(name) is None:
        raise Fault("InvalidParameterValue", f"{name!r:.200} is not a name for a message attribute")
    return name


def _attribute(name: str, given: wire.AttributeIn) -> Attribute:
    if _TYPE.fullmatch(given.data_type) is None:
        why = f"message attribute {name!r:.80} has type {given.data_type!r:.80}; it takes String, Number or Binary"
        raise Fault("InvalidParameterValue", why)
    if given.string_list_values or given.binary_list_values:
        raise Fault("UnsupportedOperation", f"message attribute {name!r:.80} is a list, which no attribute can be")
    if given.data_type.startswith("Binary"):
        return given.data_type, _bytes(name, given.binary_value)
    if not given.string_value:
        raise Fault("InvalidParameterValue", f"message attribute {name!r:.80} must have a StringValue")
    _checked_text(given.string_value)
    if given.data_type.startswith("Number") and not _is_number(given.string_value):
        raise Fault("InvalidParameterValue", f"message attribute {name!r:.80}: {given.string_value!r:.80} is no number")
    return given.data_type, given.string_value


def _bytes(name: str, given: str | None) -> bytes:
    try:
        data = base64.b64decode(given or "", validate=True)
    except (binascii.Error, ValueError):
        raise Fault("InvalidParameterValue", f"message attribute {name!r:.80} is not Base64") from None
    if not data:
        raise Fault("InvalidParameterValue", f"message attribute {name!r:.80} must have a BinaryValue")
    return data


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d{1,128}\.?\d{0,128}|\.\d{1,128})([eE][+-]?\d{1,3})?", text) is not None


def _system_attributes(given: dict[str, wire.AttributeIn]) -> dict[str, Attribute]:
    for name, attribute in given.items():
        if name != "AWSTraceHeader" or attribute.data_type != "String":
            why = f"message system attribute {name!r:.80}; there is AWSTraceHeader, of type String"
            raise Fault("InvalidParameterValue", why)
    return {name: _attribute(name, attribute) for name, attribute in given.items()}


def _size(name: str, attribute: Attribute) -> int:
    kind, value = attribute
    return len(name) + len(kind) + (len(value.encode()) if isinstance(value, str) else len(value))


def check_fifo(queue: Queue, entries: Sequence[wire.SendEntryIn]) -> None:
    """What is missing in one entry is missing in the batch: else what follows in its group would overtake it."""
    for entry in entries:
        _group(entry.message_group_id)
        _deduplication(queue, entry, b"")
