"""How an async class is made from a sync one: each public call becomes a coroutine function that makes the sync call.

A call that hands out something to go on with (a broker, a queue of the dead, a subscription, an iterator) does so at
once: there is nothing to wait for yet. Names, documentation and signatures are kept, with the async types in them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from types import CoroutineType
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa

from mqueue.broker.commits import WAITS, settled
from mqueue.broker.deliver import safely

C = TypeVar("C", bound="type[Twin]")

RENAMED = {
    "ArrowLease": "AsyncArrowLease",
    "Broker": "AsyncBroker",
    "DeadMessage": "AsyncDeadMessage",
    "Dlq": "AsyncDlq",
    "Iterator": "AsyncIterator",
    "Message": "AsyncMessage",
    "Schedules": "AsyncSchedules",
    "Subscription": "AsyncSubscription",
}
"""What the types of the sync calls are called in the signatures of the async ones."""

_AT_ONCE = ("Broker", "Dlq", "Iterator", "Schedules", "Subscription", "Supply")
_SCANNED_IN_A_ROW = 256
"""To scan what lies in memory never waits: after so many messages, or one batch, the other tasks get a turn."""


class Twin:
    """Something whose calls are those of the sync object behind it."""

    _sync: Any

    @classmethod
    def _of(cls, sync: object) -> Any:
        twin = cls.__new__(cls)
        twin._sync = sync
        return twin


def behind(twin: object) -> Any:
    """The sync object that a twin's calls are made on."""
    return cast(Twin, twin)._sync


class Call(Protocol):
    """A function, as far as we touch it."""

    __name__: str
    __qualname__: str
    __module__: str
    __signature__: inspect.Signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


_TWINS: dict[type, Callable[[object], Any]] = {}


def awaited(sync: type, behind: type | None = None) -> Callable[[C], C]:
    """Give a class the public calls of `sync`, awaited. An answer that is a `behind` goes out as the class."""

    def fill(twin: C) -> C:
        _TWINS[behind or sync] = twin._of
        calls = {name: call for base in reversed(sync.__mro__) for name, call in vars(base).items()}
        for name, call in calls.items():
            if inspect.isfunction(call) and not name.startswith("_"):
                setattr(twin, name, _as_method_of(twin, _at_once(call) if _hands_out(call) else _coroutine(call), call))
        return twin

    return fill


def _hands_out(call: Callable[..., Any]) -> bool:
    return str(inspect.signature(call).return_annotation).startswith(_AT_ONCE)


def _at_once(call: Callable[..., Any]) -> Callable[..., Any]:
    def made(self: Twin, *args: Any, **kwargs: Any) -> Any:
        answer = call(self._sync, *args, **kwargs)
        return _each(answer) if isinstance(answer, Iterator) else _twin(answer)

    return made


def _coroutine(call: Callable[..., Any]) -> Callable[..., Any]:
    async def made(self: Twin, *args: Any, **kwargs: Any) -> Any:
        try:
            answer = call(self._sync, *args, **kwargs)
        except BaseException:
            await settled()
            raise
        if WAITS.open:
            await safely(answer)
        return _twin(await answer if answer.__class__ is CoroutineType else answer)

    return made


def twin_of(sync: object) -> Any:
    """What stands before a sync object."""
    return _twin(sync)


def _twin(answer: Any) -> Any:
    """Messages come as the async ones they are; what else has calls of its own gets its twin."""
    make = _TWINS.get(type(answer))
    return answer if make is None else make(answer)


async def _each(values: Iterator[Any]) -> AsyncIterator[Any]:
    for number, value in enumerate(values, 1):
        yield value
        if number % _SCANNED_IN_A_ROW == 0 or isinstance(value, pa.RecordBatch):
            await asyncio.sleep(0)


def _as_method_of(twin: type, made: Callable[..., Any], call: Callable[..., Any]) -> Call:
    method = cast(Call, functools.update_wrapper(made, call))
    method.__module__ = twin.__module__
    method.__qualname__ = f"{twin.__qualname__}.{call.__name__}"
    method.__signature__ = twin_signature(call)
    return method


def twin_signature(call: Callable[..., Any]) -> inspect.Signature:
    """The signature of a call, with the async types in it."""
    signature = inspect.signature(call)
    return signature.replace(
        parameters=[p.replace(annotation=_renamed(p.annotation)) for p in signature.parameters.values()],
        return_annotation=_renamed(signature.return_annotation),
    )


_SYNC_TYPE = re.compile(rf"\b(?:\w+\.)?({'|'.join(RENAMED)})\b")


def _renamed(annotation: Any) -> Any:
    """An annotation is the text that stands in the source: `tables.ArrowLease` becomes `AsyncArrowLease`."""
    if not isinstance(annotation, str):
        return annotation
    return _SYNC_TYPE.sub(lambda match: RENAMED[match[1]], annotation)
