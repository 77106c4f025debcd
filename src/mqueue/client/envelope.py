"""The messages that a client hands out: what came over the wire, and the lease it came under."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from mqueue.broker.message import AnyMessage, AsyncDeadMessage, AsyncMessage, DeadMessage, Message
from mqueue.broker.settle import Settlement
from mqueue.client.window import Window
from mqueue.model.times import Duration


class Held(Struct, eq=False, gc=False):
    """What one receive call gave to us, and until when, in the time of the loop."""

    token: str
    count: int
    until: float
    lasting_ms: int
    open: int
    """How many of its messages were not settled through us."""
    split: bool = False
    """Whether a part of it was settled: from then on it has to be said which."""
    renew_at: float | None = None
    """When it is to be extended, if somebody keeps it."""


class Home(Protocol):
    """Where messages came from and are settled."""

    @property
    def window(self) -> Window: ...

    def settle_messages(
        self,
        verb: str,
        messages: Sequence[AnyMessage],
        wait: Duration | None = None,
        error: object = None,
        publish: Sequence[Any] = (),
    ) -> Coroutine[Any, Any, Settlement]:
        """`wait`: the delay of a nack, the new visibility of an extend."""

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Wait for a call in the thread that asks. Only where messages are settled without being awaited."""


class Letter(AnyMessage, eq=False, gc=False):
    """A message as it came."""

    _home: Home
    _lease: Held | None
    id: int
    namespace: str
    topic: str
    partition: int
    offset: int
    payload: bytes
    key: bytes | None
    headers: Mapping[str, str | bytes]
    priority: int
    attempt: int
    published_at: datetime
    deliver_at: datetime
    expires_at: datetime | None
    idempotency_key: str | None
    fairness_key: str | None
    _settled: bool = False


class ClientMessage(Message, Letter, eq=False, gc=False):
    """A message of a `Client`."""

    def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> None:
        self._home.run(self._home.settle_messages(verb, [self], wait, error))


class AsyncClientMessage(AsyncMessage, Letter, eq=False, gc=False):
    """A message of an `AsyncClient`."""

    def _settle(self, verb: str, wait: Duration | None = None, error: object = None) -> Awaitable[None]:
        return self._settled_by(verb, wait, error)

    async def _settled_by(self, verb: str, wait: Duration | None, error: object) -> None:
        await self._home.settle_messages(verb, [self], wait, error)


class ClientDeadMessage(DeadMessage, ClientMessage, eq=False, gc=False):
    """A dead message of a `Client`."""


class AsyncClientDeadMessage(AsyncDeadMessage, AsyncClientMessage, eq=False, gc=False):
    """A dead message of an `AsyncClient`."""
