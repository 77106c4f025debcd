"""What callers hand in as one or as several, made into what the calls take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from mqueue.broker.message import AnyMessage
from mqueue.model.errors import Refused, TooLarge
from mqueue.model.limits import RECEIVE_LIMIT_MAX
from mqueue.model.message import Receipt
from mqueue.model.names import check_name, check_part

A = TypeVar("A", bound=AnyMessage)
Topics = str | Sequence[str]
_SEVERAL = (list, tuple, set, frozenset)
_ID_END = 1 << 63


def names_of(topic: Topics) -> list[str]:
    """The names of one topic or of several, all of them names."""
    names: list[Any] = list(topic) if isinstance(topic, _SEVERAL) else [topic]
    if not names:
        raise Refused("no topic is named", code="no_topic")
    return [check_name(name, "topic") for name in names]


def list_of(messages: Sequence[A] | A) -> Sequence[A]:
    """One message will do for a list of one."""
    return [messages] if isinstance(messages, AnyMessage) else messages


def id_of(id: int | Receipt | AnyMessage) -> int:
    """The id of what stands for a message."""
    found = id if type(id) is int else getattr(id, "id", None)
    if type(found) is not int:
        raise Refused(f"{id!r:.80} is no message; it takes an id, a receipt or a message", code="bad_id")
    return found


def check_ids(ids: Iterable[int]) -> set[int]:
    """The ids of messages of a lease, each once."""
    found: list[Any] = list(ids)
    if len(found) > RECEIVE_LIMIT_MAX:
        raise TooLarge(f"{len(found)} ids; at most {RECEIVE_LIMIT_MAX} are allowed", code="too_many")
    for id in found:
        if type(id) is not int or not 0 <= id < _ID_END:
            raise Refused(f"{id!r:.80} is no id of a message", code="bad_id")
    return set(found)


def parts_of(parts: Iterable[str] | None) -> list[str] | None:
    """The parts of a transaction that are chosen, each once; None: all of them."""
    if parts is None:
        return None
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise Refused(f"parts {parts!r:.80}; it takes a list of names, or None for all that are staged")
    return list(dict.fromkeys(check_part(part) for part in parts))
