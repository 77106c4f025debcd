"""`mqueue.Client`: the calls of `AsyncClient` without `await`, made from them; its loop is in `portal`.

    with mqueue.Client("http://127.0.0.1:8080") as q:
        q.publish("orders", {"n": 1}, priority="high")

Type checkers read `sync.pyi` instead of this file; `tools/client_stub.py` makes it from the async classes.
"""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar, cast

import pyarrow as pa

from mqueue.broker.consume import Subscription, Supply, consume
from mqueue.broker.given import Topics
from mqueue.broker.twin import Call
from mqueue.client.aio import AsyncClient
from mqueue.client.attending import Attending
from mqueue.client.dlq import AsyncClientDlq
from mqueue.client.envelope import ClientDeadMessage, ClientMessage
from mqueue.client.home import Run
from mqueue.client.portal import Portal, portal
from mqueue.client.producer import AsyncProducer
from mqueue.client.read import Pages
from mqueue.client.schedules import AsyncClientSchedules
from mqueue.client.source import BlockingSource, RemoteSource
from mqueue.client.tables import AsyncClientLease
from mqueue.model.errors import Closed
from mqueue.model.message import Draft, Receipt
from mqueue.model.times import Duration

C = TypeVar("C", bound="type[Blocking]")
F = TypeVar("F", bound=Callable[..., Any])

RENAMED = {
    "AsyncClient": "Client",
    "AsyncClientDlq": "ClientDlq",
    "AsyncClientLease": "ClientLease",
    "AsyncClientSchedules": "ClientSchedules",
    "AsyncDeadMessage": "DeadMessage",
    "AsyncIterator": "Iterator",
    "AsyncMessage": "Message",
    "AsyncProducer": "Producer",
    "AsyncSubscription": "Subscription",
    "asyncio.Future": "concurrent.futures.Future",
}
"""What the types of the async calls are called in the signatures of the sync ones."""


class Blocking:
    """Something whose calls are those of the async object behind it."""

    _core: Any
    _portal: Portal

    @classmethod
    def _of(cls, core: Any, portal: Portal) -> Any:
        made = cls.__new__(cls)
        made._core = core
        made._portal = portal
        return made


_MADE_OF: dict[type, Callable[[Any, Portal], Any]] = {}


def blocking(core: type, behind: type | None = None) -> Callable[[C], C]:
    """Give a class the public calls of `core`, waited for. An answer that is a `behind` goes out as the class."""

    def fill(made: C) -> C:
        _MADE_OF[behind or core] = made._of
        for name, call in vars(core).items():
            if inspect.isfunction(call) and not name.startswith("_") and name not in vars(made):
                setattr(made, name, _as_method_of(made, call))
        return made

    return fill


