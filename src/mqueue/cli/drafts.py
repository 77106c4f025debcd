"""Messages as they are typed or piped in, turned into drafts."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, json
from msgspec.structs import asdict

from mqueue.model.errors import Refused
from mqueue.model.message import Draft


class Wishes(Struct, frozen=True):
    """What the options say of every message."""

    key: str | None = None
    headers: Mapping[str, str] | None = None
    priority: int | str | None = None
    delay: str | None = None
    deliver_at: str | None = None
    ttl: str | None = None
    idempotency_key: str | None = None
    fairness_key: str | None = None

    def of(self, payload: bytes) -> Any:
        """A draft, or plain bytes where nothing is wished for: they are published faster."""
        return payload if self == _NONE else Draft(payload, **asdict(self))


_NONE = Wishes()


class Line(Struct):
    """A message as `consume -o ndjson` prints it. What only stored ones have (id, offset …) is passed over."""

    payload: str | None = None
    payload_base64: str | None = None
    payload_json: Raw | UnsetType = UNSET
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None
    priority: int | str | None = None
    delay: float | str | None = None
    deliver_at: str | None = None
    ttl: float | str | None = None
    idempotency_key: str | None = None
    fairness_key: str | None = None


_DECODER = json.Decoder(Line)


def draft_of(line: bytes, number: int, wishes: Wishes) -> Draft:
    """The message that a line of JSON describes; what it leaves open is as the options say."""
    try:
        found = _DECODER.decode(line)
        payload, key = _payload(found), _key(found)
        headers = _headers(found)
    except (ValidationError, DecodeError, BadBase64, ValueError) as error:
        raise Refused(f"message {number} of the input cannot be read: {error}") from error
    timed = found.delay is not None or found.deliver_at is not None
    return Draft(
        payload,
        key=_first(key, wishes.key),
        headers={**(wishes.headers or {}), **headers} or None,
        priority=_first(found.priority, wishes.priority),
        delay=found.delay if timed else wishes.delay,
        deliver_at=found.deliver_at if timed else wishes.deliver_at,
        ttl=_first(found.ttl, wishes.ttl),
        idempotency_key=_first(found.idempotency_key, wishes.idempotency_key),
        fairness_key=_first(found.fairness_key, wishes.fairness_key),
    )


def headers_of(given: Sequence[str]) -> dict[str, str] | None:
    """From `name=value`, each."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refused(f"header {text!r:.80}; it takes name=value")
        found[name] = value
    return found or None


def _payload(line: Line) -> bytes:
    given = [line.payload is not None, line.payload_base64 is not None, line.payload_json is not UNSET]
    if sum(given) != 1:
        raise ValueError("it takes one of payload, payload_base64, payload_json")
    if line.payload is not None:
        return line.payload.encode()
    if line.payload_base64 is not None:
        return b64decode(line.payload_base64, validate=True)
    assert isinstance(line.payload_json, Raw)
    return bytes(line.payload_json)


def _key(line: Line) -> str | bytes | None:
    return line.key if line.key_base64 is None else b64decode(line.key_base64, validate=True)


def _headers(line: Line) -> dict[str, str | bytes]:
    others = {name: b64decode(value, validate=True) for name, value in (line.headers_base64 or {}).items()}
    return {**(line.headers or {}), **others}


def _first(given: Any, wished: Any) -> Any:
    return wished if given is None else given
