"""The properties of a message, as the bytes that a client sent and as values.

    flags:2 (a bit for each that is there, highest first)   values, in this order:
    content_type content_encoding headers delivery_mode priority correlation_id reply_to expiration message_id
    timestamp type user_id app_id cluster_id

They are kept, and handed out, as they came; only what decides where a message goes is read.
"""

from __future__ import annotations

import struct
from typing import Any

from mqueue.server.amqp.tables import Timestamp, read_table, short_text, write_table

NAMES = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
PERSISTENT = b"\x10\x00\x02"
"""A delivery mode of 2 and nothing else: what is sent for a message that is to last."""
_BITS = tuple((name, 1 << 15 - number) for number, name in enumerate(NAMES))
_FLAGS = struct.Struct(">H")
_TIME = struct.Struct(">Q")
_MORE = 1
_TABLE = 1 << 13
_SIZES = tuple((bit, {"delivery_mode": 1, "priority": 1, "timestamp": 8}.get(name, 0)) for name, bit in _BITS)
"""Bytes of each; 0: it says itself how many."""


def check(raw: bytes) -> None:
    """See that they end where they should. Raises ValueError or IndexError."""
    if raw == PERSISTENT:
        return
    flags, at = int.from_bytes(raw[:2], "big"), 2
    if len(raw) < 2 or flags & 3:
        raise ValueError(f"properties of {len(raw)} bytes, flags {flags:#06x}")
    for bit, size in _SIZES:
        if flags & bit:
            if size:
                at += size
            elif bit == _TABLE:
                at += 4 + int.from_bytes(raw[at : at + 4], "big")
            else:
                at += 1 + raw[at]
    if at != len(raw):
        raise ValueError(f"properties of {len(raw)} bytes, where there should be {at}")


def read(raw: bytes) -> dict[str, Any]:
    """The values that are there. Raises ValueError."""
    try:
        (flags,) = _FLAGS.unpack_from(raw)
        if flags & _MORE or flags & 2:
            raise ValueError(f"flags {flags:#06x}: there are {len(NAMES)} properties and no more")
        return _values(raw, flags)
    except (struct.error, IndexError) as error:
        raise ValueError(f"properties of {len(raw)} bytes are cut off: {error}") from error


def _values(raw: bytes, flags: int) -> dict[str, Any]:
    at, found = 2, dict[str, Any]()
    for name, bit in _BITS:
        if not flags & bit:
            continue
        if name == "headers":
            found[name], at = read_table(raw, at)
        elif name in ("delivery_mode", "priority"):
            found[name], at = raw[at], at + 1
        elif name == "timestamp":
            found[name], at = Timestamp(_TIME.unpack_from(raw, at)[0]), at + 8
        else:
            stop = at + 1 + raw[at]
            if stop > len(raw):
                raise ValueError(f"{name} is cut off")
            found[name], at = raw[at + 1 : stop].decode(), stop
    if at != len(raw):
        raise ValueError(f"{len(raw) - at} bytes follow the properties")
    return found


def write(values: dict[str, Any]) -> bytes:
    """Raises ValueError for what has no form."""
    flags, parts = 0, list[bytes]()
    for name, bit in _BITS:
        value = values.get(name)
        if value is None:
            continue
        flags |= bit
        if name == "headers":
            parts.append(write_table(value))
        elif name in ("delivery_mode", "priority"):
            parts.append(bytes([value]))
        elif name == "timestamp":
            parts.append(_TIME.pack(value))
        else:
            parts.append(short_text(value))
    return _FLAGS.pack(flags) + b"".join(parts)