def _as_method_of(made: type, call: Callable[..., Any]) -> Call:
    waits = inspect.iscoroutinefunction(call)

    def made_call(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(self._core, call.__name__)(*args, **kwargs)
        return _shown(self._portal.run(answer) if waits else answer, self._portal)

    method = cast(Call, _named_as(call)(made_call))
    method.__module__ = made.__module__
    method.__qualname__ = f"{made.__qualname__}.{call.__name__}"
    return method


def _named_as(call: Callable[..., Any]) -> Callable[[F], F]:
    """Give a function the name, the words and the signature of an async one, with the sync types in it."""

    def rename(function: F) -> F:
        named = cast(Call, functools.update_wrapper(function, call, updated=()))
        named.__signature__ = sync_signature(call)
        return cast(F, named)

    return rename


def _shown(answer: Any, portal: Portal) -> Any:
    make = _MADE_OF.get(type(answer))
    if make is not None:
        return make(answer, portal)
    return _each(answer, portal) if isinstance(answer, Pages) else answer


def _each(pages: Pages[Any], portal: Portal) -> Iterator[Any]:
    while True:
        try:
            page = portal.run(pages.page())
        except StopAsyncIteration:
            return
        yield from page


def sync_signature(call: Callable[..., Any]) -> inspect.Signature:
    """The signature of a call, with the sync types in it."""
    signature = inspect.signature(call)
    return signature.replace(
        parameters=[p.replace(annotation=_renamed(p.annotation)) for p in signature.parameters.values()],
        return_annotation=_renamed(signature.return_annotation),
    )


_ASYNC_TYPE = re.compile(rf"\b({'|'.join(RENAMED)})\b")


def _renamed(annotation: Any) -> Any:
    """An annotation is the text that stands in the source."""
    if not isinstance(annotation, str):
        return annotation
    return _ASYNC_TYPE.sub(lambda match: RENAMED[match[1]], annotation)


@blocking(AsyncClientLease)
class ClientLease(Blocking):
    """A lease whose messages are a table. Settles as a whole, or what is left of it; or the messages with some ids."""

    @property
    def table(self) -> pa.Table:
        """The messages, in delivery order."""
        return self._core.table

    @property
    def token(self) -> str:
        """What proves the right to settle, also elsewhere; empty if nothing was handed out."""
        token: str = self._core.token
        return token

    @property
    def remaining_ms(self) -> int:
        """For how long it is held."""
        remaining_ms: int = self._core.remaining_ms
        return remaining_ms

    def __len__(self) -> int:
        return len(self._core)


@blocking(AsyncClientDlq)
class ClientDlq(Blocking):
    """The dead-letter queue of a topic."""

    def __len__(self) -> int:
        count: int = self._portal.run(self._core._count())
        return count


@blocking(AsyncClientSchedules)
class ClientSchedules(Blocking):
    """The schedules of a topic, or of all topics of a namespace: these can be listed."""


class _Core(AsyncClient):
    """The client behind a `Client`: what it hands out is not awaited."""

    _message_type = ClientMessage
    _dead_type = ClientDeadMessage
    _subscription_type = Subscription
    _consume = staticmethod(consume)

    def __init__(self, portal: Portal, *args: Any, **kwargs: Any) -> None:
        self._portal = portal
        super().__init__(*args, **kwargs)

    def namespace(self, name: str) -> _Core:
        view = cast(_Core, super().namespace(name))
        view._portal = self._portal
        return view

    def _blocking(self) -> Run:
        return self._portal.run

    def _source(
        self, topic: Topics, group: str, visibility: Duration | None, attending: Attending | None = None
    ) -> Supply[Any]:
        source = super()._source(topic, group, visibility, attending)
        return BlockingSource(cast(RemoteSource[Any], source), self._portal.run, self._portal.soon)


@blocking(AsyncProducer)
class Producer(Blocking):
    """`publish` waits for room, not for the server: what it gives is a future of the receipt."""

    @classmethod
    def _of(cls, core: AsyncProducer, portal: Portal) -> Producer:
        made: Producer = super()._of(core, portal)
        made._room = threading.BoundedSemaphore(core._buffer)
        return made

    _room: threading.BoundedSemaphore

    @_named_as(AsyncProducer.publish)
    def publish(self, payload: Any, **options: Any) -> concurrent.futures.Future[Receipt]:
        told: concurrent.futures.Future[Receipt] = concurrent.futures.Future()
        told.set_running_or_notify_cancel()  # it cannot be called back any more
        waiting = self._core._checked(Draft(payload, **options), told)
        self._room.acquire()
        if self._core._closed or not self._portal.usable:
            self._room.release()
            raise Closed("this producer is closed")
        told.add_done_callback(lambda _: self._room.release())
        self._portal.soon(lambda: self._core._hand_in(waiting))
        return told

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.run(self._core.close())


@blocking(AsyncClient, behind=_Core)
class Client(Blocking):
    """A server elsewhere. Safe to use from many threads."""

    @_named_as(AsyncClient.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._portal = portal()
        self._core = _Core(self._portal, *args, **kwargs)
        self._portal.watch(self._core._home.anchor, self._core._home.holdings)

    def __repr__(self) -> str:
        return repr(self._core).replace("_Core", "Client")

    def close(self) -> None:
        """Hand out nothing more, give back what is held. Closing what `namespace` gave does not close the client."""
        if self._core._root and self._portal.usable:
            self._portal.run(self._portal.closed(self._core._home.holdings))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
