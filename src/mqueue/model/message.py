"""What goes in and what is answered: a draft, a receipt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mqueue.model.times import Duration, Instant

QUORUM = "quorum"
"""The durability of what a synchronous standby of the shard has confirmed, too."""
WAL = "wal"
"""The durability of what is in the log of a node, and will be in its shard: until then it has no offset."""


class Draft(Struct, frozen=True):
    """A message to be published. Payload: bytes as they are, text as UTF-8, anything else as JSON."""

    payload: Any
    key: str | bytes | None = None
    headers: Mapping[str, str | bytes] | None = None
    priority: int | str | None = None
    delay: Duration | None = None
    deliver_at: Instant | None = None
    ttl: Duration | None = None
    idempotency_key: str | None = None
    fairness_key: str | None = None
    topic: str | None = None


class Receipt(Struct, frozen=True, gc=False):
    """The answer to a publish: where the message is, and how safe it is there. Offset -1: it has none yet."""

    id: int
    topic: str
    partition: int
    offset: int
    duplicate: bool
    durability: str
