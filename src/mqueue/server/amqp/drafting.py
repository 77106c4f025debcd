"""From what a client publishes to drafts for the topics of the queues that it is routed to. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mqueue.model.message import Draft
from mqueue.model.priority import NORMAL
from mqueue.server.amqp import properties
from mqueue.server.amqp.content import headers_of
from mqueue.server.amqp.errors import PRECONDITION_FAILED, SYNTAX_ERROR, Fault
from mqueue.server.amqp.exchanges import DELAYED, Exchange
from mqueue.server.amqp.frames import PUBLISH
from mqueue.server.amqp.names import REPLY_TO, topic_of
from mqueue.server.amqp.outlet import Item
from mqueue.server.amqp.records import Queue

_REPLY_TO = REPLY_TO.encode()
_COPIES = ("CC", _BLIND := "BCC")
_WHOLE = re.compile("-?[0-9]{1,18}")
_MS_MAX = 10 * 365 * 86_400_000


class Publication(Struct, frozen=True, gc=False):
    """A message as a client sent it."""

    exchange: str
    key: str
    raw: bytes
    body: bytes
    mandatory: bool = False

    @property
    def size(self) -> int:
        """Bytes that are kept of it until it is published."""
        return len(self.body) + len(self.raw)

    def values(self) -> dict[str, Any]:
        """The properties, read. Raises Fault."""
        try:
            return properties.read(self.raw)
        except (ValueError, RecursionError) as error:
            raise Fault(SYNTAX_ERROR, f"the properties of a message cannot be read: {error!s:.100}", PUBLISH) from error


def addressed(publication: Publication, reply_queue: str) -> Publication:
    """Whoever asks for an answer straight to the channel is given the name of its queue. Raises Fault."""
    if _REPLY_TO not in publication.raw:
        return publication
    values = publication.values()
    if values.get("reply_to") != REPLY_TO:
        return publication
    if not reply_queue:
        raise Fault(PRECONDITION_FAILED, "fast reply consumer does not exist", PUBLISH)
    return replace(publication, raw=properties.write({**values, "reply_to": reply_queue}))


def keys_of(key: str, values: Mapping[str, Any]) -> list[str]:
    """By which a message is routed: its key, and those in its headers `CC` and `BCC`. Raises Fault."""
    keys, headers = [key], values.get("headers") or {}
    for name in _COPIES:
        more = headers.get(name, [])
        if not isinstance(more, list) or not all(isinstance(one, str) for one in more):
            raise Fault(PRECONDITION_FAILED, f"header {name} {more!r:.80}; it takes a list of texts", PUBLISH)
        keys += more
    return keys


def without_blind(publication: Publication, values: dict[str, Any]) -> Publication:
    """Nobody is told who got a blind copy."""
    headers = values.get("headers") or {}
    if _BLIND not in headers:
        return publication
    values["headers"] = {name: value for name, value in headers.items() if name != _BLIND}
    return replace(publication, raw=properties.write(values))


def items_of(
    publication: Publication, values: Mapping[str, Any], exchange: Exchange, queues: Mapping[str, Queue]
) -> list[Item]:
    """One for each queue. `values`: the properties. Raises Fault for a time that is none."""
    headers = headers_of(publication.exchange, publication.key, publication.raw, values)
    expiration = _milliseconds(values.get("expiration"), "expiration")
    wanted = values.get("headers") or {}
    delay = _milliseconds(wanted.get("x-delay"), "x-delay") if exchange.type == DELAYED else None
    level = values.get("priority", 0)
    return [
        item_for(topic_of(name), queue, publication.body, headers, expiration, delay, level)
        for name, queue in queues.items()
    ]


def item_for(
    topic: str,
    queue: Queue,
    body: bytes,
    headers: dict[str, str | bytes],
    expiration_ms: int | None,
    delay_ms: int | None,
    level: int,
) -> Item:
    """A message for one queue, by its rules: priorities count where it has some, the shorter time to live holds."""
    lives = [ms for ms in (expiration_ms, queue.ttl_ms) if ms is not None]
    draft = Draft(
        body,
        headers=headers,
        priority=NORMAL - min(level, queue.priority_max) if queue.priority_max else None,
        delay=f"{delay_ms}ms" if delay_ms else None,
        ttl=f"{max(min(lives), 1)}ms" if lives else None,
        topic=topic,
    )
    return Item(topic, body, draft)


def _milliseconds(given: Any, name: str) -> int | None:
    """A whole number, or the text of one."""
    if given is None:
        return None
    whole = isinstance(given, int) or (isinstance(given, str) and _WHOLE.fullmatch(given))
    found = int(given) if whole else -1
    if name == "x-delay" and found < 0:  # what was delayed before has it negated
        return None
    if isinstance(given, bool) or not 0 <= found <= _MS_MAX:
        raise Fault(PRECONDITION_FAILED, f"{name} {given!r:.80}; it takes 0 to {_MS_MAX} milliseconds", PUBLISH)
    return found
