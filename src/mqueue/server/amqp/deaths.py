"""What is told of a message that died: the header `x-death`, as RabbitMQ writes it. Pure.

One entry for each queue and reason, the last death first, with how often it was. And where it has to stop: a message
that only ever ran out of time and comes back to a queue where it did so before would go round for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mqueue.server.amqp.tables import Timestamp

REASONS = {"rejected": "rejected", "expired": "expired", "max_retries": "delivery_limit", "dropped": "maxlen"}
"""Why, in our words and in theirs. What else there is counts as a limit of deliveries."""


def after_death(
    values: Mapping[str, Any], queue: str, reason: str, exchange: str, keys: Sequence[str], seconds: int
) -> dict[str, Any]:
    """The properties of a message that died in a queue, into which `exchange` and `keys` had brought it."""
    headers = dict(values.get("headers") or {})
    deaths = [dict(one) for one in deaths_of(headers)]
    told = next((one for one in deaths if (one.get("queue"), one.get("reason")) == (queue, reason)), None)
    if told is None:
        told = {"reason": reason, "queue": queue, "exchange": exchange, "routing-keys": list(keys), "count": 0}
    else:
        deaths.remove(told)
    told["count"] = int(told.get("count", 0)) + 1
    told["time"] = Timestamp(seconds)
    expiration = values.get("expiration")
    if expiration is not None:
        told["original-expiration"] = expiration
    headers["x-death"] = [told, *deaths]
    for when in ("first", "last"):
        if when == "last" or "x-first-death-reason" not in headers:
            headers |= {
                f"x-{when}-death-reason": reason,
                f"x-{when}-death-queue": queue,
                f"x-{when}-death-exchange": exchange,
            }
    return {**values, "headers": headers, "expiration": None}  # else it would expire again where it goes


def deaths_of(headers: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    told = headers.get("x-death")
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []


def goes_round(headers: Mapping[str, Any], target: str) -> bool:
    """Whether a message has been in this queue before, and nobody has rejected it since."""
    for death in deaths_of(headers):
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == target:
            return True
    return False
