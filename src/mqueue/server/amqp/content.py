"""A message of AMQP as a message of ours, and back.

The body is the payload. What a client sent besides, its properties, the exchange and the routing key, is kept as it
came in one header, `amqp`, and handed out so. For everybody else the content type and headers that are text are headers
of the message, too, unless that gets long. A message with nothing but a delivery mode, sent straight to its queue, has
no headers at all. Of one that was published in another way its own headers become properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqueue.broker.message import AnyMessage
from mqueue.model.limits import KIB
from mqueue.server.amqp import properties
from mqueue.server.amqp.properties import PERSISTENT
from mqueue.server.amqp.tables import short_text

HEADER = "amqp"
"""exchange and routing key as short texts, then the properties"""
CONTENT_TYPE = "content-type"
_SHORT_MAX = 255
_COPIED_MAX = 32 * KIB
"""Up to so many bytes in all: what is longer would be refused for being there twice."""


def address_of(exchange: str, key: str) -> bytes:
    return short_text(exchange) + short_text(key)


def headers_of(exchange: str, key: str, raw: bytes, values: Mapping[str, Any]) -> dict[str, str | bytes]:
    """The headers of a message. `values`: its properties, read."""
    headers: dict[str, str | bytes] = {HEADER: address_of(exchange, key) + raw}
    kind = values.get("content_type")
    if kind:
        headers[CONTENT_TYPE] = kind
    copies = {name: value for name, value in (values.get("headers") or {}).items() if isinstance(value, str)}
    if copies and len(raw) + sum(map(len, copies)) + sum(map(len, copies.values())) <= _COPIED_MAX:
        headers = {**copies, **headers}
    return headers


def split(packed: bytes) -> tuple[bytes, bytes]:
    """Exchange and routing key as they travel, and the properties. Raises ValueError or IndexError for what is none."""
    middle = 1 + packed[0]
    stop = middle + 1 + packed[middle]
    raw = packed[stop:]
    properties.check(raw)
    return packed[:stop], raw


def texts(address: bytes) -> tuple[str, str]:
    middle = 1 + address[0]
    return address[1:middle].decode(), address[middle + 1 :].decode()


class Reader:
    """From messages of one queue to what a consumer gets."""

    def __init__(self, queue: str) -> None:
        self._straight = address_of("", queue)

    def read(self, message: AnyMessage) -> tuple[bytes, bytes]:
        """Exchange and routing key as they travel, and the properties."""
        return self.read_headers(message.headers)

    def read_headers(self, headers: Mapping[str, str | bytes]) -> tuple[bytes, bytes]:
        if not headers:
            return self._straight, PERSISTENT
        packed = headers.get(HEADER)
        if packed is not None:
            try:
                return split(packed.encode() if isinstance(packed, str) else packed)
            except (IndexError, ValueError):
                pass  # somebody else's header of that name
        return self._straight, _foreign(headers)


def _foreign(headers: Mapping[str, str | bytes]) -> bytes:
    """Properties for a message that came another way."""
    values: dict[str, Any] = {"delivery_mode": 2}
    kind = headers.get(CONTENT_TYPE)
    if isinstance(kind, str) and len(kind.encode()) <= _SHORT_MAX:
        values["content_type"] = kind
    rest = {name: value for name, value in headers.items() if name != CONTENT_TYPE and len(name.encode()) <= _SHORT_MAX}
    if rest:
        values["headers"] = rest
    return properties.write(values)
