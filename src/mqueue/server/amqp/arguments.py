"""What a client asks of a queue, an exchange or as a consumer, checked, and what that means for a topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mqueue.server.amqp.errors import COMMAND_INVALID, NOT_IMPLEMENTED, PRECONDITION_FAILED, Fault
from mqueue.server.amqp.exchanges import DELAYED, MATCHES, TYPES, Exchange
from mqueue.server.amqp.records import Queue
from mqueue.server.amqp.tables import Timestamp

_MS_MAX = (1 << 32) - 1
_NUMBERS = {
    "x-message-ttl": (0, _MS_MAX),
    "x-expires": (1, _MS_MAX),
    "x-max-length": (1, 1 << 53),
    "x-max-priority": (0, 255),
    "x-delivery-limit": (0, 1_000_000),
}
_TEXTS = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type", "x-queue-mode")
_OVERFLOWS = {"drop-head": "drop_ready", "reject-publish": "refuse"}
_QUEUE_TYPES = ("classic", "quorum")
_REFUSED = ("x-max-length-bytes", "x-single-active-consumer")
COMPARED = frozenset((*_NUMBERS, *_TEXTS)) - {"x-queue-mode"}
"""Arguments that have to be the same when a queue is declared again; the others change nothing."""


def check_queue(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a queue as they are kept. Raises Fault."""
    found = plain(arguments)
    for name, value in found.items():
        if name in _NUMBERS:
            low, high = _NUMBERS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise _invalid(name, value, f"it takes a whole number from {low} to {high}")
        elif name in _TEXTS and not isinstance(value, str):
            raise _invalid(name, value, "it takes a text")
        elif name in _REFUSED and value:
            raise Fault(NOT_IMPLEMENTED, f"argument {name}: there is no such limit here")
    _choose(found, "x-overflow", tuple(_OVERFLOWS))
    _choose(found, "x-queue-type", _QUEUE_TYPES)
    if "x-dead-letter-routing-key" in found and "x-dead-letter-exchange" not in found:
        raise Fault(PRECONDITION_FAILED, "x-dead-letter-routing-key is given, and no x-dead-letter-exchange")
    return found


def _choose(arguments: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> None:
    if name in arguments and arguments[name] not in allowed:
        raise _invalid(name, arguments[name], f"it takes one of {', '.join(allowed)}")


def _invalid(name: str, value: object, allowed: str) -> Fault:
    return Fault(PRECONDITION_FAILED, f"invalid argument {name}: {value!r:.80}; {allowed}")


def settings_of(queue: Queue, fresh: bool) -> dict[str, Any]:
    """The settings of its topic. `fresh`: the topic is made for it; one that was there keeps what is not asked for."""
    given = queue.arguments
    settings: dict[str, Any] = {}
    if fresh:
        settings = {
            "partitions": 1,
            "retention": {"on_ack": True},
            "hold": "36500d",
            "dlq": queue.dead_exchange is not None,
            "max_retries": queue.delivery_limit,
            "dedup_window": "1s",
        }
    elif queue.delivery_limit is not None:
        settings["max_retries"] = queue.delivery_limit
    if queue.dead_exchange is not None:
        settings |= {"dlq": True, "dlq_expired": True}
    if queue.ttl_ms is not None:
        settings["default_ttl"] = f"{max(queue.ttl_ms, 1)}ms"
    if "x-max-length" in given:
        settings["max_depth"] = given["x-max-length"]
        settings["overflow"] = _OVERFLOWS[given.get("x-overflow", "drop-head")]
        if queue.dead_exchange is not None:
            settings["dlq_dropped"] = True
    return settings


def priority_of(arguments: Mapping[str, Any] | None) -> int:
    """Of a consumer: who has a higher one comes first. Raises Fault."""
    given = (arguments or {}).get("x-priority", 0)
    if isinstance(given, bool | Timestamp) or not isinstance(given, int):
        raise _invalid("x-priority", given, "it takes a whole number")
    return given


def check_same(queue: Queue, wanted: Queue) -> None:
    """Raises Fault where a queue is declared again, and otherwise."""
    if (queue.durable, queue.auto_delete) != (wanted.durable, wanted.auto_delete):
        name = "durable" if queue.durable != wanted.durable else "auto_delete"
        raise _other(f"{name!r} for queue {queue.name!r:.100}", getattr(wanted, name), getattr(queue, name))
    for name in sorted(COMPARED & (queue.arguments.keys() | wanted.arguments.keys())):
        before, now = queue.arguments.get(name), wanted.arguments.get(name)
        if before != now and not (name == "x-queue-type" and "classic" in (before, now) and None in (before, now)):
            raise _other(f"{name!r} for queue {queue.name!r:.100}", now, before)


def check_exchange(exchange: Exchange) -> None:
    """Raises Fault."""
    if exchange.type == DELAYED:
        if exchange.arguments.get("x-delayed-type") not in TYPES:
            given = exchange.arguments.get("x-delayed-type")
            raise _invalid("x-delayed-type", given, f"it takes one of {', '.join(TYPES)}")
    elif exchange.type not in TYPES:
        raise Fault(COMMAND_INVALID, f"unknown exchange type {exchange.type!r:.80}; {', '.join(TYPES)}, {DELAYED}")
    alternate = exchange.arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        raise _invalid("alternate-exchange", alternate, "it takes a text")


def check_match(arguments: Mapping[str, Any]) -> None:
    """Of a binding to an exchange that routes by headers. Raises Fault."""
    given = arguments.get("x-match", "all")
    if given not in MATCHES:
        raise _invalid("x-match", given, f"it takes one of {', '.join(MATCHES)}")


def check_same_exchange(exchange: Exchange, wanted: Exchange) -> None:
    for name in ("type", "durable", "auto_delete", "internal"):
        if getattr(exchange, name) != getattr(wanted, name):
            raise _other(
                f"{name!r} for exchange {exchange.name!r:.100}", getattr(wanted, name), getattr(exchange, name)
            )
    for name in ("x-delayed-type", "alternate-exchange"):
        if exchange.arguments.get(name) != wanted.arguments.get(name):
            raise _other(
                f"{name!r} for exchange {exchange.name!r:.100}",
                wanted.arguments.get(name),
                exchange.arguments.get(name),
            )


def _other(what: str, wanted: object, there: object) -> Fault:
    return Fault(PRECONDITION_FAILED, f"inequivalent arg {what}: received {wanted!r:.80}, current is {there!r:.80}")


def plain(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """A table as it is kept: of values that every node reads alike."""
    return {str(name): _plain(value) for name, value in (arguments or {}).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, Timestamp):
        return int(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytearray):
        return bytes(value)
    return value if value is None or isinstance(value, bool | int | float | str | bytes) else str(value)
