"""The JSON of the routes that other queues of this kind have, in their words. Ids are numbers there."""

from __future__ import annotations

from msgspec import Struct

from mqueue.wire.json import ROOM


class EnqueueIn(Struct, forbid_unknown_fields=True):
    """A message for `/enqueue`; the payload is base64. Without `namespace` it is for that of the request."""

    topic: str
    payload: str
    namespace: str | None = None
    priority: int | str | None = None
    deliver_after: str | int | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        ROOM.take()


class EnqueueOut(Struct):
    ids: list[int]


class DequeuedOut(Struct, omit_defaults=True):
    """A message of `/dequeue` (with its lease), or of `/dlq` (with the error it died of)."""

    id: int
    namespace: str
    topic: str
    priority: int
    payload: str
    deliver_after: str
    attempt: int
    lease: str | None = None
    error: str | None = None


class DoneIn(Struct, forbid_unknown_fields=True):
    """Which message is done, or has failed. Without `lease` the one that `/dequeue` handed it out under is meant."""

    id: int
    topic: str
    namespace: str | None = None
    lease: str | None = None


class DoneOut(Struct):
    status: str = "ok"


class ValueIn(Struct, forbid_unknown_fields=True, rename="camel"):
    """A message for `/v1/topics/{topic}/publish`; the value is base64."""

    value: str
    key: str | None = None
    delay: float | str | None = None
    deliver_at: int | str | None = None
    priority: int | str | None = None
    headers: dict[str, str] | None = None


class PlacedOut(Struct):
    id: str
    partition: int
    offset: int


class TextIn(Struct, forbid_unknown_fields=True):
    """A message for `/topic/{topic}/publish`."""

    message: str
    priority: int | str | None = None


class NumberedOut(Struct):
    id: int
    partition: int
    offset: int


class TextOut(Struct, omit_defaults=True):
    """`message` is text; bytes that are none come as `message_base64`."""

    id: int
    partition: int
    offset: int
    priority: int
    message: str | None = None
    message_base64: str | None = None


class TextsOut(Struct):
    messages: list[TextOut]


class NamesOut(Struct):
    topics: list[str]


class SpanOut(Struct):
    """A partition: how many messages are kept, the first offset that is, and the one that comes next."""

    partition: int
    messages: int
    start: int
    end: int


class SpansOut(Struct):
    partitions: list[SpanOut]
