"""Payloads as users hand them in, turned into bytes, and back into what users ask for.

Bytes stay as they are and text is UTF-8, both without a content type, so that plain frames stay lean; anything else is
JSON and says so. A pydantic model is known by its methods: pydantic is never imported here. Does not know messages.
As JSON has no NaN and no infinity, both are written as null.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar, overload

import msgspec

from mqueue.model.errors import Refused

JSON = "application/json"

_REASON_MAX = 500

T = TypeVar("T")


def encode(payload: object) -> tuple[bytes, str | None]:
    """The bytes, and the content type where the bytes alone would not tell."""
    if isinstance(payload, bytes):
        return payload, None
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload), None
    try:
        if isinstance(payload, str):
            return payload.encode(), None
        return _ENCODER.encode(payload), JSON
    except _FAILURES as error:
        name = type(payload).__name__
        raise Refused(f"payload of type {name} cannot be sent: {_reason(error)}", code="bad_payload") from error


@overload
def decode(payload: bytes, type: None = None) -> Any: ...
@overload
def decode(payload: bytes, type: type[T]) -> T: ...
def decode(payload: bytes, type: type[Any] | None = None) -> Any:
    """The JSON as plain values, or as `type`: validated by pydantic if it is one of its models, else by msgspec."""
    validate = getattr(type, "model_validate_json", None)
    if validate is None:
        wanted: Any = Any if type is None else type
        validate = _decoder(wanted).decode
    try:
        return validate(payload)
    except _FAILURES as error:
        name = "JSON" if type is None else getattr(type, "__name__", repr(type))
        raise Refused(f"payload of {len(payload)} bytes is no {name}: {_reason(error)}", code="bad_payload") from error


def _encode_model(value: object) -> msgspec.Raw:
    """What msgspec does not know, at any depth: a pydantic model, or nothing that can be sent."""
    dump = getattr(value, "model_dump_json", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return msgspec.Raw(dump().encode())


def _decode_model(type: type[Any], value: object) -> Any:
    """A pydantic model inside a type of msgspec's, such as list[Order]."""
    validate = getattr(type, "model_validate", None)
    if validate is None:
        raise TypeError(f"{type.__name__} cannot be read from JSON")
    return validate(value)


@lru_cache(maxsize=1024)
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type, dec_hook=_decode_model)


def _reason(error: Exception) -> str:
    return f"{error!s:.{_REASON_MAX}}"


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_model)
_FAILURES = (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError)
