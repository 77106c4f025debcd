"""What a handler takes, read from its annotations when it is decorated: the payload as a type, the message, or both.

A signature that cannot be called with a message is refused here, before any message is there. Parameters that have a
default are left alone. Does not call the handler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from mqueue.broker.message import AnyMessage, AsyncMessage, Message
from mqueue.model.errors import Refused
from mqueue.wire.payload import decode

_MESSAGES = (AnyMessage, Message, AsyncMessage)
_WANTED = (
    "annotate it with the type of the payload (a struct, a model, a dataclass, dict, str, bytes) or mqueue.Message"
)


class Parameter(Struct, frozen=True):
    name: str
    type: Any
    keyword: bool

    @property
    def is_message(self) -> bool:
        return self.type in _MESSAGES


class Parameters(Struct, frozen=True):
    """The parameters that a handler is called with, and whether its answer is awaited."""

    taken: tuple[Parameter, ...]
    awaited: bool

    def arguments(self, message: AnyMessage) -> tuple[list[Any], dict[str, Any]]:
        """What to call the handler with. Raises whatever a payload raises that is not of the type asked for."""
        values = {one.name: message if one.is_message else _read(message.payload, one.type) for one in self.taken}
        named = {one.name: values.pop(one.name) for one in self.taken if one.keyword}
        return list(values.values()), named


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """What a function takes, or `Refused` if a message cannot be handed to it."""
    if not callable(function):
        raise _refused(function, "is not callable")
    code = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise _refused(function, "is a generator: it has a `yield`, so a call of it would do nothing")
    awaited = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(code)
    hints = _hints(function, code)
    taken = tuple(
        Parameter(one.name, _checked(function, one, hints, awaited), one.kind is one.KEYWORD_ONLY)
        for one in _signature(function).parameters.values()
        if one.default is one.empty
    )
    for what, many in (
        ("payload", [o for o in taken if not o.is_message]),
        ("message", [o for o in taken if o.is_message]),
    ):
        if len(many) > 1:
            names = " and ".join(repr(one.name) for one in many[:2])
            raise _refused(function, f"takes the {what} twice, as {names}: one of them is enough")
    return Parameters(taken, awaited)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise _refused(function, f"has no signature that can be read: {error}") from error


def _hints(function: Callable[..., Any], code: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(code))
    except NameError as error:
        raise _refused(
            function, f"has an annotation that cannot be found: {error}; it must be known in its module"
        ) from error
    except TypeError:  # a partial, a built-in: what it carries is in its signature
        return {}


def _checked(function: Callable[..., Any], one: inspect.Parameter, hints: dict[str, Any], awaited: bool) -> Any:
    """The type of a parameter, which is one that a message or a payload can be."""
    if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
        raise _refused(function, f"takes {one}: name the payload and the message instead")
    wanted = hints.get(one.name, one.annotation)
    if wanted is one.empty:
        raise _refused(function, f"has no annotation on {one.name!r}: {_WANTED}")
    if isinstance(wanted, type) and issubclass(wanted, AnyMessage):
        if wanted not in _MESSAGES:
            raise _refused(function, f"asks for a {wanted.__name__} as {one.name!r}: {_WANTED}")
        if wanted is AsyncMessage and not awaited:
            raise _refused(function, f"is no `async def`, so {one.name!r} is a mqueue.Message, not an AsyncMessage")
        return wanted
    if not _readable(wanted):
        raise _refused(function, f"asks for {wanted!r:.80} as {one.name!r}, which JSON cannot be read as: {_WANTED}")
    return wanted


def _readable(wanted: Any) -> bool:
    """Whether some JSON could become this type."""
    if wanted in (str, bytes, Any) or hasattr(wanted, "model_validate_json"):
        return True
    try:
        msgspec.json.Decoder(wanted)
        return not isinstance(msgspec.inspect.type_info(wanted), msgspec.inspect.CustomType)
    except (TypeError, ValueError, RecursionError):
        return False


def _read(payload: bytes, wanted: Any) -> Any:
    if wanted is bytes:
        return payload
    return payload.decode() if wanted is str else decode(payload, wanted)


def _refused(function: object, why: str) -> Refused:
    shown = name_of(function) if callable(function) else f"{function!r:.80}"
    return Refused(f"handler {shown} {why}", code="bad_handler")
