"""Tables of AMQP ↔ dicts. What comes from outside is read with its bounds, and no deeper than a limit.

    table   length:4 { length:1 name  type:1 value }…
    array   length:4 { type:1 value }…

Written by hand: pamqp copies the rest of a table for every value in it, which of a large one takes seconds.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

DEPTH_MAX = 16

_LENGTH = struct.Struct(">I")
_DECIMAL = struct.Struct(">Bi")
_NUMBERS = {
    ord(sign): struct.Struct(f">{form}")
    for sign, form in zip("bBsuIilLfd", ("b", "B", "h", "H", "i", "I", "q", "q", "f", "d"), strict=True)
}
_TIME = struct.Struct(">Q")
_INT32 = 1 << 31
_INT64 = 1 << 63


class Timestamp(int):
    """Seconds since 1970."""


def read_table(data: bytes, at: int = 0) -> tuple[dict[str, Any], int]:
    """A table, and where it ends. Raises ValueError."""
    try:
        return _table(data, at, DEPTH_MAX)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a table is cut off: {error}") from error


def _table(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    at, stop = _span(data, at, depth)
    found: dict[str, Any] = {}
    while at < stop:
        begin = at + 1
        at = begin + data[at]
        name = data[begin:at].decode()
        found[name], at = _value(data, at, depth)
    if at != stop:
        raise ValueError("a value reaches beyond its table")
    return found, stop


def _array(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    at, stop = _span(data, at, depth)
    found: list[Any] = []
    while at < stop:
        value, at = _value(data, at, depth)
        found.append(value)
    if at != stop:
        raise ValueError("a value reaches beyond its array")
    return found, stop


def _span(data: bytes, at: int, depth: int) -> tuple[int, int]:
    if not depth:
        raise ValueError(f"tables in tables, more than {DEPTH_MAX} deep")
    (length,) = _LENGTH.unpack_from(data, at)
    stop = at + 4 + length
    if stop > len(data):
        raise ValueError(f"a table of {length} bytes, of which {len(data) - at - 4} are there")
    return at + 4, stop


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    sign = data[at]
    at += 1
    number = _NUMBERS.get(sign)
    if number is not None:
        return number.unpack_from(data, at)[0], at + number.size
    if sign in b"Sx":
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        text = data[at : at + length]
        if len(text) < length:
            raise ValueError(f"a text of {length} bytes, of which {len(text)} are there")
        return (_text(text) if sign == _TEXT else text), at + length
    if sign == _BOOLEAN:
        return data[at] != 0, at + 1
    if sign == _TABLE:
        return _table(data, at, depth - 1)
    if sign == _ARRAY:
        return _array(data, at, depth - 1)
    if sign == _TIMESTAMP:
        return Timestamp(_TIME.unpack_from(data, at)[0]), at + 8
    if sign == _FIXED:
        places, digits = _DECIMAL.unpack_from(data, at)
        return Decimal(digits).scaleb(-places), at + 5
    if sign in (_VOID, 0):
        return None, at
    raise ValueError(f"a value of type {bytes([sign])!r}, which there is not")


_TEXT, _BOOLEAN, _TABLE, _ARRAY, _TIMESTAMP, _FIXED, _VOID = b"StFATDV"


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def write_table(table: Mapping[str, Any]) -> bytes:
    """Raises ValueError for what has no form there."""
    parts = [short_text(name) + _written(value) for name, value in table.items()]
    return _sized(b"".join(parts))


def short_text(text: str) -> bytes:
    """A text with its length in one byte."""
    data = text.encode()
    if len(data) > 255:
        raise ValueError(f"{text!r:.80} has {len(data)} bytes; 255 fit")
    return bytes([len(data)]) + data


def _written(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t" + bytes([value])
    if isinstance(value, Timestamp):
        return b"T" + _TIME.pack(value)
    if isinstance(value, int):
        if -_INT32 <= value < _INT32:
            return b"I" + struct.pack(">i", value)
        if -_INT64 <= value < _INT64:
            return b"l" + struct.pack(">q", value)
    elif isinstance(value, str):
        return b"S" + _sized(value.encode())
    elif isinstance(value, bytes):
        return b"x" + _sized(value)
    elif isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    elif value is None:
        return b"V"
    elif isinstance(value, Mapping):
        return b"F" + write_table(value)
    elif isinstance(value, Decimal):
        return _written_decimal(value)
    elif isinstance(value, Sequence):
        return b"A" + _sized(b"".join(_written(one) for one in value))
    raise ValueError(f"{value!r:.80} has no form in a table")


def _written_decimal(value: Decimal) -> bytes:
    _, digits, exponent = value.as_tuple()
    places = -exponent if isinstance(exponent, int) else -1
    whole = int(value.scaleb(places)) if 0 <= places <= 255 else _INT32
    if not -_INT32 <= whole < _INT32 or not digits:
        raise ValueError(f"{value!r:.80} has no form in a table")
    return b"D" + _DECIMAL.pack(places, whole)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data
