"""A message in a consumer's hands, and the lease it came under."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload

from msgspec import Struct

from mqueue.heart.group import Lease
from mqueue.heart.runs import Run
from mqueue.model.errors import LeaseLost
from mqueue.model.times import Duration, to_datetime
from mqueue.wire.frame import Frame
from mqueue.wire.payload import decode

T = TypeVar("T")


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


class Envelope(Struct, eq=False, gc=False):
    """What there is to know about a message. `payload` is at hand; the rest is looked up in its frame when asked for.

    Not tracked by the garbage collector: it refers to nothing that could refer back to it.
    """

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

    def text(self) -> str:
        return self.payload.decode()

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = None) -> Any:
        """The payload from JSON; given a type, validated by msgspec or pydantic."""
        return decode(self.payload, type)

    def __repr__(self) -> str:
        shown = self.payload if len(self.payload) <= 60 else self.payload[:57] + b"..."
        return f"<Message {self.id} of {self.topic}/{self.partition}@{self.offset} attempt={self.attempt} {shown!r}>"


class Message(Envelope, eq=False, gc=False):
    """A message, with the calls that settle it: durable on return, LeaseLost if the message is no longer ours."""

    def ack(self) -> None:
        """Done."""
        self._desk.ack(self)

    def nack(self, delay: Duration | None = None, error: object = None) -> None:
        """Failed: comes back after a backoff, or after `delay`; dead after the last attempt."""
        self._desk.settle("nack", self, wait=delay, error=error)

    def reject(self, error: object = None) -> None:
        """Hopeless: dead at once."""
        self._desk.settle("reject", self, error=error)

    def release(self) -> None:
        """Not now: ready again at once, the attempt is not counted."""
        self._desk.settle("release", self)

    def extend(self, visibility: Duration) -> None:
        """Hold it for so long, from now on."""
        self._desk.settle("extend", self, wait=visibility)

    def __enter__(self) -> Message:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack at the end of the block, nack on an exception, nothing if it was settled inside."""
        if not self._settled:
            if error is None:
                self.ack()
            else:
                with suppress(LeaseLost):  # then it comes back anyway, and the block's own error is the news
                    self.nack(error=error)


class AsyncMessage(Envelope, eq=False, gc=False):
    """A message whose settle calls are awaited."""

    async def ack(self) -> None:
        """Done."""
        await self._desk.settle_async("ack", self)

    async def nack(self, delay: Duration | None = None, error: object = None) -> None:
        """Failed: comes back after a backoff, or after `delay`; dead after the last attempt."""
        await self._desk.settle_async("nack", self, wait=delay, error=error)

    async def reject(self, error: object = None) -> None:
        """Hopeless: dead at once."""
        await self._desk.settle_async("reject", self, error=error)

    async def release(self) -> None:
        """Not now: ready again at once, the attempt is not counted."""
        await self._desk.settle_async("release", self)

    async def extend(self, visibility: Duration) -> None:
        """Hold it for so long, from now on."""
        await self._desk.settle_async("extend", self, wait=visibility)

    async def __aenter__(self) -> AsyncMessage:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._settled:
            if error is None:
                await self.ack()
            else:
                with suppress(LeaseLost):
                    await self.nack(error=error)
