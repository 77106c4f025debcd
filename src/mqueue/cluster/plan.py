"""What a node goes by, at every server."""

from __future__ import annotations

import os
from uuid import UUID

from msgspec import Struct

from mqueue.cluster.redis.outpost import NOTHING, Outpost
from mqueue.cluster.sightings import Sightings
from mqueue.model.clock import Clock
from mqueue.model.ident import IdSource
from mqueue.model.limits import Limits
from mqueue.model.settings import Settings
from mqueue.policy.quota import Quotas

SESSION_MS = 5_000
"""So long a node is believed to be alive after its last beat."""


class Seat(Struct, frozen=True):
    """A node as others see it."""

    node: int
    address: str
    """Where other nodes reach it. None, "": it owns nothing, and only publishes and forwards."""
    session_ms: int = SESSION_MS


class Waiting(Struct, frozen=True):
    """How much may wait at a node to be written to one server, and where a log of its own lies, if it has one."""

    length_max: int = 100_000
    bytes_max: int = 256 << 20
    wal_dir: str | None = None

    def of(self, cluster: UUID) -> Waiting:
        """The same for one cluster: its logs are no other's."""
        if self.wal_dir is None:
            return self
        return Waiting(self.length_max, self.bytes_max, os.path.join(self.wal_dir, cluster.hex))

    def place(self, server: str) -> str | None:
        """Where the logs for one server lie."""
        return None if self.wal_dir is None else os.path.join(self.wal_dir, server)


class Plan(Struct, frozen=True):
    """What is the same for all that a node does."""

    seat: Seat
    defaults: Settings
    limits: Limits
    quotas: Quotas
    ids: IdSource
    clock: Clock | None = None
    """For tests: the time, instead of PostgreSQL's."""
    waiting: Waiting = Waiting()
    outpost: Outpost = NOTHING
    sightings: Sightings | None = None
    """What nodes have seen of the servers of all shards."""
