"""The messages that an embedded broker hands out: a place in a frame, and the lease it came under."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Protocol

from mqueue.broker.message import AnyMessage, AsyncDeadMessage, AsyncMessage, DeadMessage, Message
from mqueue.heart.group import Lease
from mqueue.heart.runs import Run
from mqueue.model.times import Duration, to_datetime
from mqueue.wire.frame import Frame


class Desk(Protocol):
    """Where a topic's messages are handed out and settled."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...

    def due(self, frame: Frame, row: int) -> int: ...

    def ack(self, message: Envelope) -> None: ...

    def settle(self, verb: str, message: Envelope, *, wait: Duration | None = None, error: object = None) -> None:
        """`wait`: the delay of a nack, the new visibility of an extend."""

    def settle_async(
        self, verb: str, message: Envelope, *, wait: Duration | None = None, error: object = None
    ) -> Awaitable[None]:
        """Done at once; to be awaited until it is durable."""


class Envelope(AnyMessage, eq=False, gc=False):
    """A row of a frame. `payload` is at hand; the rest is looked up in the frame when asked for."""

    _desk: Desk
    _lease: Lease
    _run: Run
    _frame: Frame
    _row: int
    payload: bytes
    _settled: bool = False

    @property
    def id(self) -> int:
        return self._frame.id_of(self._row)

    @property
    def namespace(self) -> str:
        return self._desk.namespace

    @property
    def topic(self) -> str:
        return self._desk.name

    @property
    def partition(self) -> int:
        return self._frame.partition

    @property
    def offset(self) -> int:
        return self._frame.base + self._row

    @property
    def key(self) -> bytes | None:
        keys = self._frame.rows.key
        return None if keys is None else keys[self._row]

    @property
    def headers(self) -> Mapping[str, str | bytes]:
        headers = self._frame.rows.headers
        return (None if headers is None else headers[self._row]) or {}

    @property
    def priority(self) -> int:
        return self._frame.number("priority", self._row)

    @property
    def attempt(self) -> int:
        """Which delivery this is to its group: 1 at first; 0 if it was only looked at."""
        return self._run.attempt

    @property
    def published_at(self) -> datetime:
        return to_datetime(self._frame.at_of(self._row))

    @property
    def deliver_at(self) -> datetime:
        return to_datetime(self._desk.due(self._frame, self._row))

    @property
    def expires_at(self) -> datetime | None:
        expires = self._frame.number("expires_at", self._row)
        return to_datetime(expires) if expires else None

    @property
    def idempotency_key(self) -> str | None:
        keys = self._frame.rows.idempotency_key
        return None if keys is None else keys[self._row]

    @property
    def fairness_key(self) -> str | None:
        keys = self._frame.rows.fairness_key
        return None if keys is None else keys[self._row]


class EmbeddedMessage(Message, Envelope, eq=False, gc=False):
    """A message of a `Broker`."""

    def ack(self) -> None:
        """Done."""
        self._desk.ack(self)

    def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> None:
        self._desk.settle(verb, self, wait=wait, error=error)


class AsyncEmbeddedMessage(AsyncMessage, Envelope, eq=False, gc=False):
    """A message of an `AsyncBroker`."""

    def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> Awaitable[None]:
        return self._desk.settle_async(verb, self, wait=wait, error=error)


class EmbeddedDeadMessage(DeadMessage, EmbeddedMessage, eq=False, gc=False):
    """A dead message of a `Broker`."""


class AsyncEmbeddedDeadMessage(AsyncDeadMessage, AsyncEmbeddedMessage, eq=False, gc=False):
    """A dead message of an `AsyncBroker`."""
