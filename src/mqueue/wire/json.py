"""The JSON bodies of `/v1` that carry messages, as structs, shared by server and client.

Ids are text: 64-bit integers do not survive JavaScript. Bytes that are UTF-8 are text under their own name, others are
base64 under the same name with `_base64` behind it. What is absent has its default. Unknown names are refused.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from mqueue.model.errors import TooLarge


class Room(threading.local):
    """How many more messages the body that this thread reads may hold: one too many is not even read.

    A few bytes of JSON become a struct of many, so it would be too late to count them in the end.
    """

    left: float = math.inf
    most: float = math.inf

    def limit(self, most: float) -> None:
        self.left = self.most = most

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooLarge(f"more than {self.most} messages in one call; {self.most} are allowed", code="too_many")


ROOM = Room()


class MessageIn(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A message to be published: one of `payload` (text), `payload_base64`, `payload_json`."""

    payload: str | None = None
    payload_base64: str | None = None
    payload_json: Raw | UnsetType = UNSET
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None
    priority: int | str | None = None
    delay: float | str | None = None
    deliver_at: int | str | None = None
    ttl: float | str | None = None
    idempotency_key: str | None = None
    fairness_key: str | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        ROOM.take()


class PublishIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    messages: list[MessageIn]
    durability: str | None = None


class ReceiptOut(Struct, gc=False):
    id: str
    topic: str
    partition: int
    offset: int
    duplicate: bool = False


class PublishOut(Struct):
    receipts: list[ReceiptOut]
    durability: str


class ReceiveIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    group: str = "default"
    limit: int = 1
    wait: float | str | None = None
    visibility: float | str | None = None
    mode: str = "at_least_once"
    member: str | None = None
    generation: int | None = None


class ReceiveTopicsIn(ReceiveIn, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The same for several topics at once."""

    topics: list[str]


class MessageOut(Struct, omit_defaults=True, gc=False):
    """A message as it is handed out. `attempt` is 0 where it was only looked at."""

    id: str
    namespace: str
    topic: str
    partition: int
    offset: int
    published_at: str
    deliver_at: str
    priority: int
    attempt: int
    payload: str | None = None
    payload_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None
    expires_at: str | None = None
    idempotency_key: str | None = None
    fairness_key: str | None = None
    payload_bytes: int = 0
    """How long its payload is, where only the beginning of payloads was asked for; `cut`: this is not all of it."""
    cut: bool = False


class DeadOut(MessageOut, omit_defaults=True, gc=False):
    """A dead message, with the story of its death."""

    reason: str = ""
    error: str = ""
    group: str = ""
    consumer: str = ""
    attempts: int = 0


class LeaseOut(Struct):
    """What a receive gave. `lease` is None if that is nothing, or if nothing has to be settled (at most once).

    `remaining_ms` counts from when the request was sent; `deadline` is for people.
    """

    topic: str
    lease: str | None = None
    deadline: str | None = None
    remaining_ms: int = 0
    messages: list[MessageOut] = []


class LeasesOut(Struct):
    leases: list[LeaseOut]


class SettleIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`ids` None: the whole lease. `delay` is for nack, `visibility` for extend, `publish` for ack."""

    ids: list[str] | None = None
    delay: float | str | None = None
    error: str | None = None
    visibility: float | str | None = None
    publish: list[MessageIn] = []


class SettleOut(Struct, omit_defaults=True):
    settled: int
    lost: list[str]
    receipts: list[ReceiptOut] = []
    durability: str | None = None


class MessagesOut(Struct):
    """`next`: where to go on reading; None: this was all."""

    messages: list[MessageOut]
    next: str | None = None


class TraceEventOut(Struct):
    time: str
    kind: str
    detail: str


class TraceOut(Struct):
    """The life of a message. `latency_ms`: from publish to the first ack; `text`: the timeline, for people."""

    id: str
    topic: str
    events: list[TraceEventOut]
    attempts: int
    latency_ms: int | None
    text: str


class ExplanationOut(Struct):
    """Why a message is not being delivered now."""

    code: str
    sentence: str
    until: str | None = None
    by: str | None = None
    ahead: int = 0


class ErrorBody(Struct, omit_defaults=True):
    code: str
    message: str
    retryable: bool = False
    applied: bool | None = False
    lost: list[str] = []


class ErrorOut(Struct):
    error: ErrorBody


Anything = dict[str, Any]
"""A JSON object of free names, such as the settings of a topic."""
