"""The call of a broker that faces make: a supply of messages, taken as there is room for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqueue.broker.consume import Supply
from mqueue.broker.given import Topics
from mqueue.broker.message import Message
from mqueue.model.names import check_name
from mqueue.model.times import Duration


class Supplied:
    """What a `Broker` has for those who hand messages on."""

    _source: Callable[..., Any]

    def supply(self, topic: Topics, *, group: str = "default", visibility: Duration | None = None) -> Supply[Message]:
        """Where somebody takes messages who hands them on: `take(limit)`, or `take_async(limit)` in an event loop.

        Leases are kept alive until their messages are settled, or given back by `give_back`.
        """
        found: Supply[Message] = self._source(topic, check_name(group, "group"), visibility)
        return found
