"""Messages and receipts as JSON. Bytes that are UTF-8 are text, others base64 under a name of their own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol, TypeVar

from mqueue.model.message import Receipt
from mqueue.wire.json import MessageOut, ReceiptOut

M = TypeVar("M", bound=MessageOut)

_LETTER_BYTES_MAX = 4


class Shown(Protocol):
    """A message, as far as it is shown."""

    @property
    def id(self) -> int: ...
    @property
    def namespace(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str | bytes]: ...
    @property
    def priority(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def published_at(self) -> datetime: ...
    @property
    def deliver_at(self) -> datetime: ...
    @property
    def expires_at(self) -> datetime | None: ...
    @property
    def idempotency_key(self) -> str | None: ...
    @property
    def fairness_key(self) -> str | None: ...


def message_out(
    message: Shown,
    kind: type[M] = MessageOut,  # type: ignore[assignment]
    preview: int | None = None,
) -> M:
    """`preview`: so many bytes of the payload only."""
    expires_at = message.expires_at
    shown = kind(
        id=str(message.id),
        namespace=message.namespace,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        published_at=time_out(message.published_at),
        deliver_at=time_out(message.deliver_at),
        priority=message.priority,
        attempt=message.attempt,
        expires_at=None if expires_at is None else time_out(expires_at),
        idempotency_key=message.idempotency_key,
        fairness_key=message.fairness_key,
    )
    if preview is None:
        shown.payload, shown.payload_base64 = text_or_base64(message.payload)
    else:
        show_beginning(shown, message.payload, preview)
    if message.key is not None:
        shown.key, shown.key_base64 = text_or_base64(message.key)
    if message.headers:
        shown.headers, shown.headers_base64 = headers_out(message.headers)
    return shown


def show_beginning(shown: MessageOut, payload: bytes, most: int) -> None:
    """Show `most` bytes of a payload only. A letter that is cut in two is left out: what is text stays text."""
    shown.payload_bytes, shown.cut = len(payload), len(payload) > most
    beginning = bytes(payload[:most])
    if shown.cut:
        whole = beginning.decode(errors="ignore").encode()
        if len(beginning) - len(whole) < _LETTER_BYTES_MAX and beginning.startswith(whole):
            beginning = whole
    shown.payload, shown.payload_base64 = text_or_base64(beginning)


def receipt_out(receipt: Receipt) -> ReceiptOut:
    return ReceiptOut(str(receipt.id), receipt.topic, receipt.partition, receipt.offset, receipt.duplicate)


def text_or_base64(value: bytes) -> tuple[str | None, str | None]:
    """The value as text if it is UTF-8, else as base64 in the second place."""
    try:
        return value.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(value).decode()


def headers_out(headers: Mapping[str, str | bytes]) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """Those that are text, and those that are not."""
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    coded = {name: b64encode(value).decode() for name, value in headers.items() if isinstance(value, bytes)}
    return texts or None, coded or None


def time_out(at: datetime) -> str:
    """As `rfc3339` writes times, always in UTC."""
    return at.isoformat(timespec="milliseconds")[:23] + "Z"
