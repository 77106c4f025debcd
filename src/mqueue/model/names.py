"""Names of namespaces, topics, groups, members and transactions, and how a topic names its dead letter queue.

One pattern for all, so that a name can be a file name, a URL segment, a Redis key and a label without being escaped.
Does not know which names exist.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mqueue.model.errors import BadName
from mqueue.model.limits import NAME_LENGTH_MAX

DLQ_SUFFIX = ".dlq"
LEDGER = "/"
"""The topic of a namespace that knows how its transactions ended. No name that a user may give has this sign."""

_PATTERN = f"[A-Za-z0-9._-]{{1,{NAME_LENGTH_MAX}}}"
_NAME = re.compile(_PATTERN)


def check_name(value: str, what: str) -> str:
    """The name as it came, or `BadName`. `what` says what is being named, for the error."""
    if not isinstance(value, str):  # asked first: the cache below would stumble over what cannot be hashed
        raise BadName(f"{what} name {value!r:.80} is a {type(value).__name__}: a name is text that matches {_PATTERN}")
    return _checked(value, what)


def check_consumer(value: str) -> str:
    """What a consumer calls itself: any short text, it is only shown."""
    if type(value) is not str or len(value) > NAME_LENGTH_MAX or value != value.encode("utf-8", "replace").decode():
        raise BadName(f"name {value!r:.80}; it takes Unicode text of at most {NAME_LENGTH_MAX} characters")
    return value


def check_transaction(value: str) -> str:
    """The id of a transaction as it came, or `BadName`."""
    return _printable(value, "transaction", 1)


def check_part(value: str) -> str:
    """The name of a part of a transaction as it came, or `BadName`."""
    return _printable(value, "part", 0)


def _printable(value: str, what: str, least: int) -> str:
    if type(value) is not str or not least <= len(value) <= NAME_LENGTH_MAX or not value.isprintable():
        raise BadName(f"{what} {value!r:.80}; it takes printable text of {least} to {NAME_LENGTH_MAX} characters")
    return value


def staging_name(transaction: str) -> str:
    """The topic in which the messages of a transaction wait."""
    return LEDGER + transaction


def transaction_of(name: str) -> str:
    """The transaction that a topic of that name belongs to; empty if to none."""
    return name[1:] if name.startswith(LEDGER) else ""


def dlq_name(topic: str) -> str:
    """Where the dead messages of this topic go by default."""
    dlq = topic + DLQ_SUFFIX
    if len(dlq) > NAME_LENGTH_MAX:
        raise BadName(
            f"dead letter queue name {dlq!r:.80} has {len(dlq)} characters: at most {NAME_LENGTH_MAX} are allowed, so a"
            f" topic with such a queue has at most {NAME_LENGTH_MAX - len(DLQ_SUFFIX)}"
        )
    return dlq


def is_dlq(name: str) -> bool:
    """By its name alone. A topic called just `.dlq` is nobody's dead letter queue."""
    return name.endswith(DLQ_SUFFIX) and len(name) > len(DLQ_SUFFIX)


def origin(name: str) -> str:
    """The topic whose dead letter queue this is; any other name is its own origin."""
    return name[: -len(DLQ_SUFFIX)] if is_dlq(name) else name


@lru_cache(maxsize=8192)
def _checked(value: str, what: str) -> str:
    """Only good names are remembered (an exception is not cached), so what is kept is bounded by the pattern."""
    if _NAME.fullmatch(value) is None:
        raise BadName(f"{what} name {value!r:.80} ({len(value)} characters) does not match {_PATTERN}")
    if value in (".", ".."):
        raise BadName(f"{what} name {value!r} is not allowed: it would be a directory; names match {_PATTERN}")
    return value
