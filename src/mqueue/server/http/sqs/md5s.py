"""The checksums of SQS: over a body, and over message attributes in a form of their own.

    for each attribute, by name:   length name · length type · kind · length value
                                   lengths are 4 bytes, big-endian; kind is 1 for text and 2 for bytes

Clients compare them with what they sent. They protect from nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

Attribute = tuple[str, str | bytes]
"""Its type and its value."""


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    parts: list[bytes] = []
    for name in sorted(attributes):
        kind, value = attributes[name]
        parts += (_sized(name.encode()), _sized(kind.encode()))
        parts += (b"\x01", _sized(value.encode())) if isinstance(value, str) else (b"\x02", _sized(value))
    return md5(b"".join(parts))


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data
