"""Messages from their JSON: the structs of `json` become drafts. What is in them is judged by the broker."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence

from msgspec import UNSET

from mqueue.model.errors import BadTime, Refused
from mqueue.model.message import Draft
from mqueue.model.times import Instant, instant_ms, to_datetime
from mqueue.wire.json import MessageIn
from mqueue.wire.payload import JSON

_DIGITS_MAX = 19


def drafts_of(messages: Sequence[MessageIn], topic: str | None = None) -> list[Draft]:
    """What is to be published. Where a message names no topic it is for `topic`."""
    return [draft_of(message, topic) for message in messages]


def draft_of(message: MessageIn, topic: str | None = None) -> Draft:
    headers: Mapping[str, str | bytes] | None = message.headers
    if message.headers_base64:
        headers = {**(headers or {}), **_decoded_headers(message)}
    if message.payload_json is not UNSET and "content-type" not in (headers or {}):
        headers = {**(headers or {}), "content-type": JSON}
    return Draft(
        payload_of(message),
        _key_of(message),
        headers,
        message.priority,
        message.delay,
        _time(message.deliver_at),
        message.ttl,
        message.idempotency_key,
        message.fairness_key,
        message.topic or topic,
    )


def payload_of(message: MessageIn) -> bytes:
    """The bytes, of whichever of the three forms there is."""
    text, coded, value = message.payload, message.payload_base64, message.payload_json
    if (text is not None) + (coded is not None) + (value is not UNSET) != 1:
        raise Refused("a message has just one of payload, payload_base64, payload_json", code="bad_payload")
    if text is not None:
        return text.encode()
    if coded is not None:
        return from_base64(coded, "payload_base64")
    return bytes(value)  # type: ignore[arg-type]


def ids_of(texts: Sequence[str]) -> list[int]:
    """Ids as they stand in JSON, as numbers."""
    for text in texts:
        if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
            raise Refused(f"id {text!r:.80}; ids are text of digits", code="bad_id")
    return list(map(int, texts))


def from_base64(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise Refused(f"{name} {text!r:.80} is no base64: {error}", code="bad_base64") from error


def _key_of(message: MessageIn) -> str | bytes | None:
    if message.key_base64 is None:
        return message.key
    if message.key is not None:
        raise Refused("a message has key or key_base64, not both", code="bad_key")
    return from_base64(message.key_base64, "key_base64")


def _decoded_headers(message: MessageIn) -> dict[str, bytes]:
    coded = message.headers_base64 or {}
    twice = next((name for name in coded if name in (message.headers or {})), None)
    if twice is not None:
        raise Refused(f"header {twice!r:.80} is in headers and in headers_base64", code="bad_header")
    return {name: from_base64(value, "headers_base64") for name, value in coded.items()}


def _time(given: int | str | None) -> Instant | None:
    """A number is milliseconds since 1970 on the wire; inside it would be none of our times."""
    if given is None or isinstance(given, str):
        return given
    try:
        return to_datetime(instant_ms(given, "deliver_at"))
    except OverflowError as error:
        raise BadTime(f"deliver_at {given} is no time") from error
