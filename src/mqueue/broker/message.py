"""A message in a consumer's hands, wherever it came from: what there is to know, and the calls that settle it.

It does not know how a message is kept, nor where it is settled: that is for those who hand messages out. `envelope` has
the messages of an embedded broker; a client has its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from msgspec import Struct

from mqueue.model.errors import LeaseLost
from mqueue.model.times import Duration
from mqueue.wire.payload import decode

T = TypeVar("T")


class AnyMessage(Struct, eq=False, gc=False):
    """What there is to know about a message. It has no fields: who hands messages out says how they are looked up.

    Not tracked by the garbage collector: a message refers to nothing that could refer back to it.
    """

    @property
    def id(self) -> int:
        raise NotImplementedError

    @property
    def namespace(self) -> str:
        raise NotImplementedError

    @property
    def topic(self) -> str:
        raise NotImplementedError

    @property
    def partition(self) -> int:
        raise NotImplementedError

    @property
    def offset(self) -> int:
        raise NotImplementedError

    @property
    def key(self) -> bytes | None:
        raise NotImplementedError

    @property
    def payload(self) -> bytes:
        raise NotImplementedError

    @property
    def headers(self) -> Mapping[str, str | bytes]:
        raise NotImplementedError

    @property
    def priority(self) -> int:
        raise NotImplementedError

    @property
    def attempt(self) -> int:
        """Which delivery this is to its group: 1 at first; 0 if it was only looked at."""
        raise NotImplementedError

    @property
    def published_at(self) -> datetime:
        raise NotImplementedError

    @property
    def deliver_at(self) -> datetime:
        raise NotImplementedError

    @property
    def expires_at(self) -> datetime | None:
        raise NotImplementedError

    @property
    def idempotency_key(self) -> str | None:
        raise NotImplementedError

    @property
    def fairness_key(self) -> str | None:
        raise NotImplementedError

    @property
    def _settled(self) -> bool:
        """Whether it was settled through this very object."""
        raise NotImplementedError

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


class Message(AnyMessage, eq=False, gc=False):
    """A message, with the calls that settle it: durable on return, LeaseLost if the message is no longer ours."""

    def ack(self) -> None:
        """Done."""
        self._settle("ack")

    def nack(self, delay: Duration | None = None, error: object = None) -> None:
        """Failed: comes back after a backoff, or after `delay`; dead after the last attempt."""
        self._settle("nack", delay, error)

    def reject(self, error: object = None) -> None:
        """Hopeless: dead at once."""
        self._settle("reject", None, error)

    def release(self) -> None:
        """Not now: ready again at once, the attempt is not counted."""
        self._settle("release")

    def extend(self, visibility: Duration) -> None:
        """Hold it for so long, from now on."""
        self._settle("extend", visibility)

    def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> None:
        """`wait`: the delay of a nack, the new visibility of an extend."""
        raise NotImplementedError

    def __enter__(self) -> Self:
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


class AsyncMessage(AnyMessage, eq=False, gc=False):
    """A message whose settle calls are awaited."""

    async def ack(self) -> None:
        """Done."""
        await self._settle("ack")

    async def nack(self, delay: Duration | None = None, error: object = None) -> None:
        """Failed: comes back after a backoff, or after `delay`; dead after the last attempt."""
        await self._settle("nack", delay, error)

    async def reject(self, error: object = None) -> None:
        """Hopeless: dead at once."""
        await self._settle("reject", None, error)

    async def release(self) -> None:
        """Not now: ready again at once, the attempt is not counted."""
        await self._settle("release")

    async def extend(self, visibility: Duration) -> None:
        """Hold it for so long, from now on."""
        await self._settle("extend", visibility)

    def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> Awaitable[None]:
        """`wait`: the delay of a nack, the new visibility of an extend."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack at the end of the block, nack on an exception, nothing if it was settled inside."""
        if not self._settled:
            if error is None:
                await self.ack()
            else:
                with suppress(LeaseLost):
                    await self.nack(error=error)


class Dead(AnyMessage, eq=False, gc=False):
    """A message in a dead-letter queue, with the story of its death at hand: it is in the headers."""

    @property
    def reason(self) -> str:
        return str(self.headers.get("x-reason", ""))

    @property
    def error(self) -> str:
        return str(self.headers.get("x-error", ""))

    @property
    def group(self) -> str:
        return str(self.headers.get("x-group", ""))

    @property
    def consumer(self) -> str:
        return str(self.headers.get("x-consumer", ""))

    @property
    def attempts(self) -> int:
        return int(self.headers.get("x-attempts", 0))


class DeadMessage(Dead, Message, eq=False, gc=False):
    """A dead message."""


class AsyncDeadMessage(Dead, AsyncMessage, eq=False, gc=False):
    """A dead message whose settle calls are awaited."""
