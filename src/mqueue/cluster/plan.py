"""What a node goes by, at every server."""

from __future__ import annotations

from msgspec import Struct

from mqueue.model.clock import Clock
from mqueue.model.ident import IdSource
from mqueue.model.limits import Limits
from mqueue.model.settings import Settings
from mqueue.policy.quota import Quotas


class Seat(Struct, frozen=True):
    """A node as others see it."""

    node: int
    address: str
    """Where other nodes reach it."""


class Plan(Struct, frozen=True):
    """What is the same for all that a node does."""

    seat: Seat
    defaults: Settings
    limits: Limits
    quotas: Quotas
    ids: IdSource
    clock: Clock | None = None
    """For tests: the time, instead of PostgreSQL's."""
